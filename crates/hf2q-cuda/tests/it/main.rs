//! Behaviour that needs no device.
