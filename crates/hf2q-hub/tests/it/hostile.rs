//! Names and sizes that a server should not send.

use hf2q_hub::HubError;

use crate::server::Reply;
use crate::support::{COMMIT, Place, Repo};

fn nothing_but_the_cache(place: &Place) {
    let names = place.beside_the_cache();
    assert!(names.iter().all(|n| n == "hub"), "{names:?}");
}

#[test]
fn a_listing_with_names_that_lead_out_is_refused_before_anything_is_loaded() {
    for name in
        ["../model.safetensors", "/etc/passwd", "a/../../x", "..\\\\x", "config.json\\u0000", "C:\\\\x"]
    {
        let (repo, place) = (Repo::small(), Place::new());
        let server = repo.serve_with(move |_, mut honest| {
            let text = String::from_utf8(honest.body).unwrap();
            honest.body = text.replace("README.md", name).into_bytes();
            honest
        });
        let error = place.fetch(&server).unwrap_err();
        assert!(matches!(error, HubError::HostileName { .. }), "{name}: {error}");
        assert_eq!(server.requests().len(), 1, "{name}");
        assert_eq!(place.tree(), Vec::<String>::new());
    }
}

#[test]
fn an_index_with_names_that_lead_out_is_refused() {
    for name in ["../../../x.safetensors", "/etc/passwd", "sub/../../x", "sub/x.safetensors", "..", "a\\\\b"]
    {
        let index = format!(r#"{{"weight_map":{{"t":"{name}"}}}}"#);
        let repo = Repo::new(&[
            ("config.json", b"{}"),
            ("sub/x.safetensors", b"x"),
            ("model.safetensors.index.json", index.as_bytes()),
        ]);
        let (place, server) = (Place::new(), repo.serve());
        let error = place.fetch(&server).unwrap_err();
        assert!(matches!(error, HubError::HostileName { .. }), "{name}: {error}");
        assert_eq!(server.requests().len(), 2, "{name}");
        assert!(!place.path("snapshots").exists() && !place.path("refs").exists());
        nothing_but_the_cache(&place);
    }
}

#[test]
fn hashes_that_are_paths_are_not_used_as_names() {
    let place = Place::new();
    let listing = |sha: &str, id: &str| {
        format!(
            r#"{{"sha":"{sha}","siblings":[{{"rfilename":"config.json","size":2,"blobId":"{id}"}},{{"rfilename":"model.safetensors","size":1,"lfs":{{"sha256":"{id}","size":1}}}}]}}"#
        )
    };
    let bad = listing("../../../../../../../../../../../../x/y/z", COMMIT);
    let error = place.fetch(&Repo::small().serve_with(move |_, _| Reply::new(200, bad.clone()))).unwrap_err();
    assert!(matches!(error, HubError::Malformed { .. }), "{error}");
    let bad = listing(COMMIT, "../../../x");
    let server = Repo::small().serve_with(move |request, honest| {
        if request.target.starts_with("/api/") {
            return Reply::new(200, bad.clone());
        }
        honest.with("etag", "\"../../../../x\"")
    });
    let error = place.fetch(&server).unwrap_err();
    assert!(matches!(error, HubError::Malformed { .. }), "{error}");
    assert_eq!(place.tree(), Vec::<String>::new());
    nothing_but_the_cache(&place);
}

#[test]
fn an_endless_listing_is_not_read_to_its_end() {
    let place = Place::new();
    let server = Repo::small().serve_with(|_, _| Reply::new(200, vec![b' '; (64 << 20) + 10]));
    let error = place.fetch(&server).unwrap_err();
    assert!(matches!(error, HubError::TooLarge { limit, .. } if limit == 64 << 20), "{error}");
}
