//! Stage 4: HuggingFace checkpoints in, GGUF files out
