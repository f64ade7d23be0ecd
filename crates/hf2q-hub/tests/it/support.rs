//! A repository on a server, a cache, and what a person would be told.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hf2q_hub::{Hub, HubConfig, HubError, Patience, Progress, Repository, Snapshot, Status};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use tempfile::TempDir;

use crate::server::{Reply, Request, Server};

pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A file of a repository.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl File {
    /// As the hub does it: weights are large files.
    fn is_large(&self) -> bool {
        self.name.ends_with(".safetensors")
    }

    pub(crate) fn id(&self) -> String {
        let mut context = if self.is_large() {
            Context::new(&SHA256)
        } else {
            let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
            context.update(format!("blob {}\0", self.bytes.len()).as_bytes());
            context
        };
        context.update(&self.bytes);
        context.finish().as_ref().iter().map(|b| format!("{b:02x}")).collect()
    }

    fn listed(&self) -> String {
        let (name, size, id) = (&self.name, self.bytes.len(), self.id());
        if self.is_large() {
            let pointer = "f".repeat(40);
            format!(
                r#"{{"rfilename":"{name}","size":{size},"blobId":"{pointer}","lfs":{{"sha256":"{id}","size":{size},"pointerSize":134}}}}"#
            )
        } else {
            format!(r#"{{"rfilename":"{name}","size":{size},"blobId":"{id}"}}"#)
        }
    }
}

/// A repository as the hub shows it.
#[derive(Clone, Debug)]
pub(crate) struct Repo {
    pub(crate) commit: String,
    pub(crate) files: Vec<File>,
}

impl Repo {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        let file = |(name, bytes): &(&str, &[u8])| File { name: (*name).to_owned(), bytes: bytes.to_vec() };
        Self { commit: COMMIT.to_owned(), files: files.iter().map(file).collect() }
    }

    /// A small checkpoint beside files that nobody needs.
    pub(crate) fn small() -> Self {
        let weights = noise(200_000);
        Self::new(&[
            (".gitattributes", b"x"),
            ("README.md", b"# words"),
            ("config.json", b"{\"model_type\":\"gemma3\"}"),
            ("model.safetensors", &weights),
            ("onnx/model.onnx", b"onnx"),
            ("pytorch_model.bin", b"pickle"),
            ("tokenizer.json", b"{}"),
            ("tokenizer_config.json", b"{\"a\":1}"),
        ])
    }

    pub(crate) fn file(&self, name: &str) -> &File {
        self.files.iter().find(|f| f.name == name).unwrap()
    }

    pub(crate) fn listing(&self) -> String {
        let files: Vec<String> = self.files.iter().map(File::listed).collect();
        let commit = &self.commit;
        format!(r#"{{"id":"org/model","sha":"{commit}","private":false,"siblings":[{}]}}"#, files.join(","))
    }

    /// What an honest hub answers.
    pub(crate) fn reply(&self, request: &Request) -> Reply {
        let target = request.target.as_str();
        if target.starts_with("/api/models/org/model/revision/") {
            return Reply::new(200, self.listing());
        }
        let name = target.strip_prefix(&format!("/org/model/resolve/{}/", self.commit));
        let Some(file) = name.and_then(|name| self.files.iter().find(|f| f.name == name)) else {
            return Reply::new(404, "").with("x-error-code", "EntryNotFound");
        };
        let tag = format!("\"{}\"", file.id());
        match request.from() {
            None => Reply::new(200, file.bytes.clone()).with("etag", tag),
            Some(from) => {
                let total = file.bytes.len();
                let range = format!("bytes {from}-{}/{total}", total - 1);
                Reply::new(206, &file.bytes[from..]).with("content-range", range).with("etag", tag)
            }
        }
    }

    /// A hub with this repository.
    pub(crate) fn serve(&self) -> Server {
        self.serve_with(|_, honest| honest)
    }

    /// A hub whose answers `twist` may change.
    pub(crate) fn serve_with(
        &self,
        twist: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static,
    ) -> Server {
        let repo = Arc::new(self.clone());
        Server::new(move |request| twist(request, repo.reply(request)))
    }
}

/// Bytes without a pattern.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let step = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(step).take(bytes).collect()
}

/// A cache of its own, and how to reach a server.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: TempDir::new().unwrap() }
    }

    pub(crate) fn config(&self, server: &Server) -> HubConfig {
        let mut config = HubConfig::new(self.dir.path().join("hub"));
        config.endpoint = server.url();
        config.environment_proxy = false;
        config.patience = Patience {
            attempts: 4,
            first_pause: Duration::from_millis(1),
            longest_pause: Duration::from_millis(10),
            connect: Duration::from_secs(5),
            silence: Duration::from_secs(20),
        };
        config
    }

    /// `org/model` with these settings.
    pub(crate) fn fetch_with(&self, config: HubConfig, told: &mut Told) -> Result<Snapshot, HubError> {
        let repository: Repository = told.repository.parse().unwrap();
        Hub::new(config).fetch(&repository, told)
    }

    pub(crate) fn fetch(&self, server: &Server) -> Result<Snapshot, HubError> {
        self.fetch_with(self.config(server), &mut Told::default())
    }

    /// What lies beside the cache: its own name and what should not be there.
    pub(crate) fn beside_the_cache(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// A path below the repository's folder in the cache.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("hub/models--org--model").join(name)
    }

    /// Every file and link below the repository's folder, sorted.
    pub(crate) fn tree(&self) -> Vec<String> {
        let root = self.path("");
        let mut found = Vec::new();
        walk(&root, &root, &mut found);
        found.sort();
        found
    }
}

fn walk(root: &Path, dir: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(root, &path, found);
        } else {
            found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
}

/// What a person is told; may stop the download.
pub(crate) struct Told {
    pub(crate) repository: String,
    pub(crate) notes: Vec<String>,
    /// Done and total at each update.
    pub(crate) updates: Vec<(u64, u64)>,
    /// Whether to stop at so many bytes.
    pub(crate) stop: Box<dyn FnMut(u64) -> bool>,
}

impl Told {
    pub(crate) fn of(repository: &str) -> Self {
        Self {
            repository: repository.to_owned(),
            notes: Vec::new(),
            updates: Vec::new(),
            stop: Box::new(|_| false),
        }
    }

    pub(crate) fn stopping(stop: impl FnMut(u64) -> bool + 'static) -> Self {
        Self { stop: Box::new(stop), ..Self::default() }
    }
}

impl Default for Told {
    fn default() -> Self {
        Self::of("org/model")
    }
}

impl Progress for Told {
    fn update(&mut self, status: &Status<'_>) -> bool {
        assert!(status.done <= status.total && status.file_done <= status.file_total, "{status:?}");
        self.updates.push((status.done, status.total));
        !(self.stop)(status.done)
    }

    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}
