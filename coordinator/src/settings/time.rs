//! `[time]`: duration, frames and limits of steps.

use serde::{Deserialize, Serialize};

use super::fault::Fault;

/// `[time]`: duration, frames and limits of steps.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TimeSettings {
    /// Simulated time [s].
    pub duration: f64,
    /// Time between frames [s]. Steps end exactly on frames.
    #[serde(default = "default_frame_interval")]
    pub frame_interval: f64,
    /// Longest step [s]. Steps are shorter where solvers or speeds ask for it.
    #[serde(default = "default_dt_max")]
    pub dt_max: f64,
    /// Largest part of its radius that a particle may travel in a step, above 0 and at most 1.
    #[serde(default = "default_cfl")]
    pub cfl: f64,
}

fn default_frame_interval() -> f64 {
    1.0 / 30.0
}

fn default_dt_max() -> f64 {
    1e-2
}

fn default_cfl() -> f64 {
    0.5
}

/// A rest of the duration below this part of the frame interval is rounding: 0.45 is fifteen times 0.03.
const WHOLE_INTERVALS: f64 = 1e-9;

impl TimeSettings {
    /// Number of frames after the first one, which shows the start: one at each multiple of the interval, the
    /// last one at the end.
    pub fn frames(&self) -> u64 {
        let intervals = self.duration / self.frame_interval;
        let whole = intervals.round();
        // The quotient itself is only exact to some units in the last place.
        let is_whole = (intervals - whole).abs() <= WHOLE_INTERVALS.max(4.0 * f64::EPSILON * intervals);
        let frames = if is_whole { whole } else { intervals.ceil() };
        frames.max(1.0) as u64
    }

    /// Faults in the values.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (key, value) in
            [("duration", self.duration), ("frame_interval", self.frame_interval), ("dt_max", self.dt_max)]
        {
            if !(value > 0.0 && value.is_finite()) {
                faults.push(Fault::new(
                    key,
                    format!("{key} is {value}, but must be a positive time in seconds"),
                ));
            }
        }
        if !(self.cfl > 0.0 && self.cfl <= 1.0) {
            faults.push(Fault::new("cfl", format!("cfl is {}, but must be above 0 and at most 1", self.cfl)));
        }
        faults
    }
}
