//! The cone that an impulse must lie in, and the nearest point of it.
//!
//! An impulse has a normal part a >= 0, a tangential part of size at most mu a, and a rolling part (couple over lever) of size
//! at most mu_r a. The nearest point is meant in the metric of the scaled unknowns, where a normal difference counts d_n, a
//! tangential one d_t, a rolling one d_q. For a point with normal part a, tangential size T and rolling size R,
//! tangential and rolling parts keep their directions, and given a normal part x their best sizes are min(T, mu x)
//! and min(R, mu_r x). So x minimises
//!
//! ```text
//! d_n (x - a)^2 + d_t max(T - mu x, 0)^2 + d_q max(R - mu_r x, 0)^2    over x >= 0,
//! ```
//!
//! which is convex. Half of its derivative is piecewise linear and never falls:
//!
//! ```text
//! d_n (x - a) - d_t mu max(T - mu x, 0) - d_q mu_r max(R - mu_r x, 0).
//! ```
//!
//! If it is not below zero at x = 0, the nearest point is the apex. Else its root is that of the linear function in which
//! only terms appear that are positive there. Leaving a max out, with T - mu x in its place, can only raise the derivative
//! and so lower the root: a term that is negative at such a root is negative at the true root too, and is dropped.

/// What a difference of each part of an impulse counts [1/kg]: the diagonal of the problem's matrix, by blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metric {
    /// Of the normal part.
    pub normal: f64,
    /// Of the tangential part.
    pub tangential: f64,
    /// Of the rolling part.
    pub rolling: f64,
}

impl Metric {
    /// 1 over each part, 0 where that is 0.
    pub(crate) fn inverse(&self) -> Self {
        let inverse = |part: f64| if part > 0.0 { 1.0 / part } else { 0.0 };
        Self {
            normal: inverse(self.normal),
            tangential: inverse(self.tangential),
            rolling: inverse(self.rolling),
        }
    }
}

/// Normal part of the nearest point of the cone.
#[inline]
pub fn nearest_normal(friction: f64, rolling: f64, metric: Metric, normal: f64, sizes: [f64; 2]) -> f64 {
    let [tangential, couple] = sizes;
    let root = |with_tangential: bool, with_couple: bool| {
        let (mut load, mut slope) = (metric.normal * normal, metric.normal);
        if with_tangential {
            load += metric.tangential * friction * tangential;
            slope += metric.tangential * friction * friction;
        }
        if with_couple {
            load += metric.rolling * rolling * couple;
            slope += metric.rolling * rolling * rolling;
        }
        load / slope
    };
    let (mut slides, mut rolls) = (true, true);
    for _ in 0..2 {
        let x = root(slides, rolls);
        if x <= 0.0 {
            return 0.0;
        }
        let (sticks, holds) = (slides && friction * x >= tangential, rolls && rolling * x >= couple);
        if !(sticks || holds) {
            return x;
        }
        (slides, rolls) = (slides && !sticks, rolls && !holds);
    }
    root(slides, rolls).max(0.0)
}

/// By which factor a part of size `size` must be made shorter to be at most `limit`.
#[inline]
pub fn shrink(size: f64, limit: f64) -> f64 {
    if size > limit { limit / size } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A projection is characterised by: the result lies in the cone, and no point of the cone is nearer.
        #[test]
        fn no_point_of_the_cone_is_nearer(
            friction in 0.0f64..3.0, rolling in 0.0f64..2.0,
            normal in -2.0f64..2.0, tangential in 0.0f64..2.0, couple in 0.0f64..2.0,
            d in prop::array::uniform3(0.1f64..10.0),
        ) {
            let metric = Metric { normal: d[0], tangential: d[1], rolling: d[2] };
            let distance = |x: f64| {
                let (t, r) = ((tangential - friction * x).max(0.0), (couple - rolling * x).max(0.0));
                d[0] * (x - normal).powi(2) + d[1] * t * t + d[2] * r * r
            };
            let x = nearest_normal(friction, rolling, metric, normal, [tangential, couple]);
            prop_assert!(x >= 0.0);
            for k in -1000..1000 {
                let other = (x + 1e-3 * f64::from(k)).max(0.0);
                prop_assert!(distance(other) >= distance(x) - 1e-12, "{x} {other}");
            }
        }
    }

    #[test]
    fn points_inside_stay_and_points_of_the_polar_cone_go_to_the_apex() {
        let metric = Metric { normal: 1.0, tangential: 1.0, rolling: 1.0 };
        assert_eq!(nearest_normal(0.5, 0.1, metric, 2.0, [0.9, 0.1]), 2.0);
        assert_eq!(nearest_normal(0.5, 0.1, metric, -1.0, [1.0, 0.1]), 0.0);
        assert_eq!(nearest_normal(0.0, 0.0, metric, 1.0, [5.0, 0.0]), 1.0);
        assert_eq!(shrink(0.0, 0.0), 1.0);
    }
}
