//! A server with a small trained model, and a client that sees everything.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hf2q_convert::{Options, Plan as Conversion, Recipe, Source as Checkpoint};
use hf2q_cpu::{CpuBackend, CpuOptions};
use hf2q_engine::{
    Budget, CacheOptions, DraftDepth, DraftShape, Drafting, Engine, EngineOptions, Ngram, Pooling, Sampling,
    SchedulerOptions, WindowPolicy,
};
use hf2q_gguf::Gguf;
use hf2q_model::{Model, RecordOptions};
use hf2q_plan::{Passes, Plan};
use hf2q_server::{Loaded, Log, Server, Settings, Source};
use hf2q_text::{ChatTemplate, Tokenizer};
use serde_json::{Value as Json, json};

/// The bundled checkpoint, converted once.
fn demo_file() -> &'static PathBuf {
    static FILE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, file) = FILE.get_or_init(|| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo/tiny-dense");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("demo.gguf");
        let options = Options::new(Recipe::from_name("q8_0").unwrap());
        let source = Checkpoint::open(folder.as_ref()).unwrap();
        Conversion::new(&source, options).unwrap().write(&file, &mut Silent).unwrap();
        (dir, file)
    });
    file
}

struct Silent;

impl hf2q_convert::Progress for Silent {
    fn start(&mut self, _: u64) {}

    fn advance(&mut self, _: &str, _: u64) -> bool {
        true
    }
}

/// How the demo model is served.
#[derive(Clone)]
pub(crate) struct Demo {
    pub(crate) id: &'static str,
    pub(crate) template: Option<&'static str>,
    pub(crate) context: usize,
    pub(crate) sequences: usize,
    pub(crate) queue: usize,
    pub(crate) budget: Budget,
    pub(crate) bytes: u64,
    pub(crate) broken: bool,
    pub(crate) drafts: bool,
    pub(crate) chats: Option<bool>,
}

impl Default for Demo {
    fn default() -> Self {
        Self {
            id: "demo",
            template: None,
            context: 512,
            sequences: 8,
            queue: 64,
            budget: Budget::Sequences,
            bytes: 1,
            broken: false,
            drafts: false,
            chats: None,
        }
    }
}

/// What followed before is guessed to follow again.
fn guesses() -> Drafting {
    let drafter = Box::new(Ngram::new());
    let (depth, shape) = (DraftDepth::Fixed(4), DraftShape::Auto);
    Drafting { drafter, depth, shape, warn: Box::new(|error| panic!("{error}")) }
}

impl Source for Demo {
    fn id(&self) -> &str {
        self.id
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn chats(&self) -> Option<bool> {
        self.chats
    }

    fn load(&self) -> Result<Loaded, Box<dyn std::error::Error + Send + Sync>> {
        if self.broken {
            return Err("/secret/place/model.gguf is damaged".into());
        }
        let gguf = Gguf::open(demo_file())?;
        let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
        let source = gguf.metadata().opt_str("tokenizer.chat_template")?.map(str::to_owned);
        let source = self.template.map(str::to_owned).or(source);
        let bos = tokenizer.token_text(tokenizer.bos().unwrap()).into_owned();
        let template = source.as_ref().map(|s| ChatTemplate::compile(s, &bos, "")).transpose()?;
        let model = Model::load(&gguf)?;
        let plan = Arc::new(Plan::compile(model.record(&RecordOptions::default())?, Passes::ALL));
        let weights = model.weights_for(&plan.recording);
        let backend = CpuBackend::new(CpuOptions { threads: 1, isa: None })?;
        let cache = CacheOptions { budget: self.budget, windows: WindowPolicy::Keep };
        let rows = 64.min(self.context);
        let options =
            EngineOptions { context: self.context, sequences: self.sequences, rows, logit_rows: rows, cache };
        Ok(Loaded {
            drafting: self.drafts.then(guesses),
            engine: Engine::open(&backend, plan, weights, options)?,
            scheduler: SchedulerOptions { queue: self.queue, busy_rows: rows },
            tokenizer,
            template,
            sampling: Sampling { temperature: 0.8, top_k: 40, top_p: 0.95, ..Sampling::default() },
            pooling: Some(Pooling::Mean),
            bytes: self.bytes,
            description: "demo".into(),
        })
    }
}

/// A server on a free port.
pub(crate) struct Running {
    pub(crate) server: Option<Server>,
    pub(crate) address: SocketAddr,
}

/// Starts one.
pub(crate) fn serve(settings: Settings, models: Vec<Demo>) -> Running {
    let models = models.into_iter().map(|m| Box::new(m) as Box<dyn Source>).collect();
    let server = Server::start(Settings { port: 0, ..settings }, models, Log::silent()).unwrap();
    let address = server.address();
    Running { server: Some(server), address }
}

/// A server that most tests share.
pub(crate) fn demo() -> &'static Running {
    static SHARED: OnceLock<Running> = OnceLock::new();
    SHARED.get_or_init(|| serve(Settings::default(), vec![Demo::default()]))
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The events of a stream: their names and their data.
    pub(crate) fn events(&self) -> Vec<(String, String)> {
        let event = |text: &str| {
            let field =
                |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default().to_owned();
            (field("event: "), field("data: "))
        };
        self.body.split("\n\n").filter(|e| !e.is_empty() && !e.starts_with(':')).map(event).collect()
    }

    /// The data of OpenAI's events, whose last one must be `[DONE]`.
    pub(crate) fn chunks(&self) -> Vec<Json> {
        let mut events: Vec<String> = self.events().into_iter().map(|(_, data)| data).collect();
        assert_eq!(events.pop().as_deref(), Some("[DONE]"), "{self:?}");
        events.iter().map(|e| serde_json::from_str(e).unwrap()).collect()
    }
}

/// An open request.
pub(crate) struct Open(pub(crate) BufReader<TcpStream>);

impl Open {
    /// Reads the whole response.
    pub(crate) fn answer(mut self) -> Answer {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no status: {line:?}")).parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).unwrap();
        let chunked = headers.iter().any(|(n, v)| n == "transfer-encoding" && v == "chunked");
        let body = if chunked { unchunked(&rest) } else { rest };
        Answer { status, headers, body: String::from_utf8(body).unwrap() }
    }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let end = bytes.windows(2).position(|w| w == b"\r\n").expect("a chunk has a length");
        let len = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        if len == 0 {
            return out;
        }
        out.extend_from_slice(&bytes[end + 2..end + 2 + len]);
        bytes = &bytes[end + 4 + len..];
    }
}

impl Running {
    /// Sends a request and leaves it open.
    pub(crate) fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Open {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
        if !headers.iter().any(|(n, _)| *n == "host") {
            head += &format!("host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        // The server may refuse a body before it is read.
        let _ = stream.write_all((head + "\r\n" + body).as_bytes());
        Open(BufReader::new(stream))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.open("GET", path, &[], "").answer()
    }

    pub(crate) fn post(&self, path: &str, body: &Json) -> Answer {
        self.open("POST", path, &[], &body.to_string()).answer()
    }

    /// A chat with one message; `more` are further fields.
    pub(crate) fn chat(&self, text: &str, more: Json) -> Answer {
        self.post("/v1/chat/completions", &chat(text, more))
    }

    /// A number of the metrics page; 0 while it has none.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").body;
        let line = page.lines().find(|l| l.starts_with(name) && !l.starts_with('#'));
        line.map_or(0.0, |l| l.rsplit(' ').next().unwrap().parse().unwrap())
    }

    /// Waits until a number of the metrics page is as it should be: engines tell it after their steps.
    pub(crate) fn wait_for(&self, name: &str, is: impl Fn(f64) -> bool) {
        let start = std::time::Instant::now();
        while !is(self.metric(name)) {
            assert!(start.elapsed() < Duration::from_secs(60), "{name} is {}", self.metric(name));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A request to the chat route.
pub(crate) fn chat(text: &str, more: Json) -> Json {
    let body = json!({ "model": "demo", "messages": [{ "role": "user", "content": text }], "seed": 7 });
    with(body, more)
}

/// Fields on top of others.
pub(crate) fn with(mut body: Json, more: Json) -> Json {
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}
