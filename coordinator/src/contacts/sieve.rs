//! Surfaces through which smaller particles fit, found before the first step from the triangles alone.

use std::collections::HashMap;

use amalgam_particles::text::number;
use amalgam_particles::{DVec3, ParticleId};
use amalgam_proto::contract::Table;

/// A surface with a hole that another participant's particles fit through.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Hole {
    /// Radius of the largest sphere that passes [m].
    radius: f64,
    /// The triangle's `passing_radius` [m]. If the radius of the corners reaches it, nothing passes.
    needed: f64,
}

/// A warning for each surface that touches by its spheres and each other participant whose particles fit through
/// it without force. A triangle lets a sphere pass whose radius is below the circumradius less the radius of the
/// corners.
pub(crate) fn sieves(
    names: &[String],
    tables: &[Table],
    touches_by_triangles: impl Fn(usize) -> bool,
) -> Vec<String> {
    let mut found = Vec::new();
    for (k, surface) in tables.iter().enumerate().filter(|&(k, _)| !touches_by_triangles(k)) {
        let Some(hole) = largest_hole(surface) else { continue };
        for (other, table) in tables.iter().enumerate().filter(|&(other, _)| other != k) {
            let smallest = table.radii().map(|(radius, _)| radius).fold(f64::INFINITY, f64::min);
            if smallest < hole.radius {
                found.push(format!(
                    "particles of {} (radius {} m) fit through the surface of {}, which lets spheres of {} m pass: write radius = {} \
                     for {} (0.71 spacings of its lattice), a smaller spacing, or, with the contact law, triangles = [\"{}\"] \
                     under [coupling]",
                    names[other],
                    number(smallest),
                    names[k],
                    number(hole.radius),
                    number(hole.needed),
                    names[k],
                    names[k],
                ));
            }
        }
    }
    found
}

/// The largest hole of a surface, if its particles leave any.
fn largest_hole(table: &Table) -> Option<Hole> {
    let particles = &table.particles;
    let place: HashMap<ParticleId, usize> = match table.triangles.is_empty() {
        true => HashMap::new(),
        false => particles.id.iter().copied().zip(0..).collect(),
    };
    let hole = |corners: &[ParticleId; 3]| {
        let at = corners.map(|id| place[&id]);
        let needed = passing_radius(at.map(|i| particles.position[i]));
        let covered = at.iter().map(|&i| particles.radius[i]).fold(f64::INFINITY, f64::min);
        Hole { radius: needed - covered, needed }
    };
    table.triangles.iter().map(hole).max_by(|a, b| a.radius.total_cmp(&b.radius))
}

/// Radius of the largest circle through the gap between three points [m]: the circumradius. In a triangle
/// with an obtuse angle it is half of the longest edge, since the corner of the next triangle is as near.
pub(crate) fn passing_radius([a, b, c]: [DVec3; 3]) -> f64 {
    let edges = [a.distance(b), b.distance(c), c.distance(a)];
    let longest = edges.into_iter().fold(0.0, f64::max);
    let twice_area = (b - a).cross(c - a).length();
    let circumradius = edges.iter().product::<f64>() / (2.0 * twice_area);
    let is_obtuse =
        edges.iter().map(|edge| edge * edge).sum::<f64>() < 2.0 * longest * longest * (1.0 + 1e-12);
    if is_obtuse { 0.5 * longest } else { circumradius }
}

#[cfg(test)]
mod tests {
    use amalgam_particles::Particles;

    use super::*;

    fn square(radius: f64) -> Table {
        let mut particles = Particles::default();
        for (id, x) in [DVec3::ZERO, DVec3::X, DVec3::Y, DVec3::X + DVec3::Y].into_iter().enumerate() {
            particles.push(ParticleId(id as u64), x, DVec3::ZERO, 1.0, radius, false);
        }
        let triangles = vec![[0, 1, 3].map(ParticleId), [0, 3, 2].map(ParticleId)];
        Table { triangles, ..table(particles) }
    }

    fn table(particles: Particles) -> Table {
        Table { particles, stable_dt: f64::INFINITY, ..Table::default() }
    }

    fn ball(radius: f64) -> Table {
        let mut particles = Particles::default();
        particles.push(ParticleId(0), DVec3::Z, DVec3::ZERO, 1.0, radius, false);
        table(particles)
    }

    #[test]
    fn a_square_of_spheres_lets_pass_what_fits_between_them() {
        let names = ["net", "ball"].map(String::from);
        // Half of the diagonal less the radius of a corner.
        let widest = 0.5f64.sqrt() - 0.5;
        let by_spheres = |tables: &[Table]| sieves(&names, tables, |_| false);
        assert_eq!(by_spheres(&[square(0.5), ball(widest * 1.001)]), Vec::<String>::new());
        let found = by_spheres(&[square(0.5), ball(widest * 0.999)]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("write radius = 0.707"), "{}", found[0]);
        assert!(by_spheres(&[square(0.75), ball(1e-6)]).is_empty());
        assert!(sieves(&names, &[square(0.5), ball(widest * 0.999)], |k| k == 0).is_empty());
    }
}
