//! Ctrl-C.

use std::time::Duration;

use hf2q_hub::HubError;

use crate::server::Reply;
use crate::support::{Place, Repo, Told};

/// Longer than anybody waits for a test: only the stop may end it.
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_stopped_download_leaves_a_part_to_go_on_from_and_nothing_else() {
    let (repo, place) = (Repo::small(), Place::new());
    let weights = repo.file("model.safetensors").clone();
    // It says nothing after 50,000 bytes: only the stop ends the wait.
    let server = repo.serve_with(|request, honest| {
        if request.target.ends_with("model.safetensors") && request.earlier == 0 {
            honest.stall(50_000)
        } else {
            honest
        }
    });
    let small: usize = ["config.json", "tokenizer.json", "tokenizer_config.json"]
        .map(|n| repo.file(n).bytes.len())
        .iter()
        .sum();
    let mut told = Told::stopping(move |done| done >= 50_000 + small as u64);
    let mut config = place.config(&server);
    config.patience.silence = HOUR;
    let error = place.fetch_with(config, &mut told).unwrap_err();
    assert!(matches!(error, HubError::Cancelled), "{error}");
    let tree = place.tree();
    let small = |name| format!("blobs/{}", repo.file(name).id());
    let mut expected = vec![
        format!("blobs/{}.incomplete", weights.id()),
        small("config.json"),
        small("tokenizer.json"),
        small("tokenizer_config.json"),
    ];
    expected.sort();
    assert_eq!(tree, expected);
    let part = place.path(&format!("blobs/{}.incomplete", weights.id()));
    assert_eq!(std::fs::read(&part).unwrap(), weights.bytes[..50_000]);
    let snapshot = place.fetch(&server).unwrap();
    assert_eq!(std::fs::read(snapshot.folder.join("model.safetensors")).unwrap(), weights.bytes);
    assert_eq!(server.requests_for("model.safetensors")[1].from(), Some(50_000));
}

#[test]
fn a_stop_is_heard_while_the_hub_says_nothing_or_asks_to_wait() {
    let replies: [fn() -> Reply; 2] =
        [|| Reply::new(200, "xx").stall(0), || Reply::new(429, "").with("retry-after", "200")];
    for reply in replies {
        let place = Place::new();
        let server = Repo::small().serve_with(move |_, _| reply());
        let mut config = place.config(&server);
        (config.patience.longest_pause, config.patience.silence) = (HOUR, HOUR);
        let mut calls = 0;
        let mut told = Told::stopping(move |_| {
            calls += 1;
            calls > 2
        });
        let error = place.fetch_with(config, &mut told).unwrap_err();
        assert!(matches!(error, HubError::Cancelled), "{error}");
        assert_eq!(place.tree(), Vec::<String>::new());
    }
}
