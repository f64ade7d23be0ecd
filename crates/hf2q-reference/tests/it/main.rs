//! Operations against values worked out by hand, and the errors of malformed steps.

mod attention;
mod harness;
mod observer;
mod rows;
