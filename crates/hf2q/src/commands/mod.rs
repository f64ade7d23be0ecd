//! One file for each command.

pub(crate) mod bench;
pub(crate) mod bench_serve;
pub(crate) mod chat;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod convert;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod fit;
pub(crate) mod gguf;
pub(crate) mod imatrix;
pub(crate) mod inspect;
pub(crate) mod needle;
pub(crate) mod perplexity;
pub(crate) mod plan;
pub(crate) mod profile;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod store;
pub(crate) mod texts;
pub(crate) mod tokenize;
pub(crate) mod trace;
pub(crate) mod verify;
