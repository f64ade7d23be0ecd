//! Stage 3: architectures as data.
//!
//! In: a `config.json` of a HuggingFace checkpoint, or the metadata of a GGUF file. Out: a [`Config`], whose
//! [`Config::tensors`] is the one tensor map: conversion reads it from left to right, loading from right to left.

mod architecture;
mod config;
mod error;
mod hf;
mod metadata;
mod rope;
mod tensors;
mod validate;

pub use architecture::{Activation, Architecture, Pairing};
pub use config::{Assistant, Centroids, Config, Eagle, Experts, Layer};
pub use error::{ArchError, Origin};
pub use rope::{Rope, RopeFactors, RopeScaling};
pub use tensors::{Class, Role, Source, TensorRow, Transform};
