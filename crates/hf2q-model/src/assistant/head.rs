//! An output matrix of which each row of a step reads only the groups of tokens that it is likely to need: groups are the
//! experts of a mixture, centroids their router.

use hf2q_arch::Centroids;
use hf2q_gguf::Bytes;
use hf2q_plan::Weight;

use crate::error::ModelError;
use crate::model::Model;

/// Name of the matrix in recordings.
pub(super) const ORDERED: &str = "token_embd.ordered";

/// The output matrix in the order of the groups.
#[derive(Clone, Debug)]
pub(super) struct Ordered {
    /// `[groups, tokens of a group, hidden]`.
    pub(super) matrix: Bytes,
    pub(super) weight: Weight,
    tokens: Vec<u32>,
}

impl Ordered {
    /// `None` where all tokens get logits. Copies the matrix.
    pub(super) fn new(drafter: &Model) -> Result<Option<Self>, ModelError> {
        let config = drafter.config();
        let Some(Centroids { count, .. }) = config.assistant.and_then(|a| a.centroids) else {
            return Ok(None);
        };
        const LIST: &str = "masked_embd_ordering";
        let list = drafter.tensor(LIST).expect("Model::new has found every tensor of the map");
        let table = drafter.tensor(output(drafter)).expect("Model::new has found every tensor of the map");
        let tokens = list.data.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b));
        let tokens: Vec<u32> = tokens.collect();
        let row = table.data.len() / config.vocab;
        let mut matrix = Vec::with_capacity(table.data.len());
        for (index, &token) in tokens.iter().enumerate() {
            if token as usize >= config.vocab {
                let (tensor, vocabulary) = (LIST, config.vocab);
                return Err(ModelError::ListedToken { tensor, index, token: token.into(), vocabulary });
            }
            matrix.extend_from_slice(&table.data[token as usize * row..][..row]);
        }
        let weight = Weight { ty: table.ty, cols: config.hidden, rows: config.vocab / count, experts: count };
        Ok(Some(Self { matrix: Bytes::from_vec(matrix), weight, tokens }))
    }

    /// Logits of all tokens of those of the best groups, which lie group after group.
    pub(super) fn spread(&self, scores: &[f32], logits: &[f32]) -> Vec<f32> {
        let size = self.weight.rows;
        let mut all = vec![f32::NEG_INFINITY; self.tokens.len()];
        for (group, logits) in best(scores, logits.len() / size).into_iter().zip(logits.chunks(size)) {
            for (&token, &logit) in self.tokens[group * size..].iter().zip(logits) {
                all[token as usize] = logit;
            }
        }
        all
    }
}

/// The highest scores in descending order, of equal ones the first: as [`hf2q_plan::Route`] chooses.
fn best(scores: &[f32], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    // `+ 0.0` makes the two zeros equal.
    order.sort_by(|&a, &b| (scores[b] + 0.0).total_cmp(&(scores[a] + 0.0)));
    order.truncate(count);
    order
}

/// The matrix that logits are made with.
pub(super) fn output(drafter: &Model) -> &'static str {
    if drafter.config().tied_output { "token_embd.weight" } else { "output.weight" }
}
