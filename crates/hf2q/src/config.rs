//! What the environment says. Nothing else in the project reads it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use hf2q_hub::{HubConfig, Token};

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// Where converted models are kept: `$XDG_CACHE_HOME/hf2q`, else `~/.cache/hf2q`.
pub(crate) fn cache_dir() -> Result<PathBuf> {
    let base = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|h| h.join(".cache")));
    let base = base.context("neither XDG_CACHE_HOME nor HOME is set, so there is no cache folder; run `hf2q convert` and give its output")?;
    Ok(base.join("hf2q"))
}

/// Set by `--offline`.
static OFFLINE: AtomicBool = AtomicBool::new(false);

/// No repository is loaded any more; only the cache is used.
pub(crate) fn go_offline() {
    OFFLINE.store(true, Ordering::SeqCst);
}

/// The hub of HuggingFace and its cache, by the variables that Python's `huggingface_hub` knows.
pub(crate) fn hub() -> Result<HubConfig> {
    let home = hub_home();
    let cache = folder("HF_HUB_CACHE").or_else(|| folder("HUGGINGFACE_HUB_CACHE"));
    let cache = cache.or_else(|| home.as_ref().map(|h| h.join("hub")));
    let cache = cache.context(
        "neither HF_HUB_CACHE, HF_HOME nor HOME is set, so there is no folder to keep a repository in",
    )?;
    let mut hub = HubConfig::new(cache);
    if let Some(endpoint) = text("HF_ENDPOINT") {
        hub.endpoint = endpoint;
    }
    hub.offline =
        OFFLINE.load(Ordering::SeqCst) || is_set("HF_HUB_OFFLINE") || is_set("TRANSFORMERS_OFFLINE");
    hub.certificates = folder("SSL_CERT_FILE");
    if !is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
        hub.token = token(home)?;
    }
    Ok(hub)
}

/// `$HF_HOME`, else `huggingface` in the folder of caches.
fn hub_home() -> Option<PathBuf> {
    let base = || folder("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|h| h.join(".cache")));
    folder("HF_HOME").or_else(|| Some(base()?.join("huggingface")))
}

/// From `HF_TOKEN`, else from the file that `hf auth login` writes.
fn token(home: Option<PathBuf>) -> Result<Option<Token>> {
    for name in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"] {
        if let Some(text) = text(name).filter(|t| !t.trim().is_empty()) {
            let Some(token) = Token::new(&text) else { bail!("{name} holds characters that no token has") };
            return Ok(Some(token));
        }
    }
    let file = folder("HF_TOKEN_PATH").or_else(|| home.map(|h| h.join("token")));
    let text = file.and_then(|f| std::fs::read_to_string(f).ok());
    Ok(text.and_then(|t| Token::new(&t)))
}

fn text(name: &str) -> Option<String> {
    variable(name)?.to_str().map(str::to_owned)
}

/// A path of a variable, `~` being the user's own folder.
fn folder(name: &str) -> Option<PathBuf> {
    let path = variable(name)?;
    match path.strip_prefix("~") {
        Ok(rest) => Some(variable("HOME")?.join(rest)),
        Err(_) => Some(path),
    }
}

fn is_set(name: &str) -> bool {
    text(name).is_some_and(|v| ["1", "on", "yes", "true"].contains(&v.to_ascii_lowercase().as_str()))
}

/// Where the chat's history is kept.
pub(crate) fn history_file() -> Option<PathBuf> {
    cache_dir().ok().map(|d| d.join("chat-history"))
}

/// Where kernels that were compiled for a GPU are kept.
pub(crate) fn kernel_dir() -> Option<PathBuf> {
    cache_dir().ok().map(|d| d.join("kernels"))
}

/// Where NVRTC, the compiler of kernels, lies if a toolkit or Python's package installer has put it where the system does not
/// look for libraries.
pub(crate) fn nvrtc_folders() -> Vec<PathBuf> {
    let toolkits = ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(folder);
    let mut folders: Vec<PathBuf> =
        toolkits.flat_map(|root| [root.join("lib64"), root.join("lib")]).collect();
    folders.push("/usr/local/cuda/lib64".into());
    let own = [folder("VIRTUAL_ENV"), variable("HOME").map(|home| home.join(".local"))];
    let roots = own.into_iter().flatten().chain(["/usr/local".into(), "/usr".into()]);
    for lib in roots.map(|root| root.join("lib")) {
        // lib/python3.N/site-packages/nvidia/cu13/lib, or cuda_nvrtc in place of cu13 before version 13.
        let pythons = subfolders(&lib).into_iter().filter(|p| name_of(p).starts_with("python3"));
        let packages = pythons.flat_map(|p| [p.join("site-packages"), p.join("dist-packages")]);
        let parts = packages.flat_map(|p| subfolders(&p.join("nvidia")));
        let parts = parts.filter(|p| name_of(p).starts_with("cu"));
        folders.extend(parts.map(|p| p.join("lib")));
    }
    folders.retain(|folder| folder.is_dir());
    folders
}

/// Sorted by name, the last first.
fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| p.is_dir()).collect();
    folders.sort_by(|a, b| b.cmp(a));
    folders
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Threads if nothing else is said: one for each core.
pub(crate) fn default_threads() -> usize {
    hf2q_cpu::default_threads()
}
