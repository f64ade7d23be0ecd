//! `hf2q serve`, as it is started and stopped.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::support::{Place, bundled};

/// A server that was started, and where it listens.
struct Serving {
    child: Child,
    errors: BufReader<std::process::ChildStderr>,
    address: String,
    /// What it said before it listened.
    said: String,
}

impl Serving {
    fn new(place: &Place, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hf2q"));
        command.args(["serve", "--port", "0", "--device", "cpu", "--threads", "1"]).args(args);
        command.current_dir(place.path(".")).env("XDG_CACHE_HOME", place.path("cache"));
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(errors.read_line(&mut line).unwrap() > 0, "it ended: {seen}");
            if let Some(address) = line.trim().strip_prefix("listening on http://") {
                break address.to_owned();
            }
            seen += &line;
        };
        Self { child, errors, address, said: seen }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        write!(stream, "{head}authorization: Bearer secret\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Sends the signal to end; the status, and what was said meanwhile.
    fn end(mut self) -> (Option<i32>, String) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let mut said = String::new();
        self.errors.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

#[test]
#[cfg(unix)]
fn a_checkpoint_is_served_and_the_server_ends_when_it_is_told_to() {
    let place = Place::new();
    std::fs::write(place.path("keys"), "\nsecret\n").unwrap();
    let folder = bundled("tiny-dense");
    let served = format!("small={}", folder.display());
    let server = Serving::new(&place, &[&served, "--api-key-file", "keys", "--verbose", "--context", "256"]);
    assert!(server.ask("GET", "/v1/models", "").contains("\"id\":\"small\""));
    let body = r#"{"model": "small", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}"#;
    let answer = server.ask("POST", "/v1/chat/completions", body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.ask("GET", "/v1/nothing", "");
    server.ask("POST", "/v1/chat/completions", &body.replace("max_tokens", "temp\\u001b"));
    let (status, said) = server.end();
    assert_eq!(status, Some(0), "{said}");
    for part in
        ["POST /v1/chat/completions 200", "GET other 404", "Unknown path: /v1/nothing", "temp", "stopping"]
    {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
#[cfg(unix)]
fn a_context_is_no_longer_than_the_model_and_the_memory_of_the_caches_allow() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let served = format!("small={model}");
    let most = |server: &Serving| {
        let answer = server.ask("POST", "/tokenize", r#"{"prompt": "x"}"#);
        answer.split("\"max_model_len\":").nth(1).map(|rest| rest.trim_end_matches('}').trim().to_owned())
    };
    for (flags, tokens, note) in [
        (
            &["--context", "16777216"][..],
            "4096",
            "--context 16777216 is more than the model's context of 4096",
        ),
        (&["--context", "4000", "--kv-memory", "1M"], "", "the memory for keys and values holds "),
    ] {
        let server = Serving::new(&place, &[&[&served[..]], flags].concat());
        let found = most(&server).unwrap_or_default();
        let limit: usize = found.parse().unwrap_or_else(|_| panic!("{found:?}"));
        assert!(found == tokens || tokens.is_empty() && (64..4000).contains(&limit), "{found}");
        let said = server.said.clone();
        assert!(said.contains(note), "{said}");
        assert_eq!(server.end().0, Some(0));
    }
}

#[test]
fn what_cannot_be_served_is_said_at_once() {
    let place = Place::new();
    place.run(&["serve", "nothing.gguf", "--port", "0"]).failure(&["nothing.gguf"]);
    for name in ["x.gguf", "y.gguf", "x"] {
        std::fs::write(place.path(name), "no model").unwrap();
    }
    for missing in ["/nonexist", "a=nothing", "org/a/b"] {
        let parts = [missing.trim_start_matches("a="), "no such file", "ORG/NAME"];
        place.run(&["serve", "x.gguf", missing, "--port", "0"]).failure(&parts);
    }
    let said =
        place.run(&["serve", "x.gguf", "--port", "0"]).failure(&["hf2q: x cannot be loaded: ", "x.gguf"]);
    assert!(!said.contains("log says why"), "{said}");
    place.run(&["serve", "a=x.gguf", "a=y.gguf", "--port", "0"]).failure(&["two models are named \"a\""]);
    std::fs::write(place.path("keys"), "\n").unwrap();
    place.run(&["serve", "a=x", "--api-key-file", "keys"]).failure(&["keys", "no key"]);
    place.run(&["serve", "a=x", "--cors", "example.org"]).failure(&["--cors", "SCHEME"]);
    place.run(&["serve", "a=x", "--unload-after", "soon"]).failure(&["--unload-after"]);
}

#[test]
fn what_the_caches_hold_is_listed_and_removed() {
    let place = Place::new();
    let run = |args: &[&str]| place.run(args);
    let folder = bundled("tiny-dense");
    run(&["tokenize", folder.to_str().unwrap(), "x"]).success();
    let listed = run(&["list"]).success();
    let name = listed.lines().find_map(|l| l.split_whitespace().find(|w| w.ends_with("-q8_0.gguf")));
    let name = name.unwrap_or_else(|| panic!("{listed}")).to_owned();
    run(&["rm", &name]).success();
    assert!(!run(&["list", "--json"]).success().contains(&name));
    run(&["rm", &name]).failure(&["neither a repository"]);
    run(&["rm", "org/never-loaded"]).failure(&["org/never-loaded"]);
    run(&["pull", "no-slash"]).failure(&["no-slash"]);
}
