//! Conversion of whole folders.

#[cfg(test)]
mod assistant;
#[cfg(test)]
mod convert;
#[cfg(test)]
mod damaged;
#[cfg(test)]
mod heads;
#[cfg(test)]
mod importance;
#[cfg(test)]
mod lattice;
#[cfg(test)]
mod quantize;
#[cfg(test)]
mod quantized;
#[cfg(test)]
mod recipes;
#[cfg(test)]
mod report;
#[cfg(test)]
mod scaled;
#[cfg(test)]
mod support;
#[cfg(test)]
mod verify;
