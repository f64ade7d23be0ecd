"""Prints the tables of it/goldens.rs and it/float8.rs: hashes of what the reference (PyPI libgguf, gguf, numpy, torch) makes of the
inputs of it/input.rs."""

import gguf
import libgguf
import numpy as np
import torch

MASK = (1 << 64) - 1
BLOCKS = 64
VALUES = 32 * 304
COLUMNS = 512


class Numbers:
    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = ((self.state ^ (self.state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & MASK
    return h


def values(count):
    numbers, out = Numbers(7), []
    for group in range(count // 32):
        exponent = numbers.next() % 164 - 172
        for _ in range(32):
            r = numbers.next()
            if group % 3 == 0:
                out.append(((r >> 40) - (1 << 23)) * 2.0**exponent)
            elif group % 3 == 1:
                out.append((r >> 32) % 33 * 0.5 - 8.0)
            elif r % 29 == 0:
                out.append((r >> 32) % 5 - 2.0)
            else:
                out.append(-0.0 if r >> 63 else 0.0)
    return np.array(out, np.float64).astype(np.float32)


def weights():
    """From 2^-8 to 2^7, a quarter of them zero."""
    numbers = Numbers(9)
    draws = [numbers.next() for _ in range(COLUMNS)]
    return np.array([0.0 if r % 4 == 0 else 2.0 ** ((r >> 32) % 16 - 8.0) for r in draws], np.float32)


def decode(ty, raw):
    if ty == gguf.GGMLQuantizationType.F32:
        return raw.view(np.float32)
    if ty in (gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.BF16):
        return gguf.quants.dequantize(raw.reshape(1, -1), ty)
    return libgguf.dequantize_rows(raw.reshape(1, -1), int(ty))


def main():
    coded = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4".split()
    types = ["F32", "F16", "BF16", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ3_S", "IQ2_S", "IQ1_M", "TQ1_0", "TQ2_0"] + coded
    types.sort(key=lambda name: gguf.GGMLQuantizationType[name])
    print("DECODED")
    for name in types:
        ty = gguf.GGMLQuantizationType[name]
        numbers = Numbers(int(ty))
        raw = np.array([numbers.next() & 255 for _ in range(BLOCKS * gguf.GGML_QUANT_SIZES[ty][1])], np.uint8)
        out = np.array(decode(ty, raw), np.float32).reshape(-1).view(np.uint32).copy()
        out[np.isnan(out.view(np.float32))] = 0x7FC00000
        print(f'    ("{name.lower()}", {fnv(out.tobytes()):#018x}),')
    print("ENCODED, with weights")
    for name in types:
        if name not in ["F32", "F16", "BF16"] + coded:
            continue
        ty = gguf.GGMLQuantizationType[name]
        rows = values(VALUES).reshape(-1, COLUMNS)
        hashes = [fnv(np.ascontiguousarray(libgguf.quantize_rows(rows, int(ty), imatrix=w)).tobytes()) for w in (None, weights())]
        print(f'    ("{name.lower()}", {hashes[0]:#018x}, {hashes[1]:#018x}),')
    print("FLOAT8")
    for name, dtype in (("E4M3", torch.float8_e4m3fn), ("E5M2", torch.float8_e5m2), ("E8M0", torch.float8_e8m0fnu)):
        out = torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32).numpy().view(np.uint32).copy()
        out[np.isnan(out.view(np.float32))] = 0x7FC00000
        print(f"    (Float8::{name}, {fnv(out.tobytes()):#018x}),")


main()
