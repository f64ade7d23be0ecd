//! What lands where, and what is asked for again.

use std::path::Path;

use hf2q_hub::HubError;

use crate::server::Reply;
use crate::support::{COMMIT, File, Place, Repo, Told};

const NEEDED: [&str; 4] = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];

#[test]
fn what_a_conversion_needs_lies_as_python_lays_it() {
    let (repo, place) = (Repo::small(), Place::new());
    let server = repo.serve();
    let mut told = Told::default();
    let snapshot = place.fetch_with(place.config(&server), &mut told).unwrap();
    assert_eq!(snapshot.folder, place.path(&format!("snapshots/{COMMIT}")));
    assert_eq!(snapshot.commit, COMMIT);
    let mut expected: Vec<String> = vec!["refs/main".to_owned()];
    for name in NEEDED {
        let file = repo.file(name);
        assert_eq!(std::fs::read(snapshot.folder.join(name)).unwrap(), file.bytes, "{name}");
        let link = std::fs::read_link(snapshot.folder.join(name)).unwrap();
        assert_eq!(link, Path::new("../../blobs").join(file.id()), "{name}");
        expected.extend([format!("snapshots/{COMMIT}/{name}"), format!("blobs/{}", file.id())]);
    }
    for name in ["chat_template.jinja", "generation_config.json"] {
        expected.push(format!(".no_exist/{COMMIT}/{name}"));
    }
    expected.sort();
    assert_eq!(place.tree(), expected);
    assert_eq!(std::fs::read_to_string(place.path("refs/main")).unwrap(), COMMIT);
    let bytes = NEEDED.iter().map(|n| repo.file(n).bytes.len() as u64).sum::<u64>();
    assert_eq!(snapshot.loaded, bytes);
    assert_eq!(told.updates.last(), Some(&(bytes, bytes)));
    assert_eq!(told.notes, Vec::<String>::new());
}

#[test]
fn a_revision_is_looked_up_again_and_its_files_are_not() {
    let (repo, place) = (Repo::small(), Place::new());
    let server = repo.serve();
    let first = place.fetch(&server).unwrap();
    server.forget();
    let second = place.fetch(&server).unwrap();
    assert_eq!((&second.folder, second.loaded), (&first.folder, 0));
    let targets: Vec<String> = server.requests().into_iter().map(|r| r.target).collect();
    assert_eq!(targets, ["/api/models/org/model/revision/main?blobs=true"]);
    server.forget();
    let pinned = format!("org/model@{COMMIT}");
    let third = place.fetch_with(place.config(&server), &mut Told::of(&pinned)).unwrap();
    assert_eq!(third, second);
    assert_eq!(server.requests().len(), 1);
    // Another program may have loaded a part of it.
    std::fs::remove_file(first.folder.join("tokenizer_config.json")).unwrap();
    place.fetch_with(place.config(&server), &mut Told::of(&pinned)).unwrap();
    assert!(first.folder.join("tokenizer_config.json").exists());
    // The hub is away.
    let mut config = place.config(&server);
    config.endpoint = "http://127.0.0.1:9".to_owned();
    let mut told = Told::of(&pinned);
    assert_eq!(place.fetch_with(config, &mut told).unwrap(), second);
    assert!(told.notes.len() == 1 && told.notes[0].contains("from the cache"), "{:?}", told.notes);
}

#[test]
fn a_revision_is_asked_for_by_name_and_noted() {
    let (repo, place) = (Repo::small(), Place::new());
    let server = repo.serve();
    for (revision, target) in [("v1.0", "v1.0"), ("refs/pr/1", "refs%2Fpr%2F1")] {
        place.fetch_with(place.config(&server), &mut Told::of(&format!("org/model@{revision}"))).unwrap();
        let target = format!("/api/models/org/model/revision/{target}?blobs=true");
        assert!(server.requests().iter().any(|r| r.target == target), "{:?}", server.requests());
        let noted = std::fs::read_to_string(place.path(&format!("refs/{revision}"))).unwrap();
        assert_eq!(noted, COMMIT);
    }
    assert!(!place.path("refs/main").exists());
}

#[test]
fn of_a_new_commit_only_what_changed_is_loaded() {
    let (mut repo, place) = (Repo::small(), Place::new());
    let old = place.fetch(&repo.serve()).unwrap();
    repo.commit = "f".repeat(40);
    repo.files.iter_mut().find(|f| f.name == "config.json").unwrap().bytes = b"{\"new\":1}".to_vec();
    let server = repo.serve();
    let new = place.fetch(&server).unwrap();
    assert_eq!(new.loaded, 9);
    assert_eq!(server.requests().len(), 2);
    assert_eq!(std::fs::read(new.folder.join("config.json")).unwrap(), b"{\"new\":1}");
    assert_eq!(
        std::fs::read(old.folder.join("config.json")).unwrap(),
        Repo::small().file("config.json").bytes
    );
    assert_eq!(std::fs::read_to_string(place.path("refs/main")).unwrap(), repo.commit);
}

fn sharded() -> Repo {
    Repo::new(&[
        ("config.json", b"{}"),
        ("tokenizer.json", b"{}"),
        ("model-00001-of-00002.safetensors", b"first"),
        ("model-00002-of-00002.safetensors", b"second"),
        ("model.fp16-00001-of-00001.safetensors", b"another copy"),
        ("consolidated.safetensors", b"yet another"),
        (
            "model.safetensors.index.json",
            br#"{"metadata":{},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}"#,
        ),
    ])
}

#[test]
fn shards_are_those_that_the_index_names() {
    let (repo, place) = (sharded(), Place::new());
    let snapshot = place.fetch(&repo.serve()).unwrap();
    let mut names: Vec<String> = std::fs::read_dir(&snapshot.folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json"
        ]
    );
}

#[test]
fn a_shard_that_is_not_there_is_told_before_others_are_loaded() {
    let (mut repo, place) = (sharded(), Place::new());
    repo.files.retain(|f| f.name != "model-00002-of-00002.safetensors");
    let server = repo.serve();
    let error = place.fetch(&server).unwrap_err();
    assert!(
        matches!(&error, HubError::MissingShards { files, .. } if files == &["model-00002-of-00002.safetensors"])
    );
    assert_eq!(server.requests_for(".safetensors").len(), 0);
    assert!(!place.path("snapshots").exists());
}

#[test]
fn a_repository_without_safetensors_is_told_by_what_it_has() {
    let place = Place::new();
    let gguf = Repo::new(&[("config.json", b"{}"), ("m-Q4_K_M.gguf", b"GGUF"), ("m-Q8_0.gguf", b"GGUF")]);
    let error = place.fetch(&gguf.serve()).unwrap_err().to_string();
    assert!(error.contains("m-Q4_K_M.gguf, m-Q8_0.gguf"), "{error}");
    let torch = Repo::new(&[("config.json", b"{}"), ("pytorch_model.bin", b"x")]);
    let error = place.fetch(&torch.serve()).unwrap_err().to_string();
    assert!(error.contains("no model.safetensors") && error.contains("pytorch_model.bin"), "{error}");
    assert_eq!(place.tree(), Vec::<String>::new());
}

#[test]
fn a_hub_that_lists_no_hashes_is_asked_for_each_file() {
    let (repo, place) = (Repo::small(), Place::new());
    let names = repo.clone();
    let server = repo.serve_with(move |request, honest| {
        if request.target.starts_with("/api/") {
            let files: Vec<String> =
                names.files.iter().map(|f| format!(r#"{{"rfilename":"{}"}}"#, f.name)).collect();
            return Reply::new(200, format!(r#"{{"sha":"{COMMIT}","siblings":[{}]}}"#, files.join(",")));
        }
        // As the hub answers for large files: a redirect that says what it leads to.
        match names.files.iter().find(|f| request.target.ends_with(&f.name)) {
            Some(f) if request.method == "HEAD" && f.name.ends_with(".safetensors") => Reply::new(302, "")
                .with("location", "http://storage.invalid/x")
                .with("etag", "\"of the redirect\"")
                .with("x-linked-etag", format!("\"{}\"", f.id()))
                .with("x-linked-size", f.bytes.len().to_string()),
            _ => honest,
        }
    });
    let snapshot = place.fetch(&server).unwrap();
    for name in NEEDED {
        let link = std::fs::read_link(snapshot.folder.join(name)).unwrap();
        assert_eq!(link.file_name().unwrap().to_str().unwrap(), repo.file(name).id(), "{name}");
    }
}

#[test]
fn equal_and_empty_files_are_loaded_once() {
    let place = Place::new();
    let mut repo = Repo::small();
    for name in ["added_tokens.json", "special_tokens_map.json"] {
        repo.files.push(File { name: name.into(), bytes: Vec::new() });
    }
    repo.files.push(File { name: "vocab.json".into(), bytes: b"{}".to_vec() });
    let server = repo.serve();
    let snapshot = place.fetch(&server).unwrap();
    for name in ["added_tokens.json", "special_tokens_map.json", "vocab.json", "tokenizer.json"] {
        assert_eq!(std::fs::read(snapshot.folder.join(name)).unwrap(), repo.file(name).bytes, "{name}");
    }
    let equal = server.requests_for("vocab.json").len() + server.requests_for("tokenizer.json").len();
    assert_eq!(equal, 1);
}

#[test]
fn a_download_that_cannot_fit_is_refused_before_it_begins() {
    let (repo, place) = (Repo::small(), Place::new());
    let size = repo.file("model.safetensors").bytes.len();
    let server = repo.serve_with(move |request, mut honest| {
        if request.target.starts_with("/api/") {
            let text = String::from_utf8(honest.body).unwrap();
            honest.body = text.replace(&size.to_string(), "1152921504606846976").into_bytes();
        }
        honest
    });
    let error = place.fetch(&server).unwrap_err();
    assert!(
        matches!(error, HubError::Space { needed, free, .. } if needed > 1 << 59 && free < needed),
        "{error}"
    );
    assert_eq!(server.requests().len(), 1);
}
