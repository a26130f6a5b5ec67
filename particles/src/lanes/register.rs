//! A register of lanes: eight, or sixteen with AVX-512.
//!
//! Loops that never combine lanes use it, for example with one particle per lane. Their results do not depend
//! on the number of lanes.

use std::ops::{Add, Div, Mul, Sub};

use super::Plain;

/// Some f32 side by side. Methods act on each lane by itself unless they say otherwise, and panic if a slice
/// holds fewer values than there are lanes.
pub trait Register:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// Number of lanes, 8 or 16.
    const LANES: usize;

    /// The same value in every lane.
    fn splat(value: f32) -> Self;
    /// The first values of a slice.
    fn load(from: &[f32]) -> Self;
    /// The first values of a slice less `origin`, with wrapping, as f32: exact up to 2^24.
    fn load_differences(from: &[i32], origin: i32) -> Self;
    /// Stores the register to the first places of a slice.
    fn store(self, to: &mut [f32]);
    /// Square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// `self` where it is greater than `other`, else `other` (also where one is NaN).
    fn larger(self, other: Self) -> Self;
    /// `self` where it is less than `other`, else `other` (also where one is NaN).
    fn smaller(self, other: Self) -> Self;
    /// Bit l is set where lane l of `self` is less than that of `other`.
    fn less(self, other: Self) -> u16;
    /// `self * factor + term`, rounded once.
    fn mul_add(self, factor: Self, term: Self) -> Self;
    /// Writes the lanes whose bit is set to the first places of `to`, in order. The places behind them keep
    /// their values or get 0 or the value of any lane.
    fn store_selected(self, selected: u16, to: &mut [f32]);
    /// Writes `first + l` for each lane l whose bit is set to the first places of `to`, in order. The places
    /// behind them get any values.
    fn store_indices(selected: u16, first: u32, to: &mut [u32]);

    /// Writes the first words of `from` whose bit is set to the first places of `to`, in order. The places
    /// behind them get any values.
    fn store_selected_words(from: &[u32], selected: u16, to: &mut [u32]);
    /// The inverse of [`Self::store_selected_words`]: writes the first words of `from`, in order, to the
    /// places of `to` whose bit is set, and 0 to the other places.
    fn expand_words(from: &[u32], selected: u16, to: &mut [u32]);

    /// Writes four words of each record to four columns. Record r fills the lanes 4 r to 4 r + 3, so that a
    /// register takes as many records as it has groups of four lanes.
    #[inline(always)]
    fn spread<const W: usize>(records: [&[i32; 4]; 4], to: &mut [[i32; W]; 4]) {
        for (word, to) in to.iter_mut().enumerate() {
            for (lane, to) in to.iter_mut().enumerate() {
                *to = records[lane / 4][word];
            }
        }
    }

    /// Reads a record: its first three entries are a place, the others the bits of f32. The place becomes
    /// `entry - origin`, with wrapping and exact up to 2^24. Then each value is multiplied by `factor` and
    /// `term` is added, rounded once. Only three entries of `origin` count.
    #[inline(always)]
    fn placed(record: &[i32; 8], origin: &[i32; 8], factor: &[f32; 8], term: &[f32; 8]) -> [f32; 8] {
        let mut result = record.map(|bits| f32::from_bits(bits as u32));
        for axis in 0..3 {
            result[axis] = record[axis].wrapping_sub(origin[axis]) as f32;
        }
        for (value, (factor, term)) in result.iter_mut().zip(factor.iter().zip(term)) {
            *value = value.mul_add(*factor, *term);
        }
        result
    }

    /// Least and greatest of the first `count` lanes, at least one, none of them NaN.
    #[inline(always)]
    fn extremes(self, count: usize) -> (f32, f32) {
        let mut low = [0.0; 16];
        self.store(&mut low);
        let first = low[0];
        for (lane, value) in low.iter_mut().enumerate() {
            *value = if lane < count { *value } else { first };
        }
        let mut high = low;
        for half in [8, 4, 2, 1] {
            for lane in 0..half {
                low[lane] = if low[lane + half] < low[lane] { low[lane + half] } else { low[lane] };
                high[lane] = if high[lane + half] > high[lane] { high[lane + half] } else { high[lane] };
            }
        }
        (low[0], high[0])
    }
}

/// For each set of eight lanes, an order that has the selected lanes first.
pub(super) const SELECTED_FIRST: [[u8; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut set = 0;
    while set < 256 {
        let (mut lane, mut next) = (0, 0);
        while lane < 8 {
            if set >> lane & 1 == 1 {
                table[set][next] = lane as u8;
                next += 1;
            }
            lane += 1;
        }
        set += 1;
    }
    table
};

impl Register for Plain<8> {
    const LANES: usize = 8;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Self([value; 8])
    }
    #[inline(always)]
    fn load(from: &[f32]) -> Self {
        Self(*from.first_chunk().expect("as many values as lanes"))
    }
    #[inline(always)]
    fn load_differences(from: &[i32], origin: i32) -> Self {
        let from: &[i32; 8] = from.first_chunk().expect("as many values as lanes");
        Self(from.map(|value| value.wrapping_sub(origin) as f32))
    }
    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        to[..8].copy_from_slice(&self.0);
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(self.0.map(f32::sqrt))
    }
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        self.each(other, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        self.each(other, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn less(self, other: Self) -> u16 {
        (0..8).fold(0, |bits, l| bits | u16::from(self.0[l] < other.0[l]) << l)
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        self.fused(factor, term)
    }
    #[inline(always)]
    fn store_selected(self, selected: u16, to: &mut [f32]) {
        let first = SELECTED_FIRST[usize::from(selected & 0xff)];
        for (to, lane) in to[..8].iter_mut().zip(first) {
            *to = self.0[usize::from(lane)];
        }
    }
    #[inline(always)]
    fn store_selected_words(from: &[u32], selected: u16, to: &mut [u32]) {
        let first = SELECTED_FIRST[usize::from(selected & 0xff)];
        for (to, lane) in to[..8].iter_mut().zip(first) {
            *to = from[..8][usize::from(lane)];
        }
    }
    #[inline(always)]
    fn expand_words(from: &[u32], selected: u16, to: &mut [u32]) {
        let mut next = 0;
        for (lane, word) in to[..8].iter_mut().enumerate() {
            let is_selected = selected >> lane & 1 == 1;
            *word = if is_selected { from[next] } else { 0 };
            next += usize::from(is_selected);
        }
    }
    #[inline(always)]
    fn store_indices(selected: u16, first: u32, to: &mut [u32]) {
        let lanes = SELECTED_FIRST[usize::from(selected & 0xff)];
        for (to, lane) in to[..8].iter_mut().zip(lanes) {
            *to = first + u32::from(lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LANES, Lanes, Task, Width};
    use super::*;
    use crate::random;

    /// Every operation on sixteen values, register after register, as bits.
    struct EveryOperation<'a> {
        a: &'a [f32; LANES],
        b: &'a [f32; LANES],
        places: &'a [i32; LANES],
    }

    impl Task for EveryOperation<'_> {
        type Output = Vec<[u32; LANES]>;

        #[inline(always)]
        fn run<L: Lanes>(self) -> Vec<[u32; LANES]> {
            let mut all = vec![[0; LANES]; 12];
            let (mut selected, mut index) = (Vec::new(), Vec::<u32>::new());
            for at in (0..LANES).step_by(L::Register::LANES) {
                let (a, b) = (L::Register::load(&self.a[at..]), L::Register::load(&self.b[at..]));
                let places = L::Register::load_differences(&self.places[at..], i32::MAX - 1);
                let (sqrt, tenth) = (a.sqrt(), L::Register::splat(0.1));
                let results = [
                    a + b,
                    a - b,
                    a * b,
                    a / b,
                    sqrt,
                    a.larger(b),
                    a.smaller(b),
                    a.mul_add(b, a),
                    tenth,
                    places,
                ];
                for (all, result) in all.iter_mut().zip(results) {
                    let mut values = [0.0; LANES];
                    result.store(&mut values);
                    for (to, value) in all[at..].iter_mut().zip(&values[..L::Register::LANES]) {
                        *to = value.to_bits();
                    }
                }
                let less = a.less(b);
                let (mut values, mut indices) = ([0.0; LANES], [0; LANES]);
                a.store_selected(less, &mut values);
                L::Register::store_indices(less, at as u32, &mut indices);
                let count = less.count_ones() as usize;
                let (words, mut kept) = (self.b.map(f32::to_bits), [0; LANES]);
                L::Register::store_selected_words(&words[at..], less, &mut kept);
                let set = (0..L::Register::LANES).filter(|lane| less >> lane & 1 == 1);
                assert!(set.map(|lane| words[at + lane]).eq(kept[..count].iter().copied()));
                selected.extend(values[..count].iter().map(|value| value.to_bits()));
                index.extend_from_slice(&indices[..count]);
                let ([record, origin], _) = self.places.as_chunks() else {
                    unreachable!("sixteen are two eights")
                };
                let ([factor, term], _) = self.b.as_chunks() else { unreachable!("sixteen are two eights") };
                let placed = L::Register::placed(record, origin, factor, term);
                all[11][..8].copy_from_slice(&placed.map(f32::to_bits));
                for count in 1..=L::Register::LANES {
                    let lanes = &self.b[at..at + count];
                    let expected = (
                        lanes.iter().copied().fold(f32::INFINITY, f32::min),
                        lanes.iter().copied().fold(f32::NEG_INFINITY, f32::max),
                    );
                    assert_eq!(b.extremes(count), expected);
                }
            }
            for (to, value) in all[10].iter_mut().zip(selected.into_iter().zip(index)) {
                *to = value.0 ^ value.1;
            }
            all
        }
    }

    #[test]
    fn widths_agree_to_the_bit() {
        for case in 0..2000 {
            let random = |lane: usize, what| random::uniform_f64(&[case, lane as u64, what]) as f32;
            let a = std::array::from_fn(|l| if case % 7 == 0 { f32::NAN } else { random(l, 0) });
            let b = std::array::from_fn(|l| if case % 5 == 0 { random(0, 1) } else { random(l, 1) });
            let places = std::array::from_fn(|l| (random(l, 2) * 10.0) as i32 - 5 + i32::MIN);
            let run = |width: Width| width.run(EveryOperation { a: &a, b: &b, places: &places });
            let expected = run(Width::supported()[0]);
            for width in Width::supported() {
                // IEEE 754 leaves open which NaN an operation on two NaNs returns.
                let equal = |(&x, &y): (&u32, &u32)| {
                    x == y || f32::from_bits(x).is_nan() && f32::from_bits(y).is_nan()
                };
                assert!(run(width).iter().flatten().zip(expected.iter().flatten()).all(equal), "{width:?}");
            }
        }
    }

    #[test]
    fn plain_lanes_do_what_they_say() {
        let a = Plain(std::array::from_fn(|l| l as f32));
        let mut kept = [-1.0; 8];
        a.store_selected(0b1010_0101, &mut kept);
        assert_eq!(kept[..4], [0.0, 2.0, 5.0, 7.0]);
        let mut index = [0; 8];
        Plain::store_indices(0b1010_0101, 100, &mut index);
        assert_eq!(index[..4], [100, 102, 105, 107]);
        assert_eq!(a.less(Plain([2.5; 8])), 0b111);
        assert_eq!(Plain([f32::NAN; 8]).larger(Plain([0.0; 8])).0, [0.0; 8]);
        assert_eq!(Plain::load_differences(&[i32::MIN; 8], i32::MAX).0, [1.0; 8]);
        assert_eq!(a.mul_add(a, Plain([0.5; 8])).0[3], 9.5);
        assert_eq!(a.extremes(3), (0.0, 2.0));
        let record = [7, 8, i32::MIN, 3.5f32.to_bits() as i32, 0, 0, 0, 0];
        let factor = [0.5, 0.5, -0.5, 2.0, 1.0, 1.0, 1.0, 1.0];
        let term = [0.0, 0.0, 3.0, 0.0, 0.25, 0.0, 0.0, 0.0];
        let placed = Plain::placed(&record, &[5, 9, i32::MAX, 1, 2, 3, 4, 5], &factor, &term);
        assert_eq!(placed, [1.0, -0.5, 2.5, 7.0, 0.25, 0.0, 0.0, 0.0]);
    }
}
