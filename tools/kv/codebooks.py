"""Lloyd-Max quantizers of the normal distribution, to 30 digits, as the constants of hf2q-quant's `kv::codebook`.

A quantizer with 2^b levels is optimal where every threshold lies halfway between its levels and every level is the
mean of the values that it stands for (Lloyd 1957, Max 1960). It is symmetric, so only the positive levels are unknown.
They are found by Newton's method on the second condition, whose Jacobian is tridiagonal.

    python3 tools/kv/codebooks.py            prints the constants
    python3 tools/kv/codebooks.py --check    compares them with crates/hf2q-quant/src/kv/codebook.rs
"""

import re
import sys
from pathlib import Path

import numpy as np
from mpmath import erfc, exp, inf, mp, mpf, pi, sqrt

mp.dps = 40
BITS = (2, 3, 4, 5, 6, 8)
SOURCE = Path(__file__).parents[2] / "crates/hf2q-quant/src/kv/codebook.rs"


def density(x):
    return mpf(0) if x == inf else exp(-x * x / 2) / sqrt(2 * pi)


def above(x):
    """Probability of values above x."""
    return mpf(0) if x == inf else erfc(x / sqrt(mpf(2))) / 2


def thresholds(levels):
    """Borders of the cells of the positive levels."""
    return [mpf(0)] + [(a + b) / 2 for a, b in zip(levels, levels[1:])] + [inf]


def cell(a, b):
    """Probability and mean of the values between a and b."""
    p = above(a) - above(b)
    return p, (density(a) - density(b)) / p


def newton(levels):
    """One step on f_i = c_i - mean of cell i; returns the new levels and the largest |f_i|."""
    t, n = thresholds(levels), len(levels)
    lower, middle, upper, f = [mpf(0)] * n, [mpf(1)] * n, [mpf(0)] * n, [mpf(0)] * n
    for i, c in enumerate(levels):
        a, b = t[i], t[i + 1]
        p, mean = cell(a, b)
        f[i] = c - mean
        by_a = density(a) * (mean - a) / p
        by_b = mpf(0) if b == inf else density(b) * (b - mean) / p
        if i > 0:
            lower[i] -= by_a / 2
            middle[i] -= by_a / 2
        if i + 1 < n:
            middle[i] -= by_b / 2
            upper[i] -= by_b / 2
    # Thomas's algorithm.
    error = max(abs(x) for x in f)
    for i in range(1, n):
        w = lower[i] / middle[i - 1]
        middle[i] -= w * upper[i - 1]
        f[i] -= w * f[i - 1]
    step = [mpf(0)] * n
    step[-1] = f[-1] / middle[-1]
    for i in range(n - 2, -1, -1):
        step[i] = (f[i] - upper[i] * step[i + 1]) / middle[i]
    return [c - s for c, s in zip(levels, step)], error


def start(n):
    """Levels after many of Lloyd's own steps in double precision."""
    from math import erfc as erfc_, exp as exp_, sqrt as sqrt_, pi as pi_

    phi = lambda x: exp_(-x * x / 2) / sqrt_(2 * pi_)
    tail = lambda x: erfc_(x / sqrt_(2)) / 2
    levels = (np.arange(n) + 0.5) * (1.2 * np.log(8 * n) / n)
    for _ in range(40 * n + 200):
        t = np.concatenate([[0.0], (levels[1:] + levels[:-1]) / 2, [40.0]])
        d, q = np.array([phi(x) for x in t]), np.array([tail(x) for x in t])
        levels = (d[:-1] - d[1:]) / (q[:-1] - q[1:])
    return [mpf(float(x)) for x in levels]


def solve(bits):
    """The positive levels in ascending order, and the mean square error of the quantizer."""
    levels = start(2 ** (bits - 1))
    for _ in range(30):
        levels, error = newton(levels)
        if error < mpf(10) ** -32:
            break
    assert error < mpf(10) ** -32 and all(a < b for a, b in zip(levels, levels[1:])), (bits, error)
    # With every level the mean of its cell, the error is 1 minus the mean square of the levels.
    t = thresholds(levels)
    power = 2 * sum(cell(a, b)[0] * c * c for c, a, b in zip(levels, t, t[1:]))
    return levels, 1 - power


def constants():
    return {bits: solve(bits) for bits in BITS}


def rust(bits, levels, error):
    text = ", ".join(short(x) for x in levels)
    return f"/// {mp.nstr(error, 10)}\nconst LEVELS_{bits}: [f32; {len(levels)}] = [{text}];"


def short(x):
    """The shortest decimal that reads as the nearest single."""
    return str(np.float32(mp.nstr(x, 20)))


def check(found):
    source = SOURCE.read_text()
    for bits, (levels, error) in found.items():
        body = re.search(rf"LEVELS_{bits}: \[f32; \d+\] =\s*\[(.*?)\]", source, re.S).group(1)
        committed = [float(np.float32(x)) for x in body.replace("_", "").split(",") if x.strip()]
        assert committed == [float(np.float32(short(x))) for x in levels], f"levels of {bits} bits differ"
        stated = re.search(rf"Self::Tq{bits} => ([0-9.e_-]+),\s*// error", source)
        assert abs(float(stated.group(1).replace("_", "")) / float(error) - 1) < 1e-6, f"error of {bits} bits"
    print("the constants of", SOURCE.name, "are right")


if __name__ == "__main__":
    found = constants()
    if "--check" in sys.argv:
        check(found)
    else:
        for bits, (levels, error) in found.items():
            print(rust(bits, levels, error))
