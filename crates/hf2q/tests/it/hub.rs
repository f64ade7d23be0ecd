//! Repositories in place of folders, from a server on this machine.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::support::{Place, Ran, bundled};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Serves the files of a bundled checkpoint as `org/tiny`. Lives as long as the tests.
struct Hub {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    fn new(checkpoint: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (folder, log) = (bundled(checkpoint), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (folder, log) = (folder.clone(), Arc::clone(&log));
                std::thread::spawn(move || serve(stream.unwrap(), &folder, &log));
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    fn run(&self, place: &Place, environment: &[(&str, &str)], args: &[&str]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hf2q"));
        for name in ["HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_TOKEN_PATH", "TRANSFORMERS_OFFLINE"] {
            command.env_remove(name);
        }
        command.args(args).current_dir(place.path(".")).stdin(Stdio::null());
        command.env("XDG_CACHE_HOME", place.path("cache")).env("HF_HOME", place.path("hf"));
        command.env("HF_ENDPOINT", &self.url).env("NO_PROXY", "127.0.0.1").envs(environment.iter().copied());
        Ran::new(&command.output().unwrap())
    }
}

fn serve(mut stream: TcpStream, folder: &PathBuf, log: &Mutex<Vec<String>>) {
    let lines: Vec<String> =
        BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let Some(target) = lines.first().and_then(|line| line.split(' ').nth(1)).map(str::to_owned) else {
        return;
    };
    log.lock().unwrap().push(lines.join("\n"));
    let name = target.strip_prefix(&format!("/org/tiny/resolve/{COMMIT}/"));
    let (status, etag, body) = if target == "/api/models/org/tiny/revision/main?blobs=true" {
        let names = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let files: Vec<String> = names.map(|n| format!(r#"{{"rfilename":"{n}"}}"#)).collect();
        let listing = format!(r#"{{"sha":"{COMMIT}","siblings":[{}]}}"#, files.join(","));
        (200, String::new(), listing.into_bytes())
    } else if let Some(name) = name {
        (200, format!("etag: \"tag-of-{name}\"\r\n"), std::fs::read(folder.join(name)).unwrap())
    } else {
        (404, String::new(), Vec::new())
    };
    let head =
        format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{etag}content-length: {}\r\n\r\n", body.len());
    let body = if lines[0].starts_with("HEAD") { &[][..] } else { &body };
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).unwrap();
}

#[test]
fn a_repository_is_loaded_converted_and_found_again() {
    let (hub, place) = (Hub::new("tiny-dense"), Place::new());
    let ran = hub.run(&place, &[], &["convert", "org/tiny", "--type", "q4_0"]);
    assert!(ran.ok && ran.stderr.contains("Loading org/tiny"), "{}", ran.stderr);
    // The file and the model are called as the repository, not as the commit.
    assert_eq!(place.files(), ["hf", "tiny-q4_0.gguf"]);
    let shown = place.run(&["inspect", "tiny-q4_0.gguf"]).success();
    assert!(shown.lines().any(|l| l.starts_with("general.name") && l.ends_with("\"tiny\"")), "{shown}");
    hub.requests();
    let offline = hub.run(&place, &[], &["run", "org/tiny", "Once", "--raw", "-n", "2", "--offline"]);
    assert!(offline.ok && offline.stderr.contains("tiny-"), "{}", offline.stderr);
    let again = hub.run(&place, &[("HF_HUB_OFFLINE", "1")], &["tokenize", "org/tiny", "Once"]);
    assert!(again.ok && !again.stderr.contains("Converting"), "{}", again.stderr);
    assert_eq!(hub.requests(), Vec::<String>::new());
}

#[test]
fn what_is_neither_here_nor_there_is_told() {
    let (hub, place) = (Hub::new("tiny-dense"), Place::new());
    for command in ["convert", "run"] {
        let parts = ["org/other is no local file or folder", "no model repository org/other"];
        hub.run(&place, &[], &[command, "org/other"]).failure(&parts);
        hub.run(&place, &[], &[command, "org/other", "--offline"])
            .failure(&["not in the cache", "org/other"]);
        hub.requests();
        hub.run(&place, &[], &[command, "org/other.gguf"]).failure(&["no such file", "ORG/NAME"]);
        assert_eq!(hub.requests(), Vec::<String>::new());
    }
}

#[test]
fn a_local_folder_wins() {
    let (hub, place) = (Hub::new("tiny-dense"), Place::new());
    std::fs::create_dir(place.path("org")).unwrap();
    std::fs::rename(place.checkpoint_copy("tiny-dense"), place.path("org/tiny")).unwrap();
    hub.run(&place, &[], &["convert", "org/tiny", "--type", "q4_0"]).success();
    assert_eq!(hub.requests(), Vec::<String>::new());
}

#[test]
fn the_token_is_that_of_the_environment_or_of_the_login() {
    let (hub, place) = (Hub::new("tiny-dense"), Place::new());
    let sent = |environment: &[(&str, &str)]| {
        hub.run(&place, environment, &["convert", "org/other"]).failure(&["org/other"]);
        let request = hub.requests().remove(0);
        request.lines().find_map(|l| l.strip_prefix("authorization: ").map(str::to_owned))
    };
    assert_eq!(sent(&[]), None);
    std::fs::create_dir_all(place.path("hf")).unwrap();
    std::fs::write(place.path("hf/token"), "hf_of_login\n").unwrap();
    assert_eq!(sent(&[]), Some("Bearer hf_of_login".to_owned()));
    assert_eq!(sent(&[("HF_TOKEN", "hf_of_environment")]), Some("Bearer hf_of_environment".to_owned()));
    assert_eq!(sent(&[("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
    hub.run(&place, &[("HF_TOKEN", "a b")], &["convert", "org/other"]).failure(&["HF_TOKEN"]);
}
