//! The crate through its public interface.

#[cfg(test)]
mod assistant;
#[cfg(test)]
mod cover;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod load;
#[cfg(test)]
mod snapshots;
