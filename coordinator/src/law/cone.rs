//! The cone in which an impulse must lie, and its nearest point to an impulse.
//!
//! An impulse has a normal part a >= 0, a tangential part of size at most mu a, and a rolling part (couple
//! over lever) of size at most mu_r a. Squared distances weight the three parts with d_n, d_t and d_q. Take
//! an impulse with normal part a, tangential size T and rolling size R. Its nearest point keeps the
//! directions of the tangential and rolling parts. With the normal part x their best sizes are min(T, mu x)
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
//! If this is not negative at x = 0, the nearest point is the apex. Otherwise x is its root, where only terms
//! with a positive maximum count. With T - mu x in place of the maximum, the derivative can only be higher
//! and the root lower. A term that is negative at the lower root is negative at the true root, too, and is
//! dropped.

use amalgam_particles::DVec3;
use amalgam_particles::lanes::{LANES, Lanes};

use super::unknown::{Unknown, Vectors};

/// Weight of each part of an impulse in squared distances [1/kg]: the diagonal D of the problem's matrix W,
/// by parts. Any positive weights do, here squares of single precision numbers: the iteration waits for memory,
/// and a root holds the weights of all masses that there may be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Metric {
    /// Weight of the normal part.
    pub(crate) normal: f64,
    /// Weight of the tangential part.
    pub(crate) tangential: f64,
    /// Weight of the rolling part.
    pub(crate) rolling: f64,
}

impl Metric {
    /// The metric of these weights, rounded up to squares of single precision numbers: a smaller weight would ask
    /// for a larger L.
    pub(crate) fn rounded_up(weights: [f64; 3]) -> Self {
        let [normal, tangential, rolling] = weights.map(|weight| {
            let root = weight.sqrt();
            let nearest = root as f32;
            let above = f64::from(if f64::from(nearest) < root { nearest.next_up() } else { nearest });
            above * above
        });
        Self { normal, tangential, rolling }
    }

    /// 1 over each weight, 0 where the weight is 0.
    #[inline(always)]
    fn inverse(&self) -> Self {
        let inverse = |part: f64| if part > 0.0 { 1.0 / part } else { 0.0 };
        Self {
            normal: inverse(self.normal),
            tangential: inverse(self.tangential),
            rolling: inverse(self.rolling),
        }
    }
}

/// The set that a contact's impulse lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Coulomb's cone.
    Cone,
    /// The limit of infinite friction: p_n > 0, or p = 0. Cones with growing friction tend to the half space
    /// p_n >= 0. Its boundary is left out, since it would keep pairs that part from sliding.
    Rough,
    /// All of space: the pair moves as one.
    Glued,
    /// No unknown: no impulse moves either body.
    Idle,
}

/// A contact's set of impulses and its metric. No method branches, so that contacts can run side by side in
/// lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cone {
    pub(crate) normal: DVec3,
    /// mu; 0 where the set is no cone.
    pub(crate) friction: f64,
    /// mu_r; 0 where the set is no cone.
    pub(crate) rolling: f64,
    pub(crate) metric: Metric,
    /// An impulse with a normal part above this is in the set, whatever its other parts.
    pub(crate) free_above: f64,
}

impl Cone {
    /// The set of a kind, with mu and mu_r.
    pub(crate) fn new(kind: Kind, normal: DVec3, friction: [f64; 2], metric: Metric) -> Self {
        let (free_above, [friction, rolling]) = match kind {
            Kind::Cone => (f64::INFINITY, friction),
            Kind::Rough => (0.0, [0.0; 2]),
            Kind::Glued | Kind::Idle => (f64::NEG_INFINITY, [0.0; 2]),
        };
        Self { normal, friction, rolling, metric, free_above }
    }

    /// The impulse that a contact takes by Coulomb's law, if its own answer alone would lead to `impulse`: the
    /// normal part may not pull, and friction and couple are cut to what the normal part allows. The impulse
    /// of an idle contact stays zero.
    #[inline(always)]
    pub(crate) fn limit<U: Unknown>(&self, impulse: U) -> U {
        let normal = impulse.linear().dot(self.normal);
        self.cut(impulse, normal, |_| larger(normal, 0.0))
    }

    /// The point of the set nearest to an impulse. The impulse of an idle contact stays zero.
    #[inline(always)]
    pub(crate) fn project<U: Unknown>(&self, impulse: U) -> U {
        let normal = impulse.linear().dot(self.normal);
        self.cut(impulse, normal, |sizes| {
            nearest_normal::<U>(self.friction, self.rolling, self.metric, normal, sizes)
        })
    }

    /// An impulse in the set: unchanged where it lies in the set, otherwise with the normal part that
    /// `nearest` finds from the sizes of the tangential and the rolling part, which are cut.
    #[inline(always)]
    fn cut<U: Unknown>(&self, impulse: U, normal: f64, nearest: impl Fn([f64; 2]) -> f64) -> U {
        let tangential = impulse.linear() - self.normal * normal;
        let (square, couple_square) =
            (tangential.length_squared(), if U::ROLLING { impulse.rolling().length_squared() } else { 0.0 });
        let (sliding, rolling) = (self.friction * normal, self.rolling * normal);
        let within = (normal >= 0.0) & (square <= sliding * sliding) & (couple_square <= rolling * rolling);
        let stays = within | (normal > self.free_above);
        let (size, couple) = (square.sqrt(), if U::ROLLING { couple_square.sqrt() } else { 0.0 });
        let x = nearest([size, couple]);
        let linear = self.normal * x + tangential * shrink(size, self.friction * x);
        U::new(
            either(stays, impulse.linear(), linear),
            if U::ROLLING {
                let rolling = impulse.rolling() * shrink(couple, self.rolling * x);
                either(stays, impulse.rolling(), rolling)
            } else {
                DVec3::ZERO
            },
        )
    }

    /// De Saxce's term s = mu |u_t| + mu_r |u_q| [m/s].
    #[inline(always)]
    pub(crate) fn slip<U: Unknown>(&self, velocity: U) -> f64 {
        let u = velocity.linear();
        let slip = self.friction * (u - self.normal * u.dot(self.normal)).length();
        if U::ROLLING { slip + self.rolling * velocity.rolling().length() } else { slip }
    }

    /// w = u + (b + s) n of a relative velocity u, which must lie in the dual cone and be orthogonal to the
    /// impulse. `allowed` is b + s [m/s]: the speed at which the gap may close, and de Saxce's term,
    /// [`Self::slip`].
    #[inline(always)]
    pub(crate) fn dual<U: Unknown>(&self, velocity: U, allowed: f64) -> U {
        velocity + U::new(self.normal * allowed, DVec3::ZERO)
    }

    /// D^-1 u of a velocity u: the impulse that leads to u by the diagonal alone.
    #[inline(always)]
    pub(crate) fn unscale<U: Unknown>(&self, velocity: U) -> U {
        let Metric { normal, tangential, rolling } = self.metric.inverse();
        let u = velocity.linear();
        let linear = u * tangential + self.normal * (u.dot(self.normal) * (normal - tangential));
        if U::ROLLING { U::new(linear, velocity.rolling() * rolling) } else { U::new(linear, DVec3::ZERO) }
    }

    /// The largest part of D p [m/s] for an impulse p.
    #[inline(always)]
    pub(crate) fn largest_part<U: Unknown>(&self, impulse: U) -> f64 {
        let along = impulse.linear().dot(self.normal);
        let tangential = (impulse.linear() - self.normal * along).length();
        let linear = larger(self.metric.normal * along.abs(), self.metric.tangential * tangential);
        if U::ROLLING { larger(linear, self.metric.rolling * impulse.rolling().length()) } else { linear }
    }

    /// Error of an impulse under the law [m/s]: the largest part of its natural map D (p - Proj_K(p - D^-1
    /// w)).
    #[inline(always)]
    pub(crate) fn error<U: Unknown>(&self, impulse: U, w: U) -> f64 {
        self.largest_part(impulse - self.project(impulse - self.unscale(w)))
    }

    /// Inner product a . D b.
    #[inline(always)]
    pub(crate) fn inner<U: Unknown>(&self, a: U, b: U) -> f64 {
        let along = a.linear().dot(self.normal) * b.linear().dot(self.normal);
        let tangential = a.linear().dot(b.linear()) - along;
        let linear = self.metric.normal * along + self.metric.tangential * tangential;
        if U::ROLLING { linear + self.metric.rolling * a.rolling().dot(b.rolling()) } else { linear }
    }
}

/// Cones of [`LANES`] contacts side by side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cones {
    pub(crate) normal: Vectors,
    friction: [[f64; LANES]; 2],
    /// Roots of the weights.
    metric: [[f32; LANES]; 3],
    free_above: [f32; LANES],
    /// b = max(g, 0)/h [m/s]: the speed at which a pair may close; 0 where gaps do not count.
    pub(crate) bias: [f64; LANES],
}

impl Cones {
    /// Prefetches the cones after the next ones in a column. Processors do not foresee them by themselves, since
    /// a loop reads the parts of a block side by side.
    #[inline(always)]
    pub(crate) fn prefetch<L: Lanes>(&self) {
        let size = size_of::<Self>();
        (2 * size..3 * size).step_by(CACHE_LINE).for_each(|bytes| L::prefetch(self, bytes));
    }

    /// True if gaps count, as they do for all contacts except glued and idle ones.
    #[inline(always)]
    pub(crate) fn opens(&self, lane: usize) -> bool {
        self.free_above[lane] >= 0.0
    }

    /// Sets the cone and b of a lane.
    #[inline(always)]
    pub(crate) fn set(&mut self, lane: usize, cone: &Cone, bias: f64) {
        let Metric { normal, tangential, rolling } = cone.metric;
        self.bias[lane] = bias;
        self.normal.set(lane, cone.normal);
        (self.friction[0][lane], self.friction[1][lane]) = (cone.friction, cone.rolling);
        for (column, weight) in self.metric.iter_mut().zip([normal, tangential, rolling]) {
            column[lane] = weight.sqrt() as f32;
        }
        self.free_above[lane] = cone.free_above as f32;
    }

    #[inline(always)]
    pub(crate) fn get(&self, lane: usize) -> Cone {
        let weight = |part: usize| f64::from(self.metric[part][lane]) * f64::from(self.metric[part][lane]);
        Cone {
            normal: self.normal.get(lane),
            friction: self.friction[0][lane],
            rolling: self.friction[1][lane],
            metric: Metric { normal: weight(0), tangential: weight(1), rolling: weight(2) },
            free_above: self.free_above[lane].into(),
        }
    }
}

/// Bytes of memory that are read at once.
const CACHE_LINE: usize = 64;

/// Normal part x of the nearest point of the cone: the root that the head of this file derives.
#[inline(always)]
pub(crate) fn nearest_normal<U: Unknown>(
    friction: f64,
    rolling: f64,
    metric: Metric,
    normal: f64,
    [tangential, couple]: [f64; 2],
) -> f64 {
    let loads = [metric.tangential * friction * tangential, metric.rolling * rolling * couple];
    let slopes = [metric.tangential * friction * friction, metric.rolling * rolling * rolling];
    // (d_n a + d_t mu T + d_q mu_r R) / (d_n + d_t mu^2 + d_q mu_r^2), with the terms that count.
    let root = |slides: bool, rolls: bool| {
        let (mut load, mut slope) = (metric.normal * normal, metric.normal);
        load += if slides { loads[0] } else { 0.0 };
        slope += if slides { slopes[0] } else { 0.0 };
        if U::ROLLING {
            load += if rolls { loads[1] } else { 0.0 };
            slope += if rolls { slopes[1] } else { 0.0 };
        }
        load / slope
    };
    let first = root(true, true);
    let (slides, rolls) = (friction * first < tangential, rolling * first < couple);
    let second = root(slides, rolls);
    if !U::ROLLING {
        return larger(second, 0.0);
    }
    let third = root(slides & (friction * second < tangential), rolls & (rolling * second < couple));
    larger(third, 0.0)
}

/// Factor by which a part of size `size` must be made shorter to be at most `limit`.
#[inline(always)]
pub(crate) fn shrink(size: f64, limit: f64) -> f64 {
    let ratio = limit / size;
    if size > limit { ratio } else { 1.0 }
}

/// The larger of two numbers, the second if the first is NaN.
#[inline(always)]
pub(crate) fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

#[inline(always)]
fn either(first: bool, a: DVec3, b: DVec3) -> DVec3 {
    let one = |a: f64, b: f64| if first { a } else { b };
    DVec3::new(one(a.x, b.x), one(a.y, b.y), one(a.z, b.z))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::law::unknown::Rolling;

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
            let x = nearest_normal::<Rolling>(friction, rolling, metric, normal, [tangential, couple]);
            prop_assert!(x >= 0.0);
            for k in -1000..1000 {
                let other = (x + 1e-3 * f64::from(k)).max(0.0);
                prop_assert!(distance(other) >= distance(x) - 1e-12, "{x} {other}");
            }
        }
    }

    /// Blocks hold weights of all masses, from 1e-50 to 1e50 kg, exactly as they were rounded.
    #[test]
    fn weights_are_rounded_up_and_kept() {
        for weight in [0.0, 1.0, 1.0 / 3.0, 2.5e-7, 2.0 / 3e-50, 1.0 / 7e49] {
            let metric = Metric::rounded_up([weight, 2.0 * weight, 0.0]);
            assert!(metric.normal >= weight && metric.normal <= weight * (1.0 + 1e-6), "{weight}");
            let mut cones = Cones::default();
            cones.set(3, &Cone::new(Kind::Cone, DVec3::Z, [0.5, 0.1], metric), 0.0);
            assert_eq!(cones.get(3).metric, metric);
        }
    }

    #[test]
    fn points_inside_stay_and_points_of_the_polar_cone_go_to_the_apex() {
        let metric = Metric { normal: 1.0, tangential: 1.0, rolling: 1.0 };
        assert_eq!(nearest_normal::<Rolling>(0.5, 0.1, metric, 2.0, [0.9, 0.1]), 2.0);
        assert_eq!(nearest_normal::<Rolling>(0.5, 0.1, metric, -1.0, [1.0, 0.1]), 0.0);
        assert_eq!(nearest_normal::<Rolling>(0.0, 0.0, metric, 1.0, [5.0, 0.0]), 1.0);
        assert_eq!(shrink(0.0, 0.0), 1.0);
    }
}
