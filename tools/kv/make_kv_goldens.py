"""Goldens of the TurboQuant cache formats, computed apart from hf2q in double and higher precision.

Writes fixtures/kv/tq.safetensors: for blocks of 64, 128 and 256 values `dN.rows` and `dN.rotated`, and for every
number of bits `dN.tqB.codes`, `.scales` (half precision), `.packed` and `.decoded` (not rotated back).

    python3 tools/kv/make_kv_goldens.py
"""

from pathlib import Path

import numpy as np
from mpmath import mp, pi
from safetensors.numpy import save_file

from codebooks import constants

OUT = Path(__file__).parents[2] / "fixtures/kv/tq.safetensors"
PLANES = {2: [2], 3: [2, 1], 4: [4], 5: [4, 1], 6: [4, 2], 8: [8]}


def signs(n):
    """From the first 256 bits of the fraction of pi, the lowest bit of each 32-bit word first."""
    mp.dps = 120
    fraction = int((pi - 3) * 2**256)
    words = [(fraction >> (224 - 32 * i)) & 0xFFFFFFFF for i in range(8)]
    return np.array([-1.0 if words[i // 32] >> (i % 32) & 1 else 1.0 for i in range(n)])


def hadamard(n):
    h = np.array([[1.0]])
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return h


def rows(rng, n):
    """Normal values, an outlier, a constant, small and large values, sparse ones."""
    normal = rng.standard_normal((4, n))
    outlier = rng.standard_normal((1, n))
    outlier[0, n // 3] = 60.0
    constant = np.full((1, n), 0.75)
    small, large = 1e-3 * rng.standard_normal((1, n)), 3e4 * rng.standard_normal((1, n))
    heavy = rng.standard_t(2, (2, n))
    sparse = np.where(rng.random((1, n)) < 0.05, rng.standard_normal((1, n)), 0.0)
    return np.concatenate([normal, outlier, constant, small, large, heavy, sparse]).astype(np.float32)


def encode(r, levels, bits):
    """Codes, scales, and how far the nearest decision is from falling the other way."""
    thresholds = (levels[1:] + levels[:-1]) / 2
    size = np.abs(r) / np.sqrt((r * r).mean(axis=1, keepdims=True))
    level = np.searchsorted(thresholds, size, side="right")
    margin = min(np.abs(size[..., None] - thresholds).min(), size[size > 0].min())
    value = np.where(r < 0, -levels[level], levels[level])
    scale = (r * value).sum(axis=1) / (value * value).sum(axis=1)
    half = scale.astype(np.float16)
    # Distance to the nearest border between half precision numbers, in units of their distance.
    step = np.spacing(half).astype(np.float64)
    border = np.abs(np.abs(scale - half.astype(np.float64)) / step - 0.5).min()
    codes = level + np.where(r < 0, len(levels), 0)
    return codes.astype(np.uint8), half, value * half.astype(np.float64)[:, None], (margin, border)


def pack(codes, bits):
    """Bit by bit, from the description of the layout."""
    out = []
    for row in codes:
        for group in row.reshape(-1, 64):
            low = 0
            for width in PLANES[bits]:
                plane = np.zeros(8 * width, np.uint8)
                for i, code in enumerate(group):
                    j, lane = divmod(i, 16)
                    part = (int(code) >> low) & ((1 << width) - 1)
                    plane[4 * (lane % (2 * width)) + j] |= part << (width * (lane // (2 * width)))
                out.append(plane)
                low += width
    return np.concatenate(out).reshape(len(codes), -1)


def block(n, books, seed):
    rng = np.random.default_rng(seed)
    x = rows(rng, n)
    r = (x.astype(np.float64) * signs(n)) @ hadamard(n) / np.sqrt(n)
    found = {f"d{n}.rows": x, f"d{n}.rotated": r.astype(np.float32)}
    for bits, levels in books.items():
        codes, scales, decoded, (margin, border) = encode(r, levels, bits)
        # Rounding in single precision must not change a decision; zeros of the constant row are exact.
        if margin < 2e-6 or border < 2e-3:
            return None
        name = f"d{n}.tq{bits}"
        found |= {f"{name}.codes": codes, f"{name}.scales": scales, f"{name}.packed": pack(codes, bits)}
        found[f"{name}.decoded"] = decoded.astype(np.float32)
    return found


def main():
    books = {bits: np.array([float(x) for x in levels]) for bits, (levels, _) in constants().items()}
    tensors = {}
    for n in (64, 128, 256):
        found = next(f for seed in range(10_000) if (f := block(n, books, seed)) is not None)
        tensors |= found
    OUT.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, OUT)


if __name__ == "__main__":
    main()
