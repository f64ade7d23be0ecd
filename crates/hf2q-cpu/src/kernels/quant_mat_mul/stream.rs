//! Activations in the order in which the tile kernel reads them.
//!
//! A tile of R rows has a record for each 32 k: 8 words of codes for each row, R scales, then R corrections for
//! each half that has its own weight scale. The correction takes a weight's offset or minimum into account: it is
//! `-offset · Σ q` as an integer, or `scale · Σ q` as a float.

use super::activations::Picked;
use super::simd::Simd;
use super::tile::{record_words, tile_rows};
use super::unpack::{Format, Kind};

/// Words of the stream of so many rows.
pub(super) fn stream_words<K: Kind>(rows: usize, records: usize) -> usize {
    record_words::<K>(rows) * records
}

/// Lays out the picked rows.
pub(super) fn fill<S: Simd, F: Format>(input: Picked<'_>, mut stream: &mut [u32]) {
    let mut rows = input.rows;
    let offset = if F::Kind::SIGNED { i32::from(S::SEAL) } else { F::OFFSET };
    while !rows.is_empty() {
        let (tile, rest) = rows.split_at(tile_rows::<S>(rows.len()));
        let (own, others) = stream.split_at_mut(stream_words::<F::Kind>(tile.len(), input.x.n_in() / 32));
        for (r, &row) in tile.iter().enumerate() {
            fill_row::<F::Kind>(Picked { x: input.x, rows: &[row] }, offset, (r, tile.len()), own);
        }
        (rows, stream) = (rest, others);
    }
}

fn fill_row<K: Kind>(input: Picked<'_>, offset: i32, (r, of): (usize, usize), tile: &mut [u32]) {
    let row = input.x.row(input.rows[0] as usize);
    let inputs = row.codes.as_chunks::<32>().0.iter().zip(row.scales).zip(row.sums.as_chunks::<2>().0);
    for (record, ((codes, &scale), sums)) in tile.chunks_exact_mut(record_words::<K>(of)).zip(inputs) {
        let words: &mut [u32; 8] = &mut record.as_chunks_mut().0[r];
        for (word, four) in words.iter_mut().zip(codes.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(four.map(|code| code as u8));
        }
        record[8 * of + r] = scale.to_bits();
        for half in 0..K::HALVES {
            let sum = if K::HALVES == 1 { sums[0] + sums[1] } else { sums[half] };
            let float = (sum as f32 * scale).to_bits();
            record[(9 + half) * of + r] = if K::MINIMUM { float } else { (-offset * sum) as u32 };
        }
    }
}
