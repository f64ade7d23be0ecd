//! Operations against values worked out by hand, and the errors of malformed steps.

mod attention;
mod formed;
#[cfg(test)]
mod harness;
mod observer;
mod rows;
