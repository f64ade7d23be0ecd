//! The checks on the reference itself: what they compare it with, and that they find planted mistakes.

#[cfg(test)]
mod cpu;
mod fusion;
#[cfg(test)]
mod goldens;
mod invariance;
mod suite;
