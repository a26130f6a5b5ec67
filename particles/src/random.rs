//! Counter-based random numbers: a number is a pure function of its purpose, never of the order of
//! evaluation.

/// The finaliser of SplitMix64: every bit of the result depends on every bit of `x`.
#[inline]
pub const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// 64 random bits for a purpose named by `key`, for example `[seed, step, smallest id in the group]`.
#[inline]
pub fn bits(key: &[u64]) -> u64 {
    key.iter().fold(0x616d_616c_6761_6d00, |state, &word| mix(state ^ mix(word)))
}

/// A uniform integer in `[low, high]`, both included, for a purpose named by `key`.
///
/// The multiply-shift bias is below `(high - low + 1) / 2^64`.
#[inline]
pub fn uniform_u32(low: u32, high: u32, key: &[u64]) -> u32 {
    assert!(low <= high, "empty range {low}..={high}");
    let span = u128::from(high - low) + 1;
    low + ((u128::from(bits(key)) * span) >> 64) as u32
}

/// A uniform number in `[0, 1)` with 53 random bits, for a purpose named by `key`.
#[inline]
pub fn uniform_f64(key: &[u64]) -> f64 {
    (bits(key) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_integers_cover_their_range_evenly() {
        let mut counts = [0u32; 57];
        for step in 0..57_000 {
            counts[(uniform_u32(8, 64, &[7, step, 3]) - 8) as usize] += 1;
        }
        // Binomial: mean 1000, deviation 31.3; 6 deviations.
        assert!(counts.iter().all(|&c| (812..1188).contains(&c)), "{counts:?}");
    }

    #[test]
    fn keys_are_not_interchangeable() {
        assert_ne!(bits(&[1, 2]), bits(&[2, 1]));
        assert_ne!(bits(&[1]), bits(&[1, 0]));
    }
}
