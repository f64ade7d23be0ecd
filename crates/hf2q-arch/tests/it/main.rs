//! The crate through its public interface.

#[cfg(test)]
mod configs;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod facts;
#[cfg(test)]
mod heads;
#[cfg(test)]
mod metadata;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod snapshots;
