//! Stage 7: plain scalar execution of every operation, the oracle of all backends
