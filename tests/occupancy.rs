//! Occupied cells: a cell that holds a particle of anyone is no air in the projection.

mod support;

use amalgam_particles::DVec3;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_solid::SolidProgram;
use support::{Scene, positions};

const CELL: f64 = 0.05;
/// Lower and upper end of the water [m]; a bed of four cells is below.
const WATER: (f64, f64) = (0.2, 0.6);

/// Water on a bed of pinned particles, one in each cell, too small to touch it: by how many cells its centre
/// has sunk after 0.25 s, and bytes of occupancy a step.
fn on_a_bed(occupancy: bool) -> (f64, f64) {
    let bed = "method = 'mass-spring'\nself_collision = false\n[[bodies]]\ntype = 'volume'\n\
               shape = { type = 'box', min = [0.025, 0.025, 0.025], max = [0.375, 0.175, 0.175] }\n\
               spacing = 0.05\ndensity = 2000.0\nstiffness = 1e5\nradius = 0.005\npinned = 'all'\n";
    let water = format!(
        "method = 'flip'\njitter = 0.0\nspacing = 0.025\noccupancy = {occupancy}\n[[shapes]]\ntype = 'box'\nmin = [0, 0, {}]\n\
         max = [0.4, 0.2, {}]\n",
        WATER.0, WATER.1
    );
    let mut scene = Scene::new(0.25, 2e-3).with("bed", SolidProgram, bed).with("water", FluidProgram, water);
    scene.plan.domain.min = DVec3::ZERO;
    scene.plan.domain.max = DVec3::new(0.4, 0.2, 0.8);
    let mut simulation = scene.run();
    let water = positions(&mut simulation, "water");
    let height = water.iter().map(|x| x.z).sum::<f64>() / water.len() as f64;
    let sunk = (0.5 * (WATER.0 + WATER.1) - height) / CELL;
    (sunk, simulation.summary().wire.occupancy_bytes_mean)
}

#[test]
fn water_rests_on_cells_that_others_occupy() {
    let (sunk, bytes) = on_a_bed(true);
    assert!(sunk.abs() < 0.1, "the water sinks by {sunk} cells");
    // 128 cells of the bed and 256 of the water: both ways, and for each of two stages at most.
    assert!(bytes > 384.0 && bytes < 8.0 * 384.0, "{bytes} bytes a step");
    // The comparison: the bed's cells are air, and the water falls into them.
    let (sunk, bytes) = on_a_bed(false);
    assert!(sunk > 2.0, "without occupancy the water sinks by {sunk} cells only");
    assert_eq!(bytes, 0.0);
}
