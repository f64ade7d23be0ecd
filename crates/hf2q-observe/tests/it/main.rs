//! Toy models of every architecture, observed on both backends.

#[cfg(test)]
mod collecting;
#[cfg(test)]
mod comparing;
#[cfg(test)]
mod needles;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod profiling;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod skipping;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tracing;
#[cfg(test)]
mod windows;
