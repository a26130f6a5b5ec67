//! Intervals between checkpoints: `10m`, `500steps`.

use std::{fmt, str::FromStr, time::Duration};

use amalgam_particles::text::wall_time;

/// Interval between checkpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct Every {
    text: String,
    period: Period,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Period {
    Steps(u64),
    Wall(Duration),
}

impl Every {
    /// True if a checkpoint is due after `steps` steps, the last one being `elapsed` ago.
    pub fn is_due(&self, steps: u64, elapsed: Duration) -> bool {
        match self.period {
            Period::Steps(count) => steps.is_multiple_of(count),
            Period::Wall(wall) => elapsed >= wall,
        }
    }
}

impl Default for Every {
    /// Interval of a run that can go back to a checkpoint, unless the command line gives another.
    fn default() -> Self {
        Self { text: "5m".into(), period: Period::Wall(Duration::from_secs(300)) }
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Every {
    type Err = String;

    /// Reads a number and a unit, with a space or a hyphen between them or without.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let help = || {
            format!(
                "{text:?} is no interval: write wall time as 90s, 10m, 2h or 1d, or a number of steps as 500steps"
            )
        };
        let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(help)?;
        let (number, unit) = text.split_at(unit_at);
        let unit = unit.trim_start_matches([' ', '-']);
        let period = if ["step", "steps"].contains(&unit) {
            number.parse().ok().filter(|&count| count > 0).map(Period::Steps)
        } else {
            wall_time(text).ok().map(Period::Wall)
        };
        Ok(Self { text: text.into(), period: period.ok_or_else(help)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_wall_time_or_steps() {
        let is_due = |text: &str, steps, seconds| {
            let every = text.parse::<Every>().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(every.to_string(), text);
            every.is_due(steps, Duration::from_secs_f64(seconds))
        };
        for text in ["500steps", "500 steps", "500-steps"] {
            assert!(is_due(text, 1000, 0.0) && !is_due(text, 999, 1e9), "{text}");
        }
        assert!(is_due("1step", 1, 0.0));
        for (text, seconds) in [("90s", 90.0), ("10m", 600.0), ("1.5 h", 5400.0), ("2d", 172_800.0)] {
            assert!(is_due(text, 1, seconds) && !is_due(text, 1, 0.99 * seconds), "{text}");
        }
    }

    #[test]
    fn what_is_no_interval_is_told_what_to_write() {
        for text in ["", "500", "m", "10 minutes", "0steps", "0s", "-5m", "1.5steps", "1e99d", "99999999d"] {
            let error = text.parse::<Every>().expect_err(text);
            assert!(error.contains("write wall time as 90s"), "{error}");
        }
    }
}
