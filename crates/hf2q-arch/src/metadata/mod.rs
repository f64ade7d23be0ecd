//! Configuration from and to the metadata of a GGUF file, with the keys that llama.cpp reads and writes.

mod read;
mod reader;
mod write;
