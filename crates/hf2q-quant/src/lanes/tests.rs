use super::*;

struct Walk<'a> {
    a: &'a [f32; LANES],
    b: &'a [f32; LANES],
    index: &'a [i32; LANES],
}

impl Kernel for Walk<'_> {
    type Output = Vec<[u32; LANES]>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let (a, b) = (Floats::load(s, self.a), Floats::load(s, self.b));
        let (i, j) = (a.nearest_int(), Ints::load(s, self.index));
        let mut bytes = [0; LANES];
        (i + j).store_bytes(&mut bytes);
        let floats = [
            a + b,
            a - b,
            a * b,
            a / b,
            a.min(b),
            a.max(b),
            a.abs().sqrt(),
            -a,
            a.less(b).select(a, b),
            a.more(b).select(a, b),
            (a.equal(b) | a.less(b)).select(a, b),
            (!a.equal(b) & a.less(b)).select(a, b),
            b.round(),
            j.to_floats(),
            Floats::lookup(self.a, j),
            Floats::splat(s, 0.3),
        ];
        let ints = [
            i,
            i + j,
            i - j,
            i & j,
            i | j,
            i.min(j),
            i.max(j),
            i.equal(j).select_ints(i, j),
            Ints::splat(s, 7),
            Ints::splat(s, i32::from(a.less(b).bits())),
            Ints::splat(s, i32::from(a.less(b).any())),
        ];
        let mut out = Vec::new();
        for f in floats {
            out.push(f.to_array().map(|v| if v.is_nan() { 0x7fc0_0000 } else { v.to_bits() }));
        }
        for i in ints {
            out.push(i.to_array().map(|v| v as u32));
        }
        out.push(bytes.map(u32::from));
        out
    }
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    let a = [
        0.0,
        -0.0,
        1.5,
        -2.5,
        3e38,
        -1e-40,
        f32::NAN,
        f32::INFINITY,
        -7.49,
        8.5,
        1e6,
        -4_194_303.0,
        0.1,
        1e-30,
        5.0,
        f32::NEG_INFINITY,
    ];
    let b = [-0.0, 0.0, 1.5, 2.5, 3e38, 1e-40, 1.0, f32::NAN, 7.5, 8.25, -1e6, 0.5, 0.1, -1e-30, -5.5, 3.0];
    let index = [15, 0, 7, 8, 3, 12, 1, 2, 4, 5, 6, 9, 10, 11, 13, 14];
    let expected = Isa::Portable.run(Walk { a: &a, b: &b, index: &index });
    assert_eq!(expected[0][2], 3.0_f32.to_bits());
    assert_eq!(expected[16].map(|i| i as i32)[..4], [0, 0, 2, -2]);
    assert_eq!(expected[16].map(|i| i as i32)[6..12], [0, -4_194_304, -7, 8, 1_000_000, -4_194_303]);
    for isa in Isa::available() {
        let found = isa.run(Walk { a: &a, b: &b, index: &index });
        for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(found, expected, "{isa:?}: result {number}");
        }
    }
}

struct SideBySide<'a>(&'a [[f32; 32]], (usize, usize));

impl Kernel for SideBySide<'_> {
    type Output = [[f32; LANES]; 32];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let mut out = [[0.0; LANES]; 32];
        side_by_side(s, self.0, self.1, &mut out);
        out
    }
}

#[test]
fn rows_become_lanes() {
    let rows: [[f32; 32]; 20] = std::array::from_fn(|row| std::array::from_fn(|j| (row * 100 + j) as f32));
    for isa in Isa::available() {
        for (first, count) in [(0, 16), (3, 1), (10, 16), (50, 7)] {
            let lanes = isa.run(SideBySide(&rows, (first, count)));
            for (j, lanes) in lanes.iter().enumerate() {
                for (lane, &found) in lanes.iter().enumerate() {
                    let row = (first + lane.min(count - 1)) % rows.len();
                    assert_eq!(found, (row * 100 + j) as f32, "{isa:?}: value {j} of lane {lane}");
                }
            }
        }
    }
}
