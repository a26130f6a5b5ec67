//! Pages of HTML in one file: pictures and curves are in it, nothing is loaded.

use std::{
    fs,
    io::{self, BufReader},
    path::Path,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::error::CommandError;

/// Quality of pictures, 1 to 100.
const QUALITY: u8 = 82;

/// Points of a curve; a screen shows no more.
const POINTS_MAX: usize = 600;

/// Width and height of the area of a curve [pixels].
const PLOT: (f64, f64) = (300.0, 110.0);

/// Colours of curves, which colour-blind people can distinguish [Wong2011].
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];

const STYLE: &str = "body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1300px; padding: 0 1em; \
    color: #222 } h2 { margin-top: 2em; border-top: 1px solid #ccc; padding-top: .8em } \
    .wide { overflow-x: auto } table { border-collapse: collapse; margin: .8em 0 } \
    td, th { padding: .2em .7em; text-align: right; vertical-align: top } th { font-weight: 600 } \
    td:first-child, th:first-child, .left { text-align: left } tr { border-bottom: 1px solid #eee } \
    figure { margin: 0 8px 12px 0; display: inline-block; vertical-align: top } figcaption { color: #666; font-size: 13px } \
    img { max-width: 100%; display: block } .small img { width: 300px } summary { cursor: pointer; margin: .6em 0 } \
    .yes { color: #176b2c } .no, .bad { color: #a3202a } small { color: #666 } svg text { font: 11px system-ui, sans-serif }";

/// A page.
pub fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string() + "\n"
}

/// Writes a page, whole or not at all.
///
/// # Errors
/// A failure of the file system.
pub fn write(path: &Path, page: &str) -> Result<(), CommandError> {
    let new = path.with_extension("html.unfinished");
    let written = fs::write(&new, page).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| CommandError::Failed(format!("cannot write {}: {error}", path.display())))
}

/// A PNG picture as a smaller JPEG with a line below; none if there is no such file.
pub fn picture(png: &Path, below: &str) -> Option<Markup> {
    let source = format!("data:image/jpeg;base64,{}", BASE64_STANDARD.encode(jpeg_of(png)?));
    Some(html! { figure { img src=(source) alt=(below); figcaption { (below) } } })
}

/// Converts a picture of a run to JPEG; all are 8-bit RGB.
fn jpeg_of(png: &Path) -> Option<Vec<u8>> {
    let mut reader = png::Decoder::new(BufReader::new(fs::File::open(png).ok()?)).read_info().ok()?;
    let mut pixels = vec![0; reader.output_buffer_size()?];
    let info = reader.next_frame(&mut pixels).ok()?;
    let (width, height) = (u16::try_from(info.width).ok()?, u16::try_from(info.height).ok()?);
    let mut bytes = Vec::new();
    let encoder = jpeg_encoder::Encoder::new(&mut bytes, QUALITY);
    encoder.encode(&pixels, width, height, jpeg_encoder::ColorType::Rgb).ok()?;
    Some(bytes)
}

/// A curve of one quantity: its name, times [s] and values.
pub struct Curve {
    /// Name of the series, shown where there are several.
    pub name: String,
    /// Times [s] and values.
    pub points: Vec<(f64, f64)>,
}

/// Curves of a quantity over time, drawn with one another.
pub fn curves(title: &str, curves: &[Curve]) -> Markup {
    let finite = || curves.iter().flat_map(|curve| &curve.points).filter(|(_, value)| value.is_finite());
    let ends = |pick: fn(&(f64, f64)) -> f64| {
        finite().map(pick).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)))
    };
    let ((t0, t1), (v0, v1)) = (ends(|p| p.0), ends(|p| p.1));
    if v0 > v1 {
        return html! {};
    }
    let (width, height) = PLOT;
    let part = |value: f64, low: f64, high: f64| if high > low { (value - low) / (high - low) } else { 0.5 };
    let path = |curve: &Curve| {
        let step = curve.points.len().div_ceil(POINTS_MAX).max(1);
        let mut path = String::new();
        let mut is_begun = false;
        for (t, v) in thinned(&curve.points, step) {
            if !v.is_finite() {
                is_begun = false;
                continue;
            }
            let (x, y) = (width * part(t, t0, t1), height * (1.0 - part(v, v0, v1)));
            path += &format!("{}{x:.1} {y:.1}", if is_begun { "L" } else { "M" });
            is_begun = true;
        }
        path
    };
    let are_named = curves.len() > 1;
    let (all_width, all_height) = (width + 20.0, height + 34.0);
    html! {
        figure {
            svg width=(all_width) height=(all_height) viewBox=(format!("-10 -16 {all_width} {all_height}")) role="img" aria-label=(title) {
                rect x="0" y="0" width=(width) height=(height) fill="none" stroke="#ccc" {}
                @for (k, curve) in curves.iter().enumerate() {
                    path d=(path(curve)) fill="none" stroke=(COLOURS[k % COLOURS.len()]) stroke-width="1.3" {}
                }
                text x="0" y="-4" { (without_trailing_zeros(v1)) }
                text x="0" y=(height + 13.0) { (without_trailing_zeros(v0)) }
                text x=(width) y=(height + 13.0) text-anchor="end" { (without_trailing_zeros(t1)) " s" }
            }
            figcaption {
                (title)
                @if are_named {
                    @for (k, curve) in curves.iter().enumerate() {
                        " " span style=(format!("color: {}", COLOURS[k % COLOURS.len()])) { (curve.name) }
                    }
                }
            }
        }
    }
}

/// The least and the greatest of each `2 * step` points, so that no peak is lost.
fn thinned(points: &[(f64, f64)], step: usize) -> Vec<(f64, f64)> {
    if step == 1 {
        return points.to_vec();
    }
    let ends = points.chunks(2 * step).flat_map(|chunk| {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let low = chunk.iter().min_by(by_value).copied();
        let high = chunk.iter().max_by(by_value).copied();
        let mut both = [low, high].into_iter().flatten().collect::<Vec<_>>();
        both.sort_by(|a, b| a.0.total_cmp(&b.0));
        both.dedup();
        both
    });
    ends.collect()
}

/// A number with up to four decimals, without trailing zeros, or with an exponent if it is very small or
/// large.
pub fn without_trailing_zeros(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        1e-3..1e5 => {
            let text = format!("{value:.4}");
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
        _ => format!("{value:.3e}"),
    }
}

/// The columns of a table of a probe, with their names; the first is the time.
///
/// # Errors
/// A file that cannot be read.
pub fn table(csv: &Path) -> io::Result<Vec<Curve>> {
    let text = fs::read_to_string(csv)?;
    let mut lines = text.lines();
    let names = lines.next().unwrap_or_default().split(',').skip(1);
    let mut columns: Vec<Curve> =
        names.map(|name| Curve { name: name.to_string(), points: Vec::new() }).collect();
    for line in lines {
        let mut values = line.split(',').map(|value| value.parse().unwrap_or(f64::NAN));
        let Some(time) = values.next() else { continue };
        for (column, value) in columns.iter_mut().zip(values) {
            column.points.push((time, value));
        }
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_page_cannot_break_it() {
        let page = document("a < b", &html! { p { "<script>" } });
        assert!(page.contains("a &lt; b") && page.contains("&lt;script&gt;"), "{page}");
    }

    #[test]
    fn a_long_curve_keeps_its_peaks() {
        let points: Vec<(f64, f64)> =
            (0..100_000).map(|k| (f64::from(k), if k == 54_321 { 9.0 } else { 0.0 })).collect();
        let few = thinned(&points, points.len().div_ceil(POINTS_MAX));
        assert!(few.len() <= 2 * POINTS_MAX && few.contains(&(54_321.0, 9.0)), "{} points", few.len());
        assert!(few.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn a_curve_without_numbers_is_left_out() {
        let curve = Curve { name: "a".into(), points: vec![(0.0, f64::NAN)] };
        assert_eq!(curves("none", &[curve]).into_string(), "");
    }
}
