//! Keys of `config.json` that do not change what a trained model computes for a text.

/// Training, generation, bookkeeping, and the media parts of multimodal models.
const KEYS: &[&str] = &[
    "architectures",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "cache_implementation",
    "chunk_size_feed_forward",
    "custom_generate",
    "do_sample",
    "dtype",
    "early_stopping",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "num_return_sequences",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "quantization_config",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "router_aux_loss_coef",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torchscript",
    "typical_p",
    "use_bfloat16",
    "use_cache",
];

/// Beginnings of such keys.
const PREFIXES: &[&str] = &["_", "output_", "torch_", "transformers", "unsloth"];

/// Parts of such keys.
const PARTS: &[&str] =
    &["token_id", "token_index", "dropout", "no_repeat_ngram", "num_beam", "diversity_penalty"];

/// Whether a key may be passed over whatever its value.
pub(super) fn is_ignored(key: &str) -> bool {
    KEYS.contains(&key)
        || PREFIXES.iter().any(|p| key.starts_with(p))
        || PARTS.iter().any(|p| key.contains(p))
}
