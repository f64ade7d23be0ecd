//! The order of launches: between operations on whole rows, what waits for the same stands side by side, so that it can be
//! launched together.

use std::ops::Range;

use hf2q_plan::{Access, Op, Plan};

use crate::fuse::Part;
use crate::launch::mat_mul_one;

/// Sorts parts between operations on whole rows by their levels.
pub(crate) fn by_level(access: &[Access], parts: Vec<Part>) -> Vec<Part> {
    let mut keyed: Vec<((usize, usize), Part)> = places(access, &parts).into_iter().zip(parts).collect();
    // Parts of a level keep their order.
    keyed.sort_by_key(|(place, _)| *place);
    keyed.into_iter().map(|(_, part)| part).collect()
}

/// The region and the level of each part. Operations on whole rows begin a region; levels are how many parts wait for each
/// other, one after another.
pub(crate) fn places(access: &[Access], parts: &[Part]) -> Vec<(usize, usize)> {
    let mut places: Vec<(usize, usize)> = Vec::new();
    let (mut region, mut first) = (0, 0);
    for (at, part) in parts.iter().enumerate() {
        if matches!(part, Part::Rows(_)) {
            (region, first) = (region + 1, at);
            places.push((region, 0));
            continue;
        }
        let waits = (first..at).filter(|&before| waits_for(access, part, &parts[before]));
        // Nothing passes the operations that begin a region.
        places.push((region, waits.map(|before| places[before].1 + 1).max().unwrap_or(1)));
    }
    places
}

fn waits_for(access: &[Access], part: &Part, before: &Part) -> bool {
    let meet = |a: &Access, b: &Access| a.writes.iter().any(|t| b.reads.contains(t) || b.writes.contains(t));
    let (own, others) = (part.ops(), before.ops());
    own.iter().any(|&a| others.iter().any(|&b| meet(&access[a], &access[b]) || meet(&access[b], &access[a])))
}

/// Operations that may run at the same time or in another order than the plan's: what they touch has to live as long as any of
/// them needs it.
pub(crate) fn beside(plan: &Plan, access: &[Access], parts: &[Part]) -> Vec<Range<usize>> {
    let places = places(access, parts);
    let mut ranges = Vec::new();
    let mut add = |ops: Vec<usize>| {
        if let (Some(&first), Some(&last)) = (ops.iter().min(), ops.iter().max()) {
            ranges.push(first..last + 1);
        }
    };
    let mut at = 0;
    while at < parts.len() {
        let end = at + places[at..].iter().take_while(|place| **place == places[at]).count();
        add(parts[at..end].iter().flat_map(Part::ops).collect());
        at = end;
    }
    // The order of the parts is not that of their operations.
    let mut latest: Vec<usize> = Vec::new();
    for part in parts {
        let ops = part.ops();
        let passed = latest.iter().copied().filter(|l| ops.iter().any(|op| op < l));
        add(ops.iter().copied().chain(passed).collect());
        latest.extend(ops);
    }
    let reads_of = |a: usize, b: usize| access[a].reads.iter().any(|t| access[b].writes.contains(t));
    let op = |i: usize| &plan.recording.ops[i].op;
    for part in parts {
        match part {
            // Products make gated units themselves.
            Part::Gated(i, rows) if matches!(op(*i), Op::Glu(o) if mat_mul_one::makes(o, *rows)) => {
                add((*i..access.len()).filter(|&reader| reader == *i || reads_of(reader, *i)).collect());
            }
            // A router's product chooses.
            Part::One(i) if matches!(op(*i), Op::Route(_)) => {
                add((0..=*i).filter(|&writer| writer == *i || reads_of(*i, writer)).collect());
            }
            _ => {}
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use hf2q_model::{RecordOptions, toy};
    use hf2q_plan::Passes;

    use super::*;
    use crate::fuse;

    /// The plan of a toy whose router runs beside a network.
    fn plan() -> Plan {
        let model = toy::all(2).into_iter().map(|(_, model)| model);
        let plans = model.map(|m| Plan::compile(m.record(&RecordOptions::default()).unwrap(), Passes::ALL));
        let routes = |plan: &Plan| plan.recording.ops.iter().any(|op| matches!(op.op, Op::Route(_)));
        plans.into_iter().find(routes).expect("a toy has a router")
    }

    #[test]
    fn what_waits_for_the_same_stands_side_by_side() {
        let plan = plan();
        let access: Vec<Access> = plan.recording.ops.iter().map(|op| op.op.access()).collect();
        let parts = fuse::parts(&plan, 200 << 10);
        let places = places(&access, &parts);
        assert!(places.is_sorted(), "regions and levels follow each other");
        for (at, part) in parts.iter().enumerate() {
            for before in 0..at {
                let same = places[at] == places[before];
                assert!(!same || !waits_for(&access, part, &parts[before]), "{part:?} waits");
            }
        }
    }

    #[test]
    fn what_is_made_later_lives_until_then() {
        let plan = plan();
        let access: Vec<Access> = plan.recording.ops.iter().map(|op| op.op.access()).collect();
        let ranges = beside(&plan, &access, &fuse::parts(&plan, 200 << 10));
        for (i, op) in plan.recording.ops.iter().enumerate() {
            let Op::Route(route) = &op.op else { continue };
            let router = access.iter().position(|a| a.writes.contains(&route.logits.tensor)).unwrap();
            assert!(ranges.iter().any(|range| range.contains(&router) && range.contains(&i)));
        }
    }
}
