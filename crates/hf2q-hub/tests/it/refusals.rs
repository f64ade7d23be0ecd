//! Who may read what, and who gets the token.

use std::sync::Arc;

use hf2q_hub::{HubConfig, HubError, Snapshot, Token};

use crate::server::{Reply, Request, Server};
use crate::support::{Place, Repo, Told};

const TOKEN: &str = "hf_very_secret";

fn signed_in(mut config: HubConfig) -> HubConfig {
    config.token = Token::new(TOKEN);
    config
}

fn fetch(server: &Server, with_token: bool) -> Result<Snapshot, HubError> {
    let place = Place::new();
    let config = place.config(server);
    let mut config = if with_token { signed_in(config) } else { config };
    config.parallel = 1;
    place.fetch_with(config, &mut Told::default())
}

fn refuse(on: &'static str, status: u16, code: &'static str, message: &'static str) -> Server {
    Repo::small().serve_with(move |request, honest| {
        if !request.target.contains(on) {
            return honest;
        }
        let reply = Reply::new(status, format!(r#"{{"error":"{message}"}}"#));
        if code.is_empty() { reply } else { reply.with("x-error-code", code) }
    })
}

#[test]
fn a_gated_repository_is_explained() {
    let server = refuse("/resolve/", 401, "GatedRepo", "Access is restricted");
    let error = fetch(&server, false).unwrap_err();
    assert!(matches!(error, HubError::Gated { signed_in: false, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("{}/org/model", server.url())), "{text}");
    assert!(text.contains("HF_TOKEN") && text.contains("hf auth login"), "{text}");
    let server = refuse("/resolve/", 403, "GatedRepo", "not in the authorized list");
    let error = fetch(&server, true).unwrap_err();
    assert!(matches!(error, HubError::Gated { signed_in: true, .. }), "{error}");
    // Small files come first: nothing large was asked for, and nothing twice.
    assert!(server.requests().iter().all(|r| r.earlier == 0 && !r.target.ends_with("model.safetensors")));
}

#[test]
fn what_is_not_there_or_hidden_is_told_apart() {
    let error = fetch(&refuse("/api/", 404, "RepoNotFound", ""), true).unwrap_err();
    assert!(matches!(error, HubError::NoRepository { signed_in: true, .. }), "{error}");
    let error =
        fetch(&refuse("/api/", 401, "RepoNotFound", "Invalid username or password."), false).unwrap_err();
    assert!(error.to_string().contains("HF_TOKEN"), "{error}");
    let error = fetch(&refuse("/api/", 404, "RevisionNotFound", "Invalid rev id"), false).unwrap_err();
    assert!(matches!(&error, HubError::NoRevision { revision, .. } if revision == "main"), "{error}");
    let error =
        fetch(&refuse("/api/", 401, "", "Invalid credentials in Authorization header"), true).unwrap_err();
    assert!(
        matches!(&error, HubError::Token { status: 401, message, .. } if message.contains("Invalid credentials")),
        "{error}"
    );
    assert!(!format!("{error} {error:?}").contains(TOKEN));
    let error = fetch(&refuse("/config.json", 404, "EntryNotFound", ""), false).unwrap_err();
    assert!(matches!(error, HubError::Status { status: 404, .. }), "{error}");
}

#[test]
fn the_words_of_a_server_cannot_steer_a_terminal() {
    let error = fetch(&refuse("/api/", 400, "", "\\u001b[2J"), false).unwrap_err().to_string();
    assert!(error.contains("\\u{1b}[2J"), "{error}");
}

#[test]
fn the_token_goes_to_the_hub_alone() {
    let repo = Arc::new(Repo::small());
    let storage = Server::new({
        let repo = Arc::clone(&repo);
        move |request: &Request| {
            let mut request = request.clone();
            request.target = request.target.replace("/storage", "");
            // Tags of a storage are its own.
            repo.reply(&request).with("etag", "\"storage-tag\"")
        }
    });
    let address = storage.url();
    let hub = repo.serve_with(move |request, honest| match request.target.strip_prefix("/moved") {
        // Renamed repositories are redirected within the hub first.
        None if request.target.contains("/resolve/") => {
            Reply::new(307, "").with("location", format!("/moved{}", request.target))
        }
        Some(path) => Reply::new(302, "").with("location", format!("{address}/storage{path}")),
        None => honest,
    });
    let place = Place::new();
    place.fetch_with(signed_in(place.config(&hub)), &mut Told::default()).unwrap();
    let bearer = format!("Bearer {TOKEN}");
    assert!(hub.requests().iter().all(|r| r.header("authorization") == Some(&bearer)));
    assert!(hub.requests().iter().any(|r| r.target.starts_with("/moved")));
    let there = storage.requests();
    assert_eq!(there.len(), 4);
    for request in there {
        let text = format!("{request:?}");
        assert!(request.header("authorization").is_none() && !text.contains(TOKEN), "{text}");
    }
}

/// Where `0.0.0.0` reaches this machine, though it is none of its own addresses.
#[cfg(unix)]
#[test]
fn the_token_does_not_travel_in_the_clear() {
    let (server, place) = (Repo::small().serve(), Place::new());
    let mut config = signed_in(place.config(&server));
    config.endpoint = server.url().replace("127.0.0.1", "0.0.0.0");
    let mut told = Told::default();
    place.fetch_with(config, &mut told).unwrap();
    assert_eq!(server.requests().len(), 5);
    assert!(server.requests().iter().all(|r| r.header("authorization").is_none()));
    let notes: Vec<&String> = told.notes.iter().filter(|n| n.contains("token is not sent")).collect();
    assert!(notes.len() == 1 && !notes[0].contains(TOKEN), "{:?}", told.notes);
}

#[test]
fn a_link_to_a_storage_that_has_expired_is_made_anew() {
    let repo = Arc::new(Repo::small());
    let storage = Server::new({
        let repo = Arc::clone(&repo);
        move |request: &Request| {
            if request.earlier == 0 { Reply::new(403, "<Error>expired</Error>") } else { repo.reply(request) }
        }
    });
    let address = storage.url();
    let hub = repo.serve_with(move |request, honest| {
        if request.target.contains("/resolve/") {
            return Reply::new(302, "").with("location", format!("{address}{}", request.target));
        }
        honest
    });
    let place = Place::new();
    place.fetch_with(signed_in(place.config(&hub)), &mut Told::default()).unwrap();
}

#[test]
fn redirects_that_lead_nowhere_end() {
    for (location, why) in [
        ("/org/model/resolve/loop", "too many"),
        ("file:///etc/passwd", "not a URL"),
        ("ftp://x/", "only http"),
        ("", "not"),
        ("http://u:p@x/?Signature=s3cret", "user name"),
        ("/org/model/resolve/loop?Signature=s3cret", "too many"),
    ] {
        let server = Repo::small().serve_with(move |request, honest| {
            if request.target.contains("/resolve/") {
                Reply::new(302, "").with("location", location)
            } else {
                honest
            }
        });
        let error = fetch(&server, false).unwrap_err();
        assert!(matches!(error, HubError::Redirect { .. }) && error.to_string().contains(why), "{error}");
        let told = format!("{error} {error:?}");
        assert!(!told.contains("u:p") && !told.contains("s3cret"), "{told}");
        assert!(server.requests().len() < 60);
    }
}

#[test]
fn an_endpoint_that_is_no_url_is_told() {
    let place = Place::new();
    let server = Repo::small().serve();
    for endpoint in [
        "",
        "huggingface.co",
        "ftp://x",
        "http://",
        "https://x?y",
        "https://x?",
        "https://x#y",
        "http://user:s3cret@127.0.0.1:9",
        "user:s3cret@x",
    ] {
        let mut config = place.config(&server);
        config.endpoint = endpoint.to_owned();
        let error = place.fetch_with(config, &mut Told::default()).unwrap_err();
        assert!(matches!(error, HubError::Setting { .. }), "{endpoint}: {error}");
        let told = format!("{error} {error:?}");
        assert!(told.contains("HF_ENDPOINT") && !told.contains("s3cret"), "{told}");
    }
    let mut config = place.config(&server);
    config.certificates = Some(place.path("absent.pem"));
    let error = place.fetch_with(config, &mut Told::default()).unwrap_err();
    assert!(matches!(error, HubError::Io { .. }), "{error}");
}
