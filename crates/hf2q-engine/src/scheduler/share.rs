//! How the prompts under way share the rows of a step.

/// What one prompt could use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Want {
    /// Tokens that are still to be computed.
    pub(super) left: usize,
    /// The most of them that may be computed in this step.
    pub(super) most: usize,
}

/// Rows for each of `wants`, the oldest first. The oldest gets half of the rows (rounded up), the others get theirs in the
/// order of what is left of them, the shortest first, and what nobody else can use goes to the oldest.
///
/// So a prompt with `n` tokens left that has become the oldest is computed within `2 n / rows` steps whatever comes behind
/// it, and a short one behind long ones waits for those alone that have even less left.
pub(super) fn divide(rows: usize, wants: &[Want]) -> Vec<usize> {
    let mut given = vec![0; wants.len()];
    let Some((oldest, others)) = wants.split_first() else { return given };
    let limit = |w: &Want| w.left.min(w.most);
    given[0] = limit(oldest).min(rows.div_ceil(2));
    let mut free = rows - given[0];
    let mut order: Vec<usize> = (1..=others.len()).collect();
    order.sort_by_key(|&i| wants[i].left);
    for i in order {
        given[i] = limit(&wants[i]).min(free);
        free -= given[i];
    }
    given[0] += (limit(oldest) - given[0]).min(free);
    given
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_row_is_left_over_and_the_oldest_gets_half(
            rows in 0..200_usize,
            wants in proptest::collection::vec((1..300_usize, 1..300_usize), 1..9),
        ) {
            let wants: Vec<Want> = wants.into_iter().map(|(left, most)| Want { left, most }).collect();
            let limits: Vec<usize> = wants.iter().map(|w| w.left.min(w.most)).collect();
            let given = divide(rows, &wants);
            prop_assert!(given.iter().zip(&limits).all(|(given, limit)| given <= limit));
            prop_assert_eq!(given.iter().sum::<usize>(), rows.min(limits.iter().sum()));
            prop_assert!(given[0] >= limits[0].min(rows.div_ceil(2)));
            // Who got less than it could use is not shorter than anybody who got something.
            for (i, j) in (1..wants.len()).flat_map(|i| (1..wants.len()).map(move |j| (i, j))) {
                let cut = given[i] < limits[i] && given[j] > 0;
                prop_assert!(!cut || wants[i].left >= wants[j].left);
            }
        }
    }

    fn share(rows: usize, lefts: &[usize]) -> Vec<usize> {
        let wants: Vec<Want> = lefts.iter().map(|&left| Want { left, most: usize::MAX }).collect();
        divide(rows, &wants)
    }

    #[test]
    fn the_oldest_gets_half_and_the_shortest_come_next() {
        assert_eq!(share(10, &[]), [0_usize; 0]);
        assert_eq!(share(10, &[100]), [10]);
        assert_eq!(share(10, &[100, 100, 3]), [5, 2, 3]);
        assert_eq!(share(10, &[100, 3]), [7, 3]);
        assert_eq!(share(10, &[2, 50, 40]), [2, 0, 8]);
        assert_eq!(share(1, &[5, 1]), [1, 0]);
        assert_eq!(share(0, &[5, 1]), [0, 0]);
        let few = [Want { left: 100, most: 2 }, Want { left: 50, most: 1 }];
        assert_eq!(divide(10, &few), [2, 1]);
    }

    /// A long prompt among short ones that keep coming, and a short one among long ones.
    #[test]
    fn nobody_waits_for_ever() {
        let (rows, mut long, mut steps) = (16, 1000, 0);
        while long > 0 {
            long -= share(rows, &[long, 16, 16, 16])[0];
            steps += 1;
        }
        assert_eq!(steps, 1000 / (rows / 2));
        let mut lefts = [1000, 900, 30];
        for _ in 0..4 {
            let given = share(rows, &lefts);
            lefts.iter_mut().zip(given).for_each(|(left, n)| *left -= n);
        }
        assert_eq!(lefts[2], 0);
    }
}
