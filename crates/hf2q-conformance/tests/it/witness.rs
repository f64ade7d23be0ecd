//! A backend without arithmetic: what it stores for a position is a digest of the row's token and of everything that
//! the row sees. One slot that is not the history's changes all that follow.

use std::sync::Arc;

use hf2q_gguf::Bytes;
use hf2q_plan::{Backend, BackendError, GroupId, Limits, Observer, PAGE, Plan, Program, SlotMove, Step};

pub(crate) struct Witness;

struct WitnessProgram {
    plan: Arc<Plan>,
    limits: Limits,
    /// By group: a digest for each slot.
    slots: Vec<Vec<u64>>,
    logits: Vec<f32>,
}

impl Backend for Witness {
    fn name(&self) -> &'static str {
        "witness"
    }

    fn describe(&self) -> String {
        "digests of histories".to_owned()
    }

    fn open(
        &self,
        plan: Arc<Plan>,
        _weights: Vec<Bytes>,
        limits: &Limits,
    ) -> Result<Box<dyn Program>, BackendError> {
        let slots = limits.pages.iter().map(|n| vec![0; n * PAGE]).collect();
        Ok(Box::new(WitnessProgram { plan, limits: limits.clone(), slots, logits: vec![] }))
    }
}

fn mix(state: u64, with: u64) -> u64 {
    let z = (state ^ with).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z ^ (z >> 29)
}

impl Program for WitnessProgram {
    fn run(&mut self, step: &Step, _observer: Option<&mut dyn Observer>) -> Result<&[f32], BackendError> {
        let recording = &self.plan.recording;
        let width = recording.logits.width;
        step.check(recording, &self.limits, width)?;
        let mut digests = vec![];
        for (r, row) in step.rows.iter().enumerate() {
            let mut digest = mix(u64::from(row.token), u64::from(row.position));
            for (g, group) in recording.groups.iter().enumerate() {
                let position = row.position as usize;
                for position in group.span.first(position)..position {
                    let slot = step.slot(g, r, position as u32).expect("the step is checked");
                    digest = mix(digest, self.slots[g][slot as usize]);
                }
            }
            for (g, slots) in self.slots.iter_mut().enumerate() {
                slots[step.groups[g].slots[r] as usize] = digest;
            }
            digests.push(digest);
        }
        self.logits.clear();
        for &r in &step.logit_rows {
            let digest = digests[r as usize];
            let start = self.logits.len();
            self.logits.extend([f32::from_bits(digest as u32), f32::from_bits((digest >> 32) as u32)]);
            self.logits.resize(start + width, 0.0);
        }
        Ok(&self.logits)
    }

    fn output(&self, index: usize) -> Result<Vec<f32>, BackendError> {
        Err(BackendError::NoOutput { index, outputs: 0 })
    }

    fn move_slots(&mut self, group: GroupId, moves: &[SlotMove]) -> Result<(), BackendError> {
        let slots = &mut self.slots[group.index()];
        for m in moves {
            slots[m.to as usize] = slots[m.from as usize];
        }
        Ok(())
    }
}
