//! The crate through its public interface, against a server that behaves badly on demand.
