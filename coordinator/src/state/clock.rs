//! Length of the next step, from the limits of solvers and speeds and from the frames on which steps end.

use amalgam_particles::DVec3;
use serde::{Deserialize, Serialize};

use crate::settings::TimeSettings;

/// Time, counted so that frames are met exactly.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    settings: TimeSettings,
    /// Number of frames after the first one.
    frames: u64,
    gravity: f64,
    radius_min: f64,
    time: f64,
    frame: u64,
    frame_due: bool,
}

/// A shortened step leaves no rest to its frame that is shorter than this part of the step.
const REST_MIN: f64 = 1e-3;

/// Limits on the length of the next step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The solvers' own limit [s].
    pub(crate) stable_dt: f64,
    /// Largest |v| / radius [1/s].
    pub(crate) radius_rate: f64,
}

/// Time of a run, for a checkpoint.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClockState {
    time: f64,
    frame: u64,
}

impl Clock {
    pub(crate) fn new(settings: TimeSettings, gravity: DVec3, radius_min: f64) -> Self {
        let (frames, gravity) = (settings.frames(), gravity.length());
        Self { settings, frames, gravity, radius_min, time: 0.0, frame: 0, frame_due: true }
    }

    /// State for a checkpoint.
    pub(crate) fn state(&self) -> ClockState {
        ClockState { time: self.time, frame: self.frame }
    }

    /// Goes on from a checkpoint.
    pub(crate) fn go_on(&mut self, ClockState { time, frame }: ClockState) {
        (self.time, self.frame) = (time, frame);
    }

    pub(crate) fn time(&self) -> f64 {
        self.time
    }

    /// The smallest radius of all particles [m].
    pub(crate) fn radius_min(&self) -> f64 {
        self.radius_min
    }

    /// True if the current time is the time of a frame, as the start and the end are.
    pub(crate) fn frame_due(&self) -> bool {
        self.frame_due
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.time >= self.settings.duration
    }

    /// Time of the next frame: a multiple of the interval, or the end.
    fn next_event(&self) -> f64 {
        match self.frame + 1 {
            frame if frame < self.frames => frame as f64 * self.settings.frame_interval,
            _ => self.settings.duration,
        }
    }

    /// True if steps of this length are too short to reach the end: more than 10^12 of them would be needed.
    pub(crate) fn is_stuck(&self, dt: f64) -> bool {
        dt < 1e-12 * self.settings.duration
    }

    /// Length of the next step: no longer than any limit, and such that equal steps end on the next frame.
    pub(crate) fn next_dt(&self, limits: Limits) -> f64 {
        // cfl = rate dt + (g/r) dt^2, solved for dt in the form that cannot cancel.
        let (cfl, fall) = (self.settings.cfl, self.gravity / self.radius_min);
        let root = (limits.radius_rate.powi(2) + 4.0 * cfl * fall).sqrt();
        let travel_dt = 2.0 * cfl / (limits.radius_rate + root);
        let dt = travel_dt.min(limits.stable_dt).min(self.settings.dt_max);
        let rest = self.next_event() - self.time;
        // The number of steps is rounded up, unless only rounding keeps it from being whole.
        rest / (rest / dt - 1e-9).ceil().max(1.0)
    }

    /// Length of a step that must not be longer than `dt` after all. It is half of the time to the next frame
    /// if `dt` would leave a rest too short for a step.
    pub(crate) fn shortened(&self, dt: f64) -> f64 {
        let rest = self.next_event() - self.time;
        if rest > dt && rest - dt < REST_MIN * dt { 0.5 * rest } else { dt }
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
    use proptest::prelude::*;

    use super::*;

    /// Times of frames and lengths of steps until the end; `limit` gives the solvers' limit in each step,
    /// `shorten` the part of it that is left after the stages.
    fn run(
        settings: &TimeSettings,
        limit: impl Fn(u64) -> f64,
        shorten: impl Fn(u64) -> f64,
    ) -> (Vec<f64>, Vec<f64>) {
        let mut clock = Clock::new(settings.clone(), DVec3::ZERO, 0.1);
        let (mut frames, mut steps) = (Vec::new(), Vec::new());
        while !clock.is_finished() {
            let step = steps.len() as u64;
            assert!(step < 1_000_000, "{settings:?} does not end");
            let mut dt = clock.next_dt(Limits { stable_dt: limit(step), radius_rate: 0.0 });
            assert!(!clock.is_stuck(dt), "{settings:?}: a step of {dt:e} s");
            if shorten(step) < 1.0 {
                dt = clock.shortened(dt * shorten(step));
            }
            clock.advance(dt);
            steps.push(dt);
            if clock.frame_due() {
                frames.push(clock.time());
            }
        }
        (frames, steps)
    }

    fn assert_frames(settings: &TimeSettings, frames: &[f64], count: usize) {
        assert_eq!(frames.len(), count, "{settings:?}: {frames:?}");
        let (end, multiples) = frames.split_last().expect("a frame");
        assert_eq!(end.to_bits(), settings.duration.to_bits());
        for (k, time) in multiples.iter().enumerate() {
            assert_eq!(time.to_bits(), ((k + 1) as f64 * settings.frame_interval).to_bits());
        }
    }

    #[test]
    fn a_rest_of_rounding_is_no_step() {
        for (duration, frame_interval, count) in [
            (0.45, 0.03, 15),
            (0.9, 0.3, 3),
            (0.7, 0.1, 7),
            (0.3, 0.1, 3),
            (1.0, 1.0 / 3.0, 3),
            (0.25, 0.1, 3),
        ] {
            let settings = TimeSettings { duration, frame_interval, dt_max: 3e-4, cfl: 0.5 };
            let (frames, steps) = run(&settings, |_| f64::INFINITY, |_| 1.0);
            assert_frames(&settings, &frames, count);
            assert!(steps.iter().all(|&dt| dt > 1.4e-4), "{settings:?}");
        }
    }

    proptest! {
        /// Durations and intervals as people write them, in decimals, and limits that vary from step to step.
        #[test]
        fn every_run_ends_with_a_frame_at_each_multiple(
            interval in 1u32..2000,
            decimals in 0i32..5,
            whole in 1u32..60,
            part in prop_oneof![Just(0.0), 0.001..0.999],
            steps_in_frame in 0.4..30.0f64,
            seed in any::<u64>(),
            cfl in prop_oneof![Just(0.5), 0.01..1.0, 0.999..1.0],
        ) {
            // The nearest numbers to what is written, as a scene's are.
            let read = |text: String| text.parse::<f64>().expect("a number");
            let digits = decimals as usize;
            let frame_interval = read(format!("{:.digits$}", f64::from(interval) * 10f64.powi(-decimals)));
            let exact = f64::from(interval) * (f64::from(whole) + part) * 10f64.powi(-decimals);
            let digits = digits + if part == 0.0 { 0 } else { 6 };
            let duration = read(format!("{exact:.digits$}"));
            let dt_max = frame_interval / steps_in_frame;
            let settings = TimeSettings { duration, frame_interval, dt_max, cfl };
            let random = |step: u64, salt: u64| amalgam_particles::random::uniform_f64(&[seed, step, salt]);
            let limit = |step| dt_max * (0.2 + random(step, 0));
            // One step in eight is shortened after its stages, as far as `cfl` asks for at least.
            let shorten = |step| if random(step, 1) < 0.125 { cfl * (1.0 - 0.5 * random(step, 2)) } else { 1.0 };
            let (frames, steps) = run(&settings, limit, shorten);
            let count = whole as usize + usize::from(part > 0.0);
            assert_frames(&settings, &frames, count);
            let shortest = steps.iter().copied().fold(f64::INFINITY, f64::min);
            // The last frame may be as short as its part of an interval; what is left of a shortened step may
            // be shortened again.
            let last = duration - (count - 1) as f64 * frame_interval;
            let least = (0.05 * dt_max * cfl).min(0.2 * last * cfl) * REST_MIN.powi(2);
            prop_assert!(shortest > least, "{settings:?}: {shortest:e}");
            prop_assert!((steps.iter().sum::<f64>() - duration).abs() <= 1e-9 * duration);
        }
    }

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
