//! Memory that starts on a cache line, so that no vector lies on two.

/// Bytes of a line.
const LINE: usize = 64;

/// Numbers that start on a cache line. Memory is kept for the next time.
#[derive(Debug, Default)]
pub(crate) struct Lines<T>(Vec<T>);

impl<T: Copy + Default> Lines<T> {
    /// So many numbers, which are zero or what was left in them.
    pub(crate) fn get(&mut self, len: usize) -> &mut [T] {
        let line = LINE / size_of::<T>();
        if self.0.len() < len + line {
            self.0.resize(len + line, T::default());
        }
        let start = self.0.as_ptr().align_offset(LINE).min(line);
        &mut self.0[start..start + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_start_where_cache_lines_do() {
        let mut lines = Lines::<f32>::default();
        for len in [0, 1, 16, 1000, 3, 4096] {
            let all = lines.get(len);
            assert_eq!((all.len(), all.as_ptr().align_offset(LINE)), (len, 0));
            all.fill(1.0);
        }
    }
}
