//! Conversion of whole folders.

mod convert;
mod damaged;
mod support;
