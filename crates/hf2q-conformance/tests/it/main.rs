//! The checks on the reference itself: what they compare it with, and that they find planted mistakes.

mod fusion;
mod invariance;
mod suite;
