//! The surface of a brittle body: closed, of the body's area and volume, and torn where bonds are.

use std::collections::HashMap;

use amalgam_particles::{DVec3, MovingSurface};
use amalgam_solver_kit::Solver;
use amalgam_solver_solid::SolidSolver;
use glam::DQuat;
use support::{set_state, solid};

mod support;

/// Edge of the block's cubes [m].
const SPACING: f64 = 0.1;

fn body(settings: &str) -> SolidSolver {
    let section = format!(
        "method = 'peridynamics'\n[[bodies]]\ntype = 'peridynamic'\nspacing = {SPACING}\ndensity = 1000\n\
         young_modulus = 1e6\n{settings}\n"
    );
    solid(&section, DVec3::ZERO)
}

/// Area and volume of each part that triangles with a common vertex make, the largest first.
fn parts(solver: &SolidSolver) -> Vec<[f64; 2]> {
    let MovingSurface { vertices, triangles, .. } = solver.surface().expect("solids know their surface");
    let mut edges: HashMap<(u32, u32), i32> = HashMap::new();
    for &[a, b, c] in &triangles {
        for (a, b) in [(a, b), (b, c), (c, a)] {
            *edges.entry((a.min(b), a.max(b))).or_default() += if a < b { 1 } else { -1 };
        }
    }
    assert!(edges.values().all(|&passes| passes == 0), "an edge is not passed once each way: a hole");
    let mut part: Vec<u32> = (0..vertices.len() as u32).collect();
    while let Some((least, corners)) = triangles.iter().find_map(|corners| {
        let least = corners.iter().map(|&c| part[c as usize]).min()?;
        corners.iter().any(|&c| part[c as usize] != least).then_some((least, corners))
    }) {
        corners.iter().for_each(|&c| part[c as usize] = least);
    }
    let mut sizes: HashMap<u32, [f64; 2]> = HashMap::new();
    for corners in &triangles {
        let [a, b, c] = corners.map(|corner| vertices[corner as usize]);
        let size = sizes.entry(part[corners[0] as usize]).or_default();
        size[0] += 0.5 * (b - a).cross(c - a).length();
        size[1] += a.cross(b).dot(c) / 6.0;
    }
    let mut sizes: Vec<[f64; 2]> = sizes.into_values().collect();
    sizes.sort_by(|a, b| b[1].total_cmp(&a[1]));
    sizes
}

fn assert_parts(solver: &SolidSolver, expected: &[[f64; 2]]) {
    let found = parts(solver);
    let equal = |a: &[f64; 2], b: &[f64; 2]| (0..2).all(|k| (a[k] / b[k] - 1.0).abs() < 1e-9);
    let same = found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| equal(a, b));
    assert!(same, "{found:?} in place of {expected:?}");
}

/// Area and volume of a box of so many cubes.
fn cuboid([a, b, c]: [f64; 3]) -> [f64; 2] {
    [2.0 * (a * b + b * c + c * a) * SPACING * SPACING, a * b * c * SPACING.powi(3)]
}

const BLOCK: &str = "shape = { type = 'box', min = [0, 0, 0], max = [0.6, 0.4, 0.3] }";

#[test]
fn a_whole_block_has_its_area_and_volume_turned_or_not() {
    assert_parts(&body(BLOCK), &[cuboid([6.0, 4.0, 3.0])]);
    let turned = format!("{BLOCK}\nrotation = {{ axis = [1, 2, 3], degrees = 40 }}");
    assert_parts(&body(&turned), &[cuboid([6.0, 4.0, 3.0])]);
}

#[test]
fn a_layer_is_one_cube_thick() {
    let layer = "shape = { type = 'box', min = [0, 0, 0], max = [0.6, 0.4, 0.1] }\nmodel = 'plane-stress'";
    assert_parts(&body(layer), &[cuboid([6.0, 4.0, 1.0])]);
}

#[test]
fn a_cut_through_makes_two_parts_and_one_half_through_a_slit() {
    let notch = |depth: f64| {
        format!(
            "{BLOCK}\nnotches = [{{ corner = [0.2, -1, -1], edge_u = [0, 0, 3], edge_v = [0, {depth}, 0] }}]"
        )
    };
    assert_parts(&body(&notch(3.0)), &[cuboid([4.0, 4.0, 3.0]), cuboid([2.0, 4.0, 3.0])]);
    // Two of four rows of bonds are cut; the sides of the slit lie on each other until it opens.
    let [area, volume] = cuboid([6.0, 4.0, 3.0]);
    assert_parts(&body(&notch(1.2)), &[[area + 2.0 * (2.0 * 3.0) * SPACING * SPACING, volume]]);
}

#[test]
fn a_body_that_turns_keeps_its_area_and_volume_on_either_side_of_a_cut() {
    let cut = "notches = [{ corner = [0.2, -1, -1], edge_u = [0, 0, 3], edge_v = [0, 3, 0] }]";
    let mut solver = body(&format!("{BLOCK}\n{cut}"));
    // Halves that turned by a radian about their own middles.
    let turn = |x: &DVec3| {
        let middle = DVec3::new(if x.x < 0.2 { 0.1 } else { 0.4 }, 0.2, 0.15);
        middle + DQuat::from_rotation_z(1.0) * (*x - middle)
    };
    let turned: Vec<DVec3> = solver.particles().position.iter().map(turn).collect();
    let velocity = solver.particles().velocity.clone();
    set_state(&mut solver, turned, velocity);
    assert_parts(&solver, &[cuboid([4.0, 4.0, 3.0]), cuboid([2.0, 4.0, 3.0])]);
}

#[test]
fn either_side_of_a_cut_moves_with_its_own_part() {
    let mut solver = body(&format!(
        "{BLOCK}\nnotches = [{{ corner = [0.2, -1, -1], edge_u = [0, 0, 3], edge_v = [0, 3, 0] }}]"
    ));
    let position = solver.particles().position.clone();
    let side = |x: &DVec3| if x.x < 0.2 { DVec3::NEG_X } else { DVec3::Y };
    let velocity: Vec<DVec3> = position.iter().map(side).collect();
    set_state(&mut solver, position, velocity);
    let MovingSurface { vertices, velocities, .. } = solver.surface().expect("solids know their surface");
    assert_eq!(velocities.len(), vertices.len());
    let of = |velocity: DVec3| velocities.iter().filter(|v| **v == velocity).count();
    let cut =
        vertices.iter().zip(&velocities).filter(|(x, v)| (x.x - 0.2).abs() < 1e-9 && **v == DVec3::Y).count();
    // Corners of a box of a x b x c cubes: all of (a + 1) (b + 1) (c + 1) but those inside.
    assert_eq!([of(DVec3::NEG_X), of(DVec3::Y)], [3 * 5 * 4 - 3 * 2, 5 * 5 * 4 - 3 * 3 * 2]);
    assert_eq!(cut, 5 * 4);
}

#[test]
fn a_volume_of_springs_has_the_surface_of_its_cells() {
    let section = format!(
        "method = 'mass-spring'\n[[bodies]]\ntype = 'volume'\nspacing = {SPACING}\ndensity = 1000\nyoung_modulus = 1e6\n{BLOCK}\n"
    );
    assert_parts(&solid(&section, DVec3::ZERO), &[cuboid([6.0, 4.0, 3.0])]);
}
