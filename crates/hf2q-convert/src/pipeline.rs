//! Reads, encodes and writes at the same time, in the memory of a few rows.

use std::ops::Range;

use hf2q_gguf::{GgufWriter, TensorType};
use hf2q_quant::lattice::Fit;

use crate::deviation::Deviation;
use crate::encoding::Encoding;
use crate::error::ConvertError;
use crate::ordered::ordered;
use crate::plan::Progress;
use crate::source::SourceTensor;

/// Values that one task encodes, if a row is not longer: they stay in a core's cache.
const TASK_VALUES: usize = 1 << 17;

/// A tensor with the type to write it in.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) tensor: &'a SourceTensor,
    pub(crate) ty: TensorType,
    pub(crate) encoding: &'a Encoding,
}

/// Some rows of one matrix of one job.
struct Task {
    job: usize,
    rows: Range<usize>,
}

/// Memory of a thread.
#[derive(Default)]
struct Scratch {
    values: Vec<f32>,
    /// For the comparison.
    decoded: Vec<f32>,
}

/// What a task makes. Its memory is used again by a later task.
#[derive(Default)]
struct Encoded {
    bytes: Vec<u8>,
    deviation: Deviation,
    fit: Fit,
}

/// What encoding did to the values.
pub(crate) struct Written {
    /// How far the written values of each job lie from the source, where that was to be measured.
    pub(crate) deviations: Vec<Deviation>,
    /// How well values lay on the lattice of `q4_0`, where they should.
    pub(crate) fit: Fit,
}

/// Encodes all jobs on all cores and writes them in order.
pub(crate) fn write(
    jobs: &[Job<'_>],
    measure: bool,
    writer: &mut GgufWriter,
    progress: &mut dyn Progress,
) -> Result<Written, ConvertError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let tasks = tasks(jobs, TASK_VALUES);
    let mut written = Written { deviations: vec![Deviation::default(); jobs.len()], fit: Fit::default() };
    let mut done = 0;
    progress.start(jobs.iter().map(|j| j.tensor.rows.source_bytes(j.tensor.rows.count())).sum());
    ordered(
        tasks.len(),
        threads,
        |i, scratch: &mut Scratch, out| jobs[tasks[i].job].encode(&tasks[i].rows, measure, (scratch, out)),
        |i, encoded: &Encoded| {
            let Task { job, rows } = &tasks[i];
            let tensor = jobs[*job].tensor;
            writer.write(&tensor.name, &encoded.bytes)?;
            // All rows before these are done with, so none of them comes back.
            tensor.rows.release(rows.clone());
            written.deviations[*job] = written.deviations[*job].and(encoded.deviation);
            written.fit += encoded.fit;
            done += tensor.rows.source_bytes(rows.len());
            if progress.advance(&tensor.name, done) { Ok(()) } else { Err(ConvertError::Cancelled) }
        },
    )?;
    Ok(written)
}

/// Cuts every matrix into tasks of whole rows, of about so many values.
fn tasks(jobs: &[Job<'_>], values: usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (job, Job { tensor, .. }) in jobs.iter().enumerate() {
        let rows = &tensor.rows;
        let step = rows.per_task(values);
        for matrix in 0..rows.matrices() {
            let (first, end) = (matrix * rows.matrix_rows(), (matrix + 1) * rows.matrix_rows());
            let starts = (first..end).step_by(step);
            tasks.extend(starts.map(|start| Task { job, rows: start..(start + step).min(end) }));
        }
    }
    tasks
}

impl Job<'_> {
    fn encode(
        &self,
        rows: &Range<usize>,
        measure: bool,
        (scratch, out): (&mut Scratch, &mut Encoded),
    ) -> Result<(), ConvertError> {
        out.bytes.clear();
        out.deviation = Deviation::default();
        out.fit = Fit::default();
        match self.tensor.rows.raw(self.ty, rows.clone()) {
            Some(bytes) => self.copy(bytes, rows, out),
            None => self.convert(rows, measure, (scratch, out)),
        }
    }

    /// The source holds what is to be written.
    fn copy(&self, bytes: &[u8], rows: &Range<usize>, out: &mut Encoded) -> Result<(), ConvertError> {
        hf2q_quant::check_blocks(self.ty, bytes).map_err(|source| ConvertError::BadBlock {
            tensor: self.tensor.name.clone(),
            row: rows.start,
            source,
        })?;
        out.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn convert(
        &self,
        rows: &Range<usize>,
        measure: bool,
        (scratch, out): (&mut Scratch, &mut Encoded),
    ) -> Result<(), ConvertError> {
        let failed =
            |source| ConvertError::Encode { tensor: self.tensor.name.clone(), row: rows.start, source };
        let Scratch { values, decoded } = scratch;
        values.clear();
        self.tensor.rows.read(rows.clone(), values).map_err(failed)?;
        let matrix = rows.start / self.tensor.rows.matrix_rows().max(1);
        out.fit = self.encoding.encode(self.ty, matrix, values, &mut out.bytes).map_err(failed)?;
        if measure {
            decoded.resize(values.len(), 0.0);
            hf2q_quant::dequantize(self.ty, &out.bytes, decoded).map_err(failed)?;
            out.deviation = Deviation::between(values, decoded);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::source::Source;

    fn encoded(job: &Job<'_>, values: usize) -> Vec<u8> {
        let mut all = Vec::new();
        let mut scratch = Scratch::default();
        for task in tasks(std::slice::from_ref(job), values) {
            let mut out = Encoded::default();
            job.encode(&task.rows, true, (&mut scratch, &mut out)).unwrap();
            all.extend(out.bytes);
        }
        all
    }

    /// Rotated pairs, stacked experts, vectors: the cut shows nowhere.
    #[test]
    fn bytes_do_not_depend_on_how_rows_are_cut() {
        for name in ["llama", "qwen3-moe", "gemma4-moe"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tiny").join(name);
            let source = Source::open(&folder).unwrap();
            let mut cut = 0;
            for tensor in &source.tensors {
                let blocks = tensor.shape.len() > 1 && tensor.rows.cols().is_multiple_of(32);
                let ty = if blocks { TensorType::Q4_0 } else { TensorType::F32 };
                let job = Job { tensor, ty, encoding: &Encoding::Plain };
                let whole = encoded(&job, usize::MAX / 2);
                let (cols, rows) = (tensor.rows.cols(), tensor.rows.count());
                cut += tasks(&[job], cols).len();
                assert_eq!(whole.len() as u64, ty.row_bytes(cols).unwrap() as u64 * rows as u64);
                assert!(encoded(&job, cols) == whole, "{name} {}", tensor.name);
                assert!(encoded(&job, 3 * cols) == whole, "{name} {}", tensor.name);
            }
            assert!(cut > 2 * source.tensors.len(), "{name} {cut}");
        }
    }
}
