//! From what a user calls MODEL to an opened GGUF file.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail};
use hf2q_arch::Architecture;
use hf2q_convert::{Folder, Options, Plan, Progress, Recipe, Source, Summary};
use hf2q_gguf::Gguf;
use hf2q_model::{Model, ModelError};
use indicatif::ProgressBar;

use crate::{config, hub, interrupt, terminal};

/// Type into which a HuggingFace folder is converted when it is used as a model.
pub(crate) const CACHED_TYPE: &str = "q8_0";

/// What is said of a path where nothing lies.
pub(crate) const NO_MODEL: &str =
    "no such file or folder; MODEL is a GGUF file, a checkpoint folder or a repository ORG/NAME";

/// Opens a GGUF file, any shard of a split one, a folder with one, or a HuggingFace folder, with a model that computes by
/// itself.
pub(crate) fn open(model: &Path) -> Result<Gguf> {
    let gguf = any(model)?;
    let name = gguf.metadata().opt_str("general.architecture")?;
    match name.and_then(Architecture::from_name).filter(|a| a.is_drafter()) {
        Some(drafter) => Err(ModelError::Drafter { architecture: drafter.name() }.into()),
        None => Ok(gguf),
    }
}

/// The same, also with what only drafts for another model.
pub(crate) fn any(model: &Path) -> Result<Gguf> {
    let path = resolve(model)?;
    Ok(Gguf::open(&path)?)
}

/// The model of a file; says what of the file it does without.
pub(crate) fn model(gguf: &Gguf) -> Result<Model> {
    let model = Model::load(gguf)?;
    for warning in model.warnings() {
        terminal::note(&format!("note: {warning}"));
    }
    Ok(model)
}

fn resolve(model: &Path) -> Result<PathBuf> {
    let model = &*hub::resolve(model)?;
    if !model.exists() {
        bail!("{}: {NO_MODEL}", model.display());
    }
    if !model.is_dir() {
        return Ok(model.to_owned());
    }
    if model.join("config.json").is_file() {
        return converted(model);
    }
    only_file(model)
}

/// A GGUF file, or the only one in a folder; nothing is loaded or converted for it.
pub(crate) fn file(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    if path.join("config.json").is_file() {
        bail!("{}: a checkpoint, not a GGUF file; `hf2q convert` makes one of it", path.display());
    }
    only_file(path)
}

/// The GGUF file of the only model in a folder.
fn only_file(model: &Path) -> Result<PathBuf> {
    let mut files = gguf_files(model)?;
    files.sort();
    // Shards of one set count as one model; any of them opens it.
    files.dedup_by_key(|f| stem_of_set(f));
    match &files[..] {
        [] => bail!("{}: neither a GGUF file nor a config.json is in this folder", model.display()),
        [one] => Ok(one.clone()),
        [first, ..] => bail!(
            "{}: {} models are in this folder; name one, for example {}",
            model.display(),
            files.len(),
            first.display()
        ),
    }
}

fn gguf_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let paths: Vec<PathBuf> = entries.map(|e| e.map(|e| e.path())).collect::<std::io::Result<_>>()?;
    Ok(paths.into_iter().filter(|p| p.extension().is_some_and(|e| e == "gguf")).collect())
}

/// A file of a split set that would have the name `output`; `None` if there is none.
pub(crate) fn part_of_set(output: &Path) -> Result<Option<PathBuf>> {
    let dir = output.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !dir.is_dir() {
        return Ok(None);
    }
    let set = stem_of_set(output);
    let is_part = |p: &PathBuf| p.file_name() != output.file_name() && stem_of_set(p) == set;
    Ok(gguf_files(dir)?.into_iter().find(is_part))
}

/// `model-00001-of-00003.gguf` to `model`.
pub(crate) fn stem_of_set(file: &Path) -> String {
    let name = file.file_name().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = name.strip_suffix(".gguf").unwrap_or(&name).to_owned();
    match stem.rsplit_once("-of-").and_then(|(head, _)| head.rsplit_once('-')) {
        Some((name, number)) if number.bytes().all(|b| b.is_ascii_digit()) => name.to_owned(),
        _ => stem,
    }
}

/// The converted form of a checkpoint folder, from the cache or made now. It is named after the folder and
/// the state of its files, so that a changed checkpoint is converted again.
fn converted(folder: &Path) -> Result<PathBuf> {
    let folder = folder.canonicalize().with_context(|| folder.display().to_string())?;
    let name = Folder::new(&folder).name().unwrap_or_default();
    let cache = config::cache_dir()?;
    let output = cache.join(format!("{name}-{:016x}-{CACHED_TYPE}.gguf", fingerprint(&folder)?));
    if output.exists() {
        return Ok(output);
    }
    std::fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
    terminal::note(&format!(
        "Converting {} to {CACHED_TYPE}, kept as {}",
        folder.display(),
        output.display()
    ));
    convert_folder(&folder, &output, CACHED_TYPE)?;
    Ok(output)
}

/// FNV-1a over path, file names, sizes and times of change.
fn fingerprint(folder: &Path) -> Result<u64> {
    let mut files: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let path = entry.path();
        let meta = std::fs::metadata(&path).with_context(|| path.display().to_string())?;
        let changed =
            meta.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        files.push(format!("{:?} {} {}", entry.file_name(), meta.len(), changed.as_nanos()));
    }
    files.sort();
    files.push(format!("{folder:?} {}", env!("CARGO_PKG_VERSION")));
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    Ok(files.iter().flat_map(|f| f.bytes()).fold(0xcbf2_9ce4_8422_2325, step))
}

/// Writes with a progress bar; Ctrl-C ends it and leaves nothing behind.
pub(crate) fn write_with_bar(plan: Plan<'_>, output: &Path) -> Result<Summary> {
    interrupt::install_once()?;
    let mut bar = Bar(None);
    let summary = interrupt::tidily(|| plan.write(output, &mut bar));
    if let Some(bar) = bar.0 {
        bar.finish_and_clear();
    }
    let summary = summary?;
    for warning in &summary.warnings {
        terminal::note(&format!("note: {}", terminal::safe(warning)));
    }
    Ok(summary)
}

/// Converts a folder to one file of a recipe's types, with a progress bar.
pub(crate) fn convert_folder(folder: &Path, output: &Path, recipe: &str) -> Result<Summary> {
    let options = Options::new(Recipe::from_name(recipe)?);
    write_with_bar(Plan::new(&Source::open(folder)?, options)?, output)
}

struct Bar(Option<ProgressBar>);

impl Progress for Bar {
    fn start(&mut self, total_bytes: u64) {
        self.0 = Some(terminal::byte_bar(total_bytes));
    }

    fn advance(&mut self, tensor: &str, done_bytes: u64) -> bool {
        if let Some(bar) = &self.0 {
            bar.set_position(done_bytes);
            bar.set_message(terminal::safe(tensor));
        }
        !interrupt::pressed()
    }
}
