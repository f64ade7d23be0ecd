//! `hf2q plan`.

use anyhow::Result;
use hf2q_convert::report::plural;
use hf2q_plan::{Cache, Cost, PAGE, Passes, Plan, Span, StepSize};

use crate::args::PlanArgs;
use crate::{load, terminal};

pub(crate) fn run(args: &PlanArgs) -> Result<()> {
    let gguf = load::open(&args.model)?;
    let model = load::model(&gguf)?;
    let recording = model.record(&args.kv)?;
    let plan = Plan::compile(recording, if args.no_fusion { Passes::NONE } else { Passes::ALL });
    let rows = args.rows;
    let mut total = Cost::default();
    let mut text = String::new();
    for (wave, range) in plan.waves.iter().enumerate() {
        text.push_str(&format!("wave {wave}\n"));
        for op in &plan.recording.ops[range.clone()] {
            let cost = plan.recording.cost(&op.op, StepSize { rows, logit_rows: 1, held: 0 });
            text.push_str(&format!(
                "  {:<26} {:<14} {:>11} weights {:>11} activations {:>8} flop\n",
                op.name,
                op.op.kind(),
                terminal::bytes(cost.weight_bytes),
                terminal::bytes(cost.activation_bytes),
                terminal::count(cost.flops),
            ));
            total += cost;
        }
    }
    terminal::print(&text)?;
    summary(&plan, rows, total)
}

fn summary(plan: &Plan, rows: usize, total: Cost) -> Result<()> {
    let r = &plan.recording;
    let pages = |c: &Cache| match r.groups[c.group.index()].span {
        Span::Pages(n) => n as usize,
        Span::All | Span::Last(_) => 0,
    };
    // Some layers have a second cache: of their last pages.
    let (recent, all): (Vec<&Cache>, Vec<&Cache>) = r.caches.iter().partition(|c| pages(c) > 0);
    let bytes = |n: usize| terminal::bytes(n as u64);
    let fixed = match recent.iter().map(|c| pages(c) * c.page_bytes()).sum() {
        0 => String::new(),
        n => format!("; {} for the recent positions of a sequence ({} layers)", bytes(n), recent.len()),
    };
    terminal::print_line(&format!(
        "\n{} operations in {} waves; a step of {} reads {} of weights, moves {} of activations, {} flop",
        r.ops.len(),
        plan.waves.len(),
        plural(rows, "row"),
        terminal::bytes(total.weight_bytes),
        terminal::bytes(total.activation_bytes),
        terminal::count(total.flops),
    ))?;
    terminal::print_line(&format!(
        "arena {}; cache {} for each {PAGE} positions ({} of {} layers own one){fixed}",
        bytes(plan.arena(rows, 1).bytes),
        bytes(all.iter().map(|c| c.page_bytes()).sum()),
        all.len(),
        r.ops.iter().filter(|o| o.op.kind() == "attention").count(),
    ))
}
