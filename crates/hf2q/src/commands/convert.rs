//! `hf2q convert`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use hf2q_convert::{Options, Recipe, Summary};

use crate::args::ConvertArgs;
use crate::{load, terminal};

pub(crate) fn run(args: &ConvertArgs) -> Result<()> {
    let recipe = Recipe::from_name(&args.ty)?;
    check_folder(&args.folder)?;
    let output = match &args.output {
        Some(path) => path.clone(),
        None => default_output(args)?,
    };
    if !args.force {
        let earlier = if args.split.is_some() { load::part_of_set(&output)? } else { None };
        if let Some(path) = earlier.or_else(|| output.exists().then(|| output.clone())) {
            bail!("{} exists already; --force replaces it", path.display());
        }
    }
    let started = Instant::now();
    let options = Options { recipe, split_bytes: args.split };
    let summary = load::convert_with_bar(&args.folder, &output, options)?;
    print_summary(&summary, started.elapsed().as_secs_f64())
}

/// The mistakes that are made first get a message of their own.
fn check_folder(folder: &Path) -> Result<()> {
    let problem = if !folder.exists() {
        "no such folder"
    } else if !folder.is_dir() {
        "is a file"
    } else if !folder.join("config.json").is_file() {
        "has no config.json"
    } else {
        return Ok(());
    };
    bail!(
        "{}: {problem}; convert takes a checkpoint folder with config.json, safetensors and tokenizer files",
        folder.display()
    )
}

fn default_output(args: &ConvertArgs) -> Result<PathBuf> {
    let folder = args.folder.canonicalize().with_context(|| args.folder.display().to_string())?;
    let name =
        folder.file_name().context("the folder has no name; give --output")?.to_string_lossy().into_owned();
    Ok(PathBuf::from(format!("{name}-{}.gguf", args.ty.to_lowercase())))
}

pub(crate) fn print_summary(summary: &Summary, seconds: f64) -> Result<()> {
    let (tensors, bytes) = summary.by_type.values().fold((0, 0), |(t, b), (n, size)| (t + n, b + size));
    let types: Vec<String> = summary.by_type.iter().map(|(ty, (n, _))| format!("{n} {ty}")).collect();
    for path in &summary.paths {
        terminal::print_line(&format!("Wrote {}", path.display()))?;
    }
    let size = terminal::bytes(bytes);
    terminal::print_line(&format!("{tensors} tensors ({}), {size} in {seconds:.1} s", types.join(", ")))
}
