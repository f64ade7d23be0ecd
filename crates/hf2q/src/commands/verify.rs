//! `hf2q verify`.

use std::path::Path;

use anyhow::{Result, bail};
use hf2q_convert::{Progress, Source, Verification, Verified, verify};
use hf2q_gguf::Gguf;
use hf2q_text::{ChatTemplate, Tokenizer};
use indicatif::ProgressBar;
use serde_json::json;

use crate::args::VerifyArgs;
use crate::{interrupt, terminal};

/// Tensors that are listed without --all.
const WORST: usize = 10;

pub(crate) fn run(args: &VerifyArgs) -> Result<()> {
    let gguf = Gguf::open(&args.file)?;
    let source = args.against.as_deref().map(Source::open).transpose()?;
    if let (Some(source), Some(against)) = (&source, &args.against) {
        same_architecture(&gguf, args, (source, against))?;
    }
    interrupt::install_once()?;
    let mut bar = Bar(None);
    let found = verify(&gguf, source.as_ref(), args.max_error, &mut bar);
    if let Some(bar) = bar.0 {
        bar.finish_and_clear();
    }
    let found = found?;
    let mut problems: Vec<String> = found.problems.iter().map(|p| terminal::safe(&p.to_string())).collect();
    // The file's own check may have found the same.
    problems.extend(text_problem(&gguf).filter(|problem| !problems.contains(problem)));
    if args.json {
        terminal::print_json(&as_json(&gguf, args, &found, &problems))?;
    } else {
        print(&gguf, args, &found, &problems)?;
    }
    match &problems[..] {
        [] => Ok(()),
        [one] => bail!("{}: {one}", args.file.display()),
        [first, rest @ ..] => {
            bail!("{}: {} problems, the first: {first}", args.file.display(), rest.len() + 1)
        }
    }
}

/// Of two models of different kinds every line of a comparison would be wrong.
fn same_architecture(gguf: &Gguf, args: &VerifyArgs, (source, against): (&Source, &Path)) -> Result<()> {
    let its = source.config().architecture.name();
    match gguf.metadata().opt_str("general.architecture").ok().flatten() {
        Some(mine) if mine != its => bail!(
            "{} is a {} model, {} a {its} one: it was not made from that",
            args.file.display(),
            terminal::safe(mine),
            against.display()
        ),
        _ => Ok(()),
    }
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

/// What hinders this program from reading the vocabulary or the chat template of a file that has them.
fn text_problem(gguf: &Gguf) -> Option<String> {
    gguf.metadata().get("tokenizer.ggml.model")?;
    let tokenizer = match Tokenizer::from_metadata(gguf.metadata()) {
        Ok(tokenizer) => tokenizer,
        Err(error) => return Some(format!("tokenizer: {error}")),
    };
    let template = ChatTemplate::from_metadata(gguf.metadata(), &tokenizer);
    template.err().map(|error| format!("chat template: {error}"))
}

fn print(gguf: &Gguf, args: &VerifyArgs, found: &Verification, problems: &[String]) -> Result<()> {
    for path in gguf.paths() {
        terminal::print_line(&path.display().to_string())?;
    }
    let (count, bytes) = (gguf.tensors().len(), terminal::bytes(gguf.file_bytes()));
    terminal::print_line(&format!("{count} tensors, {bytes}"))?;
    if let Some(source) = &args.against {
        terminal::print_line(&format!("compared with {}", source.display()))?;
        print_errors(args, found)?;
    }
    for warning in &found.warnings {
        terminal::print_line(&format!("note: {}", terminal::safe(warning)))?;
    }
    if problems.is_empty() {
        let compared = if args.against.is_some() { ", no tensor is too far from the source" } else { "" };
        return terminal::print_line(&format!("\nComplete, no damaged block{compared}"));
    }
    terminal::print_line("")?;
    let shown = if args.all { problems.len() } else { WORST };
    for problem in problems.iter().take(shown) {
        terminal::print_line(&format!("wrong: {problem}"))?;
    }
    match problems.len().saturating_sub(shown) {
        0 => Ok(()),
        more => terminal::print_line(&format!("and {more} more problems, see --all")),
    }
}

fn print_errors(args: &VerifyArgs, found: &Verification) -> Result<()> {
    let worst = found.worst_first();
    let Some(total) = found.total() else {
        return terminal::print_line("no tensor could be compared");
    };
    if worst.iter().all(|t| t.deviation.is_some_and(|d| d.max_error() == 0.0)) && !args.all {
        return terminal::print_line("every value equals that of the source");
    }
    let shown = if args.all { worst.len() } else { WORST.min(worst.len()) };
    let rows: Vec<[String; 6]> = worst[..shown].iter().map(|t| row(t)).collect();
    let head = ["tensor", "source", "type", "relative", "largest", "cosine"].map(str::to_owned);
    let width = |c: usize| rows.iter().chain([&head]).map(|r| r[c].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    terminal::print_line("")?;
    for [tensor, source, ty, relative, largest, cosine] in std::iter::once(&head).chain(&rows) {
        let [a, b, c, d, e, f] = widths;
        terminal::print_line(&format!(
            "{tensor:a$}  {source:b$}  {ty:c$}  {relative:>d$}  {largest:>e$}  {cosine:>f$}"
        ))?;
    }
    if shown < worst.len() {
        terminal::print_line(&format!("and {} tensors that are closer, see --all", worst.len() - shown))?;
    }
    terminal::print_line(&format!(
        "all matrices, {} values: relative error {:.6}, largest {:.6}, cosine {:.6}",
        terminal::count(total.count()),
        total.relative_error(),
        total.max_error(),
        total.cosine()
    ))
}

fn row(t: &Verified) -> [String; 6] {
    let d = t.deviation.unwrap_or_default();
    [
        terminal::safe(&t.name),
        t.source.clone().unwrap_or_default(),
        t.ty.to_string(),
        format!("{:.6}", d.relative_error()),
        format!("{:.6}", d.max_error()),
        format!("{:.6}", d.cosine()),
    ]
}

fn as_json(gguf: &Gguf, args: &VerifyArgs, found: &Verification, problems: &[String]) -> serde_json::Value {
    let measures = |d: hf2q_convert::Deviation| json!({ "relative_error": d.relative_error(), "max_error": d.max_error(), "cosine": d.cosine() });
    let tensor = |t: &Verified| {
        json!({
            "name": t.name,
            "type": t.ty.name(),
            "shape": t.shape,
            "bytes": t.bytes,
            "source": t.source,
            "deviation": t.deviation.map(measures),
        })
    };
    json!({
        "files": gguf.paths().iter().map(|p| p.display().to_string()).collect::<Vec<_>>(),
        "against": args.against.as_ref().map(|p| p.display().to_string()),
        "ok": problems.is_empty(),
        "problems": problems,
        "warnings": found.warnings,
        "deviation": found.total().map(measures),
        "tensors": found.tensors.iter().map(tensor).collect::<Vec<_>>(),
    })
}
