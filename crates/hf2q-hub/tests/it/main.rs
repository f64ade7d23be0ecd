//! The crate through its public interface, against a server that behaves badly on demand.

#[cfg(test)]
mod cache;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod repository;
#[cfg(test)]
mod server;
#[cfg(test)]
mod stopping;
#[cfg(test)]
mod support;
#[cfg(test)]
mod transfer;
