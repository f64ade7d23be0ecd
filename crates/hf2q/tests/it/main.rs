//! The program as its user sees it: commands, messages, exit status, files left behind.

mod checkpoints;
mod commands;
mod files;
mod support;
