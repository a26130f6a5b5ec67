//! Numbers as whole multiples of a unit, modulo 2^32, so that differences are exact.

/// A position as a whole number of quanta, modulo 2^32.
#[inline]
pub(crate) fn quantise(length: f64, quanta_per_metre: f64) -> i32 {
    let quanta = length * quanta_per_metre;
    if quanta.abs() < (1u64 << 50) as f64 { whole(quanta) } else { wrapped(quanta) }
}

/// A number modulo 2^32. Multiples of 2^32 cancel in differences of wrapped numbers. It is a function of its
/// own, out of line, because loops that hardly ever call it would be slower with it inlined.
#[cold]
#[inline(never)]
fn wrapped(quanta: f64) -> i32 {
    const TURN: f64 = (1u64 << 32) as f64;
    (quanta - (quanta / TURN).floor() * TURN) as u64 as u32 as i32
}

/// The nearest whole number, modulo 2^32, of a number below 2^50: the last bits of its sum with 3 x 2^51.
#[inline]
pub(crate) fn whole(number: f64) -> i32 {
    (number + 3.0 * (1u64 << 51) as f64).to_bits() as u32 as i32
}

/// The power of two by which numbers up to `largest` fit into 30 bits, so that differences fit into 32.
pub(crate) fn operand_scale(largest: f64) -> f64 {
    if largest > 0.0 && largest.is_finite() {
        let exponent = 29 - (largest.log2().floor() as i32);
        2f64.powi(exponent.clamp(-1000, 1000))
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_wrap_around() {
        for (number, expected) in
            [(0.0, 0), (-1.4, -1), (2.6, 3), (2147483648.0, i32::MIN), (-4294967297.0, -1)]
        {
            assert_eq!(whole(number), expected, "{number}");
            assert_eq!(quantise(number, 1.0), expected, "{number}");
        }
        let far = 2f64.powi(60) + 1024.0;
        assert_eq!(quantise(far + 512.0, 1.0).wrapping_sub(quantise(far, 1.0)), 512);
        let scale = operand_scale(3.7e-5);
        assert!((2f64.powi(29)..=2f64.powi(30)).contains(&(3.7e-5 * scale)));
    }
}
