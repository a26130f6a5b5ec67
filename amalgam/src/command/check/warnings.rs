//! Warnings about values that are allowed but look like a mistake, with numbers and what to write instead.

use std::collections::BTreeMap;

use amalgam_coordinator::{ParticipantFrame, Plan};
use amalgam_particles::{DVec3, PairFinder, Spheres};

/// Overlaps at the start below this part of the smaller radius [1] get no warning. Round shapes filled with
/// particles have them, and so do radii that cover a lattice.
const OVERLAP_MIN: f64 = 0.25;

/// A particle this large [m] under gravity, in a run this short [s], looks like one in millimetres: the scene
/// is then at least some metres long, and hardly anything falls by a radius.
const RADIUS_MAX: f64 = 0.5;

/// Warnings about everything that looks like a mistake. `sections` are names and settings of participants.
pub(super) fn warnings(plan: &Plan, sections: &[(&str, &str)], frames: &[ParticipantFrame]) -> Vec<String> {
    let mut found = overlaps(frames);
    found.extend(sections.iter().flat_map(|(name, section)| degrees(name, section)));
    found.extend(millimetres(plan, frames));
    found.extend(outside(plan, frames));
    found
}

/// Particles of different participants that overlap before anything moves: the number and the deepest, for
/// each pair of participants.
fn overlaps(frames: &[ParticipantFrame]) -> Vec<String> {
    let owners = frames.iter().zip(0u16..);
    let owner: Vec<u16> = owners.flat_map(|(frame, k)| std::iter::repeat_n(k, frame.id.len())).collect();
    let position: Vec<DVec3> = frames.iter().flat_map(|frame| frame.positions.iter().copied()).collect();
    let radius: Vec<f64> = frames.iter().flat_map(|frame| frame.radius.iter().copied()).collect();
    let mut found: BTreeMap<(u16, u16), (usize, f64, usize, usize)> = BTreeMap::new();
    let spheres = Spheres { position: &position, radius: &radius, class: Some(&owner) };
    for &(i, j) in PairFinder::new().find(spheres, |_, _| true) {
        let (i, j) = (i as usize, j as usize);
        let (a, b) = (owner[i].min(owner[j]), owner[i].max(owner[j]));
        let depth = (radius[i] + radius[j] - position[i].distance(position[j])) / radius[i].min(radius[j]);
        if depth > OVERLAP_MIN {
            let entry = found.entry((a, b)).or_insert((0, 0.0, i, j));
            let deepest = if depth > entry.1 { (depth, i, j) } else { (entry.1, entry.2, entry.3) };
            *entry = (entry.0 + 1, deepest.0, deepest.1, deepest.2);
        }
    }
    let text = |((a, b), (count, depth, i, j)): ((u16, u16), (usize, f64, usize, usize))| {
        let gap = depth * radius[i].min(radius[j]);
        format!(
            "{} and {} overlap at the start: {count} pairs, by up to {depth:.2} of the smaller radius ({gap:.2e} m) at {}; move one of \
             them by that, or leave a gap between their shapes",
            frames[usize::from(a)].name,
            frames[usize::from(b)].name,
            at(position[i].midpoint(position[j])),
        )
    };
    found.into_iter().map(text).collect()
}

/// A run that looks as if its lengths were millimetres.
fn millimetres(plan: &Plan, frames: &[ParticipantFrame]) -> Option<String> {
    let gravity = plan.domain.gravity.length();
    let radius = frames.iter().flat_map(|frame| &frame.radius).copied().fold(f64::INFINITY, f64::min);
    let fall = 0.5 * gravity * plan.time.duration.powi(2);
    let size = (plan.domain.max - plan.domain.min).max_element();
    let looks = gravity > 1.0 && radius.is_finite() && radius >= RADIUS_MAX && fall < size;
    looks.then(|| {
        format!(
            "the domain is {size} m long and the smallest particle has a radius of {radius} m, while in {} s things fall by {fall:.2} m: \
             if these lengths are millimetres, write metres ({} and {})",
            plan.time.duration,
            size * 1e-3,
            radius * 1e-3
        )
    })
}

/// Participants that begin outside of the domain, which cameras look at and fluids stay in.
fn outside(plan: &Plan, frames: &[ParticipantFrame]) -> Vec<String> {
    let (min, max) = (plan.domain.min, plan.domain.max);
    let inside = |x: &DVec3| x.cmpge(min).all() && x.cmple(max).all();
    let text = |frame: &ParticipantFrame| {
        let count = frame.positions.iter().filter(|x| !inside(x)).count();
        (count > 0 && count == frame.id.len()).then(|| {
            let middle = frame.positions.iter().sum::<DVec3>() / count as f64;
            format!(
                "all of {} begins outside of the domain, around {}: no picture will show it; make the domain larger, or see whether \
                 its lengths are metres",
                frame.name,
                at(middle)
            )
        })
    };
    frames.iter().filter_map(text).collect()
}

/// Finds rates of rotation that look like degrees: whole multiples of 15, from 30 on.
fn degrees(name: &str, section: &str) -> Vec<String> {
    fn rates<'a>(value: &'a toml::Value, found: &mut Vec<&'a toml::Value>) {
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    if key == "angular_velocity" {
                        found.push(value);
                    }
                    rates(value, found);
                }
            }
            toml::Value::Array(values) => values.iter().for_each(|value| rates(value, found)),
            _ => {}
        }
    }
    let Ok(section) = section.parse::<toml::Table>() else { return Vec::new() };
    let (section, mut found) = (toml::Value::Table(section), Vec::new());
    rates(&section, &mut found);
    let number = |value: &toml::Value| value.as_float().or(value.as_integer().map(|whole| whole as f64));
    let components = found.iter().filter_map(|value| value.as_array()).flatten().filter_map(number);
    let suspicious = components.filter(|rate| rate.abs() >= 30.0 && rate % 15.0 == 0.0);
    let text = |rate: f64| {
        format!(
            "{name} turns at {rate} rad/s, which is {:.0} turns per second: if degrees were meant, write {:.4}",
            rate.abs() / std::f64::consts::TAU,
            rate.to_radians()
        )
    };
    suspicious.map(text).collect()
}

fn at(x: DVec3) -> String {
    format!("[{:.3}, {:.3}, {:.3}]", x.x, x.y, x.z)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str, positions: Vec<DVec3>, radius: f64) -> ParticipantFrame {
        let count = positions.len();
        ParticipantFrame {
            name: name.into(),
            id: (0..count as u64).collect(),
            velocities: vec![DVec3::ZERO; count],
            radius: vec![radius; count],
            group: vec![u32::MAX; count],
            positions,
            fields: Vec::new(),
            triangles: Vec::new(),
            surface: None,
            parts: 0,
        }
    }

    #[test]
    fn overlaps_are_counted_with_the_deepest_one() {
        let floor = frame("floor", vec![DVec3::ZERO, DVec3::X], 0.5);
        let balls = frame("balls", vec![DVec3::Z * 0.4, DVec3::X + DVec3::Z * 0.55, DVec3::Z * 9.0], 0.1);
        let found = overlaps(&[floor, balls]);
        // Depths of 0.2 and 0.05 m: 2 and 0.5 of the smaller radius.
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("floor and balls overlap at the start: 2 pairs, by up to 2.00"),
            "{found:?}"
        );
        assert!(found[0].contains("(2.00e-1 m) at [0.000, 0.000, 0.200]"), "{found:?}");
    }

    #[test]
    fn particles_that_touch_are_no_overlap() {
        let floor = frame("floor", vec![DVec3::ZERO], 0.5);
        let ball = frame("ball", vec![DVec3::Z * 0.59], 0.1);
        assert_eq!(overlaps(&[floor, ball]), Vec::<String>::new());
    }

    #[test]
    fn whole_degrees_are_asked_about() {
        let section =
            "[[bodies]]\nangular_velocity = [0, 90, 0.5]\n[[bodies]]\nangular_velocity = [0.0, 0.0, 31.0]\n";
        let found = degrees("top", section);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("14 turns per second: if degrees were meant, write 1.5708"), "{found:?}");
    }
}
