//! Numbers and other people's words in messages.

use glam::DVec3;

/// Characters of a text that somebody else sent, at most, before it is cut.
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

/// A text that somebody else sent, on one line and not longer than [`TEXT_LENGTH_MAX`].
pub fn shorten(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(TEXT_LENGTH_MAX) {
        Some((end, _)) => format!("{} ...", line[..end].trim_end()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
