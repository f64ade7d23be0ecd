//! How far decoded values lie from the originals.

/// Sums over pairs of values `x` (the original) and `q` (what is stored), from which the measures follow. Sums are f64;
/// parts can be computed apart and joined, and joining in order makes the result independent of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Deviation {
    /// `Σ (x − q)²`.
    difference: f64,
    /// `Σ x²`.
    original: f64,
    /// `Σ q²`.
    stored: f64,
    /// `Σ x·q`.
    product: f64,
    /// `max |x − q|`.
    largest: f64,
    /// Pairs.
    count: u64,
}

impl Deviation {
    /// The sums over two slices of one length.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn between(original: &[f32], stored: &[f32]) -> Self {
        assert_eq!(original.len(), stored.len(), "values are compared in pairs");
        let mut sums = Self { count: original.len() as u64, ..Self::default() };
        for (&x, &q) in original.iter().zip(stored) {
            let (x, q) = (f64::from(x), f64::from(q));
            let difference = x - q;
            sums.difference += difference * difference;
            sums.original += x * x;
            sums.stored += q * q;
            sums.product += x * q;
            sums.largest = larger(sums.largest, difference.abs());
        }
        sums
    }

    /// The sums over the pairs of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            difference: self.difference + other.difference,
            original: self.original + other.original,
            stored: self.stored + other.stored,
            product: self.product + other.product,
            largest: larger(self.largest, other.largest),
            count: self.count + other.count,
        }
    }

    /// `‖x − q‖ / ‖x‖`; 0 where both are all zeros, infinite where only the original is.
    pub fn relative_error(&self) -> f64 {
        if self.difference == 0.0 { 0.0 } else { (self.difference / self.original).sqrt() }
    }

    /// `max |x − q|`.
    pub fn max_error(&self) -> f64 {
        self.largest
    }

    /// `⟨x, q⟩ / (‖x‖ ‖q‖)`; 1 where both are all zeros, 0 where only one is.
    pub fn cosine(&self) -> f64 {
        match (self.original == 0.0, self.stored == 0.0) {
            (true, true) => 1.0,
            (true, false) | (false, true) => 0.0,
            (false, false) => self.product / (self.original.sqrt() * self.stored.sqrt()),
        }
    }

    /// Pairs compared.
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// The larger one; NaN if one of them is, unlike `f64::max`.
fn larger(a: f64, b: f64) -> f64 {
    if b <= a || a.is_nan() { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_of_a_small_pair() {
        let d = Deviation::between(&[3.0, 4.0], &[3.0, 3.0]);
        assert!((d.relative_error() - 0.2).abs() < 1e-15);
        assert_eq!(d.max_error(), 1.0);
        assert!((d.cosine() - 21.0 / (5.0 * 18_f64.sqrt())).abs() < 1e-15);
    }

    #[test]
    fn parts_join_to_the_whole() {
        let x: Vec<f32> = (0..100_u8).map(|i| f32::from(i) - 50.0).collect();
        let q: Vec<f32> = x.iter().map(|v| v + 0.5).collect();
        let parts = Deviation::between(&x[..30], &q[..30]).and(Deviation::between(&x[30..], &q[30..]));
        assert_eq!(parts, Deviation::between(&x, &q));
        assert_eq!(parts.count(), 100);
    }

    #[test]
    fn zeros_have_an_answer() {
        let zeros = [0.0; 4];
        let same = Deviation::between(&zeros, &zeros);
        assert_eq!((same.relative_error(), same.cosine()), (0.0, 1.0));
        let other = Deviation::between(&zeros, &[0.0, 1.0, 0.0, 0.0]);
        assert_eq!((other.relative_error(), other.cosine()), (f64::INFINITY, 0.0));
        assert_eq!(Deviation::default().relative_error(), 0.0);
    }

    #[test]
    fn a_nan_is_not_lost() {
        let bad = Deviation::between(&[1.0, f32::NAN, 1.0], &[1.0, 1.0, 1.0]);
        assert!(bad.relative_error().is_nan() && bad.max_error().is_nan());
        assert!(Deviation::default().and(bad).max_error().is_nan());
        assert!(bad.and(Deviation::between(&[1.0], &[2.0])).max_error().is_nan());
    }
}
