//! `hf2q profile`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use hf2q_gguf::write_file;
use hf2q_observe::{By, Entry, Line, Phase, PhaseProfile, Profile, Workload, profile};
use hf2q_plan::{Backend, Cost, Passes, Plan, Roofline};
use serde_json::{Value, json};

use super::bench::{Subject, subject};
use crate::args::ProfileArgs;
use crate::terminal::merged;
use crate::{interrupt, memory, output, session, terminal};

/// Memory that the speed of reading is measured with: more than most caches hold.
const STREAM: u64 = 512 << 20;

/// A larger share of the roofline than this, which is shown as more than 100 %, says that data came from caches.
const CACHED: f64 = 1.005;

pub(crate) fn run(args: &ProfileArgs) -> Result<()> {
    let work = Workload { prompt: args.timed.prompt, decode: args.decode, depth: args.timed.depth };
    if args.timed.prompt + args.decode == 0 {
        bail!("nothing to measure: --prompt and --decode are both 0");
    }
    if let Some(file) = &args.folded {
        output::check("--folded", file, args.force)?;
    }
    let Subject { name, model, files } =
        subject(args.timed.model.as_deref(), args.timed.synthetic.as_deref())?;
    if let Some(file) = &args.folded {
        output::is_no_input("--folded", file, &files)?;
    }
    let mut engine_args = args.engine.clone();
    engine_args.context = Some(engine_args.context.unwrap_or(0).max(work.context()));
    let plan = Arc::new(Plan::compile(model.record(&engine_args.kv)?, Passes::ALL));
    let sizes = engine_args.sizes(&model, 1)?;
    let backend = engine_args.backend(&model, &[(&plan, sizes)])?;
    let mut engine = session::open(&model, Arc::clone(&plan), (&*backend, sizes))?;
    interrupt::install_once()?;
    let roofline = roofline(&*backend)?;
    let profile = profile(&mut engine, (plan, roofline), work, &mut || !interrupt::pressed())?;
    let Some(profile) = profile else { bail!("stopped") };
    if let Some(file) = &args.folded {
        write_folded(file, &profile)?;
    }
    let head = Head { model: &name, backend: &backend.describe(), args };
    if args.json { print_json(&head, &profile) } else { terminal::print(&text(&head, &profile)) }
}

/// What a backend can do at best.
pub(super) fn roofline(backend: &dyn Backend) -> Result<Roofline> {
    let bytes = backend.free_memory()?.or_else(memory::free).map_or(STREAM, |free| STREAM.min(free / 4));
    Ok(backend.roofline(usize::try_from(bytes)?)?)
}

fn write_folded(file: &Path, profile: &Profile) -> Result<()> {
    let text: String = profile.phases.iter().map(PhaseProfile::folded).collect();
    Ok(interrupt::tidily(|| write_file(file, text.as_bytes()))?)
}

/// What was measured.
struct Head<'a> {
    model: &'a str,
    backend: &'a str,
    args: &'a ProfileArgs,
}

fn text(head: &Head<'_>, profile: &Profile) -> String {
    let Roofline { bytes, flops, int8_ops } = profile.roofline;
    let mut text = format!(
        "{}\n{}, cache {}\nroofline: {:.1} GB/s read, {:.0} GFLOP/s f32, {:.0} GOP/s int8\n",
        head.model,
        head.backend,
        head.args.engine.kv,
        bytes / 1e9,
        flops / 1e9,
        int8_ops / 1e9
    );
    let mut cached = false;
    for phase in &profile.phases {
        text += &summary(phase, head.args.timed.depth);
        for &by in &head.args.by {
            let lines = phase.lines(by.into());
            text += &table(&lines, (phase, by.into()), head.args.top);
            cached |= lines.iter().take(head.args.top).any(|l| l.of_roofline().is_some_and(|r| r > CACHED));
        }
    }
    if cached {
        text += "\nMore than 100 % of the roofline: what was read came from the processor's caches, not from memory.\n";
    }
    text
}

fn summary(phase: &PhaseProfile, depth: usize) -> String {
    let at = if depth > 0 { format!(" at depth {depth}") } else { String::new() };
    let per = match phase.phase {
        Phase::Prompt => "",
        Phase::Decode => " a token",
    };
    let parts = if phase.phase == Phase::Prompt { 1 } else { phase.steps };
    let each = |time: Duration| duration(time.as_secs_f64() / parts as f64);
    format!(
        "\n{} {}{at}: {}{per}, {:.1} tok/s\nits operations one by one sum up to {} ({:+.1} %)\n",
        phase.phase.name(),
        phase.tokens,
        each(phase.unobserved),
        phase.tokens as f64 / phase.unobserved.as_secs_f64(),
        each(phase.sum()),
        100.0 * phase.excess()
    )
}

fn table(lines: &[Line], (phase, by): (&PhaseProfile, By), top: usize) -> String {
    let total = phase.sum().as_secs_f64();
    let steps = phase.steps as f64;
    let share = |time: Duration| 100.0 * time.as_secs_f64() / total;
    let width = lines.iter().take(top).map(|l| l.name.len()).max().unwrap_or(0).max(24);
    let mut text = format!(
        "\n{:<width$} {:>9} {:>6} {:>6} {:>6} {:>7} {:>8}\n",
        format!("by {}", by.name()),
        "time/step",
        "share",
        "calls",
        "GB/s",
        "GFLOP/s",
        "roofline"
    );
    for line in lines.iter().take(top) {
        let roofline = line.of_roofline().map(|r| format!("{:.0} %", 100.0 * r)).unwrap_or_default();
        let rate = |rate: f64| if rate < 0.05 { String::new() } else { format!("{rate:.1}") };
        text += format!(
            "{:<width$} {:>9} {:>4.1} % {:>6} {:>6} {:>7} {:>8}",
            line.name,
            duration(line.time.as_secs_f64() / steps),
            share(line.time),
            terminal::count((line.calls as f64 / steps).round() as u64),
            rate(line.gigabytes()),
            rate(line.gigaflops()),
            roofline,
        )
        .trim_end();
        text.push('\n');
    }
    let rest: Duration = lines.iter().skip(top).map(|l| l.time).sum();
    if lines.len() > top {
        let name = format!("{} more", lines.len() - top);
        text +=
            &format!("{name:<width$} {:>9} {:>4.1} %\n", duration(rest.as_secs_f64() / steps), share(rest));
    }
    text
}

/// Seconds in a unit that fits.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}

fn print_json(head: &Head<'_>, profile: &Profile) -> Result<()> {
    let roofline = profile.roofline;
    let json = json!({
        "model": head.model,
        "backend": head.backend,
        "version": env!("CARGO_PKG_VERSION"),
        "kv": head.args.engine.kv.to_string(),
        "depth": head.args.timed.depth,
        "roofline": {
            "bytes_per_second": roofline.bytes,
            "flops_per_second": roofline.flops,
            "int8_ops_per_second": roofline.int8_ops,
        },
        "phases": profile.phases.iter().map(phase_json).collect::<Vec<_>>(),
    });
    terminal::print_json(&json)
}

fn phase_json(phase: &PhaseProfile) -> Value {
    let lines = |by: By| phase.lines(by).iter().map(line_json).collect::<Vec<_>>();
    json!({
        "phase": phase.phase.name(),
        "tokens": phase.tokens,
        "steps": phase.steps,
        "unobserved_seconds": phase.unobserved.as_secs_f64(),
        "sum_seconds": phase.sum().as_secs_f64(),
        "kinds": lines(By::Kind),
        "layers": lines(By::Layer),
        "operations": phase.entries.iter().map(entry_json).collect::<Vec<_>>(),
    })
}

fn line_json(line: &Line) -> Value {
    let sums = json!({ "name": line.name, "calls": line.calls, "seconds": line.time.as_secs_f64() });
    let rates = json!({
        "gigabytes_per_second": line.gigabytes(),
        "gigaflops_per_second": line.gigaflops(),
        "of_roofline": line.of_roofline(),
    });
    merged([sums, cost_json(&line.cost, line.bound), rates])
}

fn entry_json(entry: &Entry) -> Value {
    let sums = json!({
        "op": entry.op,
        "preparation": entry.preparation,
        "kind": entry.kind,
        "layer": entry.layer,
        "calls": entry.calls,
        "seconds": entry.time.as_secs_f64(),
    });
    merged([sums, cost_json(&entry.cost, entry.bound)])
}

fn cost_json(cost: &Cost, bound: Duration) -> Value {
    json!({
        "weight_bytes": cost.weight_bytes,
        "activation_bytes": cost.activation_bytes,
        "cache_bytes": cost.cache_bytes,
        "flops": cost.flops,
        "quantized_flops": cost.quantized_flops,
        "bound_seconds": bound.as_secs_f64(),
    })
}
