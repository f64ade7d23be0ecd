//! Operations against values worked out by hand, and the errors of malformed steps.

mod attention;
#[cfg(test)]
mod harness;
mod observer;
mod rows;
