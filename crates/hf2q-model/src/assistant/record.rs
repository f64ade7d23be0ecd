//! The assistant as operations.

use hf2q_plan::{KvFormat, Norm, Recording, Renormalize, View};

use super::Assistant;
use super::head::{self, ORDERED, Ordered};
use crate::builder::Builder;
use crate::error::ModelError;
use crate::gemma4;
use crate::options::RecordOptions;

/// The operations that give what is read beside logits.
const NEXT: &str = "post_projection";
const SCORES: &str = "centroids.scores";

/// Keys and values of all rows are stored as they are given; all else is computed of the rows that want logits.
pub(super) fn record(assistant: &Assistant, format: KvFormat) -> Result<Recording, ModelError> {
    let options = RecordOptions { recent: None, ..RecordOptions::uniform(format) };
    let mut b = Builder::new(&assistant.drafter, options);
    let state = b.r.input("state", 2 * assistant.target.hidden);
    for (source, width) in assistant.sources.iter().zip(assistant.kv_widths()) {
        b.go_to(source.reader);
        b.part("attn");
        let (k, v) = (b.r.input("k", width), b.r.input("v", width));
        b.store_of_target(k, v);
    }
    b.r.prefix("");
    let state = b.r.select_rows("select_rows", state);
    let matrix = b.model_weight("nextn.pre_projection.weight");
    let mut x = b.r.mat_mul("pre_projection", state, matrix);
    for i in 0..b.config.layers.len() {
        b.go_to(i);
        x = gemma4::layer(&mut b, x);
    }
    b.r.prefix("");
    let weight = Some(b.model_weight("output_norm.weight"));
    let x = b.r.rms_norm("output_norm", x, Norm { weight, eps: b.config.norm_eps });
    let matrix = b.model_weight("nextn.post_projection.weight");
    b.r.mat_mul(NEXT, x, matrix);
    let logits = match &assistant.ordered {
        Some(ordered) => of_groups(&mut b, x, ordered),
        None => {
            let matrix = b.model_weight(head::output(&assistant.drafter));
            b.r.mat_mul("output", x, matrix)
        }
    };
    let mut recording = b.r.finish(logits)?;
    let scores = assistant.ordered.as_ref().map(|_| SCORES);
    let outputs: Vec<&str> = std::iter::once(NEXT).chain(scores).collect();
    recording.keep(&outputs).expect("both are recorded above");
    Ok(recording)
}

/// Logits of the tokens of the best groups, group after group.
fn of_groups(b: &mut Builder<'_>, x: View, ordered: &Ordered) -> View {
    let top_k = b.config.assistant.and_then(|a| a.centroids).map_or(1, |c| c.top_k);
    b.r.prefix("centroids");
    let centroids = b.model_weight("masked_embd_centroids.weight");
    let scores = b.r.mat_mul("scores", x, centroids);
    let (chosen, _) = b.r.route("choose", scores, top_k, (Renormalize::Keep, None));
    b.r.prefix("");
    let matrix = b.r.weight(ORDERED, ordered.weight.clone());
    b.r.expert_mat_mul("output", x, chosen, (matrix, hf2q_plan::ExpertInput::Shared))
}
