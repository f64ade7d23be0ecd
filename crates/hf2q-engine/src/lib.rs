//! Stage 8: sequences, KV pages, steps and sampling
