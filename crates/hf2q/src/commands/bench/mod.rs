//! `hf2q bench`.

mod drafts;
mod measure;
mod output;
mod peer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use hf2q_engine::Engine;
use hf2q_model::{Model, synthetic};
use hf2q_plan::{Passes, Plan, Roofline};

use self::measure::{Measured, cost, decode_steps, prompt_steps};
use self::output::{Against, Report};
use self::peer::Peer;
use super::profile::roofline;
use crate::args::{BenchArgs, DraftArg};
use crate::{config, interrupt, load, memory, session};

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    args.drafts.check()?;
    match (&args.drafts.draft, &args.text, &args.timed.model) {
        (DraftArg::None, None, _) => {}
        (DraftArg::None, Some(_), _) => bail!("--text is for --draft: say what guesses"),
        (_, Some(text), Some(model)) => return drafts::run(args, model, text),
        _ => bail!("--draft needs --text FILE, a message whose answer is timed with and without drafts"),
    }
    if args.timed.prompt + args.decode == 0 {
        bail!("nothing to measure: --prompt and --decode are both 0");
    }
    let Subject { name, model, files } =
        subject(args.timed.model.as_deref(), args.timed.synthetic.as_deref())?;
    let threads = args.engine.threads.unwrap_or_else(config::default_threads);
    let peer = match (&args.against, files.first()) {
        (Some(program), Some(file)) => Some(Peer::new(program, args, (file, threads))?),
        _ => None,
    };
    let mut engine_args = args.engine.clone();
    let needed = args.timed.depth + args.timed.prompt.max(args.decode) + 1;
    engine_args.context = Some(engine_args.context.unwrap_or(0).max(needed));
    let plan = Plan::compile(model.record(&engine_args.kv)?, Passes::ALL);
    let (plan, skipped) = plan.without(&args.skip).context("--skip")?;
    let plan = Arc::new(plan);
    let mut sizes = engine_args.sizes(&model, 1)?;
    sizes.sequences = args.sequences;
    sizes.logit_rows = args.sequences;
    sizes.rows = sizes.rows.max(args.sequences);
    let backend = engine_args.backend(&model, &[(&plan, sizes)])?;
    let mut engine = session::open(&model, Arc::clone(&plan), (&*backend, sizes))?;
    interrupt::install_once()?;
    let roofline = roofline(&*backend)?;
    let (mut prompt, mut decode) = nothing_yet(args, (&plan, &roofline), sizes.rows);
    let mut against = peer.as_ref().map(Against::new);
    measure(&mut engine, args, (&mut prompt, &mut decode), against.as_mut())?;
    let backend = backend.describe();
    let report =
        Report { model: &name, backend: &backend, skipped: &skipped, roofline, prompt, decode, against };
    if args.json { report.print_json(args) } else { report.print(args) }
}

/// What is measured.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) model: Model,
    /// None for random weights.
    pub(crate) files: Vec<PathBuf>,
}

/// The model of a file, or one of random weights, if there is memory for it.
pub(crate) fn subject(model: Option<&Path>, synthetic: Option<&str>) -> Result<Subject> {
    match (model, synthetic) {
        (Some(path), _) => {
            let gguf = load::open(path)?;
            let (name, model) = (path.display().to_string(), load::model(&gguf)?);
            Ok(Subject { name, model, files: gguf.paths().to_vec() })
        }
        (None, Some(spec)) => {
            memory::check(&format!("--synthetic {spec}"), synthetic::weight_bytes(spec)?)?;
            let (name, model) = (format!("{spec} (random)"), synthetic::model(spec)?);
            Ok(Subject { name, model, files: Vec::new() })
        }
        (None, None) => bail!("give MODEL or --synthetic"),
    }
}

/// A prompt and an answer with what they cost, not measured yet.
fn nothing_yet(args: &BenchArgs, (plan, roofline): (&Plan, &Roofline), rows: usize) -> (Measured, Measured) {
    let (prompt, decode, depth) = (args.timed.prompt, args.decode, args.timed.depth);
    let prompt_cost = cost(plan, roofline, (&prompt_steps(prompt, depth, rows), 1));
    let decode_cost = cost(plan, roofline, (&decode_steps(decode, depth), args.sequences));
    (Measured::new(prompt, 1, prompt_cost), Measured::new(decode, args.sequences, decode_cost))
}

/// Seconds of one run.
type Phase = fn(&mut Engine, &BenchArgs) -> Result<f64>;

/// Runs every repetition, the peer's in turn with ours; one more run before them warms up.
fn measure(
    engine: &mut Engine,
    args: &BenchArgs,
    (prompt, decode): (&mut Measured, &mut Measured),
    mut against: Option<&mut Against<'_>>,
) -> Result<()> {
    for repetition in 0..=args.repetitions {
        let phases = [(&mut *prompt, measure::prompt as Phase), (&mut *decode, measure::decode)];
        for (measured, phase) in phases {
            if measured.tokens > 0 {
                let seconds = phase(engine, args)?;
                if interrupt::pressed() {
                    bail!("stopped");
                }
                if repetition > 0 {
                    measured.add(seconds);
                }
            }
        }
        if let Some(against) = against.as_mut().filter(|_| repetition > 0) {
            against.run((&*prompt, &*decode))?;
        }
    }
    Ok(())
}
