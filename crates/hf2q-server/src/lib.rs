//! Stage 11: requests over HTTP become jobs of the engine, and what it draws becomes answers.
