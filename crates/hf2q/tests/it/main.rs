//! The program as its user sees it: commands, messages, exit status, files left behind.

#[cfg(test)]
mod assistant;
#[cfg(test)]
mod bench;
#[cfg(test)]
mod bench_serve;
#[cfg(test)]
mod checkpoints;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod convert;
#[cfg(test)]
mod device;
#[cfg(test)]
mod drafts;
#[cfg(test)]
mod files;
#[cfg(test)]
mod fit;
#[cfg(test)]
mod gguf;
#[cfg(test)]
mod heads;
#[cfg(test)]
mod hub;
#[cfg(test)]
mod imatrix;
#[cfg(test)]
mod profile;
#[cfg(test)]
mod quality;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod support;
#[cfg(test)]
mod trace;
#[cfg(test)]
mod verify;
