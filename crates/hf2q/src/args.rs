//! What was typed.

mod bench;
mod bench_serve;
mod compare;
mod convert;
mod draft;
mod fit;
mod gguf;
mod imatrix;
mod needle;
mod perplexity;
mod profile;
mod serve;
mod store;
mod trace;
mod verify;

use std::path::PathBuf;

use std::ops::RangeInclusive;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use hf2q_model::RecordOptions;

use crate::device::{DEVICE_HELP, DeviceArg};

pub(crate) use bench::BenchArgs;
pub(crate) use bench_serve::{BenchServeArgs, Endpoint, Length, LimitArgs, LoadArgs};
pub(crate) use compare::CompareArgs;
pub(crate) use convert::ConvertArgs;
pub(crate) use draft::{DraftArg, DraftArgs};
pub(crate) use fit::FitArgs;
pub(crate) use gguf::{EditArgs, GetArgs, GgufAction, GgufArgs, SetArgs, TemplateArgs, UnsetArgs};
pub(crate) use imatrix::ImatrixArgs;
pub(crate) use needle::NeedleArgs;
pub(crate) use perplexity::PerplexityArgs;
pub(crate) use profile::ProfileArgs;
pub(crate) use serve::{AccessArgs, ServeArgs};
pub(crate) use store::{ListArgs, PullArgs, RmArgs};
pub(crate) use trace::TraceArgs;
pub(crate) use verify::VerifyArgs;

/// Rows of a step; each takes memory for its activations.
const MOST_ROWS: u64 = 8192;

/// Tokens, positions or rows: more than a context has, and few enough to be added and multiplied.
const MOST: u64 = 1 << 24;
/// More than any machine has processors.
const MOST_THREADS: u64 = 4096;

pub(crate) const KV_HELP: &str = "How keys and values are cached: f32, f16, bf16, q8_0, tq2, tq3, tq4, tq5, tq6 or tq8 for all, \
or a list of [global:|sliding:][k=|v=]FORMAT, e.g. tq4, k=tq6,v=tq4 or 'global:k=tq6,v=tq4;sliding:f16'; \
with tq formats the page of 64 positions that a token lies in is also kept in f16, or as recent:FORMAT or recent:off say";

fn number(accepted: RangeInclusive<u64>) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(accepted)
}

/// Turns a HuggingFace checkpoint into a quantized GGUF file and runs it.
#[derive(Debug, Parser)]
#[command(name = "hf2q", version, arg_required_else_help = true, max_term_width = 80)]
pub(crate) struct Cli {
    /// Take repositories of HuggingFace from the cache only (also HF_HUB_OFFLINE=1)
    #[arg(long, global = true)]
    pub(crate) offline: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Convert the bundled checkpoint and let it speak: no download, one command
    Demo(DemoArgs),
    /// Answer one prompt, or continue a text with --raw
    Run(RunArgs),
    /// Talk to a model
    Chat(ChatArgs),
    /// Answer over HTTP as OpenAI's and Anthropic's servers do, with a chat page
    Serve(ServeArgs),
    /// Load a repository of HuggingFace into the cache
    Pull(PullArgs),
    /// Show what the caches hold: repositories and converted files
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Remove repositories or converted files from the caches
    Rm(RmArgs),
    /// Turn a HuggingFace folder or a GGUF file into a GGUF file of another type
    #[command(visible_alias = "quantize")]
    Convert(ConvertArgs),
    /// Show what a GGUF file holds and check that it is sound
    Inspect(InspectArgs),
    /// Check a GGUF file: complete, no damaged weights; and compare it with what it was made from
    Verify(VerifyArgs),
    /// Show or change metadata of a GGUF file
    Gguf(GgufArgs),
    /// Show how a model is computed: waves, operations, bytes
    Plan(PlanArgs),
    /// Show what a model takes of memory, and which cache formats and contexts fit
    Fit(FitArgs),
    /// Show the tokens of a text
    Tokenize(TokenizeArgs),
    /// Measure prompt and decode speed
    Bench(BenchArgs),
    /// Load a server that speaks OpenAI's protocol, and show how fast it answers
    BenchServe(BenchServeArgs),
    /// Show where the time goes: of every kind of operation and layer, beside what the machine can do
    Profile(ProfileArgs),
    /// Write tensors of chosen operations to a file, or show what their values are like
    Trace(TraceArgs),
    /// Measure how well a model predicts a text file
    Perplexity(PerplexityArgs),
    /// Compare cache formats, models or settings by what they predict: divergence, agreement, attention by layer
    Compare(CompareArgs),
    /// Ask for facts that are planted in long texts, at several depths
    Needle(NeedleArgs),
    /// Measure on texts which columns of a model's weights matter most, for quantization
    Imatrix(ImatrixArgs),
    /// Show what this machine has to run models with: processor, GPUs, kernels
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

const MODEL_HELP: &str = "A GGUF file, any shard of a split one, a folder with one, or a HuggingFace folder or repository ORG/NAME[@REVISION] (loaded and converted into caches first)";

const SYNTHETIC_HELP: &str =
    "Random weights of a model's real shapes, all held in memory, e.g. gemma4-26b-a4b:q4_0";

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The checkpoint folder to convert, if not the bundled one
    #[arg(long)]
    pub(crate) checkpoint: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: PathBuf,
    /// The prompt; read from standard input, less a newline at its end, if absent
    pub(crate) prompt: Option<String>,
    /// Continue the prompt as it is instead of answering it as a chat turn
    #[arg(long)]
    pub(crate) raw: bool,
    /// Let the spellings of control tokens in a raw prompt have their meaning
    #[arg(long, requires = "raw")]
    pub(crate) special: bool,
    /// Instructions that precede the prompt
    #[arg(long, conflicts_with = "raw")]
    pub(crate) system: Option<String>,
    /// Print nothing but the answer
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) drafts: DraftArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: PathBuf,
    /// Instructions that precede the conversation
    #[arg(long)]
    pub(crate) system: Option<String>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) drafts: DraftArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
}

/// How the model is run.
#[derive(Clone, Debug, Args)]
pub(crate) struct EngineArgs {
    #[arg(long, default_value_t, help = DEVICE_HELP)]
    pub(crate) device: DeviceArg,
    /// Threads [default: one for each core]
    #[arg(short, long, value_parser = number(1..=MOST_THREADS))]
    pub(crate) threads: Option<usize>,
    /// Tokens the context can hold [default: the model's own, at most 8192]
    #[arg(short, long, value_parser = number(1..=MOST))]
    pub(crate) context: Option<usize>,
    /// Prompt tokens computed in one step
    #[arg(long, default_value_t = 512, value_parser = number(1..=MOST_ROWS))]
    pub(crate) chunk: usize,
    #[arg(long, value_name = "FORMATS", default_value_t, help = KV_HELP)]
    pub(crate) kv: RecordOptions,
    /// Instruction set [default: the best there is]
    #[arg(long, value_enum)]
    pub(crate) isa: Option<IsaArg>,
    /// Whether nothing is said of where and how the model is run.
    #[arg(skip)]
    pub(crate) silent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsaArg {
    Amx,
    Avx512,
    Avx2,
    Portable,
}

/// How tokens are drawn. Where neither flag nor model says, the defaults are those of llama.cpp.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Most tokens to answer [default: until the model ends or the context is full; 256 where `run` continues a text]
    #[arg(short = 'n', long)]
    pub(crate) max_tokens: Option<usize>,
    /// 0 takes the most likely token [default: the model's, or 0.8]
    #[arg(long, visible_alias = "temp", allow_negative_numbers = true)]
    pub(crate) temperature: Option<f32>,
    /// Keep this many of the most likely tokens, 0 for all [default: the model's, or 40]
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) top_k: Option<i64>,
    /// Keep the most likely tokens up to this probability [default: the model's, or 0.95]
    #[arg(long)]
    pub(crate) top_p: Option<f32>,
    /// Keep tokens at least this fraction as likely as the best [default: the model's, or 0.05]
    #[arg(long)]
    pub(crate) min_p: Option<f32>,
    /// Locally typical sampling up to this probability
    #[arg(long, default_value_t = 1.0)]
    pub(crate) typical: f32,
    /// Divide the logits of recent tokens
    #[arg(long, default_value_t = 1.0)]
    pub(crate) repetition_penalty: f32,
    /// Subtract from the logits of recent tokens once
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    pub(crate) presence_penalty: f32,
    /// Subtract from the logits of recent tokens for every occurrence
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    pub(crate) frequency_penalty: f32,
    /// How many tokens back the penalties look
    #[arg(long, default_value_t = 64)]
    pub(crate) penalty_last_n: usize,
    /// Add to the logit of a token id, e.g. 107=-5; may be repeated
    #[arg(long, value_name = "ID=BIAS", value_parser = parse_bias)]
    pub(crate) logit_bias: Vec<(u32, f32)>,
    /// Seed of the draws: the same seed gives the same answer [default: random]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Stop at this text; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
}

impl SamplingArgs {
    /// No flag but the length.
    pub(crate) fn for_demo(max_tokens: usize) -> Self {
        Self {
            max_tokens: Some(max_tokens),
            temperature: None,
            top_k: None,
            top_p: None,
            min_p: None,
            typical: 1.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: 0,
            logit_bias: Vec::new(),
            seed: None,
            stop: Vec::new(),
        }
    }
}

fn parse_bias(text: &str) -> Result<(u32, f32), String> {
    let (id, bias) = text.split_once('=').ok_or("expected ID=BIAS")?;
    let id = id.trim().parse().map_err(|_| format!("{id:?} is no token id"))?;
    let bias = bias.trim().parse().map_err(|_| format!("{bias:?} is no number"))?;
    Ok((id, bias))
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A GGUF file, or any shard of a split one
    pub(crate) file: PathBuf,
    /// List every tensor
    #[arg(short, long)]
    pub(crate) tensors: bool,
    /// Read all weights and look for NaN, infinities and damaged blocks
    #[arg(long)]
    pub(crate) check: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: PathBuf,
    /// Rows (tokens) of the step
    #[arg(long, default_value_t = 1, value_parser = number(1..=MOST))]
    pub(crate) rows: usize,
    #[arg(long, value_name = "FORMATS", default_value_t, help = KV_HELP)]
    pub(crate) kv: RecordOptions,
    /// Show the operations as the model records them
    #[arg(long)]
    pub(crate) no_fusion: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: PathBuf,
    /// The text; read from standard input if absent
    pub(crate) text: Option<String>,
    /// Let control tokens in the text have their meaning
    #[arg(long)]
    pub(crate) special: bool,
    /// Add what the model wants around a prompt
    #[arg(long)]
    pub(crate) bos: bool,
    /// Print a JSON list of ids
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is timed.
#[derive(Debug, Args)]
pub(crate) struct TimedArgs {
    #[arg(help = MODEL_HELP, required_unless_present = "synthetic")]
    pub(crate) model: Option<PathBuf>,
    #[arg(long, value_name = "NAME:TYPE", conflicts_with = "model", help = SYNTHETIC_HELP)]
    pub(crate) synthetic: Option<String>,
    /// Prompt tokens
    #[arg(short, long, default_value_t = 512, value_parser = number(0..=MOST))]
    pub(crate) prompt: usize,
    /// Tokens in the context before either is measured
    #[arg(short, long, default_value_t = 0, value_parser = number(0..=MOST))]
    pub(crate) depth: usize,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
