//! Another program that measures the same: llama.cpp's `llama-bench`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::args::BenchArgs;
use crate::{interrupt, terminal};

/// Formats of the cache that both programs have; where another is measured, the peer takes its default.
const CACHES: [&str; 4] = ["f32", "f16", "bf16", "q8_0"];

/// Lines of the peer's complaints that are shown.
const LINES: usize = 4;

pub(super) struct Peer {
    program: PathBuf,
    arguments: Vec<String>,
    /// The format of its cache.
    pub(super) cache: &'static str,
}

/// Tokens a second in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Speeds {
    pub(super) prompt: Option<f64>,
    pub(super) decode: Option<f64>,
}

impl Peer {
    /// Finds out whether the program can be run at all.
    pub(super) fn new(program: &Path, args: &BenchArgs, (file, threads): (&Path, usize)) -> Result<Self> {
        let wanted = args.engine.kv.to_string();
        let cache = CACHES.into_iter().find(|&format| format == wanted).unwrap_or("f16");
        let file = file.to_str().with_context(|| format!("{} is no UTF-8 path", file.display()))?;
        let numbers = [
            ("-t", threads),
            ("-p", args.timed.prompt),
            ("-n", args.decode),
            ("-d", args.timed.depth),
            ("-r", 1),
            ("-fa", 1),
        ];
        let texts = [("-m", file), ("-o", "json"), ("-ctk", cache), ("-ctv", cache)];
        let texts = texts.map(|(flag, value)| [flag.to_owned(), value.to_owned()]);
        let numbers = numbers.map(|(flag, value)| [flag.to_owned(), value.to_string()]);
        let peer = Self {
            program: program.to_owned(),
            arguments: texts.into_iter().chain(numbers).flatten().collect(),
            cache,
        };
        peer.start(&["--help".to_owned()])?;
        Ok(peer)
    }

    /// The command that is run.
    pub(super) fn command(&self) -> String {
        let program = self.program.display().to_string();
        [program].into_iter().chain(self.arguments.iter().cloned()).collect::<Vec<_>>().join(" ")
    }

    /// One run.
    pub(super) fn run(&self) -> Result<Speeds> {
        let output = self.start(&self.arguments)?;
        if interrupt::pressed() {
            bail!("stopped");
        }
        if !output.status.success() {
            let said = said(&output.stderr);
            bail!("--against: `{}` failed ({}){said}", terminal::safe(&self.command()), output.status);
        }
        let speeds = speeds(&output.stdout);
        speeds.with_context(|| format!("--against: {} gave no times", self.program.display()))
    }

    fn start(&self, arguments: &[String]) -> Result<Output> {
        let run = Command::new(&self.program).args(arguments).stdin(Stdio::null()).output();
        run.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => anyhow::anyhow!("there is no such program"),
            _ => error.into(),
        })
        .with_context(|| format!("--against: {} cannot be run", self.program.display()))
    }
}

/// The last lines of what a program complained about.
fn said(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().map(|line| format!("\n  {}", terminal::safe(line))).collect()
}

/// The speeds in the JSON of `llama-bench`: a list with an object for each test.
fn speeds(json: &[u8]) -> Result<Speeds> {
    let tests: Vec<Value> = serde_json::from_slice(json).context("its output is no JSON list")?;
    let mut found = Speeds::default();
    for test in &tests {
        let number = |name: &str| test.get(name).and_then(Value::as_f64);
        let (prompt, decode) = (number("n_prompt").unwrap_or(0.0), number("n_gen").unwrap_or(0.0));
        let rate = number("avg_ts").filter(|rate| *rate > 0.0).context("a test has no positive `avg_ts`")?;
        match (prompt > 0.0, decode > 0.0) {
            (true, false) => found.prompt = Some(rate),
            (false, true) => found.decode = Some(rate),
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_found_by_what_was_measured() {
        let json =
            br#"[{"n_prompt": 512, "n_gen": 0, "avg_ts": 100.5}, {"n_prompt": 0, "n_gen": 8, "avg_ts": 7}]"#;
        assert_eq!(speeds(json).unwrap(), Speeds { prompt: Some(100.5), decode: Some(7.0) });
        assert_eq!(speeds(b"[]").unwrap(), Speeds::default());
        for (json, part) in [
            (&b"model_type, avg"[..], "no JSON list"),
            (br#"[{"n_prompt": 512}]"#, "avg_ts"),
            (br#"[{"n_prompt": 512, "avg_ts": 0}]"#, "avg_ts"),
        ] {
            let error = format!("{:#}", speeds(json).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn of_long_complaints_the_end_is_shown() {
        let text = said(b"1\n2\n\n3\n4\x1b[31m\n5\n");
        assert!(text.starts_with("\n  2\n  3\n  4") && text.ends_with("\n  5"), "{text}");
        assert!(!text.contains('\x1b'));
    }
}
