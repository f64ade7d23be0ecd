//! From what was typed to models that can be loaded.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use hf2q_engine::{Budget, CacheOptions, EngineOptions, Needs, Pooling, SchedulerOptions, WindowPolicy};
use hf2q_gguf::{Gguf, Metadata};
use hf2q_hub::Repository;
use hf2q_model::Model;
use hf2q_plan::{Backend, Plan};
use hf2q_server::{Loaded, Source};
use hf2q_text::{ChatTemplate, Tokenizer};

use crate::args::{DraftArg, DraftArgs, EngineArgs, ServeArgs};
use crate::drafts::{DraftModel, Prepared, Target, Wanted, prepare};
use crate::{load, memory, session, terminal};

/// Rows whose logits one step gives, at least: embeddings and probabilities of prompts go in such chunks.
const LOGIT_ROWS: usize = 64;
/// Rows of a step while answers are under way.
const BUSY_ROWS: usize = 128;

/// A model by its name and place.
struct Local {
    id: String,
    path: PathBuf,
    bytes: u64,
    /// Whether it has a chat template, where a file that is here says so.
    chats: Option<bool>,
    how: Arc<How>,
}

/// How all models are run.
struct How {
    engine: EngineArgs,
    drafts: DraftArgs,
    parallel: usize,
    queue: usize,
    busy: Option<usize>,
    kv_memory: Option<u64>,
}

/// All models that the arguments name.
pub(crate) fn find(args: &ServeArgs) -> Result<Vec<Box<dyn Source>>> {
    args.drafts.check()?;
    let how = Arc::new(How {
        engine: args.engine.clone(),
        drafts: args.drafts.clone(),
        parallel: args.load.parallel,
        queue: args.load.queue,
        busy: args.load.busy_chunk,
        kv_memory: args.load.kv_memory,
    });
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    let models = args.models.iter().map(|given| named(given)).collect::<Result<Vec<_>>>()?.concat();
    models.iter().try_for_each(|(_, path)| check_place(path))?;
    // Of several models none is loaded yet, so that nobody would hear of a drafter that is for others.
    if let (DraftArg::Model(drafter), [_, _, ..]) = (&args.drafts.draft, &models[..]) {
        load::any(drafter).context("--draft")?;
        models.iter().try_for_each(|(id, path)| check_drafter(drafter, (id, path)))?;
    }
    for (id, path) in models {
        let (bytes, chats) = (size(&path), chats(&path));
        sources.push(Box::new(Local { id, path, bytes, chats, how: Arc::clone(&how) }));
    }
    Ok(sources)
}

/// Refuses what is neither here nor the name of a repository.
fn check_place(path: &Path) -> Result<()> {
    if path.exists() || path.to_str().is_some_and(Repository::looks_like) {
        return Ok(());
    }
    bail!("{}: {}", path.display(), load::NO_MODEL)
}

/// Whether the metadata of a GGUF file have a chat template.
fn chats(path: &Path) -> Option<bool> {
    let gguf = path.is_file().then(|| Gguf::open(path).ok()).flatten()?;
    Some(gguf.metadata().get("tokenizer.chat_template").is_some())
}

/// Refuses a drafter that is not for a model. What must be loaded from elsewhere or converted first, or cannot be read, is looked
/// at when somebody asks for it.
fn check_drafter(drafter: &Path, (id, path): (&str, &Path)) -> Result<()> {
    let is_here = path.is_file() || path.is_dir() && !path.join("config.json").is_file();
    let Some(gguf) = is_here.then(|| load::open(path).ok()).flatten() else { return Ok(()) };
    let (Ok(tokenizer), Ok(model)) = (Tokenizer::from_metadata(gguf.metadata()), Model::load(&gguf)) else {
        return Ok(());
    };
    DraftModel::read(drafter, &model, Some(&tokenizer)).with_context(|| format!("--draft for {id}"))?;
    Ok(())
}

/// `NAME=MODEL`, or a model that is named after its file, folder or repository; all models of a folder.
fn named(given: &str) -> Result<Vec<(String, PathBuf)>> {
    if let Some((name, model)) = given.split_once('=').filter(|(name, _)| !name.contains(['/', '\\'])) {
        if name.is_empty() || model.is_empty() {
            bail!("{given}: expected NAME=MODEL");
        }
        return Ok(vec![(name.to_owned(), model.into())]);
    }
    let path = Path::new(given);
    if path.is_dir() && !path.join("config.json").is_file() {
        return folder(path);
    }
    let id = if path.is_file() {
        load::stem_of_set(path)
    } else if path.is_dir() {
        let full = path.canonicalize().with_context(|| path.display().to_string())?;
        full.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_else(|| given.to_owned())
    } else {
        given.to_owned()
    };
    Ok(vec![(id, path.to_owned())])
}

/// Each GGUF file and each checkpoint that lies directly in a folder.
fn folder(dir: &Path) -> Result<Vec<(String, PathBuf)>> {
    let context = || dir.display().to_string();
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(context)? {
        let path = entry.with_context(context)?.path();
        let gguf = path.is_file() && path.extension().is_some_and(|e| e == "gguf");
        if gguf || path.join("config.json").is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    let mut models: Vec<(String, PathBuf)> = paths.into_iter().map(|p| (load::stem_of_set(&p), p)).collect();
    // Any shard opens its set.
    models.dedup_by(|a, b| a.0 == b.0 && a.1.is_file() && b.1.is_file());
    if models.is_empty() {
        bail!("{}: neither a GGUF file nor a checkpoint lies in this folder", dir.display());
    }
    Ok(models)
}

/// Bytes of the files; 0 where that is not known yet.
fn size(path: &Path) -> u64 {
    let size = |p: &Path| std::fs::metadata(p).map_or(0, |m| m.len());
    let Some(dir) = path.parent().filter(|_| path.is_file()) else { return 0 };
    let set = load::stem_of_set(path);
    let Ok(entries) = std::fs::read_dir(if dir.as_os_str().is_empty() { Path::new(".") } else { dir }) else {
        return size(path);
    };
    let parts = entries.flatten().map(|e| e.path());
    parts.filter(|p| p.extension() == path.extension() && load::stem_of_set(p) == set).map(|p| size(&p)).sum()
}

impl Source for Local {
    fn id(&self) -> &str {
        &self.id
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn chats(&self) -> Option<bool> {
        self.chats
    }

    fn load(&self) -> Result<Loaded, Box<dyn std::error::Error + Send + Sync>> {
        // The whole chain of causes is for the log.
        self.open().map_err(|e| format!("{e:#}").into())
    }
}

impl Local {
    fn open(&self) -> Result<Loaded> {
        let gguf = load::open(&self.path)?;
        let metadata = gguf.metadata();
        let tokenizer = Tokenizer::from_metadata(metadata)?;
        let template = ChatTemplate::from_metadata(metadata, &tokenizer)?;
        let model = load::model(&gguf)?;
        let how = &self.how;
        let sizes = how.sizes(&model)?;
        let target = Target { model: &model, tokenizer: &tokenizer, engine: &how.engine, sizes };
        let fit = |plan: &Plan, backend: &dyn Backend, wanted| how.fit(&model, plan, (backend, wanted));
        let Prepared { plan, backend, sizes, drafting, drafter } = prepare(&target, &how.drafts, &fit)?;
        let needs = Needs::new(&*backend, &plan, model.weights_for(&plan.recording), sizes)?;
        let engine = session::open_with(&model, plan, (&*backend, sizes), drafter.as_ref())?;
        let busy_rows = how.busy.unwrap_or(BUSY_ROWS.max(2 * how.parallel)).clamp(1, sizes.rows);
        let kv = terminal::bytes(needs.caches() as u64);
        let drafts =
            drafting.as_ref().map_or(String::new(), |d| format!(" · drafts by {}", d.drafter.name()));
        let description = format!(
            "{}, {} · context {} · {} at once, {kv} of keys and values{drafts} · on {}",
            name(&gguf),
            terminal::bytes(gguf.file_bytes()),
            sizes.context,
            sizes.sequences,
            backend.describe()
        );
        Ok(Loaded {
            engine,
            scheduler: SchedulerOptions { queue: how.queue, busy_rows },
            drafting,
            tokenizer,
            template,
            sampling: session::default_sampling(metadata)?,
            pooling: pooling(metadata)?,
            bytes: needs.total().saturating_add(drafter.map_or(0, |d| d.total())) as u64,
            description,
        })
    }
}

impl How {
    fn sizes(&self, model: &Model) -> Result<EngineOptions> {
        let longest = model.config().context_length;
        let mut engine = self.engine.clone();
        if let Some(context) = engine.context.as_mut().filter(|context| **context > longest) {
            terminal::note(&format!(
                "note: --context {context} is more than the model's context of {longest} tokens, which is served"
            ));
            *context = longest;
        }
        let base = engine.sizes(model, 1)?;
        let rows = base.rows.max((2 * self.parallel).min(base.context));
        let logit_rows = LOGIT_ROWS.max(self.parallel + self.drafts.rows()).min(rows);
        let budget = match self.kv_memory {
            Some(bytes) => Budget::Bytes(usize::try_from(bytes).unwrap_or(usize::MAX)),
            None => Budget::Sequences,
        };
        let cache = CacheOptions { budget, windows: WindowPolicy::Keep };
        Ok(EngineOptions { sequences: self.parallel, rows, logit_rows, cache, ..base })
    }

    /// Where nobody says how much memory caches may take, they and a drafter's leave half of what is free.
    fn fit(
        &self,
        model: &Model,
        plan: &Plan,
        (backend, (sizes, beside)): (&dyn Backend, Wanted),
    ) -> Result<EngineOptions> {
        let needs = |sizes| Needs::new(backend, plan, model.weights_for(&plan.recording), sizes);
        let wanted = needs(sizes)?;
        let free = match backend.free_memory()? {
            Some(free) => Some(free.saturating_sub(wanted.weights as u64)),
            None => memory::free(),
        };
        let most = free.map_or(f64::INFINITY, |free| free as f64 / 2.0 / (1.0 + beside));
        if self.kv_memory.is_some() || wanted.caches() as f64 <= most {
            return Ok(within(sizes, wanted.tokens()));
        }
        let cache = CacheOptions { budget: Budget::Bytes(most as usize), ..sizes.cache };
        let sizes = EngineOptions { cache, ..sizes };
        Ok(within(sizes, needs(sizes)?.tokens()))
    }
}

/// A context no longer than the pages hold: nothing is made for more, and clients are told what is true.
fn within(sizes: EngineOptions, tokens: usize) -> EngineOptions {
    if tokens >= sizes.context {
        return sizes;
    }
    terminal::note(&format!(
        "note: the memory for keys and values holds {tokens} tokens, less than a context of {}; --kv-memory says how much it is",
        sizes.context
    ));
    let rows = sizes.rows.min(tokens.saturating_mul(sizes.sequences));
    EngineOptions { context: tokens, rows, logit_rows: sizes.logit_rows.min(rows), ..sizes }
}

/// What the file calls itself.
fn name(gguf: &Gguf) -> String {
    let name = gguf.metadata().opt_str("general.name").ok().flatten();
    name.or_else(|| gguf.metadata().opt_str("general.architecture").ok().flatten())
        .unwrap_or("model")
        .to_owned()
}

/// How the file says that embeddings are made: the mean where it does not say, `None` where by means that there are not.
fn pooling(metadata: &Metadata) -> Result<Option<Pooling>> {
    let architecture = metadata.opt_str("general.architecture")?.unwrap_or_default();
    Ok(match metadata.opt_u32(&format!("{architecture}.pooling_type"))? {
        None | Some(0 | 1) => Some(Pooling::Mean),
        Some(3) => Some(Pooling::Last),
        Some(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_named_after_what_they_are() {
        let one = |given: &str| named(given).unwrap().remove(0);
        assert_eq!(one("a=b/c.gguf"), ("a".into(), "b/c.gguf".into()));
        assert_eq!(one("org/name"), ("org/name".into(), "org/name".into()));
        assert_eq!(one("org/a=b"), ("org/a=b".into(), "org/a=b".into()));
        assert!(named("=x").is_err() && named("x=").is_err());
    }

    #[test]
    fn a_folder_gives_all_its_models_once() {
        let dir = tempfile::tempdir().unwrap();
        assert!(named(dir.path().to_str().unwrap()).is_err());
        for name in ["b.gguf", "a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "notes.txt"] {
            std::fs::write(dir.path().join(name), "12345").unwrap();
        }
        std::fs::create_dir(dir.path().join("c")).unwrap();
        std::fs::write(dir.path().join("c/config.json"), "{}").unwrap();
        let found = named(dir.path().to_str().unwrap()).unwrap();
        assert_eq!(found.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(size(&found[0].1), 10);
        assert_eq!(size(&found[1].1), 5);
    }
}
