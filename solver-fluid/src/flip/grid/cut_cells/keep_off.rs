//! Particles stay outside of obstacles, as they stay inside of the domain.
//!
//! The grid's velocity is along an obstacle only on the average of a face. So a particle beside an obstacle may
//! come a little into it, and is set on its surface. A particle that has passed through a thin obstacle goes back
//! to the side where it was.

use amalgam_particles::DVec3;

use super::{CutCells, Grid};
use crate::flip::CLEARANCE;

/// Rounds in which a particle is taken out of obstacles that overlap each other or the walls of the domain. Between
/// walls at 45 degrees the particle's depth falls by a half in each of them.
const ROUNDS: usize = 12;

impl CutCells {
    /// Position [m] and velocity [m/s] of a particle that moves between two positions [m]: outside of obstacles,
    /// on the side where it was, and not into an obstacle. `domain` are the corners of the box that it may not leave.
    pub(in crate::flip) fn kept_off(
        &self,
        grid: &Grid,
        domain: (DVec3, DVec3),
        (from, mut to): (DVec3, DVec3),
        mut velocity: DVec3,
    ) -> (DVec3, DVec3) {
        if !self.near[grid.index(grid.cell(to))] {
            return (to, velocity);
        }
        let clearance = CLEARANCE * grid.cell_size;
        for _ in 0..ROUNDS {
            let mut touched = false;
            for surface in 0..self.surfaces.len() {
                let (is, path) = (self.surfaces.beside(surface, to), to - from);
                let reach = path.length();
                // Farther away, it has not been on the other side.
                let was = (is.distance < reach).then(|| self.surfaces.beside(surface, from));
                let through = was.filter(|was| {
                    let across = -path.dot(was.normal);
                    was.distance < reach
                        && across > was.distance - clearance
                        && was.normal.dot(is.normal) < 0.0
                });
                let out = if let Some(was) = through {
                    let n = was.normal;
                    to = from + (path - path.dot(n) * n) + (clearance - was.distance) * n;
                    n
                } else if is.distance < clearance {
                    to += (clearance - is.distance) * is.normal;
                    is.normal
                } else {
                    continue;
                };
                velocity -= velocity.dot(out).min(0.0) * out;
                touched = true;
            }
            if !touched {
                break;
            }
            to = to.max(domain.0).min(domain.1);
        }
        (to, velocity)
    }
}

#[cfg(test)]
mod tests {
    use amalgam_particles::{DQuat, Obstacle, ObstacleForm};

    use super::*;

    const SIZE: f64 = 0.1;

    fn obstacle(form: ObstacleForm) -> Obstacle {
        Obstacle { form, rotation: DQuat::IDENTITY, is_hollow: false }
    }

    /// Position and velocity of a particle that moves from `from` to `to` in a second.
    fn moved(obstacles: &[ObstacleForm], from: DVec3, to: DVec3) -> (DVec3, DVec3) {
        let grid = Grid::new(DVec3::ZERO, SIZE, [10, 10, 10]);
        let obstacles: Vec<Obstacle> = obstacles.iter().cloned().map(obstacle).collect();
        let cut = CutCells::new(&grid, &obstacles, 1.0).expect("obstacles cut cells");
        cut.kept_off(&grid, (DVec3::ZERO, DVec3::ONE), (from, to), to - from)
    }

    #[test]
    fn a_floor_stops_what_falls_and_lets_slide_and_rise() {
        let floor = [ObstacleForm::Plane { point: DVec3::splat(0.35), normal: DVec3::Z }];
        let from = DVec3::new(0.5, 0.5, 0.36);
        let (position, velocity) = moved(&floor, from, DVec3::new(0.55, 0.5, 0.3));
        assert!((position - DVec3::new(0.55, 0.5, 0.35 + CLEARANCE * SIZE)).length() < 1e-12, "{position}");
        assert!((velocity - DVec3::X * 0.05).length() < 1e-12, "{velocity}");
        for free in [DVec3::new(0.5, 0.5, 0.43), DVec3::new(0.45, 0.5, 0.355)] {
            assert_eq!(moved(&floor, from, free), (free, free - from));
        }
    }

    #[test]
    fn nothing_passes_a_thin_plate_or_the_edge_of_one() {
        let plate = [ObstacleForm::Box { min: DVec3::new(0.2, 0.2, 0.45), max: DVec3::new(0.8, 0.8, 0.5) }];
        for (x, deep) in [(0.5, 0.06), (0.5, 0.0975), (0.21, 0.0975)] {
            let from = DVec3::new(x, 0.5, 0.501);
            let (position, velocity) = moved(&plate, from, from - DVec3::Z * deep);
            assert!((position - from.with_z(0.5 + CLEARANCE * SIZE)).length() < 1e-12, "{position}");
            assert!(velocity.length() < 1e-12, "{velocity}");
        }
        let beside = DVec3::new(0.19, 0.5, 0.501);
        assert_eq!(moved(&plate, beside, beside - DVec3::Z * 0.0975).0, beside - DVec3::Z * 0.0975);
    }

    #[test]
    fn a_corner_between_two_planes_keeps_off_both() {
        let normals = [DVec3::new(1.0, 0.0, 1.0).normalize(), DVec3::new(-1.0, 0.0, 1.0).normalize()];
        let point = DVec3::new(0.5, 0.5, 0.4);
        let planes = normals.map(|normal| ObstacleForm::Plane { point, normal });
        let (position, velocity) = moved(&planes, point + DVec3::Z * 0.02, point - DVec3::Z * 0.05);
        for normal in normals {
            assert!((position - point).dot(normal) > 0.99 * CLEARANCE * SIZE, "{position}");
            assert!(velocity.dot(normal) > -1e-12, "{velocity}");
        }
    }

    #[test]
    fn a_slope_that_meets_a_wall_of_the_domain_keeps_off_both() {
        let normal = DVec3::new(-1.0, 0.0, 1.0).normalize();
        let point = DVec3::Z * 0.4;
        let slope = [ObstacleForm::Plane { point, normal }];
        let (position, _) = moved(&slope, DVec3::new(0.01, 0.5, 0.45), DVec3::new(0.01, 0.5, 0.37));
        assert!((position - point).dot(normal) > 0.0 && position.x >= 0.0, "{position}");
    }
}
