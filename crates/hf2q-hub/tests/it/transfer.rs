//! Connections that break, answers that lie.

use std::time::Duration;

use hf2q_hub::HubError;
use proptest::prelude::*;

use crate::server::{Reply, Request};
use crate::support::{Place, Repo, Told};

const WEIGHTS: &str = "model.safetensors";

fn is_weights(request: &Request) -> bool {
    request.target.ends_with(WEIGHTS)
}

/// First bytes of the requests for the weights.
fn starts(server: &crate::server::Server) -> Vec<Option<usize>> {
    server.requests_for(WEIGHTS).iter().map(Request::from).collect()
}

fn weights(place: &Place) -> Vec<u8> {
    std::fs::read(place.path(&format!("snapshots/{}/{WEIGHTS}", crate::support::COMMIT))).unwrap()
}

#[test]
fn a_cut_connection_is_gone_on_from() {
    let (repo, place) = (Repo::small(), Place::new());
    let server = repo.serve_with(|request, honest| match (is_weights(request), request.earlier) {
        (true, 0) => honest.cut(70_000),
        (true, 1) => honest.cut(50_000),
        _ => honest,
    });
    let mut told = Told::default();
    place.fetch_with(place.config(&server), &mut told).unwrap();
    assert_eq!(weights(&place), repo.file(WEIGHTS).bytes);
    assert_eq!(starts(&server), [None, Some(70_000), Some(120_000)]);
    assert!(told.notes.iter().any(|n| n.contains("trying again")), "{:?}", told.notes);
    assert!(!place.tree().iter().any(|f| f.ends_with(".incomplete")));
}

#[test]
fn what_an_earlier_attempt_left_is_gone_on_from() {
    let (repo, place) = (Repo::small(), Place::new());
    let file = repo.file(WEIGHTS);
    let part = place.path(&format!("blobs/{}.incomplete", file.id()));
    std::fs::create_dir_all(part.parent().unwrap()).unwrap();
    std::fs::write(&part, &file.bytes[..123_456]).unwrap();
    let server = repo.serve();
    place.fetch(&server).unwrap();
    assert_eq!(weights(&place), file.bytes);
    assert_eq!(starts(&server), [Some(123_456)]);
    assert!(!part.exists());
    // All of it was there: nothing is asked for.
    let place = Place::new();
    let part = place.path(&format!("blobs/{}.incomplete", file.id()));
    std::fs::create_dir_all(part.parent().unwrap()).unwrap();
    std::fs::write(&part, &file.bytes).unwrap();
    server.forget();
    place.fetch(&server).unwrap();
    assert_eq!(starts(&server), []);
}

#[test]
fn a_damaged_part_is_loaded_anew() {
    let (repo, place) = (Repo::small(), Place::new());
    let file = repo.file(WEIGHTS);
    let part = place.path(&format!("blobs/{}.incomplete", file.id()));
    std::fs::create_dir_all(part.parent().unwrap()).unwrap();
    std::fs::write(&part, vec![7; 1000]).unwrap();
    let server = repo.serve();
    let mut told = Told::default();
    place.fetch_with(place.config(&server), &mut told).unwrap();
    assert_eq!(weights(&place), file.bytes);
    assert_eq!(starts(&server), [Some(1000), None]);
    assert!(told.notes.iter().any(|n| n.contains("damaged")), "{:?}", told.notes);
}

#[test]
fn a_wrong_hash_deletes_what_was_loaded_and_says_so() {
    for name in [WEIGHTS, "config.json"] {
        let (repo, place) = (Repo::small(), Place::new());
        let server = repo.serve_with(move |request, mut honest| {
            if request.target.ends_with(&format!("/{name}")) {
                honest.body[1] ^= 1;
            }
            honest
        });
        let error = place.fetch(&server).unwrap_err();
        let expected = repo.file(name).id();
        assert!(
            matches!(&error, HubError::Hash { file, expected: e, .. } if file == name && *e == expected),
            "{error}"
        );
        assert!(error.to_string().contains("deleted"), "{error}");
        let tree = place.tree();
        assert!(!tree.iter().any(|f| f.contains(&expected)), "{tree:?}");
        assert!(!tree.iter().any(|f| f.starts_with("refs") || f.starts_with("snapshots")), "{tree:?}");
    }
}

#[test]
fn a_server_that_knows_no_ranges_begins_anew() {
    let (repo, place) = (Repo::small(), Place::new());
    let whole = repo.file(WEIGHTS).bytes.clone();
    let server = repo.serve_with(move |request, honest| match (is_weights(request), request.earlier) {
        (true, 0) => honest.cut(70_000),
        (true, _) => Reply::new(200, whole.clone()),
        _ => honest,
    });
    place.fetch(&server).unwrap();
    assert_eq!(weights(&place), repo.file(WEIGHTS).bytes);
    assert_eq!(starts(&server), [None, Some(70_000)]);
}

#[test]
fn a_hub_that_is_not_there_is_given_up_soon_and_by_name() {
    let (repo, place) = (Repo::small(), Place::new());
    let mut config = place.config(&repo.serve());
    // Names below `invalid` have no address anywhere; nothing listens on port 1.
    for host in ["hub.invalid", "127.0.0.1:1"] {
        config.endpoint = format!("http://{host}");
        let mut told = Told::default();
        let error = place.fetch_with(config.clone(), &mut told).unwrap_err();
        assert!(matches!(error, HubError::Away { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("cannot reach {host}: ")) && text.contains("HTTPS_PROXY"),
            "{text}"
        );
        assert!(!text.contains("goes on"), "{text}");
        assert_eq!(told.notes.len(), 1, "{:?}", told.notes);
    }
}

#[test]
fn a_server_that_always_cuts_at_the_same_place_is_given_up() {
    let (repo, place) = (Repo::small(), Place::new());
    let whole = repo.file(WEIGHTS).bytes.clone();
    let server = repo.serve_with(move |request, honest| {
        if is_weights(request) { Reply::new(200, whole.clone()).cut(70_000) } else { honest }
    });
    let error = place.fetch(&server).unwrap_err();
    assert!(matches!(error, HubError::Unreachable { attempts: 4, .. }), "{error}");
    // The first attempt brought something, the others nothing more.
    assert_eq!(starts(&server).len(), 4);
}

#[test]
fn a_range_that_was_not_asked_for_is_not_taken() {
    let (repo, place) = (Repo::small(), Place::new());
    let server = repo.serve_with(|request, honest| match (is_weights(request), request.earlier) {
        (true, 0) => honest.cut(70_000),
        (true, 1) => honest.with("content-range", "bytes 60000-199999/200000"),
        (true, 2) => honest.cut(10),
        (true, 3) => Reply::new(416, ""),
        _ => honest,
    });
    let mut config = place.config(&server);
    config.patience.attempts = 5;
    place.fetch_with(config, &mut Told::default()).unwrap();
    assert_eq!(weights(&place), repo.file(WEIGHTS).bytes);
    assert_eq!(starts(&server), [None, Some(70_000), None, Some(10), None]);
}

#[test]
fn a_file_that_changes_meanwhile_is_refused() {
    let twists: [fn(Reply) -> Reply; 4] = [
        |r| r.with("etag", format!("\"{}\"", "a".repeat(64))),
        |r| r.with("x-linked-etag", format!("\"{}\"", "b".repeat(64))),
        |mut r| {
            r.body.pop();
            r
        },
        |mut r| {
            r.body.push(0);
            r.with("transfer-encoding", "identity").with("content-length", "200001")
        },
    ];
    for (number, twist) in twists.into_iter().enumerate() {
        let (repo, place) = (Repo::small(), Place::new());
        let server =
            repo.serve_with(move |request, honest| if is_weights(request) { twist(honest) } else { honest });
        let error = place.fetch(&server).unwrap_err();
        assert!(matches!(error, HubError::Changed { .. }), "{number}: {error}");
        assert_eq!(starts(&server).len(), 1, "{number}");
    }
}

#[test]
fn more_bytes_than_announced_are_not_written() {
    let (repo, place) = (Repo::small(), Place::new());
    let server = repo.serve_with(|request, mut honest| {
        if is_weights(request) {
            let chunk = format!("{:x}\r\n", honest.body.len() + 5);
            honest.body = [chunk.as_bytes(), &honest.body, b"extra\r\n0\r\n\r\n"].concat();
            return honest.with("transfer-encoding", "chunked");
        }
        honest
    });
    let error = place.fetch(&server).unwrap_err();
    assert!(matches!(error, HubError::Changed { .. }), "{error}");
    for file in place.tree() {
        assert!(std::fs::metadata(place.path(&file)).unwrap().len() <= 200_000, "{file}");
    }
}

#[test]
fn busy_and_broken_servers_are_asked_again() {
    let (repo, place) = (Repo::small(), Place::new());
    let server = repo.serve_with(|request, honest| match request.earlier {
        0 if request.target.starts_with("/api/") => Reply::new(429, "").with("retry-after", "1"),
        0 => Reply::new(500, ""),
        1 => Reply::new(503, "<html>").with("x-error-message", "be patient"),
        _ => honest,
    });
    let mut told = Told::default();
    place.fetch_with(place.config(&server), &mut told).unwrap();
    assert_eq!(weights(&place), repo.file(WEIGHTS).bytes);
    let notes = told.notes.join("\n");
    assert!(notes.contains("429") && notes.contains("503: be patient"), "{notes}");
}

#[test]
fn a_server_that_stays_broken_is_given_up() {
    let (repo, place) = (Repo::small(), Place::new());
    let server = repo.serve_with(|_, _| Reply::new(502, ""));
    let error = place.fetch(&server).unwrap_err();
    assert!(
        matches!(&error, HubError::Unreachable { attempts: 4, why, .. } if why.contains("502")),
        "{error}"
    );
    assert_eq!(server.requests().len(), 4);
    assert_eq!(place.tree(), Vec::<String>::new());
}

#[test]
fn silence_is_not_waited_out_for_ever() {
    let (repo, place) = (Repo::small(), Place::new());
    let server = repo.serve_with(|request, honest| match (is_weights(request), request.earlier) {
        (true, 0) => honest.stall(1000),
        _ => honest,
    });
    let mut config = place.config(&server);
    config.patience.silence = Duration::from_secs(1);
    place.fetch_with(config, &mut Told::default()).unwrap();
    assert_eq!(weights(&place), repo.file(WEIGHTS).bytes);
    assert_eq!(starts(&server)[..2], [None, Some(1000)]);
}

#[test]
fn a_listing_that_is_cut_is_asked_for_again_and_a_broken_one_is_told() {
    let (repo, place) = (Repo::small(), Place::new());
    let server = repo.serve_with(|request, honest| match request.earlier {
        0 if request.target.starts_with("/api/") => honest.cut(100),
        _ => honest,
    });
    place.fetch(&server).unwrap();
    let place = Place::new();
    let server = repo.serve_with(|_, mut honest| {
        honest.body.truncate(100);
        honest
    });
    let error = place.fetch(&server).unwrap_err();
    assert!(matches!(error, HubError::Malformed { .. }), "{error}");
    assert_eq!(server.requests().len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Wherever connections break, what arrives is what was sent.
    #[test]
    fn any_cuts_leave_the_content_whole(cuts in prop::collection::vec(1_usize..90_000, 0..6), parallel in 1_usize..5) {
        let (repo, place) = (Repo::small(), Place::new());
        let server = repo.serve_with(move |request, honest| match cuts.get(request.earlier) {
            Some(&cut) if is_weights(request) => honest.cut(cut),
            _ => honest,
        });
        let mut config = place.config(&server);
        config.parallel = parallel;
        let snapshot = place.fetch_with(config, &mut Told::default()).unwrap();
        prop_assert_eq!(weights(&place), repo.file(WEIGHTS).bytes.clone());
        prop_assert!(snapshot.folder.join("config.json").exists());
    }
}
