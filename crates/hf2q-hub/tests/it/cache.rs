//! The cache alone, and the cache in place of the hub.

use hf2q_hub::HubError;

use crate::server::{Reply, Server};
use crate::support::{COMMIT, Place, Repo, Told};

#[test]
fn offline_finds_what_is_there_and_opens_no_connection() {
    let (repo, place) = (Repo::small(), Place::new());
    let server = repo.serve();
    let online = place.fetch(&server).unwrap();
    server.forget();
    let mut config = place.config(&server);
    config.offline = true;
    for name in ["org/model".to_owned(), format!("org/model@{COMMIT}")] {
        let snapshot = place.fetch_with(config.clone(), &mut Told::of(&name)).unwrap();
        assert_eq!(snapshot.folder, online.folder);
    }
    let error = place.fetch_with(config.clone(), &mut Told::of("org/model@v2")).unwrap_err();
    assert!(matches!(&error, HubError::NotCached { why, .. } if why.contains("v2")), "{error}");
    let error = place.fetch_with(config.clone(), &mut Told::of("org/other")).unwrap_err();
    assert!(error.to_string().contains("--offline"), "{error}");
    std::fs::remove_file(online.folder.join("model.safetensors")).unwrap();
    std::fs::remove_file(online.folder.join("tokenizer.json")).unwrap();
    let error = place.fetch_with(config, &mut Told::default()).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json, model.safetensors is missing"), "{error}");
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn offline_tells_of_usual_files_that_may_exist() {
    let (repo, place) = (Repo::small(), Place::new());
    let server = repo.serve();
    let folder = place.fetch(&server).unwrap().folder;
    let mut config = place.config(&server);
    config.offline = true;
    // The listing said that there is no chat_template.jinja and no generation_config.json.
    let mut told = Told::default();
    place.fetch_with(config.clone(), &mut told).unwrap();
    assert_eq!(told.notes, Vec::<String>::new());
    std::fs::remove_file(folder.join("tokenizer_config.json")).unwrap();
    std::fs::remove_file(place.path(&format!(".no_exist/{COMMIT}/chat_template.jinja"))).unwrap();
    place.fetch_with(config, &mut told).unwrap();
    assert_eq!(told.notes.len(), 1);
    assert!(told.notes[0].contains("no tokenizer_config.json, chat_template.jinja of"), "{:?}", told.notes);
}

#[test]
fn the_cache_stands_in_for_a_hub_that_is_away() {
    let place = Place::new();
    let online = place.fetch(&Repo::small().serve()).unwrap();
    let refusals: [fn() -> Reply; 3] = [
        || Reply::new(503, ""),
        || Reply::new(401, "").with("x-error-code", "GatedRepo"),
        || Reply::new(401, ""),
    ];
    for refusal in refusals {
        let server = Server::new(move |_| refusal());
        let mut told = Told::default();
        let snapshot = place.fetch_with(place.config(&server), &mut told).unwrap();
        assert_eq!(snapshot.folder, online.folder);
        assert!(told.notes.iter().any(|n| n.contains("from the cache")), "{:?}", told.notes);
        assert_eq!(server.requests().len(), 1, "asked once only");
    }
    // Nobody listens.
    let mut config = place.config(&Server::new(|_| Reply::new(500, "")));
    config.endpoint = "http://127.0.0.1:9".to_owned();
    assert_eq!(place.fetch_with(config, &mut Told::default()).unwrap().folder, online.folder);
    // A repository that is gone is not silently taken from the cache.
    let server = Server::new(|_| Reply::new(404, "").with("x-error-code", "RevisionNotFound"));
    assert!(matches!(place.fetch(&server), Err(HubError::NoRevision { .. })));
}

#[test]
fn a_content_that_was_cut_by_a_full_disk_is_loaded_again() {
    let (repo, place) = (Repo::small(), Place::new());
    let server = repo.serve();
    place.fetch(&server).unwrap();
    let blob = place.path(&format!("blobs/{}", repo.file("model.safetensors").id()));
    std::fs::write(&blob, b"").unwrap();
    let snapshot = place.fetch(&server).unwrap();
    assert_eq!(
        std::fs::read(snapshot.folder.join("model.safetensors")).unwrap(),
        repo.file("model.safetensors").bytes
    );
}

#[test]
fn two_at_once_load_each_content_once() {
    let (repo, place) = (Repo::small(), Place::new());
    let server = repo.serve();
    std::thread::scope(|scope| {
        let fetches: Vec<_> = (0..3).map(|_| scope.spawn(|| place.fetch(&server).unwrap())).collect();
        for fetch in fetches {
            let folder = fetch.join().unwrap().folder;
            assert_eq!(std::fs::read(folder.join("config.json")).unwrap(), repo.file("config.json").bytes);
        }
    });
    assert_eq!(server.requests_for("model.safetensors").len(), 1);
    assert_eq!(server.requests_for("tokenizer.json").len(), 1);
}

#[cfg(unix)]
#[test]
fn a_whole_cache_that_cannot_be_written_to_is_enough() {
    use std::os::unix::fs::PermissionsExt;
    let (repo, place) = (Repo::small(), Place::new());
    let server = repo.serve();
    let folder = place.fetch(&server).unwrap().folder;
    let root = place.path("");
    let set = |mode| std::fs::set_permissions(&root, std::fs::Permissions::from_mode(mode)).unwrap();
    set(0o555);
    let again = place.fetch(&server);
    set(0o755);
    assert_eq!(again.unwrap().folder, folder);
}
