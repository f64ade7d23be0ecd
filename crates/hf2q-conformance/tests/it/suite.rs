//! The suite accepts the reference and finds backends that are wrong.

use std::sync::Arc;

use hf2q_conformance::{agreement, suite_of};
use hf2q_gguf::Bytes;
use hf2q_plan::{Add, Backend, BackendError, Limits, NamedOp, Op, Plan, Program};
use hf2q_reference::ReferenceBackend;

#[test]
fn the_reference_agrees_with_itself() {
    // Products take most of the time; other backends run them.
    let report = suite_of(&ReferenceBackend, |op| !op.ends_with("mat_mul"));
    assert!(report.passed() && report.cases.len() > 300, "{report}");
    assert!(report.worst().iter().all(|&(_, nmse)| nmse == 0.0), "{report}");
}

#[test]
fn backends_that_differ_in_a_bit_are_found() {
    let other = Changed(|op| {
        if let Op::RmsNorm(o) = op {
            o.eps *= 1.001;
        }
    });
    let report = agreement(&[&ReferenceBackend, &ReferenceBackend, &other], |op| op == "rms_norm");
    assert!(report.failures().count() * 2 > report.cases.len(), "{report}");
    let report = agreement(&[&ReferenceBackend, &other], |op| op == "attention");
    assert!(report.passed(), "{report}");
}

/// Runs plans on the reference after changing them.
struct Changed(fn(&mut Op));

/// Runs plans on the reference after adding an operation that writes over a guard.
struct Overwriting;

impl Backend for Changed {
    fn name(&self) -> &'static str {
        "changed"
    }

    fn describe(&self) -> String {
        "changed".to_owned()
    }

    fn open(
        &self,
        plan: Arc<Plan>,
        weights: Vec<Bytes>,
        limits: &Limits,
    ) -> Result<Box<dyn Program>, BackendError> {
        let mut plan = (*plan).clone();
        for op in &mut plan.recording.ops {
            if !op.name.starts_with("guard") {
                (self.0)(&mut op.op);
            }
        }
        ReferenceBackend.open(Arc::new(plan), weights, limits)
    }
}

#[test]
fn wrong_operations_are_found() {
    type Change = (&'static str, fn(&mut Op));
    let changes: [Change; 6] = [
        ("rms_norm", |op| {
            if let Op::RmsNorm(o) = op {
                o.eps += 1e-2
            }
        }),
        ("rope", |op| {
            if let Op::Rope(o) = op {
                o.rope.base *= 1.001
            }
        }),
        ("attention", |op| {
            if let Op::Attention(o) = op {
                o.scale *= 1.001
            }
        }),
        ("add", |op| {
            if let Op::Add(o) = op {
                o.b = o.a
            }
        }),
        ("glu", |op| {
            if let Op::Glu(o) = op {
                std::mem::swap(&mut o.gate, &mut o.up)
            }
        }),
        ("expert_sum", |op| {
            if let Op::ExpertSum(o) = op {
                o.x.offset = 0
            }
        }),
    ];
    for (kind, change) in changes {
        let report = suite_of(&Changed(change), |op| op == kind);
        assert!(report.failures().count() * 2 >= report.cases.len(), "{kind}: {report}");
    }
}

impl Backend for Overwriting {
    fn name(&self) -> &'static str {
        "overwriting"
    }

    fn describe(&self) -> String {
        "overwriting".to_owned()
    }

    fn open(
        &self,
        plan: Arc<Plan>,
        weights: Vec<Bytes>,
        limits: &Limits,
    ) -> Result<Box<dyn Program>, BackendError> {
        let mut plan = (*plan).clone();
        let ops = &plan.recording.ops;
        let guard = ops.iter().find_map(|o| match &o.op {
            Op::Embed(e) if o.name == "guard0" => Some(e.out),
            _ => None,
        });
        let out = ops.iter().position(|o| o.name == "out").unwrap();
        if let (Some(guard), Op::Add(add)) = (guard, &ops[out].op) {
            let op = Op::Add(Add { out: guard, ..add.clone() });
            let wave = plan.waves.iter().position(|w| w.contains(&out)).unwrap();
            plan.recording.ops.insert(plan.waves[wave].end, NamedOp { name: "stray".to_owned(), op });
            plan.waves[wave].end += 1;
            for later in &mut plan.waves[wave + 1..] {
                *later = later.start + 1..later.end + 1;
            }
        }
        ReferenceBackend.open(Arc::new(plan), weights, limits)
    }
}

#[test]
fn writes_that_no_operation_declares_are_found() {
    let report = suite_of(&Overwriting, |op| op == "add");
    assert_eq!(report.failures().count(), report.cases.len(), "{report}");
    assert!(report.to_string().contains("no operation declares"), "{report}");
}
