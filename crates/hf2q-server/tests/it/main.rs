//! The server as its clients see it.

#[cfg(test)]
mod access;
#[cfg(test)]
mod anthropic;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod completions;
#[cfg(test)]
mod constrained;
#[cfg(test)]
mod drafts;
#[cfg(test)]
mod load;
#[cfg(test)]
mod models;
#[cfg(test)]
mod responses;
#[cfg(test)]
mod support;
