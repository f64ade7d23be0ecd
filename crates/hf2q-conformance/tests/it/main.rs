//! The checks on the reference itself: what they compare it with, and that they find planted mistakes.

#[cfg(test)]
mod assistant;
#[cfg(test)]
mod cpu;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod eagle3;
#[cfg(test)]
mod fusion;
#[cfg(test)]
mod goldens;
#[cfg(test)]
mod invariance;
#[cfg(test)]
mod one_vector;
#[cfg(test)]
mod outputs;
#[cfg(test)]
mod perf;
#[cfg(test)]
mod prefixes;
#[cfg(test)]
mod recent;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod support;
#[cfg(test)]
mod witness;
