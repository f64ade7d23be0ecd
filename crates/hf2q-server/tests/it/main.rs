//! The server as its clients see it.

#[cfg(test)]
mod chat;
#[cfg(test)]
mod support;
