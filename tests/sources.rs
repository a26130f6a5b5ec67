//! Particles that appear and disappear during a run: the coordinator takes them over, and they collide.

mod support;

use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_solid::SolidProgram;
use support::Scene;

/// A disc emits five layers onto a sheet; a drop somewhere else falls into a sink.
#[test]
fn a_jet_falls_on_a_sheet_and_a_drop_into_a_sink() {
    let sheet = "method = 'mass-spring'\n[[bodies]]\ntype = 'sheet'\ncorner = [-0.2, -0.2, 0]\nedge_u = [0.4, 0, 0]\n\
                 edge_v = [0, 0.4, 0]\nspacing = 0.04\narea_density = 5.0\nstructural_stiffness = 1000.0\n\
                 damping_ratio = 1.0\npinned = 'edges'\n";
    let water = "method = 'sph'\nspacing = 0.04\nsound_speed = 20.0\nwalls = false\n[[shapes]]\ntype = 'box'\n\
                 min = [2, 2, 1]\nmax = [2.08, 2.08, 1.08]\n[[emitters]]\ncenter = [0, 0, 0.3]\naxis = [0, 0, -1]\n\
                 radius = 0.08\nspeed = 2.0\nuntil = 0.1\n[[sinks]]\nmin = [1, 1, 0]\nmax = [3, 3, 0.9]\n";
    let (mut contacts, mut steps) = (0, 0);
    let mut simulation = Scene::new(0.3, 1e-3)
        .with("sheet", SolidProgram, sheet)
        .with("water", FluidProgram, water)
        .run_with(|_, record| {
            contacts += record.active;
            steps += 1;
        });
    assert!(contacts > 50, "{contacts} active pairs in {steps} steps: the jet misses the sheet");
    let frames = simulation.frames().unwrap_or_else(|error| panic!("{error}"));
    let water = frames.iter().find(|frame| frame.name == "water").expect("water");
    // The drop of eight is gone; five layers of the 13 lattice points within two spacings are there.
    let ids = &water.id;
    assert!(ids.iter().copied().eq(8..8 + 5 * 13), "{ids:?}");
    assert!(water.positions.iter().all(|x| x.is_finite() && x.z < 0.3));
    simulation.finish().unwrap_or_else(|error| panic!("{error}"));
}
