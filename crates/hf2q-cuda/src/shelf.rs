//! Weights on a device, shared by the programs of a backend: a model that is opened with several caches lies there once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hf2q_gguf::Bytes;

use crate::memory::Buffer;

/// What a weight on the device was made of, and how. Bytes are known by where they lie in the host's memory, which nothing
/// else takes while a [`Shared`] holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    at: usize,
    len: usize,
    form: Form,
}

/// How a weight lies on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// As in the file.
    Raw,
    /// As products read it.
    Packed,
}

impl Key {
    pub(crate) fn new(bytes: &Bytes, form: Form) -> Self {
        Self { at: bytes.as_ptr().addr(), len: bytes.len(), form }
    }
}

/// A weight on the device, and the bytes that it was made of.
pub(crate) struct Shared {
    pub(crate) buffer: Buffer,
    bytes: Bytes,
}

impl Shared {
    pub(crate) fn new(buffer: Buffer, bytes: Bytes) -> Self {
        Self { buffer, bytes }
    }
}

/// Weights that programs hold.
#[derive(Default)]
pub(crate) struct Shelf(Mutex<HashMap<Key, Weak<Shared>>>);

impl Shelf {
    /// A weight that is on the device.
    pub(crate) fn find(&self, key: &Key) -> Option<Arc<Shared>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key)?.upgrade()
    }

    /// Adds a weight that is ready, and forgets those that no program holds.
    pub(crate) fn add(&self, key: Key, shared: &Arc<Shared>) {
        debug_assert_eq!(shared.bytes.len(), key.len);
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.retain(|_, held| held.strong_count() > 0);
        shelf.insert(key, Arc::downgrade(shared));
    }

    /// Of some weights the bytes that are on the device.
    pub(crate) fn held(&self, weights: &[Bytes]) -> usize {
        let is_held =
            |w: &&Bytes| [Form::Raw, Form::Packed].iter().any(|&f| self.find(&Key::new(w, f)).is_some());
        weights.iter().filter(is_held).map(|w| w.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_known_by_where_they_lie() {
        let file = Bytes::from_vec(vec![1; 64]);
        let part = |range| file.slice(range).unwrap();
        let key = Key::new(&part(0..32), Form::Raw);
        assert_eq!(key, Key::new(&part(0..32), Form::Raw));
        for other in [
            Key::new(&part(32..64), Form::Raw),
            Key::new(&part(0..31), Form::Raw),
            Key::new(&part(0..32), Form::Packed),
            Key::new(&Bytes::from_vec(vec![1; 32]), Form::Raw),
        ] {
            assert_ne!(key, other);
        }
        let shelf = Shelf::default();
        assert!(shelf.find(&key).is_none());
        assert_eq!(shelf.held(&[file]), 0);
    }
}
