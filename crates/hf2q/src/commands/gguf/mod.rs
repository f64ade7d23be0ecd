//! `hf2q gguf`: metadata of files that exist.

mod assign;
mod show;
mod usable;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hf2q_gguf::{Edit, Gguf, GgufError, Value};

use crate::args::{EditArgs, GgufAction, GgufArgs, SetArgs, TemplateArgs, UnsetArgs};
use crate::{interrupt, terminal};

const TEMPLATE: &str = "tokenizer.chat_template";

pub(crate) fn run(args: &GgufArgs) -> Result<()> {
    match &args.action {
        GgufAction::Get(args) => show::get(args),
        GgufAction::Set(args) => set(args),
        GgufAction::Unset(args) => unset(args),
        GgufAction::Template(args) => template(args),
    }
}

fn set(args: &SetArgs) -> Result<()> {
    let mut edit = open(&args.file, args.edit.force, false)?;
    for assignment in &args.assignments {
        let (key, value) = assign::parse(assignment, edit.metadata())?;
        edit.set(&key, value).map_err(with_flag)?;
    }
    finish(&edit, &args.file, &args.edit)
}

fn unset(args: &UnsetArgs) -> Result<()> {
    let split = args.keys.iter().all(|key| key.starts_with("split."));
    let mut edit = open(&args.file, args.edit.force, split)?;
    for key in &args.keys {
        edit.unset(key).map_err(with_flag)?;
    }
    finish(&edit, &args.file, &args.edit)
}

fn template(args: &TemplateArgs) -> Result<()> {
    let Some(path) = &args.template else {
        if let Some(flag) = args.edit.given() {
            bail!("{flag} needs a template to write");
        }
        return show::template(&args.file);
    };
    let text = if path == Path::new("-") {
        terminal::text_or_stdin(None, "the template")?
    } else {
        let bytes = std::fs::read(path).with_context(|| format!("{}: cannot read it", path.display()))?;
        String::from_utf8(bytes).with_context(|| format!("{}: is not UTF-8", path.display()))?
    };
    if text.trim().is_empty() {
        bail!("{}: the template is empty; `hf2q gguf unset FILE {TEMPLATE}` removes one", path.display());
    }
    let mut edit = open(&args.file, args.edit.force, false)?;
    edit.set(TEMPLATE, Value::String(text)).map_err(with_flag)?;
    finish(&edit, &args.file, &args.edit)
}

/// Opens a file for an edit. If that is forced to be about `split.*` keys, the rest of the set need not exist.
fn open(file: &Path, force: bool, split: bool) -> Result<Edit> {
    if force && split {
        return Ok(Edit::open_alone(file)?);
    }
    let edit = Edit::open(file)?;
    Ok(if force { edit.force() } else { edit })
}

/// A refusal that can be overridden says how.
fn with_flag(error: GgufError) -> anyhow::Error {
    match &error {
        GgufError::ProtectedKey { hint, .. } if !hint.is_empty() => {
            anyhow::anyhow!("{}", error.to_string().replace(hint, "; --force changes it all the same"))
        }
        _ => error.into(),
    }
}

/// Shows the changes, unless they are refused, and writes them if that is wanted.
fn finish(edit: &Edit, file: &Path, args: &EditArgs) -> Result<()> {
    let changes = edit.changes();
    let broken = usable::check(edit, file, &changes);
    let broken = broken.map(|problem| format!("{}: with this change {problem}", file.display()));
    if let Some(problem) = broken.as_ref().filter(|_| !args.force) {
        bail!("{problem}; --force writes it all the same");
    }
    show::changes(&changes)?;
    if changes.is_empty() && args.output.is_none() {
        return terminal::print_line("Nothing to change: the file says so already");
    }
    if let Some(problem) = broken {
        terminal::note(&format!("warning: {problem}"));
    }
    if args.dry_run {
        return terminal::print_line("Nothing is written: --dry-run");
    }
    let replaced = replaced_link(edit, args);
    for path in write(edit, args.output.as_deref())? {
        terminal::print_line(&format!("Wrote {}", path.display()))?;
    }
    if let Some((link, target)) = replaced {
        let (link, target) = (link.display(), target.display());
        terminal::note(&format!("note: {link} was a link to {target}, which is unchanged; now it is a file"));
    }
    Ok(())
}

/// The symbolic link that the new file takes the place of, and what it leads to.
fn replaced_link(edit: &Edit, args: &EditArgs) -> Option<(PathBuf, PathBuf)> {
    let path = args.output.as_ref().unwrap_or(&edit.paths()[0]);
    let target = std::fs::read_link(path).ok()?;
    Some((path.clone(), target))
}

/// Writes with a progress bar; Ctrl-C ends it and leaves nothing behind.
fn write(edit: &Edit, output: Option<&Path>) -> Result<Vec<PathBuf>> {
    interrupt::install_once()?;
    let mut bar = None;
    let written = interrupt::tidily(|| {
        edit.write(output, &mut |done, total| {
            bar.get_or_insert_with(|| terminal::byte_bar(total)).set_position(done);
            !interrupt::pressed()
        })
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(written?)
}

impl EditArgs {
    /// A flag that was given, if one was.
    fn given(&self) -> Option<&'static str> {
        let flags =
            [("--output", self.output.is_some()), ("--dry-run", self.dry_run), ("--force", self.force)];
        flags.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }
}

/// Shapes of all tensors of a model; `None` if it holds types that cannot be read here.
fn shapes(file: &Path) -> Option<std::collections::BTreeMap<String, Vec<u64>>> {
    let gguf = Gguf::open(file).ok()?;
    Some(gguf.tensors().iter().map(|t| (t.name.clone(), t.shape.clone())).collect())
}
