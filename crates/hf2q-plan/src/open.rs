//! What every backend asks of the arguments of [`crate::Backend::open`].

use hf2q_gguf::Bytes;

use crate::backend::{BackendError, Limits};
use crate::plan::Recording;
use crate::tensor::TensorKind;

/// Most rows of a step: sizes of activations cannot overflow below it.
const MAX_ROWS: usize = 1 << 20;

impl Recording {
    /// Limits fit the groups, weights have the sizes of their types and shapes, and operands fit together
    /// ([`Recording::check`]). `backend` is who asks.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check_open(
        &self,
        backend: &'static str,
        weights: &[Bytes],
        limits: &Limits,
    ) -> Result<(), BackendError> {
        let failed = |why| Err(BackendError::Failed { backend, why });
        let groups = self.groups.len();
        if limits.pages.len() != groups {
            return failed(format!("pages given for {} groups, the plan has {groups}", limits.pages.len()));
        }
        for (what, rows) in [("rows", limits.max_rows), ("logit rows", limits.max_logit_rows)] {
            if rows > MAX_ROWS {
                return failed(format!("{rows} {what} a step asked for, accepted are at most {MAX_ROWS}"));
            }
        }
        let expected = self.weights.len();
        if weights.len() != expected {
            return failed(format!("{} weights given, the plan has {expected}", weights.len()));
        }
        for (&id, bytes) in self.weights.iter().zip(weights) {
            let tensor = &self.tensors[id.index()];
            let TensorKind::Weight(w) = &tensor.kind else {
                return failed(format!("{} is no weight", tensor.name));
            };
            let size = w.ty.row_bytes(w.cols).and_then(|n| n.checked_mul(w.rows)?.checked_mul(w.experts));
            if size != Some(bytes.len()) {
                let (name, expected) = (tensor.name.clone(), size.unwrap_or(usize::MAX));
                return Err(BackendError::WeightSize { name, found: bytes.len(), expected });
            }
        }
        self.check().or_else(|error| failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use hf2q_gguf::TensorType;

    use super::*;
    use crate::{Recorder, Weight};

    #[test]
    fn sizes_and_counts_are_those_of_the_plan() {
        let mut r = Recorder::default();
        let table = r.weight("table", Weight { ty: TensorType::F16, cols: 8, rows: 3, experts: 1 });
        let x = r.embed("embed", table, 1.0);
        let logits = r.select_rows("logits", x);
        let recording = r.finish(logits).unwrap();
        let limits = Limits { max_rows: 4, max_logit_rows: 1, pages: vec![] };
        let of = |n: usize| Bytes::from_vec(vec![0; n]);
        let refused = |weights: &[Bytes], limits: &Limits| {
            recording.check_open("here", weights, limits).err().map(|e| e.to_string())
        };
        assert_eq!(refused(&[of(48)], &limits), None);
        assert_eq!(refused(&[of(47)], &limits).unwrap(), "tensor table has 47 bytes, expected 48");
        assert_eq!(refused(&[], &limits).unwrap(), "here failed: 0 weights given, the plan has 1");
        let many = Limits { max_rows: MAX_ROWS + 1, ..limits.clone() };
        assert!(refused(&[of(48)], &many).unwrap().contains("1048577 rows a step asked for"));
        let pages = Limits { pages: vec![1], ..limits };
        assert!(refused(&[of(48)], &pages).unwrap().contains("pages given for 1 groups, the plan has 0"));
    }
}
