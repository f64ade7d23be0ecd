//! Draws answers from what schemas allow, and says which texts they accept: the runner of `tools/schemas/check.py`.
//!
//! `schemas FILE.gguf [--answers N] [--seed N] [--limit TOKENS] [--times] [--call NOTATION]`: each line of standard input is an object with a
//! `schema` and `instances`; each line of standard output has `answers` (text, and whether it ended by itself) and
//! `accepted` (for each instance), or an `error`. No model is run: tokens are drawn evenly, which leaves no corner of a
//! grammar out. With `--call` (gemma4, hermes, xml, mistral or json) the schemas are those of a function that must be called, and
//! the answers its arguments. `--times` prints to standard error what preparing, compiling and masks took.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hf2q_gguf::Gguf;
use hf2q_grammar::{AnswerRules, Constraint, GrammarError, Grammars, Output, Spec, ToolChoice};
use hf2q_text::answer::{AnswerFormat, AnswerParser, Delta, ParserOptions, Tool, ToolSet, ToolSyntax};
use hf2q_text::{Controls, Specials, Tokenizer};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

struct Options {
    file: String,
    answers: u64,
    seed: u64,
    limit: usize,
    times: bool,
    call: Option<ToolSyntax>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "schemas: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options, Failure> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("which GGUF file has the vocabulary?")?;
    let mut options = Options { file, answers: 3, seed: 1, limit: 600, times: false, call: None };
    while let Some(flag) = args.next() {
        if flag == "--times" {
            options.times = true;
            continue;
        }
        let value = args.next().ok_or("a flag without its value")?;
        match flag.as_str() {
            "--answers" => options.answers = value.parse()?,
            "--seed" => options.seed = value.parse()?,
            "--limit" => options.limit = value.parse()?,
            "--call" => options.call = Some(notation(&value)?),
            _ => return Err(format!("unknown flag {flag}").into()),
        }
    }
    Ok(options)
}

fn notation(name: &str) -> Result<ToolSyntax, Failure> {
    Ok(match name {
        "gemma4" => ToolSyntax::Gemma4,
        "hermes" => ToolSyntax::Hermes,
        "xml" => ToolSyntax::Xml,
        "mistral" => ToolSyntax::Mistral,
        "json" => ToolSyntax::Json,
        _ => return Err(format!("{name} is none of gemma4, hermes, xml, mistral and json").into()),
    })
}

/// What an answer must be.
enum Form {
    Text(Spec),
    Call(Box<AnswerRules>),
}

impl Form {
    fn new(schema: &Value, call: Option<ToolSyntax>) -> Self {
        let Some(tools) = call else { return Self::Text(Spec::JsonSchema(schema.clone())) };
        Self::Call(Box::new(AnswerRules {
            format: AnswerFormat { thinking: None, tools, renders_tools: true },
            in_thought: false,
            thinking: false,
            thinking_budget: None,
            output: Output::Tools { tools: tool(schema), choice: ToolChoice::Required, parallel: false },
        }))
    }

    fn constraint(&self, grammars: &Grammars) -> Result<Box<dyn Constraint>, GrammarError> {
        match self {
            Self::Text(spec) => grammars.constraint(spec),
            Self::Call(rules) => Ok(grammars
                .compile_rules(rules)?
                .constraint()
                .expect("a call that must come is a constraint")),
        }
    }

    /// The text of an answer, or the arguments of its call.
    fn text(&self, tokenizer: &Tokenizer, ids: &[u32]) -> String {
        let Self::Call(rules) = self else { return text(tokenizer, ids) };
        let Output::Tools { tools, .. } = &rules.output else { return String::new() };
        let options = ParserOptions { tools: tools.clone(), ..ParserOptions::default() };
        let mut parser = AnswerParser::new(tokenizer, &rules.format, options);
        let mut deltas: Vec<Delta> = ids.iter().flat_map(|id| parser.push(tokenizer, *id)).collect();
        deltas.extend(parser.finish());
        let arguments = deltas.into_iter().map(|delta| match delta {
            Delta::Arguments { text, .. } => text,
            Delta::Call { .. } => String::new(),
            other => format!("{other:?}"),
        });
        arguments.collect()
    }
}

fn tool(schema: &Value) -> ToolSet {
    let mut tools = ToolSet::default();
    tools.add(Tool { name: "f".into(), description: None, parameters: schema.clone() });
    tools
}

fn run() -> Result<(), Failure> {
    let options = options()?;
    let file = Gguf::open(options.file.as_ref())?;
    let tokenizer = Arc::new(Tokenizer::from_metadata(file.metadata())?);
    let started = Instant::now();
    let grammars = Grammars::new(tokenizer.clone(), tokenizer.vocab_len());
    grammars.constraint(&Spec::JsonObject)?;
    let prepared = started.elapsed();
    let mut times = Times::default();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let case: Value = serde_json::from_str(&line?)?;
        let answer = answer(&grammars, &tokenizer, &case, (&options, &mut times));
        writeln!(out, "{answer}")?;
    }
    if options.times {
        writeln!(
            std::io::stderr(),
            "{} tokens prepared in {prepared:?}\n{}",
            tokenizer.vocab_len(),
            times.show()
        )?;
    }
    Ok(())
}

#[derive(Default)]
struct Times {
    compile: Vec<Duration>,
    start: Vec<Duration>,
    mask: Vec<Duration>,
    push: Vec<Duration>,
    /// Mask and push of a token of an instance.
    text: Vec<Duration>,
}

impl Times {
    fn show(&mut self) -> String {
        let lists = [
            ("compile", &mut self.compile),
            ("start", &mut self.start),
            ("mask", &mut self.mask),
            ("push", &mut self.push),
            ("token of a text", &mut self.text),
        ];
        let lines = lists.into_iter().map(|(name, times)| {
            times.sort_unstable();
            let n = times.len().max(1);
            let at = |percent: usize| times.get((n * percent / 100).min(n - 1)).copied().unwrap_or_default();
            let mean = times.iter().sum::<Duration>() / n as u32;
            format!(
                "{name}: {n} mean {mean:?} p50 {:?} p95 {:?} p99 {:?} max {:?}",
                at(50),
                at(95),
                at(99),
                at(100)
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn timed<T>(times: &mut Vec<Duration>, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    times.push(started.elapsed());
    result
}

fn answer(
    grammars: &Grammars,
    tokenizer: &Tokenizer,
    case: &Value,
    (options, times): (&Options, &mut Times),
) -> Value {
    let form = Form::new(&case["schema"], options.call);
    if let Err(error) = timed(&mut times.compile, || form.constraint(grammars)) {
        return json!({ "error": error.to_string() });
    }
    let mut answers = Vec::new();
    for i in 0..options.answers {
        let Ok(mut constraint) = timed(&mut times.start, || form.constraint(grammars)) else { continue };
        let seed = options.seed.wrapping_mul(1000) + i;
        match draw(tokenizer, &mut *constraint, (seed, options.limit), times) {
            Ok((ids, ended)) => answers.push(json!([form.text(tokenizer, &ids), ended])),
            Err(error) => answers.push(json!([error.to_string(), true])),
        }
    }
    let instances = case["instances"].as_array().into_iter().flatten();
    let accepted: Vec<bool> = instances
        .map(|instance| {
            let mut constraint = form.constraint(grammars);
            constraint.as_mut().is_ok_and(|c| accepts(tokenizer, &mut **c, &instance.to_string(), times))
        })
        .collect();
    json!({ "answers": answers, "accepted": accepted })
}

fn accepts(tokenizer: &Tokenizer, constraint: &mut dyn Constraint, text: &str, times: &mut Times) -> bool {
    for id in tokenizer.encode(text, Specials::AsText) {
        let started = Instant::now();
        let allowed = constraint.allowed().is_ok_and(|set| set.is_none_or(|s| s.contains(id)));
        if constraint.is_finished() || !allowed || constraint.push(id).is_err() {
            return false;
        }
        times.text.push(started.elapsed());
    }
    let ends = |set: &hf2q_engine::TokenSet| tokenizer.stop_ids().iter().any(|id| set.contains(*id));
    constraint.is_finished() || constraint.allowed().is_ok_and(|set| set.is_none_or(ends))
}

/// Draws evenly, with a leaning to what ends texts, lists and objects.
fn draw(
    tokenizer: &Tokenizer,
    constraint: &mut dyn Constraint,
    (seed, limit): (u64, usize),
    times: &mut Times,
) -> Result<(Vec<u32>, bool), Failure> {
    let mut state = seed;
    let mut random = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize
    };
    let mut ids = Vec::new();
    while ids.len() < limit {
        if constraint.is_finished() {
            return Ok((ids, true));
        }
        let set = timed(&mut times.mask, || constraint.allowed())?.ok_or("it is not constrained")?;
        let ends = tokenizer.stop_ids().iter().any(|id| set.contains(*id));
        if ends && random().is_multiple_of(2) {
            return Ok((ids, true));
        }
        let stop = tokenizer.stop_ids();
        let allowed: Vec<u32> =
            (0..set.vocabulary() as u32).filter(|id| set.contains(*id) && !stop.contains(id)).collect();
        let closes = |id: &&u32| {
            tokenizer.is_control(**id)
                || matches!(tokenizer.token_bytes(**id), b"\"" | b"}" | b"]" | b"0" | b"," | b":")
        };
        let closing: Vec<&u32> = allowed.iter().filter(closes).collect();
        let id = match (closing.len(), allowed.len()) {
            (_, 0) if ends => return Ok((ids, true)),
            (_, 0) => return Err("nothing may follow".into()),
            (1.., _) if !random().is_multiple_of(3) => *closing[random() % closing.len()],
            _ => allowed[random() % allowed.len()],
        };
        timed(&mut times.push, || constraint.push(id))?;
        ids.push(id);
    }
    Ok((ids, false))
}

fn text(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut detokenizer = tokenizer.detokenizer(Controls::Show).mid_text();
    let mut text = String::new();
    ids.iter().for_each(|id| detokenizer.push_to(*id, &mut text));
    text + &detokenizer.finish()
}
