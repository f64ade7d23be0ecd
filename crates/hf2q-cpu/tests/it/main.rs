//! The backend through its public interface. What its operations compute is checked in the conformance crate.

#[cfg(test)]
mod caches;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod model;
#[cfg(test)]
mod observing;
#[cfg(test)]
mod ranges;
