//! Choosing operations by name: `*` stands for any characters, `?` for one.

use std::collections::HashSet;

use crate::op::Op;
use crate::plan::{NamedOp, Plan, Recording};
use crate::tensor::{TensorId, TensorKind, View};

/// Names that an error suggests.
const SUGGESTIONS: usize = 5;

/// Why a selection cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SelectError {
    /// A pattern that no name matches.
    #[error("nothing is named {glob:?}; near names: {}", near.join(", "))]
    NoMatch {
        /// The pattern.
        glob: String,
        /// Names that come closest, the best first.
        near: Vec<String>,
    },
    /// An operation whose result cannot be read after a step.
    #[error("{op} has no result of one activation that could be kept")]
    NoOutput {
        /// Name of the operation.
        op: String,
    },
    /// An operation that has to be run.
    #[error(
        "{op} cannot be skipped: it chooses the experts, and kernels trust its choice; what comes before and behind it can"
    )]
    Routing {
        /// Name of the operation.
        op: String,
    },
}

/// Whether `name` is what `glob` describes, from its first to its last character.
pub fn matches(glob: &str, name: &str) -> bool {
    let (glob, name): (Vec<char>, Vec<char>) = (glob.chars().collect(), name.chars().collect());
    let (mut g, mut n) = (0, 0);
    // Where to go on if what follows the last `*` does not fit: an earlier `*` need not be tried again.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some('*') => {
                retry = Some((g + 1, n));
                g += 1;
            }
            Some(&c) if c == '?' || c == name[n] => (g, n) = (g + 1, n + 1),
            _ => match &mut retry {
                Some((after, from)) => {
                    *from += 1;
                    (g, n) = (*after, *from);
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|&c| c == '*')
}

/// Positions of the names that any of the patterns matches, ascending.
///
/// # Errors
/// A pattern matches none: it is a mistake, so nothing is selected.
pub fn select<S: AsRef<str>>(globs: &[S], names: &[&str]) -> Result<Vec<usize>, SelectError> {
    if let Some(glob) = globs.iter().map(AsRef::as_ref).find(|g| !names.iter().any(|n| matches(g, n))) {
        return Err(SelectError::NoMatch { glob: glob.to_owned(), near: near(glob, names) });
    }
    let chosen = |name: &str| globs.iter().any(|g| matches(g.as_ref(), name));
    Ok((0..names.len()).filter(|&i| chosen(names[i])).collect())
}

/// Names that need the fewest changes to be matched.
fn near(glob: &str, names: &[&str]) -> Vec<String> {
    let glob: Vec<char> = glob.chars().collect();
    let mut all: Vec<(usize, &str)> = names.iter().map(|name| (distance(&glob, name), *name)).collect();
    all.sort_by_key(|&(distance, _)| distance);
    let mut seen = HashSet::new();
    all.retain(|&(_, name)| seen.insert(name));
    all.into_iter().take(SUGGESTIONS).map(|(_, name)| name.to_owned()).collect()
}

/// Characters to insert, leave out or replace in `name` until `glob` matches it (Levenshtein 1966, where `*` takes
/// any characters and `?` any one).
fn distance(glob: &[char], name: &str) -> usize {
    let name: Vec<char> = name.chars().collect();
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for &g in glob {
        let mut next = Vec::with_capacity(row.len());
        next.push(row[0] + usize::from(g != '*'));
        for (i, &c) in name.iter().enumerate() {
            let best = match g {
                '*' => row[i + 1].min(next[i]),
                _ => (row[i] + usize::from(g != '?' && g != c)).min(row[i + 1] + 1).min(next[i] + 1),
            };
            next.push(best);
        }
        row = next;
    }
    row[name.len()]
}

impl Recording {
    /// Keeps what the operations with these names write, so that it can be read after a step ([`Recording::outputs`]).
    /// Before fusion: an operation that would be merged into the next one keeps its result then.
    ///
    /// # Errors
    /// No operation has this name, or it writes no activation of numbers, or more than one.
    pub fn keep<S: AsRef<str>>(&mut self, names: &[S]) -> Result<(), SelectError> {
        let all: Vec<&str> = self.ops.iter().map(|op| op.name.as_str()).collect();
        let mut outputs = Vec::new();
        for name in names {
            let name = name.as_ref();
            let Some(i) = all.iter().position(|n| *n == name) else {
                return Err(SelectError::NoMatch { glob: name.to_owned(), near: near(name, &all) });
            };
            let writes = self.ops[i].op.access().writes;
            let [tensor] = writes[..] else { return Err(SelectError::NoOutput { op: name.to_owned() }) };
            let TensorKind::Activation { width, .. } = self.tensors[tensor.index()].kind else {
                return Err(SelectError::NoOutput { op: name.to_owned() });
            };
            outputs.push(View { tensor, offset: 0, width });
        }
        self.outputs.extend(outputs);
        Ok(())
    }
}

impl Plan {
    /// This plan without the operations that the patterns match, and their names: for finding where time goes. Their
    /// outputs keep whatever the arena holds, so a step's numbers mean nothing.
    ///
    /// # Errors
    /// A pattern matches no operation, or one whose outputs are indices.
    pub fn without<S: AsRef<str>>(mut self, globs: &[S]) -> Result<(Self, Vec<String>), SelectError> {
        let names: Vec<&str> = self.recording.ops.iter().map(|op| op.name.as_str()).collect();
        let chosen: HashSet<usize> = select(globs, &names)?.into_iter().collect();
        let recording = &mut self.recording;
        let routing = |op: &Op| {
            let is_indices =
                |t: &TensorId| matches!(recording.tensors[t.index()].kind, TensorKind::Indices { .. });
            op.access().writes.iter().any(is_indices)
        };
        let mut in_order: Vec<usize> = chosen.iter().copied().collect();
        in_order.sort_unstable();
        if let Some(&i) = in_order.iter().find(|&&i| routing(&recording.ops[i].op)) {
            return Err(SelectError::Routing { op: recording.ops[i].name.clone() });
        }
        let mut skipped = Vec::new();
        let (mut kept, mut waves) = (Vec::new(), Vec::new());
        let mut ops: Vec<Option<NamedOp>> =
            std::mem::take(&mut recording.ops).into_iter().map(Some).collect();
        for wave in &self.waves {
            let start = kept.len();
            for i in wave.clone() {
                match ops[i].take() {
                    Some(op) if chosen.contains(&i) => {
                        recording.skipped.extend(op.op.access().writes);
                        skipped.push(op.name);
                    }
                    op => kept.extend(op),
                }
            }
            if kept.len() > start {
                waves.push(start..kept.len());
            }
        }
        recording.ops = kept;
        Ok((Self { waves, ..self }, skipped))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{ExpertInput, Passes, PlanError, Recorder, Renormalize, Weight};

    /// What a pattern means, said in the plainest way.
    fn plainly(glob: &[char], name: &[char]) -> bool {
        match (glob.split_first(), name.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), _) => {
                plainly(rest, name) || name.split_first().is_some_and(|(_, n)| plainly(glob, n))
            }
            (Some((g, glob)), Some((n, name))) => (*g == '?' || g == n) && plainly(glob, name),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matching_is_what_patterns_mean(glob in "[ab*?]{0,8}", name in "[ab]{0,10}") {
            let chars = |s: &str| s.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&glob, &name), plainly(&chars(&glob), &chars(&name)));
            prop_assert_eq!(matches(&glob, &name), distance(&chars(&glob), &name) == 0);
        }
    }

    #[test]
    fn many_stars_take_no_longer() {
        assert!(!matches(&"*a".repeat(40), &"b".repeat(4000)));
        assert!(matches("L0?.*.q_*", "L07.attn.q_proj") && !matches("L0?", "L07.attn"));
    }

    #[test]
    fn a_mistake_is_told_with_what_was_meant() {
        let names = ["embed", "L00.attn.q_proj", "L00.attn.k_proj", "output"];
        assert_eq!(select(&["*.q_proj", "embed"], &names), Ok(vec![0, 1]));
        assert_eq!(select::<&str>(&[], &names), Ok(vec![]));
        let Err(SelectError::NoMatch { glob, near }) = select(&["embed", "*.atn.q_proj"], &names) else {
            panic!("a pattern matches nothing")
        };
        assert_eq!((glob.as_str(), near[0].as_str()), ("*.atn.q_proj", "L00.attn.q_proj"));
        // What is written twice is suggested once.
        let Err(SelectError::NoMatch { near, .. }) = select(&["outptu"], &["output", "embed", "output"])
        else {
            panic!("a pattern matches nothing")
        };
        assert_eq!(near, ["output", "embed"]);
    }

    fn mixture() -> Plan {
        let mut r = Recorder::default();
        let ty = hf2q_gguf::TensorType::F32;
        let table = r.weight("table", Weight { ty, cols: 8, rows: 4, experts: 1 });
        let router = r.weight("router", Weight { ty, cols: 8, rows: 3, experts: 1 });
        let stack = r.weight("stack", Weight { ty, cols: 8, rows: 8, experts: 3 });
        let x = r.embed("embed", table, 1.0);
        let logits = r.mat_mul("router", x, router);
        let (experts, weights) = r.route("route", logits, 1, (Renormalize::Chosen, None));
        let out = r.expert_mat_mul("experts", x, experts, (stack, ExpertInput::Shared));
        let out = r.expert_sum("sum", out, weights);
        let logits = r.select_rows("select", out);
        Plan::compile(r.finish(logits).unwrap(), Passes::NONE)
    }

    #[test]
    fn what_is_left_is_a_sound_plan() {
        let (plan, skipped) = mixture().without(&["experts", "s*"]).unwrap();
        assert_eq!(skipped, ["experts", "sum", "select"]);
        assert_eq!(plan.recording.check(), Ok(()));
        assert_eq!(plan.waves, [0..1, 1..2, 2..3]);
        // The logits have a place although nothing writes them.
        let arena = plan.arena(4, 2);
        assert!(arena.offsets[plan.recording.logits.tensor.index()].is_some());
        let whole = mixture();
        assert_eq!(whole.clone().without::<&str>(&[]).unwrap(), (whole, vec![]));
    }

    #[test]
    fn indices_are_always_written() {
        let got = mixture().without(&["rout*"]);
        assert_eq!(got.unwrap_err(), SelectError::Routing { op: "route".into() });
        // Nor can a plan claim that they need not be.
        let mut plan = mixture();
        let i = plan.recording.ops.iter().position(|op| op.name == "route").unwrap();
        let writes = plan.recording.ops.remove(i).op.access().writes;
        plan.recording.skipped.extend(writes);
        let got = plan.recording.check();
        assert!(matches!(got, Err(PlanError::ReadBeforeWrite { .. })), "{got:?}");
    }
}
