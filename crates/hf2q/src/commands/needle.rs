//! `hf2q needle`.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use hf2q_engine::{CacheOptions, Engine, EngineOptions, WindowPolicy};
use hf2q_model::{Model, RecordOptions};
use hf2q_observe::{Answer, Haystack, MOST_FACTS, Question, Recipe};
use hf2q_plan::{PAGE, Passes, Plan};
use hf2q_text::{Specials, Tokenizer};
use serde_json::json;

use super::texts::{self, start_of_text};
use crate::args::NeedleArgs;
use crate::{interrupt, load, session, terminal};

/// Rows whose logits are held at the same time: those of an answer.
const LOGIT_ROWS: usize = 16;

/// Longest text that is not asked for.
const DEFAULT_LENGTHS: [usize; 4] = [512, 1024, 2048, 4096];

/// Characters of the longest lines between facts: about three of print.
const SENTENCE: usize = 240;

/// A question and what each cache made of it.
struct Asked {
    length: usize,
    seed: u64,
    question: Question,
    /// One for each of `--kv`.
    answers: Vec<Answer>,
}

pub(crate) fn run(args: &NeedleArgs) -> Result<()> {
    if args.depths.len() > MOST_FACTS {
        bail!("--depths are {}, at most {MOST_FACTS} are accepted", args.depths.len());
    }
    let lines = args.text.as_deref().map(lines).transpose()?.unwrap_or_default();
    let gguf = load::open(&args.model)?;
    let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
    let model = load::model(&gguf)?;
    let texts = haystacks(args, (&tokenizer, &model), &lines)?;
    let longest = texts.iter().map(|(length, _, _)| *length).max().unwrap_or(0);
    let mut engines = open(args, &model, longest)?;
    interrupt::install_once()?;
    let asked = ask(&mut engines, texts)?;
    if args.json { print_json(args, &asked) } else { print(args, &asked) }
}

/// Sentences of a file; short ones, for facts lie between them.
fn lines(path: &Path) -> Result<Vec<String>> {
    let text = texts::read(path)?;
    let sentences = text.lines().flat_map(|line| line.split_inclusive(". ")).map(str::trim);
    let lines: Vec<String> = sentences.filter(|s| !s.is_empty()).flat_map(pieces).collect();
    if lines.is_empty() {
        bail!("{}: there is no text to plant facts in", path.display());
    }
    Ok(lines)
}

/// Cuts what is longer than a sentence, at a space if there is one.
fn pieces(sentence: &str) -> Vec<String> {
    let (mut pieces, mut rest) = (Vec::new(), sentence);
    while let Some((end, _)) = rest.char_indices().nth(SENTENCE) {
        let (piece, after) = rest.split_at(rest[..end].rfind(char::is_whitespace).unwrap_or(end));
        pieces.push(piece.to_owned());
        rest = after.trim_start();
    }
    pieces.push(rest.to_owned());
    pieces
}

/// Texts with their length and seed.
fn haystacks(
    args: &NeedleArgs,
    (tokenizer, model): (&Tokenizer, &Model),
    lines: &[String],
) -> Result<Vec<(usize, u64, Haystack)>> {
    let most = model.config().context_length;
    let mut lengths: Vec<usize> = match &args.lengths[..] {
        [] => DEFAULT_LENGTHS.into_iter().filter(|l| *l <= most).collect(),
        given => given.to_vec(),
    };
    lengths.sort_unstable();
    lengths.dedup();
    if let Some(long) = lengths.iter().find(|l| **l > most) {
        bail!("--lengths {long} is more than the model's context of {most} tokens");
    }
    if lengths.is_empty() {
        bail!("the model's context has {most} tokens only; give --lengths and fewer --depths");
    }
    let bos = start_of_text(tokenizer);
    let encode = |text: &str| -> Vec<u32> {
        bos.into_iter().chain(tokenizer.encode(text, Specials::AsText)).collect()
    };
    let mut texts = Vec::new();
    for length in lengths {
        for seed in (0..).take(args.seeds) {
            let recipe = Recipe { length, depths: &args.depths, seed, lines };
            texts.push((length, seed, Haystack::new(recipe, &encode)?));
        }
    }
    Ok(texts)
}

/// An engine for each of `--kv`, all on one backend.
fn open(args: &NeedleArgs, model: &Model, longest: usize) -> Result<Vec<Engine>> {
    // Beside a text there is a page for what a question has of its own, and one for its copy of a shared page.
    let engine_args = args.engine(longest + 2 * PAGE);
    let windows = WindowPolicy::Drop { ends: 2 };
    let sizes = EngineOptions {
        cache: CacheOptions { windows, ..CacheOptions::default() },
        ..engine_args.sizes(model, LOGIT_ROWS)?
    };
    let plan = |kv: &RecordOptions| Ok(Arc::new(Plan::compile(model.record(kv)?, Passes::ALL)));
    let plans = args.kv.iter().map(plan).collect::<Result<Vec<_>>>()?;
    let wanted: Vec<_> = plans.iter().map(|plan| (&**plan, sizes)).collect();
    let backend = engine_args.backend(model, &wanted)?;
    plans.into_iter().map(|plan| session::open(model, plan, (&*backend, sizes))).collect()
}

fn ask(engines: &mut [Engine], texts: Vec<(usize, u64, Haystack)>) -> Result<Vec<Asked>> {
    let bar = terminal::counting_bar(texts.len(), "texts");
    let mut asked = Vec::new();
    let count = texts.len();
    for (i, (length, seed, text)) in texts.into_iter().enumerate() {
        bar.set_message(format!("{length} tokens"));
        let mut answers: Vec<Vec<Answer>> = vec![Vec::new(); text.questions.len()];
        for engine in &mut *engines {
            let Some(found) = text.ask(engine, &mut || !interrupt::pressed())? else {
                bar.finish_and_clear();
                bail!("stopped after {i} of {count} texts");
            };
            answers.iter_mut().zip(found).for_each(|(all, answer)| all.push(answer));
        }
        let questions = text.questions.into_iter().zip(answers);
        asked.extend(questions.map(|(question, answers)| Asked { length, seed, question, answers }));
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(asked)
}

/// Right answers and mean log-likelihood of the `kv`-th cache.
fn score<'a>(asked: impl Iterator<Item = &'a Asked>, kv: usize) -> (usize, usize, f64) {
    let mut sums = (0, 0, 0.0);
    for answer in asked.map(|a| a.answers[kv]) {
        sums.0 += usize::from(answer.exact);
        sums.1 += 1;
        sums.2 += answer.mean_log_likelihood;
    }
    (sums.0, sums.1, sums.2 / sums.1.max(1) as f64)
}

fn print(args: &NeedleArgs, asked: &[Asked]) -> Result<()> {
    let mut lengths: Vec<usize> = asked.iter().map(|a| a.length).collect();
    lengths.dedup();
    let mut depths = args.depths.clone();
    depths.sort_by(f64::total_cmp);
    depths.dedup();
    let mut table =
        vec![row(["tokens", "depth"].map(str::to_owned), args.kv.iter().map(ToString::to_string))];
    for &length in &lengths {
        for &depth in &depths {
            let here = || asked.iter().filter(|a| a.length == length && a.question.depth == depth);
            let cells = (0..args.kv.len()).map(|kv| cell(score(here(), kv)));
            table.push(row([length.to_string(), format!("{depth:.2}")], cells));
        }
    }
    let all = (0..args.kv.len()).map(|kv| cell(score(asked.iter(), kv)));
    table.push(row(["all", ""].map(str::to_owned), all));
    terminal::print_table(&table, 0)?;
    terminal::print_line(
        "\nright answers of all, and the mean log-likelihood of a code's tokens in nats (0 is certain, -2.3 a guess of a digit)",
    )
}

fn row(first: [String; 2], cells: impl Iterator<Item = String>) -> Vec<String> {
    first.into_iter().chain(cells).collect()
}

fn cell((right, all, mean): (usize, usize, f64)) -> String {
    format!("{right}/{all} {mean:>7.3}")
}

fn print_json(args: &NeedleArgs, asked: &[Asked]) -> Result<()> {
    let result = |a: &Asked| {
        let answer = |(kv, answer): (&RecordOptions, &Answer)| {
            let Answer { exact, mean_log_likelihood } = answer;
            json!({ "kv": kv.to_string(), "exact": exact, "mean_log_likelihood": mean_log_likelihood })
        };
        json!({
            "length": a.length,
            "tokens": a.question.tokens.len(),
            "depth": a.question.depth,
            "seed": a.seed,
            "key": a.question.fact.key,
            "code": a.question.fact.code,
            "answers": args.kv.iter().zip(&a.answers).map(answer).collect::<Vec<_>>(),
        })
    };
    let summary = |(i, kv): (usize, &RecordOptions)| {
        let (exact, questions, mean) = score(asked.iter(), i);
        json!({ "kv": kv.to_string(), "exact": exact, "questions": questions, "mean_log_likelihood": mean })
    };
    let json = json!({
        "model": args.model.display().to_string(),
        "summary": args.kv.iter().enumerate().map(summary).collect::<Vec<_>>(),
        "results": asked.iter().map(result).collect::<Vec<_>>(),
    });
    terminal::print_json(&json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_are_cut_and_nothing_is_lost() {
        assert_eq!(pieces("A short one."), ["A short one."]);
        for long in ["some words, ".repeat(99), "字".repeat(999), format!("{} and more", "x".repeat(500))] {
            let found = pieces(long.trim());
            assert!(found.iter().all(|p| (1..=SENTENCE).contains(&p.chars().count())), "{found:?}");
            let letters = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            assert_eq!(letters(&found.concat()), letters(&long));
        }
    }
}
