//! `hf2q demo`: the shortest way from a clone to a speaking model.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use hf2q_engine::{Finish, Sampler, Sampling};
use hf2q_gguf::Gguf;
use hf2q_text::Specials;

use crate::args::{DemoArgs, DraftArgs, SamplingArgs};
use crate::commands::convert::print_summary;
use crate::commands::run::speed;
use crate::session::{Answer, Session};
use crate::{config, interrupt, load, terminal};

const PROMPT: &str = "Once upon a time there was a little fox who";
const QUESTION: &str = "Tell me a story about a fox.";
const TYPE: &str = "q8_0";
const TOKENS: usize = 96;

pub(crate) fn run(args: &DemoArgs) -> Result<()> {
    let checkpoint = match &args.checkpoint {
        Some(path) => path.clone(),
        None => bundled()?,
    };
    let name =
        checkpoint.canonicalize().ok().and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned()));
    let name = name.unwrap_or_else(|| "checkpoint".to_owned());
    let output = config::cache_dir()?.join(format!("demo-{name}-{TYPE}.gguf"));
    if let Some(dir) = output.parent() {
        std::fs::create_dir_all(dir)?;
    }
    terminal::print_line(&format!("1. Convert {} to {TYPE}", checkpoint.display()))?;
    let started = Instant::now();
    let summary = load::convert_folder(&checkpoint, &output, TYPE)?;
    print_summary(&summary, started.elapsed().as_secs_f64())?;
    speak(&output, args)?;
    if args.checkpoint.is_none() {
        terminal::print_line("\nIt has 12 million parameters and read old books, so do not believe it.")?;
    }
    next_steps(&output)
}

/// The checkpoint of the source tree: beside the current folder, or where the program was built.
fn bundled() -> Result<PathBuf> {
    const PLACE: &str = "models/demo/tiny-moe";
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for base in [Path::new("."), &source] {
        let path = base.join(PLACE);
        if path.join("config.json").is_file() {
            return Ok(path.canonicalize().unwrap_or(path));
        }
    }
    bail!("{PLACE} is not here: run `hf2q demo` in a clone of the repository, or give --checkpoint FOLDER")
}

fn speak(model: &Path, args: &DemoArgs) -> Result<()> {
    interrupt::install_once()?;
    let gguf = Gguf::open(model)?;
    let mut session = Session::open(&gguf, &args.engine, &DraftArgs::none())?;
    let sampling = SamplingArgs::for_demo(TOKENS);
    let sampler =
        Sampler::new(Sampling { temperature: 0.7, top_k: 40, top_p: 0.95, seed: 1, ..Sampling::default() })?;
    terminal::print(&format!("\n2. Let it write ({})\n\n{PROMPT}", session.backend))?;
    let prompt = session.tokenizer.encode_prompt(PROMPT, Specials::AsText);
    let answer = session.answer(&prompt, &sampler, &sampling, terminal::print)?;
    finish(&answer)?;
    let turn = session.chat_prompt(&[serde_json::json!({ "role": "user", "content": QUESTION })])?;
    terminal::print_line(&format!("\n3. Ask it: {QUESTION}\n"))?;
    let answer = session.answer(&turn, &sampler, &sampling, terminal::print)?;
    finish(&answer)
}

fn finish(answer: &Answer) -> Result<()> {
    let cut = if answer.finish == Finish::Length { " (cut)" } else { "" };
    terminal::print_line(&format!("\n\n   {}{cut}", speed(&answer.timing)))?;
    if answer.finish == Finish::Cancelled {
        bail!("stopped");
    }
    Ok(())
}

fn next_steps(model: &Path) -> Result<()> {
    let model = model.display();
    terminal::print_line(&format!(
        "\nNext (`cargo install --path crates/hf2q` puts hf2q on your PATH):\n\
         \n  hf2q chat {model}\
         \n  hf2q run {model} --raw \"In the beginning\"\
         \n  hf2q inspect {model} --tensors\
         \n  hf2q bench {model}\
         \n  hf2q convert FOLDER --type q4_0      a Gemma, Llama or Qwen 3 checkpoint of yours\
         \n  hf2q chat FILE.gguf                  a GGUF file you have"
    ))
}
