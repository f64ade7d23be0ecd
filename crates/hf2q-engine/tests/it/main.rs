//! The engine on toy models, through its public interface.

#[cfg(test)]
mod drafted;
#[cfg(test)]
mod embeddings;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod generation;
#[cfg(test)]
mod load;
#[cfg(test)]
mod needs;
#[cfg(test)]
mod prefixes;
#[cfg(test)]
mod scheduler;
#[cfg(test)]
mod sequences;
#[cfg(test)]
mod service;
#[cfg(test)]
mod slots;
#[cfg(test)]
mod support;
#[cfg(test)]
mod trees;
