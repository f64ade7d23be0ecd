//! Conversion of whole folders.

#[cfg(test)]
mod convert;
#[cfg(test)]
mod damaged;
#[cfg(test)]
mod support;
#[cfg(test)]
mod verify;
