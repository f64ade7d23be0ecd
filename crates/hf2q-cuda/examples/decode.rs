//! Speed of decoding and of prompts with random weights of a model's shapes:
//! `decode NAME:TYPE [--depth N] [--rows N] [--prompt N] [--kv FORMATS] [--nvrtc FILE] [--cache DIR] [--prebuilt DIR]`.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use hf2q_cuda::{CudaBackend, CudaOptions};
use hf2q_model::{RecordOptions, synthetic};
use hf2q_plan::{Backend, GroupStep, Limits, PAGE, Passes, Plan, Program, Row, Step};

#[expect(clippy::print_stdout, reason = "a tool reports on the terminal")]
fn say(text: &str) {
    println!("{text}");
}

struct Settings {
    spec: String,
    depths: Vec<u32>,
    rows: Vec<u32>,
    prompts: Vec<u32>,
    kv: String,
    cuda: CudaOptions,
}

fn settings() -> Settings {
    let mut s = Settings {
        spec: String::new(),
        depths: vec![],
        rows: vec![],
        prompts: vec![],
        kv: "f16".to_owned(),
        cuda: CudaOptions::default(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_default();
        let numbers = |v: String| v.split(',').filter_map(|n| n.parse().ok()).collect::<Vec<u32>>();
        match argument.as_str() {
            "--depth" => s.depths = numbers(value()),
            "--rows" => s.rows = numbers(value()),
            "--prompt" => s.prompts = numbers(value()),
            "--kv" => s.kv = value(),
            "--nvrtc" => s.cuda.nvrtc = Some(value().into()),
            "--cache" => s.cuda.kernel_cache = Some(value().into()),
            "--prebuilt" => s.cuda.prebuilt = Some(value().into()),
            _ => s.spec = argument,
        }
    }
    s
}

/// A step of one row for each of `rows` sequences, or of `rows` rows of one, at `position`. Every sequence has pages of
/// its own; what they hold does not matter for the time.
fn step(plan: &Plan, rows: u32, position: u32, of_one: bool) -> Result<Step, Box<dyn Error>> {
    let (sequences, last) = if of_one { (1, position + rows - 1) } else { (rows, position) };
    let pages = last / PAGE as u32 + 1;
    let row = |i: u32| match of_one {
        true => Row { sequence: 0, token: 3 + i % 200, position: position + i, parent: i.checked_sub(1) },
        false => Row { sequence: i, token: 3 + i % 200, position, parent: None },
    };
    let all: Vec<Row> = (0..rows).map(row).collect();
    let slot =
        |r: &Row| (r.sequence * pages + r.position / PAGE as u32) * PAGE as u32 + r.position % PAGE as u32;
    let group = GroupStep {
        slots: all.iter().map(slot).collect(),
        page_tables: (0..sequences * pages).collect(),
        pages_per_sequence: pages as usize,
    };
    let logits = if of_one { vec![rows - 1] } else { (0..rows).collect() };
    Ok(Step::new(all, vec![group; plan.recording.groups.len()], logits)?)
}

/// Median seconds of a step, and a number that tells its logits from others.
fn time(program: &mut dyn Program, step: &Step, repeats: usize) -> Result<(f64, u64), Box<dyn Error>> {
    let (mut times, mut sum) = (Vec::new(), 0);
    for i in 0..repeats + 3 {
        let start = Instant::now();
        let logits = program.run(step, None)?;
        if i >= 3 {
            times.push(start.elapsed().as_secs_f64());
        }
        sum = logits.iter().fold(0, |sum: u64, x| sum.wrapping_mul(31).wrapping_add(x.to_bits().into()));
    }
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], sum))
}

fn main() -> Result<(), Box<dyn Error>> {
    let s = settings();
    if let Some(why) = CudaBackend::devices().why_none {
        say(&format!("not run, no device: {why}"));
        return Ok(());
    }
    let start = Instant::now();
    let model = synthetic::model(&s.spec)?;
    let options: RecordOptions = s.kv.parse()?;
    let plan = Arc::new(Plan::compile(model.record(&options)?, Passes::ALL));
    let backend = CudaBackend::new(s.cuda)?;
    say(&format!("{}, kv {}, on {}; weights in {:.1?}", s.spec, s.kv, backend.describe(), start.elapsed()));
    let start = Instant::now();
    let longest = s.depths.iter().chain(&s.prompts).max().copied().unwrap_or(0);
    let most = s.rows.iter().max().copied().unwrap_or(1);
    let pages = (longest as usize / PAGE + 2).max(most as usize * 2).max(4);
    let limits = Limits {
        max_rows: s.prompts.iter().chain(&s.rows).max().map_or(1, |&n| n.min(2048) as usize),
        max_logit_rows: most as usize,
        pages: vec![pages; plan.recording.groups.len()],
    };
    let weights = model.weights_for(&plan.recording);
    let mut program = backend.open(Arc::clone(&plan), weights, &limits)?;
    say(&format!(
        "{} operations in {} waves, opened in {:.1?}",
        plan.recording.ops.len(),
        plan.waves.len(),
        start.elapsed()
    ));
    for &depth in &s.depths {
        let (seconds, sum) = time(&mut *program, &step(&plan, 1, depth, false)?, 15)?;
        say(&format!(
            "decode at {depth}: {:.3} ms, {:.1} tokens a second, logits {sum:x}",
            seconds * 1e3,
            1.0 / seconds
        ));
    }
    for &rows in &s.rows {
        let (seconds, sum) = time(&mut *program, &step(&plan, rows, 0, false)?, 10)?;
        say(&format!(
            "decode of {rows} sequences: {:.3} ms, {:.0} tokens a second, logits {sum:x}",
            seconds * 1e3,
            f64::from(rows) / seconds
        ));
    }
    for &rows in &s.prompts {
        let (seconds, sum) = time(&mut *program, &step(&plan, rows, 0, true)?, 5)?;
        say(&format!(
            "prompt of {rows}: {:.1} ms, {:.0} tokens a second, logits {sum:x}",
            seconds * 1e3,
            f64::from(rows) / seconds
        ));
    }
    Ok(())
}
