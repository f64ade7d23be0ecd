//! Typed access to the keys of one architecture.

use hf2q_gguf::{Array, Metadata, Value};

use crate::architecture::Architecture;
use crate::error::{ArchError, Origin};
use crate::validate::MAX_SIZE;

/// Reads `ARCHITECTURE.key`.
pub(crate) struct Reader<'a> {
    pub(crate) metadata: &'a Metadata,
    pub(crate) architecture: Architecture,
}

impl Reader<'_> {
    /// The full name of a key.
    pub(crate) fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture.name())
    }

    /// A size that must be there.
    pub(crate) fn size(&self, key: &str) -> Result<usize, ArchError> {
        self.opt_size(key)?.ok_or_else(|| self.missing(key))
    }

    /// A size, bounded so that arithmetic on sizes cannot overflow.
    pub(crate) fn opt_size(&self, key: &str) -> Result<Option<usize>, ArchError> {
        let Some(found) = self.metadata.opt_u64(&self.key(key))? else { return Ok(None) };
        self.bounded(key, found).map(Some)
    }

    /// One size for each layer: stored once for all, or as an array.
    pub(crate) fn per_layer(&self, key: &str, layers: usize) -> Result<Option<Vec<usize>>, ArchError> {
        if !matches!(self.metadata.get(&self.key(key)), Some(Value::Array(_))) {
            return Ok(self.opt_size(key)?.map(|size| vec![size; layers]));
        }
        let found = self.metadata.u32s(&self.key(key))?;
        if found.len() != layers {
            let accepted = format!("one number, or one for each of the {layers} layers");
            return Err(self.value(key, format!("an array of {}", found.len()), accepted));
        }
        found.iter().map(|&size| self.bounded(key, size.into())).collect::<Result<_, _>>().map(Some)
    }

    /// A list of sizes.
    pub(crate) fn sizes(&self, key: &str) -> Result<Option<Vec<usize>>, ArchError> {
        if self.metadata.get(&self.key(key)).is_none() {
            return Ok(None);
        }
        let found = match self.metadata.get(&self.key(key)) {
            Some(Value::Array(Array::I32(list))) if list.iter().all(|n| *n >= 0) => {
                list.iter().map(|n| n.unsigned_abs()).collect()
            }
            _ => self.metadata.u32s(&self.key(key))?,
        };
        found.iter().map(|&size| self.bounded(key, size.into())).collect::<Result<_, _>>().map(Some)
    }

    /// Which layers have a window: an array of booleans, or the period of the global layers (each `period`-th).
    pub(crate) fn pattern(&self, key: &str, layers: usize, usual: usize) -> Result<Vec<bool>, ArchError> {
        let found = match self.metadata.get(&self.key(key)) {
            Some(Value::Array(Array::Bool(flags))) => flags.clone(),
            Some(Value::Array(_)) => self.metadata.u32s(&self.key(key))?.iter().map(|&x| x != 0).collect(),
            _ => {
                let period = self.opt_size(key)?.unwrap_or(usual);
                return Ok((0..layers).map(|i| period == 0 || i % period != period - 1).collect());
            }
        };
        if found.len() != layers {
            let accepted = format!("one entry for each of the {layers} layers");
            return Err(self.value(key, format!("an array of {}", found.len()), accepted));
        }
        Ok(found)
    }

    pub(crate) fn f32(&self, key: &str) -> Result<f32, ArchError> {
        self.opt_f32(key)?.ok_or_else(|| self.missing(key))
    }

    pub(crate) fn opt_f32(&self, key: &str) -> Result<Option<f32>, ArchError> {
        Ok(self.metadata.opt_f32(&self.key(key))?)
    }

    pub(crate) fn opt_bool(&self, key: &str) -> Result<Option<bool>, ArchError> {
        Ok(self.metadata.opt_bool(&self.key(key))?)
    }

    pub(crate) fn opt_str(&self, key: &str) -> Result<Option<&str>, ArchError> {
        Ok(self.metadata.opt_str(&self.key(key))?)
    }

    pub(crate) fn value(&self, key: &str, found: impl ToString, accepted: impl Into<String>) -> ArchError {
        ArchError::value(Origin::Metadata, self.key(key), found, accepted)
    }

    fn missing(&self, key: &str) -> ArchError {
        ArchError::Missing { origin: Origin::Metadata, key: self.key(key) }
    }

    fn bounded(&self, key: &str, found: u64) -> Result<usize, ArchError> {
        match usize::try_from(found) {
            Ok(size) if size <= MAX_SIZE => Ok(size),
            _ => Err(self.value(key, found, format!("at most {MAX_SIZE}"))),
        }
    }
}
