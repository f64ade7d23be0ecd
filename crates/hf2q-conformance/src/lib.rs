//! Stage -: one suite of operation cases for every backend
