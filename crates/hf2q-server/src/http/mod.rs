//! Connections, who may use them, and how answers are sent.

pub(crate) mod body;
pub(crate) mod connections;
pub(crate) mod gate;
pub(crate) mod sse;
