//! Toy models of every architecture, observed on both backends.

#[cfg(test)]
mod collecting;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod support;
