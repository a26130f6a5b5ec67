//! Springs and bonds cut among ranks: every result is to the byte that of one rank, and snapshots go on with
//! any number.

mod support;

use support::ranks::{assert_goes_on, assert_same_on_ranks};

/// Two layers of cloth that fall onto each other under a drop of water: groups of one cloth, of two and with
/// water, and triangles and springs across ranks. The cloth has eight chunks of rows.
const CLOTH: &str = "
[scene]
name = 'cloth'
[domain]
min = [-0.15, -0.15, 0.0]
max = [0.15, 0.15, 0.32]
[time]
duration = 0.012
frame_interval = 0.006
dt_max = 1e-3
[[participants]]
name = 'cloth'
solver = 'solid'
[participants.settings]
method = 'mass-spring'
self_collision = true
[[participants.settings.bodies]]
type = 'sheet'
corner = [-0.1, -0.1, 0.1]
edge_u = [0.2, 0.0, 0.0]
edge_v = [0.0, 0.2, 0.0]
spacing = 0.004
area_density = 0.4
structural_stiffness = 300.0
damping_ratio = 0.1
pinned = 'edges'
[[participants.settings.bodies]]
type = 'sheet'
corner = [-0.062, -0.058, 0.105]
edge_u = [0.12, 0.0, 0.0]
edge_v = [0.0, 0.12, 0.0]
spacing = 0.004
area_density = 0.4
structural_stiffness = 300.0
damping_ratio = 0.1
velocity = [0.0, 0.0, -0.5]
[[participants]]
name = 'water'
solver = 'fluid'
[participants.settings]
method = 'sph'
spacing = 0.01
[[participants.settings.shapes]]
type = 'sphere'
center = [0.0, 0.0, 0.155]
radius = 0.04
velocity = [0.0, 0.0, -1.5]
[[probes]]
name = 'crossings'
quantity = 'crossings'
sheet = 'cloth'
of = 'water'
[output.surfaces.cloth]
";

/// A plate that a heavy ball breaks, and a block that flies against the plate. They have five chunks of rows.
const PLATE: &str = "
[scene]
name = 'plate'
seed = 3
[domain]
min = [-0.7, -1.0, -1.0]
max = [0.7, 1.0, 1.0]
[time]
duration = 0.012
frame_interval = 0.004
dt_max = 5e-4
[[participants]]
name = 'plate'
solver = 'solid'
[participants.settings]
method = 'peridynamics'
tolerance = 1e-6
self_collision = true
[[participants.settings.bodies]]
type = 'peridynamic'
shape = { type = 'box', min = [-0.2, -0.2, 0.0], max = [0.2, 0.2, 0.24] }
spacing = 0.03
density = 1200
young_modulus = 1e8
fracture_energy = 9
strength_scatter = 0.1
surface_correction = true
held = [{ min = [-1, -1, -1], max = [1, 1, 0.05] }]
[[participants.settings.bodies]]
type = 'peridynamic'
shape = { type = 'box', min = [-0.2, 0.3, 0.0], max = [0.2, 0.7, 0.2] }
spacing = 0.03
density = 1200
young_modulus = 1e8
fracture_energy = 9
threshold_rise = 0.25
velocity = [0, -20, 0]
[[participants]]
name = 'ball'
solver = 'solid'
[participants.settings]
method = 'peridynamics'
tolerance = 1e-6
[[participants.settings.bodies]]
type = 'peridynamic'
shape = { type = 'sphere', center = [0.0, -0.35, 0.12], radius = 0.12 }
spacing = 0.04
density = 24000
young_modulus = 1e9
velocity = [0, 10, 0]
[output.surfaces.plate]
";

#[test]
fn a_cloth_under_water_is_the_same_on_any_number_of_ranks() {
    let ([_, contacts], files) =
        assert_same_on_ranks(CLOTH, &["--set=coupling.method=merge-split"], "cloth", &[2, 3, 5, 8]);
    assert!(contacts["group_size_max"].as_u64() > Some(2), "{contacts}");
    assert!(files.len() > 4, "{:?}", files.keys());
}

#[test]
fn a_cloth_under_the_contact_law_is_the_same_on_ranks() {
    assert_same_on_ranks(CLOTH, &["--set=coupling.method=contact-law"], "cloth", &[3]);
}

/// Triangles whose corners are on several ranks, and a run that goes on from a checkpoint.
#[test]
fn a_cloth_that_touches_by_its_triangles_is_the_same_on_ranks() {
    let law = "[coupling]\nmethod = 'contact-law'\ntriangles = ['cloth']\n[time]";
    let cloth = CLOTH.replace("[time]", law);
    assert_same_on_ranks(&cloth, &[], "cloth", &[3]);
    assert_goes_on(&cloth, "cloth", 7);
}

#[test]
fn other_integrators_are_the_same_on_ranks() {
    for integrator in ["hht-alpha", "velocity-verlet"] {
        let integrator = format!("--set=participants.cloth.settings.integrator={integrator}");
        assert_same_on_ranks(CLOTH, &[&integrator, "--set=time.duration=0.006"], "cloth", &[4]);
    }
    let newton = "--set=participants.cloth.settings.newton_iterations=3";
    assert_same_on_ranks(CLOTH, &[newton, "--set=time.duration=0.006"], "cloth", &[3]);
}

#[test]
fn bodies_that_break_are_the_same_on_any_number_of_ranks() {
    let ([_, contacts], files) = assert_same_on_ranks(PLATE, &[], "plate", &[2, 3, 5, 8]);
    assert!(contacts["bonds_broken"].as_u64() > Some(1_000), "{contacts}");
    assert!(files.len() > 4, "{:?}", files.keys());
}

#[test]
fn bonds_in_rows_and_explicit_steps_are_the_same_on_ranks() {
    let rows = [0, 1].map(|body| format!("--set=participants.plate.settings.bodies[{body}].storage=rows"));
    assert_same_on_ranks(PLATE, &[&rows[0], &rows[1]], "plate", &[3]);
    let explicit = "--set=participants.plate.settings.integrator=velocity-verlet";
    assert_same_on_ranks(PLATE, &[explicit], "plate", &[2]);
}

#[test]
fn a_cloth_of_four_ranks_goes_on_with_others() {
    assert_goes_on(CLOTH, "cloth", 9);
}

#[test]
fn a_broken_plate_of_four_ranks_goes_on_with_others() {
    assert_goes_on(PLATE, "plate", 15);
}

/// Rigid bodies that fall onto each other, onto one that a script turns and onto a grain: ranks have parts of
/// each.
const BODIES: &str = "
[scene]
name = 'bodies'
[domain]
min = [-0.5, -0.5, -0.2]
max = [0.5, 0.5, 0.8]
[time]
duration = 0.3
frame_interval = 0.1
dt_max = 2e-3
[coupling]
method = 'contact-law'
[[coupling.contact]]
between = ['bodies', 'bodies']
friction = 0.4
[[participants]]
name = 'bodies'
solver = 'solid'
[participants.settings]
method = 'rigid'
[[participants.settings.bodies]]
type = 'rigid'
spacing = 0.03
density = 900.0
shape = { type = 'torus', center = [0.0, 0.02, 0.28], axis = [0.3, 0.0, 1.0], radius = 0.09, tube_radius = 0.035 }
velocity = [0.0, 0.0, -1.0]
[[participants.settings.bodies]]
type = 'rigid'
spacing = 0.03
density = 600.0
shape = { type = 'box', min = [-0.15, -0.15, 0.0], max = [0.15, 0.15, 0.06] }
pinned = 'all'
scripted = [{ part = 'all', angular_velocity = [0.0, 0.0, 6.0], center = [0.0, 0.0, 0.0], until = 0.2 }]
[[participants.settings.bodies]]
type = 'rigid'
spacing = 0.03
density = 900.0
shape = { type = 'cylinder', center = [0.02, 0.0, 0.14], axis = [1.0, 0.4, 0.1], radius = 0.05, height = 0.2 }
angular_velocity = [2.0, 0.0, 1.0]
[[participants]]
name = 'grain'
solver = 'solid'
[participants.settings]
method = 'grains'
[[participants.settings.bodies]]
type = 'points'
positions = [[0.0, 0.1, 0.1]]
mass = 0.1
radius = 0.03
[[probes]]
name = 'turn'
quantity = 'angular_momentum'
[[probes]]
name = 'energy'
quantity = 'energy'
[output.surfaces.bodies]
";

#[test]
fn rigid_bodies_are_the_same_on_any_number_of_ranks() {
    let ([_, contacts], files) = assert_same_on_ranks(BODIES, &[], "bodies", &[2, 3, 5, 8]);
    assert!(contacts["active_mean"].as_f64() > Some(2.0), "{contacts}");
    assert!(files.len() > 4, "{:?}", files.keys());
}

#[test]
fn rigid_bodies_of_four_ranks_go_on_with_others() {
    assert_goes_on(BODIES, "bodies", 80);
}
