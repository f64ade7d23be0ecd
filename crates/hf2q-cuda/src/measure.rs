//! What a device can do at best: streaming reads, f32 multiply-adds and products of bytes on its tensor cores.

use std::time::Duration;

use hf2q_plan::Roofline;

use crate::device::{Device, Stamp};
use crate::error::CudaError;
use crate::launch::measure::{Measuring, THREADS, What};
use crate::library::Library;
use crate::memory::Buffer;

/// Each rate is the best of so many measurements: what disturbs only slows down.
const ROUNDS: usize = 5;

/// Rounds of a thread: some milliseconds on any device.
const STEPS: u64 = 1 << 14;

/// Reads are from memory of about so many bytes.
pub(crate) fn measure(device: &Device, library: &Library, bytes: usize) -> Result<Roofline, CudaError> {
    let pieces = (bytes / 16).max(1);
    let memory = Buffer::new(device, "memory to measure the speed of reading", pieces * 16)?;
    let out = Buffer::new(device, "results of a measurement", (THREADS + 1) * size_of::<u32>())?;
    let rate = |what, count| {
        let kernel = Measuring::new(device, library, what, (memory.at(), out.at(), count))?;
        // The first launch wakes the device up.
        kernel.queue(device)?;
        let mut best = 0.0_f64;
        for _ in 0..ROUNDS {
            let start = Stamp::new(device)?;
            kernel.queue(device)?;
            let time = Stamp::new(device)?.since(&start)?.max(Duration::from_nanos(1));
            best = best.max(kernel.amount() / time.as_secs_f64());
        }
        Ok::<f64, CudaError>(best)
    };
    let (bytes, flops) = (rate(What::Read, pieces as u64)?, rate(What::MultiplyAdd, STEPS)?);
    Ok(Roofline { bytes, flops, int8_ops: rate(What::Dot, STEPS)? })
}
