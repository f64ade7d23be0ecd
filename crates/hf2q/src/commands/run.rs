//! `hf2q run`.

use std::io::IsTerminal;

use anyhow::{Result, bail};
use hf2q_convert::report::plural;
use hf2q_engine::Finish;
use hf2q_text::Specials;
use serde_json::json;

use crate::args::{EngineArgs, RunArgs, SamplingArgs};
use crate::session::{Answer, Session, Timing};
use crate::{interrupt, load, terminal};

/// Most tokens of a continuation where nobody says: nothing else ends the text of a model that knows no turns.
const RAW_TOKENS: usize = 256;

pub(crate) fn run(args: &RunArgs) -> Result<()> {
    args.drafts.check()?;
    if args.prompt.is_none() && std::io::stdin().is_terminal() {
        bail!(
            "PROMPT is missing: give it as an argument or on standard input; `hf2q chat {}` talks to the model",
            args.model.display()
        );
    }
    let gguf = load::open(&args.model)?;
    let engine = EngineArgs { silent: args.quiet, ..args.engine.clone() };
    let mut session = Session::open(&gguf, &engine, &args.drafts)?;
    let text = terminal::text_or_stdin(args.prompt.as_deref(), "PROMPT")?;
    // What `echo` and editors put at the end of a text is not meant.
    let text = if args.prompt.is_none() { text.strip_suffix('\n').unwrap_or(&text) } else { &text };
    if session.template.is_none() && !args.raw && !args.quiet {
        terminal::note(&terminal::dim("no chat template: the model continues the text, as with --raw"));
    }
    let prompt = prompt(&session, args, text)?;
    if prompt.is_empty() {
        bail!("the prompt is empty, and this model has no token to begin a text with");
    }
    let mut sampling = args.sampling.clone();
    if args.raw || session.template.is_none() {
        sampling.max_tokens.get_or_insert(RAW_TOKENS);
    }
    let sampler = session.sampler(&sampling)?;
    interrupt::install_once()?;
    let answer = session.answer(&prompt, &sampler, &sampling, terminal::print)?;
    if !answer.text.ends_with('\n') {
        terminal::print("\n")?;
    }
    if !args.quiet {
        terminal::note(&terminal::dim(&report(&answer, &sampling)));
    }
    if answer.finish == Finish::Cancelled {
        bail!("stopped");
    }
    Ok(())
}

fn prompt(session: &Session, args: &RunArgs, text: &str) -> Result<Vec<u32>> {
    if args.raw || session.template.is_none() {
        if args.system.is_some() {
            bail!(
                "--system needs a chat template, which this model does not have; put the instructions into the prompt"
            );
        }
        let specials = if args.special { Specials::Parse } else { Specials::AsText };
        return Ok(session.tokenizer.encode_prompt(text, specials));
    }
    let mut messages = Vec::new();
    if let Some(system) = &args.system {
        messages.push(json!({ "role": "system", "content": system }));
    }
    messages.push(json!({ "role": "user", "content": text }));
    session.chat_prompt(&messages)
}

/// One line about what an answer took, and why it ended where the model did not end it.
pub(crate) fn report(answer: &Answer, args: &SamplingArgs) -> String {
    let end = match answer.finish {
        Finish::Stop(_) | Finish::Complete | Finish::Deadline => "",
        Finish::Cancelled => " · stopped",
        Finish::Length if args.max_tokens == Some(answer.timing.answer_tokens) => {
            &format!(" · cut at {} (--max-tokens)", plural(answer.timing.answer_tokens, "token"))
        }
        Finish::Length => " · cut: the context is full (--context)",
    };
    speed(&answer.timing) + end
}

/// One line about what an answer took.
pub(crate) fn speed(t: &Timing) -> String {
    let rate = |tokens: usize, time: std::time::Duration| match tokens {
        0 => String::new(),
        _ => format!(", {:.1} tok/s", tokens as f64 / time.as_secs_f64().max(1e-9)),
    };
    let new = t.prompt_tokens - t.reused_tokens;
    let reused = if t.reused_tokens > 0 { format!(" ({} reused)", t.reused_tokens) } else { String::new() };
    format!(
        "prompt {}{reused}{} · answer {}{}",
        plural(t.prompt_tokens, "token"),
        rate(new, t.prompt_time),
        plural(t.answer_tokens, "token"),
        // The first token comes with the prompt.
        rate(t.answer_tokens.saturating_sub(1), t.answer_time),
    ) + &guessed(t)
}

/// What drafts were good for.
fn guessed(t: &Timing) -> String {
    match t.drafted_tokens {
        0 => String::new(),
        n => {
            let saved = t.drafts.saved.map_or(String::new(), |saved| match saved < 0.0 {
                true => format!(", about {:.1} s lost", -saved),
                false => format!(", about {saved:.1} s saved"),
            });
            let per_step = t.answer_tokens as f64 / t.drafts.steps.max(1) as f64;
            let depths = by_depth(&t.drafts.levels);
            format!(
                ", {} of {n} guesses right (in percent by depth: {depths}), {per_step:.2} tokens a step{saved}",
                t.accepted_tokens
            )
        }
    }
}

/// How often guesses were right, in percent, the first level first.
pub(crate) fn by_depth(levels: &[(u64, u64)]) -> String {
    let percent = |&(had, right): &(u64, u64)| format!("{:.0}", 100.0 * right as f64 / had.max(1) as f64);
    levels.iter().map(percent).collect::<Vec<_>>().join(" ")
}
