//! `hf2q convert`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use hf2q_convert::{
    Folder, Importance, Options, Overrides, Plan, Recipe, Record, Source, Summary, Why, report,
};

use crate::args::ConvertArgs;
use crate::output::folder_of;
use crate::{hub, interrupt, load, output, terminal};

pub(crate) fn run(args: &ConvertArgs) -> Result<()> {
    let options = options(args)?;
    let input = hub::resolve(&args.input)?;
    check_input(&input)?;
    let started = Instant::now();
    let source = match &args.target {
        Some(target) => Source::open_drafter(&input, &hub::resolve(target)?)?,
        None => Source::open(&input)?,
    };
    let plan = Plan::new(&source, options)?;
    if args.dry_run {
        return print_plan(&plan, source.bytes());
    }
    let output = match &args.output {
        Some(path) => path.clone(),
        None => default_output(&input, &args.ty)?,
    };
    check_output(&output)?;
    refuse_existing(args, &output)?;
    if let Some(page) = &args.report {
        check_report(args, page, (&source, &output))?;
    }
    let summary = load::write_with_bar(plan, &output)?;
    let seconds = started.elapsed().as_secs_f64();
    print_summary(&summary, seconds)?;
    let Some(page) = &args.report else { return Ok(()) };
    write_report(args, page, (&source, &summary), seconds)?;
    terminal::print_line(&format!("Wrote {}", page.display()))
}

/// Said before the work, not after it.
fn check_output(output: &Path) -> Result<()> {
    if output == Path::new("-") {
        bail!("--output -: a model cannot be written to standard output; name a file");
    }
    let named = output.file_name().is_some() && !output.as_os_str().as_encoded_bytes().ends_with(b"/");
    if !named || output.is_dir() {
        bail!("--output {}: a folder; name the file to write", output.display());
    }
    if !folder_of(output).is_dir() {
        bail!("--output {}: there is no folder {}", output.display(), folder_of(output).display());
    }
    Ok(())
}

/// Said before the work, not after it.
fn check_report(args: &ConvertArgs, page: &Path, (source, output): (&Source, &Path)) -> Result<()> {
    let place = |path: &Path| (folder_of(path).canonicalize().ok(), path.file_name().map(OsStr::to_owned));
    if place(page) == place(output) || page.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf")) {
        bail!("--report {}: a page is no model; give it another name, ending in .html", page.display());
    }
    if source.reads(page) || args.imatrix.iter().any(|file| hf2q_gguf::same_file(file, page)) {
        bail!("--report {} is an input; choose another name", page.display());
    }
    output::check("--report", page, args.force)
}

fn write_report(
    args: &ConvertArgs,
    page: &Path,
    (source, summary): (&Source, &Summary),
    seconds: f64,
) -> Result<()> {
    let outputs: Vec<String> = summary.paths.iter().map(|p| p.display().to_string()).collect();
    let imatrix: Vec<String> = args.imatrix.iter().map(|p| p.display().to_string()).collect();
    let input = args.input.display().to_string();
    let html = report::html(&report::Report {
        name: source.name().unwrap_or(&input),
        config: source.config(),
        source: &input,
        source_bytes: source.bytes(),
        outputs: &outputs,
        recipe: &args.ty.to_lowercase(),
        importance: (!imatrix.is_empty()).then(|| imatrix.join(", ")).as_deref(),
        seconds,
        records: &summary.records,
        warnings: &summary.warnings,
    });
    Ok(interrupt::tidily(|| hf2q_gguf::write_file(page, html.as_bytes()))?)
}

fn options(args: &ConvertArgs) -> Result<Options> {
    Ok(Options {
        overrides: overrides(args)?,
        importance: importance(&args.imatrix)?,
        lattice: !args.no_lattice,
        split_bytes: args.split,
        protected: args.imatrix.clone(),
        measure: args.report.is_some(),
        refuse_fallback: args.no_fallback,
        ..Options::new(Recipe::from_name(&args.ty)?)
    })
}

fn overrides(args: &ConvertArgs) -> Result<Overrides> {
    let ty = |flag: &str, name: &Option<String>| {
        let parse = |name: &String| Overrides::type_from_name(name).with_context(|| flag.to_owned());
        name.as_ref().map(parse).transpose()
    };
    let mut overrides = Overrides {
        pure: args.pure,
        output: ty("--output-type", &args.output_type)?,
        embedding: ty("--embedding-type", &args.embedding_type)?,
        patterns: Vec::new(),
    };
    for text in &args.tensor_type {
        overrides.add_pattern(text).context("--tensor-type")?;
    }
    Ok(overrides)
}

/// The files' importance, and how they are called in the file that is written.
fn importance(files: &[PathBuf]) -> Result<Option<(String, Importance)>> {
    if files.is_empty() {
        return Ok(None);
    }
    let names: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    Ok(Some((names.join(", "), Importance::open(files)?)))
}

fn refuse_existing(args: &ConvertArgs, output: &Path) -> Result<()> {
    if args.force {
        return Ok(());
    }
    let earlier = if args.split.is_some() { load::part_of_set(output)? } else { None };
    if let Some(path) = earlier.or_else(|| output.exists().then(|| output.to_owned())) {
        bail!("{} exists already; --force replaces it", path.display());
    }
    Ok(())
}

/// The mistakes that are made first get a message of their own.
fn check_input(input: &Path) -> Result<()> {
    let problem = if !input.exists() {
        "no such file or folder"
    } else if input.is_dir() && !input.join("config.json").is_file() {
        "has no config.json"
    } else {
        return Ok(());
    };
    bail!(
        "{}: {problem}; convert takes a checkpoint folder with config.json, safetensors and tokenizer files, a repository ORG/NAME with them, or a GGUF file",
        input.display()
    )
}

/// Named after the input without the type that its name ends with.
fn default_output(input: &Path, ty: &str) -> Result<PathBuf> {
    let input = input.canonicalize().with_context(|| input.display().to_string())?;
    let name = if input.is_dir() {
        Folder::new(&input).name().context("the input has no name; give --output")?
    } else {
        load::stem_of_set(&input)
    };
    Ok(PathBuf::from(format!("{}-{}.gguf", without_type(&name), ty.to_lowercase())))
}

fn without_type(name: &str) -> &str {
    match name.rsplit_once(['-', '.']) {
        Some((plain, ty)) if Recipe::names().any(|r| r.eq_ignore_ascii_case(ty)) => plain,
        _ => name,
    }
}

fn print_plan(plan: &Plan<'_>, source_bytes: u64) -> Result<()> {
    let records = plan.records();
    let width = |text: fn(&Record) -> usize| records.iter().map(text).max().unwrap_or(0);
    let (names, shapes) = (width(|r| terminal::safe(&r.name).len()), width(|r| shape(r).len()));
    let sources = width(|r| r.source.len());
    for r in &records {
        terminal::print_line(&format!(
            "{:names$}  {:>shapes$}  {:sources$} -> {:7}{:>11}  {}",
            terminal::safe(&r.name),
            shape(r),
            r.source,
            r.ty.name(),
            terminal::bytes(r.bytes),
            reason(r.why)
        ))?;
    }
    for warning in plan.warnings() {
        terminal::note(&format!("note: {}", terminal::safe(warning)));
    }
    terminal::print_line(&format!("\n{}, now {}", totals(&records), terminal::bytes(source_bytes)))
}

fn shape(record: &Record) -> String {
    record.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ")
}

fn reason(why: Why) -> String {
    match why {
        Why::Recipe => String::new(),
        Why::Mixture => "mixture".to_owned(),
        Why::Override => "as asked".to_owned(),
        Why::Fallback { wanted } => format!("rows do not fit {wanted}"),
        Why::Lattice => "trained for it".to_owned(),
        Why::Kept => "kept".to_owned(),
    }
}

pub(crate) fn print_summary(summary: &Summary, seconds: f64) -> Result<()> {
    for path in &summary.paths {
        terminal::print_line(&format!("Wrote {}", path.display()))?;
    }
    terminal::print_line(&format!("{} in {seconds:.1} s", totals(&summary.records)))
}

/// Tensors by type, size and bits per weight.
fn totals(records: &[Record]) -> String {
    let mut by_type: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records {
        *by_type.entry(record.ty.name()).or_default() += 1;
    }
    let types: Vec<String> = by_type.iter().map(|(ty, n)| format!("{n} {ty}")).collect();
    let bytes: u64 = records.iter().map(|r| r.bytes).sum();
    let elements: u64 = records.iter().map(Record::elements).sum();
    let bits = 8.0 * bytes as f64 / elements.max(1) as f64;
    format!(
        "{} tensors ({}), {}, {bits:.2} bits per weight",
        records.len(),
        types.join(", "),
        terminal::bytes(bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::without_type;

    #[test]
    fn the_type_at_the_end_of_a_name_is_replaced() {
        assert_eq!(without_type("gemma-3-f16"), "gemma-3");
        assert_eq!(without_type("gemma-3.Q8_0"), "gemma-3");
        assert_eq!(without_type("gemma-3"), "gemma-3");
    }
}
