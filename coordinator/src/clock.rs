//! The next length of a step: limits of solvers and of speed, and the frames that steps end on.

use amalgam_particles::DVec3;

use crate::settings::TimeSettings;

/// Time, counted so that frames are met exactly.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    settings: TimeSettings,
    gravity: f64,
    radius_min: f64,
    time: f64,
    frame: u64,
    frame_due: bool,
}

/// What limits the next step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The solvers' own limit [s].
    pub(crate) stable_dt: f64,
    /// Largest |v| / radius [1/s].
    pub(crate) radius_rate: f64,
}

impl Clock {
    pub(crate) fn new(settings: TimeSettings, gravity: DVec3, radius_min: f64) -> Self {
        Self { settings, gravity: gravity.length(), radius_min, time: 0.0, frame: 0, frame_due: true }
    }

    pub(crate) fn time(&self) -> f64 {
        self.time
    }

    /// The smallest radius of all particles [m].
    pub(crate) fn radius_min(&self) -> f64 {
        self.radius_min
    }

    /// Whether the time is that of a frame. The start is one, and so is the end.
    pub(crate) fn frame_due(&self) -> bool {
        self.frame_due
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.time >= self.settings.duration
    }

    /// Time of the next frame, or of the end.
    fn next_event(&self) -> f64 {
        ((self.frame + 1) as f64 * self.settings.frame_interval).min(self.settings.duration)
    }

    /// Whether steps of this length would take longer than anyone waits: 10^12 of them to the end.
    pub(crate) fn is_stuck(&self, dt: f64) -> bool {
        dt < 1e-12 * self.settings.duration
    }

    /// Length of the next step: no longer than any limit, and such that equal steps end on the next frame.
    pub(crate) fn next_dt(&self, limits: Limits) -> f64 {
        // cfl = rate dt + (g / r) dt^2, solved for dt in the form that cannot cancel.
        let (cfl, fall) = (self.settings.cfl, self.gravity / self.radius_min);
        let root = (limits.radius_rate.powi(2) + 4.0 * cfl * fall).sqrt();
        let travel_dt = 2.0 * cfl / (limits.radius_rate + root);
        let dt = travel_dt.min(limits.stable_dt).min(self.settings.dt_max);
        let rest = self.next_event() - self.time;
        // A step count that is whole but for rounding is not raised.
        rest / (rest / dt - 1e-9).ceil().max(1.0)
    }

    pub(crate) fn advance(&mut self, dt: f64) {
        let event = self.next_event();
        self.frame_due = event - self.time <= dt * (1.0 + 1e-9);
        if self.frame_due {
            self.time = event;
            self.frame += 1;
        } else {
            self.time += dt;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_on_frames_and_on_the_end() {
        let settings = TimeSettings { duration: 0.25, frame_interval: 0.1, dt_max: 0.03, cfl: 0.5 };
        let mut clock = Clock::new(settings, DVec3::ZERO, 0.1);
        let (mut frames, mut steps) = (Vec::new(), 0);
        while !clock.is_finished() {
            clock.advance(clock.next_dt(Limits { stable_dt: f64::INFINITY, radius_rate: 0.0 }));
            steps += 1;
            if clock.frame_due() {
                frames.push(clock.time());
            }
        }
        assert_eq!((frames, steps), (vec![0.1, 0.2, 0.25], 10));
    }

    #[test]
    fn nothing_travels_more_than_its_part_of_a_radius() {
        let settings = TimeSettings { duration: 10.0, frame_interval: 10.0, dt_max: 10.0, cfl: 0.5 };
        let clock = Clock::new(settings, DVec3::NEG_Z * 10.0, 0.01);
        for rate in [0.0, 1.0, 1e4] {
            let dt = clock.next_dt(Limits { stable_dt: f64::INFINITY, radius_rate: rate });
            assert!(rate * dt + 10.0 / 0.01 * dt * dt <= 0.5 * (1.0 + 1e-12));
        }
    }
}
