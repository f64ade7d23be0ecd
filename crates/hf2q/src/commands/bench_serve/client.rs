//! One request: sent, and timed as its answer arrives.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value as Json, json};
use ureq::http::Response;
use ureq::{Agent, Body};

use super::workload::Work;
use crate::args::{BenchServeArgs, Endpoint};

/// Longest line of a stream.
const MAX_LINE: u64 = 1 << 24;
/// Longest answer that is not streamed, in bytes.
const MAX_BODY: u64 = 1 << 26;

/// What became of a request.
#[derive(Debug)]
pub(super) struct Outcome {
    /// From when it was due until its end.
    pub(super) took: Duration,
    pub(super) answer: Result<Answer, Trouble>,
}

/// An answer's times and counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer {
    /// From when the request was due until its first text.
    pub(super) first: Option<Duration>,
    /// Between pieces of text.
    pub(super) gaps: Vec<Duration>,
    /// As the server counts, or pieces of text where it does not.
    pub(super) tokens: usize,
    pub(super) prompt_tokens: usize,
    pub(super) cached_tokens: usize,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    Connection,
    Timeout,
    /// What the server answered instead, and its reason where it gave one.
    Status(u16, String),
    /// An error inside a stream.
    Event,
    /// What arrived is not the protocol.
    Protocol,
    /// A stream that ended before its end.
    Cut,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection => f.write_str("no connection, or it broke"),
            Self::Timeout => f.write_str("timeout"),
            Self::Status(code, reason) if reason.is_empty() => write!(f, "status {code}"),
            Self::Status(code, reason) => write!(f, "status {code}: {reason}"),
            Self::Event => f.write_str("an error in the stream"),
            Self::Protocol => f.write_str("not OpenAI's protocol"),
            Self::Cut => f.write_str("the stream ended early"),
        }
    }
}

impl std::error::Error for Trouble {}

impl Trouble {
    /// Whether both are counted as one: reasons hold numbers that change from request to request.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Status(code, _), Self::Status(other, _)) => code == other,
            _ => self == other,
        }
    }
}

impl From<ureq::Error> for Trouble {
    fn from(error: ureq::Error) -> Self {
        match error {
            ureq::Error::Timeout(_) => Self::Timeout,
            ureq::Error::StatusCode(code) => Self::Status(code, String::new()),
            ureq::Error::Io(error) => error.into(),
            _ => Self::Connection,
        }
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        // Inside a body the client's own errors come wrapped.
        let inner = error.get_ref().and_then(|e| e.downcast_ref::<ureq::Error>());
        let timeout = matches!(inner, Some(ureq::Error::Timeout(_)))
            || matches!(error.kind(), std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock);
        if timeout { Self::Timeout } else { Self::Connection }
    }
}

/// A server and what is asked of it.
pub(super) struct Client {
    agent: Agent,
    url: String,
    key: Option<String>,
    model: String,
    endpoint: Endpoint,
    stream: bool,
    extra: Map<String, Json>,
}

impl Client {
    /// Finds the model to ask.
    pub(super) fn connect(args: &BenchServeArgs) -> Result<Self> {
        let base = args.url.trim_end_matches('/').trim_end_matches("/v1");
        if !base.starts_with("http://") && !base.starts_with("https://") {
            bail!("{:?} is no address: give one such as http://127.0.0.1:8080", args.url);
        }
        let config = Agent::config_builder()
            .timeout_global(Some(Duration::from_secs_f64(args.load.timeout)))
            .http_status_as_error(false)
            .max_idle_connections_per_host(args.load.concurrency.get())
            .max_idle_connections(args.load.concurrency.get())
            .proxy(None)
            .build();
        let mut client = Self {
            agent: Agent::new_with_config(config),
            url: base.to_owned(),
            key: args.api_key.clone(),
            model: args.model.clone().unwrap_or_default(),
            endpoint: args.endpoint,
            stream: !args.load.no_stream,
            extra: args.load.body.clone().unwrap_or_default(),
        };
        if args.model.is_none() {
            client.model = client.first_model()?;
        }
        Ok(client)
    }

    fn first_model(&self) -> Result<String> {
        let url = format!("{}/v1/models", self.url);
        let request = self.agent.get(&url).header("Authorization", self.bearer());
        let text = request.call().map_err(Trouble::from).and_then(|response| {
            Ok(checked(response)?.body_mut().with_config().limit(MAX_BODY).read_to_string()?)
        });
        let text = text.with_context(|| format!("{url}: no list of models; name one with --model"))?;
        let list: Json = serde_json::from_str(&text).with_context(|| format!("{url}: no JSON"))?;
        let id = list["data"][0]["id"].as_str();
        Ok(id.with_context(|| format!("{url}: no model; name one with --model"))?.to_owned())
    }

    fn bearer(&self) -> String {
        // A header without a key is one that servers without keys do not look at.
        format!("Bearer {}", self.key.as_deref().unwrap_or("none"))
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    fn body(&self, work: &Work) -> Json {
        let mut body = json!({
            "model": self.model,
            "max_tokens": work.max_tokens,
            "temperature": 0,
            "stream": self.stream,
        });
        match self.endpoint {
            Endpoint::Chat => body["messages"] = json!([{ "role": "user", "content": work.prompt }]),
            Endpoint::Completions => body["prompt"] = json!(work.prompt),
        }
        if self.stream {
            body["stream_options"] = json!({ "include_usage": true });
        }
        for (key, value) in &self.extra {
            body[key] = value.clone();
        }
        body
    }

    /// Sends a request that was due at a moment, and waits for the end of the answer.
    pub(super) fn ask(&self, work: &Work, due: Instant) -> Outcome {
        let answer = self.try_ask(work, due);
        Outcome { took: due.elapsed(), answer }
    }

    fn try_ask(&self, work: &Work, due: Instant) -> Result<Answer, Trouble> {
        let path = match self.endpoint {
            Endpoint::Chat => "chat/completions",
            Endpoint::Completions => "completions",
        };
        let request = self.agent.post(format!("{}/v1/{path}", self.url));
        let request =
            request.header("Authorization", self.bearer()).header("Content-Type", "application/json");
        let mut response = checked(request.send(self.body(work).to_string())?)?;
        if self.stream {
            return read_stream(BufReader::new(response.into_body().into_reader()), due);
        }
        let text = response.body_mut().with_config().limit(MAX_BODY).read_to_string()?;
        let json: Json = serde_json::from_str(&text).map_err(|_| Trouble::Protocol)?;
        if !json["choices"][0].is_object() {
            return Err(Trouble::Protocol);
        }
        let mut answer = Answer::default();
        answer.count(&json["usage"]);
        Ok(answer)
    }
}

/// Refuses answers without success, with the reason as OpenAI's protocol gives it.
fn checked(mut response: Response<Body>) -> Result<Response<Body>, Trouble> {
    if response.status().is_success() {
        return Ok(response);
    }
    let text = response.body_mut().with_config().limit(MAX_BODY).read_to_string().unwrap_or_default();
    let json: Json = serde_json::from_str(&text).unwrap_or_default();
    let reason = json["error"]["message"].as_str().or(json["error"].as_str()).unwrap_or_default();
    Err(Trouble::Status(response.status().as_u16(), reason.chars().take(200).collect()))
}

impl Answer {
    fn count(&mut self, usage: &Json) {
        let number = |value: &Json| value.as_u64().map(|n| n as usize);
        self.tokens = number(&usage["completion_tokens"]).unwrap_or(self.tokens);
        self.prompt_tokens = number(&usage["prompt_tokens"]).unwrap_or(self.prompt_tokens);
        let cached = number(&usage["prompt_tokens_details"]["cached_tokens"]);
        self.cached_tokens = cached.unwrap_or(self.cached_tokens);
    }
}

/// Reads server-sent events to their end.
fn read_stream(mut reader: impl BufRead, due: Instant) -> Result<Answer, Trouble> {
    let mut answer = Answer::default();
    let mut line = Vec::new();
    let mut last: Option<Instant> = None;
    let mut finished = false;
    loop {
        line.clear();
        let read = std::io::Read::take(&mut reader, MAX_LINE).read_until(b'\n', &mut line)?;
        if read == 0 {
            // Servers that end without the last mark, but after a reason to end, are done too.
            return if finished { Ok(answer) } else { Err(Trouble::Cut) };
        }
        let Some(data) = line.strip_prefix(b"data:") else { continue };
        if data.trim_ascii() == b"[DONE]" {
            return Ok(answer);
        }
        let event: Json = serde_json::from_slice(data).map_err(|_| Trouble::Protocol)?;
        if !event["error"].is_null() {
            return Err(Trouble::Event);
        }
        finished |= event["choices"][0]["finish_reason"].is_string();
        if has_text(&event["choices"][0]) {
            let now = Instant::now();
            match last.replace(now) {
                None => answer.first = Some(now - due),
                Some(before) => answer.gaps.push(now - before),
            }
            answer.tokens += 1;
        }
        answer.count(&event["usage"]);
    }
}

/// Whether an event holds a piece of the answer, of whatever kind.
fn has_text(choice: &Json) -> bool {
    let filled = |value: &Json| match value {
        Json::String(text) => !text.is_empty(),
        Json::Array(items) => !items.is_empty(),
        _ => false,
    };
    let delta = &choice["delta"];
    filled(&choice["text"])
        || ["content", "reasoning_content", "reasoning", "tool_calls"].iter().any(|key| filled(&delta[*key]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Answer, Trouble> {
        read_stream(text.as_bytes(), Instant::now())
    }

    #[test]
    fn streams() {
        let role = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
        let piece = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n";
        let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n";
        let answer = read(&format!("{role}: a comment\n\n{piece}{piece}{usage}data: [DONE]\n\n")).unwrap();
        assert_eq!((answer.tokens, answer.prompt_tokens, answer.cached_tokens), (5, 9, 4));
        assert_eq!((answer.first.is_some(), answer.gaps.len()), (true, 1));
        let counted = read(&format!("{piece}{piece}data:[DONE]")).unwrap();
        assert_eq!(counted.tokens, 2);
        let text = "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\n";
        assert_eq!(read(text).unwrap().tokens, 1);
        assert_eq!(read(piece), Err(Trouble::Cut));
        assert_eq!(read(""), Err(Trouble::Cut));
        assert_eq!(read("data: {\n\n"), Err(Trouble::Protocol));
        assert_eq!(
            read(&format!("{piece}data: {{\"error\":{{\"message\":\"x\"}}}}\n\n")),
            Err(Trouble::Event)
        );
    }
}
