//! Prediction of pairs of particles that may touch before a step ends.

use glam::DVec3;

/// Time ahead, and the acceleration in it, for which contacts are predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ContactLookAhead {
    /// Length of the step that is looked ahead [s]; 0 for the pairs that intersect now.
    pub time: f64,
    /// Largest acceleration by anything but contacts [m/s^2].
    pub acceleration: f64,
}

/// Chains of collisions are followed over this many hits.
const HITS: usize = 4;

impl ContactLookAhead {
    /// Largest speed of a particle within the look-ahead time [m/s], if nothing hits it.
    pub fn speed(&self, velocity: DVec3) -> f64 {
        velocity.length() + self.acceleration * self.time
    }

    /// Distance by which a sphere of this speed [m/s] is grown in the search for spheres that it may touch
    /// [m]: twice its path, since contacts change speeds.
    pub fn reach(&self, speed: f64) -> f64 {
        2.0 * speed * self.time
    }

    /// True if a pair with this gap [m] between its surfaces may touch within the look-ahead time.
    pub fn meets(&self, gap: f64, speeds: [f64; 2]) -> bool {
        gap < self.reach(speeds[0]) + self.reach(speeds[1])
    }

    /// Raises `speed` [m/s] where a faster particle may hit a slower one, which may then hit a third. Pairs
    /// that are too far apart change nothing: a longer list of `pairs` gives the same speeds.
    pub fn foresee(&self, pairs: &[(u32, u32)], gap: impl Fn(u32, u32) -> f64, speed: &mut Vec<f64>) {
        self.foresee_with(pairs, gap, speed, |_, raised| raised);
    }

    /// As [`Self::foresee`], where other ranks raise speeds, too. After each hit, `follow` gets the speeds
    /// and whether this rank raised one. It takes over the speeds that other ranks raised, and returns
    /// whether any rank raised one.
    pub fn foresee_with(
        &self,
        pairs: &[(u32, u32)],
        gap: impl Fn(u32, u32) -> f64,
        speed: &mut Vec<f64>,
        mut follow: impl FnMut(&mut [f64], bool) -> bool,
    ) {
        for _ in 0..HITS {
            let before = speed.clone();
            for &(i, j) in pairs {
                let (a, b) = (i as usize, j as usize);
                if before[a] != before[b] && self.meets(gap(i, j), [before[a], before[b]]) {
                    speed[a] = speed[a].max(before[b]);
                    speed[b] = speed[b].max(before[a]);
                }
            }
            let raised = *speed != before;
            if !follow(speed, raised) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fast ball, then four at rest in a row, each too far for its own speed and near enough for the first
    /// one's.
    #[test]
    fn a_blow_is_followed_along_a_row() {
        let look_ahead = ContactLookAhead { time: 0.1, acceleration: 0.0 };
        let pairs: Vec<(u32, u32)> = (0..5).map(|i| (i, i + 1)).collect();
        let mut speed = vec![10.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        look_ahead.foresee(&pairs, |i, _| if i == 3 { 10.0 } else { 1.0 }, &mut speed);
        assert_eq!(speed, [10.0, 10.0, 10.0, 10.0, 0.0, 0.0]);
    }

    #[test]
    fn without_time_only_what_intersects_meets() {
        let look_ahead = ContactLookAhead { time: 0.0, acceleration: 9.81 };
        assert!(look_ahead.meets(-1e-9, [5.0, 5.0]) && !look_ahead.meets(0.0, [5.0, 5.0]));
    }
}
