//! Periods of oscillations, and arithmetic-geometric means for exact ones.

/// A value at some times: times [s] and values.
pub(super) type TimeSeries = Vec<(f64, f64)>;

/// Times at which a curve rises through `level` [s], linear in between.
pub(super) fn rises(curve: &[(f64, f64)], level: f64) -> Vec<f64> {
    let through = |pair: &[(f64, f64)]| {
        let ((t0, y0), (t1, y1)) = (pair[0], pair[1]);
        (y0 < level && y1 >= level).then(|| t0 + (t1 - t0) * (level - y0) / (y1 - y0))
    };
    curve.windows(2).filter_map(through).collect()
}

/// Mean period of a curve [s], from the first to the last time at which it rises through `level`; NaN if it
/// rises through it once or never.
pub(super) fn period(curve: &[(f64, f64)], level: f64) -> f64 {
    let rises = rises(curve, level);
    match rises.as_slice() {
        [first, .., last] => (last - first) / (rises.len() - 1) as f64,
        _ => f64::NAN,
    }
}

/// Complete elliptic integrals K and E of modulus `k`, by the arithmetic-geometric mean.
pub(super) fn elliptic(k: f64) -> (f64, f64) {
    let (mut a, mut b, mut c, mut power, mut sum) = (1.0f64, (1.0 - k * k).sqrt(), k, 0.5, 0.0);
    for _ in 0..40 {
        sum += power * c * c;
        (a, b, c) = (0.5 * (a + b), (a * b).sqrt(), 0.5 * (a - b));
        power *= 2.0;
    }
    let first = std::f64::consts::FRAC_PI_2 / a;
    (first, first * (1.0 - sum))
}
