//! What `hf2q serve` takes.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::convert::parse_size;
use super::{DraftArgs, EngineArgs, MOST, MOST_ROWS, number};

#[derive(Debug, Args)]
#[command(after_help = SERVE_NOTES)]
pub(crate) struct ServeArgs {
    /// What to serve: a GGUF file, a folder (with one model or many), a checkpoint folder, a repository ORG/NAME; NAME=MODEL gives it
    /// a name of its own
    #[arg(value_name = "MODEL", required = true)]
    pub(crate) models: Vec<String>,
    /// Address to listen on; 0.0.0.0 for all networks
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(short, long, default_value_t = 8080)]
    pub(crate) port: u16,
    /// Show each request
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) drafts: DraftArgs,
}

/// Who may ask.
#[derive(Debug, Args)]
#[command(next_help_heading = "Access")]
pub(crate) struct AccessArgs {
    /// A key that clients must send; may be repeated. Others on this machine can see it in the list of processes: prefer a file
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Vec<String>,
    /// A file with one key a line
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Let pages of this origin use the server, such as `https://example.org`, or * for all; may be repeated
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) cors: Vec<String>,
    /// A further name by which clients call this server; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// Most bytes of a request
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = parse_size)]
    pub(crate) max_body: u64,
    /// Connections at the same time
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = number(1..=65_536))]
    pub(crate) connections: usize,
}

/// How much at once.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArgs {
    /// Answers computed at the same time, of each model
    #[arg(short = 'j', long, value_name = "N", default_value_t = 8, value_parser = number(1..=1024))]
    pub(crate) parallel: usize,
    /// Requests that may wait for a place; more are told to come again
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = number(1..=MOST))]
    pub(crate) queue: usize,
    /// Tokens computed in one step while answers are under way: fewer make them smoother, more make prompts faster [default: 128,
    /// at least twice --parallel]
    #[arg(long, value_name = "N", value_parser = number(1..=MOST_ROWS))]
    pub(crate) busy_chunk: Option<usize>,
    /// Memory for keys and values of each model, where prefixes are kept too [default: what --parallel contexts need, at most half of
    /// what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) kv_memory: Option<u64>,
    /// Memory that loaded models may take together; those that nobody uses make room [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) models_memory: Option<u64>,
    /// Unload a model that nobody asked for this many seconds [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) unload_after: Option<Duration>,
    /// How long a request waits for its model to be loaded
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) load_timeout: Duration,
    /// Longest time for a request [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// How long answers may take to end when the server is stopped
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) shutdown_timeout: Duration,
}

const SERVE_NOTES: &str = "\
Paths: /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, /v1/models (as OpenAI's), /v1/messages (as
Anthropic's), /tokenize, /detokenize, /health, /ready, /metrics (Prometheus), /openapi.json, and a chat page at /.
Ctrl-C lets answers end; a second one cuts them.";

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    let found = Duration::try_from_secs_f64(number).ok().filter(|d| *d <= Duration::from_secs(1 << 24));
    found.ok_or_else(|| format!("{text:?} is out of range"))
}
