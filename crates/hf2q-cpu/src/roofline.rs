//! What this machine can do at best: streaming reads, f32 multiply-adds and dot products of bytes, on all threads of a
//! backend at the same time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hf2q_plan::{BackendError, Roofline};

use crate::backend::NAME;
use crate::gate::{Barrier, Broken};
use crate::isa::Isa;
use crate::kernels::quant_mat_mul;
use crate::pool::{Job, Pool};
use crate::simd::{Kernel, LANES, Simd, dispatch};

/// Each rate is the best of so many measurements: what disturbs only slows down.
const ROUNDS: usize = 3;

/// How long a measurement of arithmetic takes at least.
const TIME: Duration = Duration::from_millis(40);

/// Steps between two looks at the clock.
const STEPS: usize = 1 << 14;

/// Measures with all threads of a pool; reads are from memory of so many bytes, which should exceed all caches.
pub(crate) fn measure(pool: &Pool, isa: Isa, bytes: usize) -> Result<Roofline, BackendError> {
    let threads = pool.threads();
    let vectors = (bytes / size_of::<[f32; LANES]>() / threads).max(1);
    let mut memory = Vec::new();
    let what = "memory to measure the speed of reading".to_owned();
    let len = vectors * threads;
    memory.try_reserve_exact(len).map_err(|_| BackendError::OutOfMemory { what, bytes })?;
    // Not zeros: those might all be one page.
    memory.resize(len, [1.0; LANES]);
    let memory = Arc::new(memory);
    let best = |what: What| -> Result<f64, BackendError> {
        let mut best = 0.0_f64;
        for _ in 0..ROUNDS {
            let rate = Mutex::new(0.0);
            let job = Arc::new(Measurement { what, isa, memory: Arc::clone(&memory), vectors, rate });
            let running = Arc::clone(&job);
            pool.run(running).map_err(|why| BackendError::Failed { backend: NAME, why })?;
            best = best.max(*job.rate.lock().unwrap_or_else(PoisonError::into_inner));
        }
        Ok(best)
    };
    Ok(Roofline { bytes: best(What::Read)?, flops: best(What::MultiplyAdd)?, int8_ops: best(What::Dot)? })
}

#[derive(Clone, Copy)]
enum What {
    Read,
    MultiplyAdd,
    Dot,
}

struct Measurement {
    what: What,
    isa: Isa,
    memory: Arc<Vec<[f32; LANES]>>,
    /// Of each thread.
    vectors: usize,
    /// The sum over threads, a second.
    rate: Mutex<f64>,
}

impl Job for Measurement {
    fn run(&self, thread: usize, barrier: &Barrier) -> Result<(), Broken> {
        let own = &self.memory[thread * self.vectors..(thread + 1) * self.vectors];
        // All begin together, for they share the way to the memory.
        barrier.wait()?;
        let started = Instant::now();
        let mut amount = 0;
        loop {
            amount += match self.what {
                What::Read => {
                    std::hint::black_box(dispatch(self.isa, Read(own)));
                    size_of_val(own)
                }
                What::MultiplyAdd => dispatch(self.isa, MultiplyAdd),
                What::Dot => quant_mat_mul::dots(self.isa, STEPS),
            };
            if started.elapsed() >= TIME {
                break;
            }
        }
        let rate = amount as f64 / started.elapsed().as_secs_f64();
        *self.rate.lock().unwrap_or_else(PoisonError::into_inner) += rate;
        Ok(())
    }
}

/// Adds all values up.
struct Read<'a>(&'a [[f32; LANES]]);

impl Kernel for Read<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut sums = [s.splat(0.0); 4];
        for four in self.0.as_chunks::<4>().0 {
            for i in 0..4 {
                sums[i] = s.add(sums[i], s.load(&four[i]));
            }
        }
        s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
    }
}

/// Multiply-adds in as many chains as registers hold; gives their number of multiplications and additions.
struct MultiplyAdd;

impl Kernel for MultiplyAdd {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        if S::WIDE { chains::<S, 12>(s) } else { chains::<S, 5>(s) }
    }
}

#[inline(always)]
fn chains<S: Simd, const N: usize>(s: S) -> usize {
    let (a, b) = (s.splat(std::hint::black_box(0.5)), s.splat(std::hint::black_box(0.25)));
    let mut sums = [s.splat(0.0); N];
    for _ in 0..STEPS {
        for sum in &mut sums {
            *sum = s.fma(a, b, *sum);
        }
    }
    for sum in sums {
        std::hint::black_box(s.sum(sum));
    }
    2 * LANES * N * STEPS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_can_be_measured() {
        let pool = Pool::new(2).unwrap();
        for isa in Isa::available() {
            let roof = measure(&pool, isa, 1 << 20).unwrap();
            let rates = [roof.bytes, roof.flops, roof.int8_ops];
            assert!(rates.iter().all(|r| r.is_finite() && *r > 1e6), "{}: {roof:?}", isa.name());
        }
    }

    #[test]
    fn a_step_reads_all_of_its_memory() {
        let values: Vec<[f32; LANES]> = vec![[1.0; LANES]; 64];
        assert_eq!(dispatch(Isa::detect(), Read(&values)), (64 * LANES) as f32);
    }
}
