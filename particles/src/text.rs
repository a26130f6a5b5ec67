//! Numbers, times and texts of other programs, as people read and write them.

use std::time::Duration;

use glam::DVec3;

/// Most characters of a text from another program; a longer one is cut.
pub const TEXT_LENGTH_MAX: usize = 500;

/// A number for people: nine digits at most, and a power of ten where it would be long.
pub fn number(value: f64) -> String {
    let rounded: f64 = format!("{value:.8e}").parse().unwrap_or(value);
    let plain = rounded == 0.0 || !rounded.is_finite() || (1e-4..1e9).contains(&rounded.abs());
    if plain { rounded.to_string() } else { format!("{rounded:e}") }
}

/// A vector for people.
pub fn vector(value: DVec3) -> String {
    let [x, y, z] = value.to_array().map(number);
    format!("({x}, {y}, {z})")
}

/// A text from another program, on one line and not longer than [`TEXT_LENGTH_MAX`].
pub fn shorten(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(TEXT_LENGTH_MAX) {
        Some((end, _)) => format!("{} ...", line[..end].trim_end()),
        None => line,
    }
}

/// Units of wall time, and their seconds.
const UNITS: [(&str, f64); 4] = [("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];

/// Wall times that somebody may write [s].
const WALL_RANGE: std::ops::RangeInclusive<f64> = 1e-3..=1e9;

/// Reads a wall time, a number and a unit, with a space or a hyphen between them or without.
///
/// # Errors
/// A sentence that says what to write.
pub fn wall_time(text: &str) -> Result<Duration, String> {
    let help = || format!("{text:?} is no wall time: write 90s, 10m, 2h or 1d");
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(help)?;
    let (number, unit) = text.split_at(unit_at);
    let unit = unit.trim_start_matches([' ', '-']);
    let unit_s = UNITS.iter().find(|(name, _)| *name == unit).map(|unit| unit.1).ok_or_else(help)?;
    let seconds = number.parse::<f64>().ok().map(|count| count * unit_s);
    seconds.filter(|seconds| WALL_RANGE.contains(seconds)).map(Duration::from_secs_f64).ok_or_else(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_times_have_a_unit() {
        for (text, seconds) in [("90s", 90.0), ("10m", 600.0), ("1.5 h", 5400.0), ("2-d", 172_800.0)] {
            assert_eq!(wall_time(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "500", "m", "10 minutes", "0s", "-5m", "1e99d", "99999999d"] {
            let error = wall_time(text).expect_err(text);
            assert!(error.contains("write 90s, 10m, 2h or 1d"), "{error}");
        }
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (1e300, "1e300"),
            (-2.5e-12, "-2.5e-12"),
            (0.1 + 0.2, "0.3"),
            (20_000.0, "20000"),
            (1.0 / 3.0, "0.333333333"),
            (2.0f64.powi(80), "1.20892582e24"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
            (-0.0, "-0"),
            (f64::MAX, "1.79769313e308"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(vector(DVec3::new(0.0, f64::NAN, 1e99)), "(0, NaN, 1e99)");
    }

    #[test]
    fn foreign_texts_are_cut_to_a_line() {
        assert_eq!(shorten("Traceback:\n  File \"a.py\"\x1b[31m\n"), "Traceback: File \"a.py\" [31m");
        assert_eq!(shorten(&"x".repeat(6000)), format!("{} ...", "x".repeat(TEXT_LENGTH_MAX)));
        assert!(shorten(&"ab ".repeat(4000)).chars().count() <= TEXT_LENGTH_MAX + 4);
    }
}
