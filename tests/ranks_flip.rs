//! FLIP cut among ranks: every result is to the byte that of one rank, and snapshots go on with any number.

mod support;

use support::process::{Folder, repository, stderr};
use support::ranks::{assert_file_is_same_on_ranks, assert_goes_on, assert_same_on_ranks};

/// A column of water that breaks in a tank of 40 layers of cells, in steps of up to three sub-steps.
const DAM: &str = "
[scene]
name = 'dam'
[domain]
min = [0.0, 0.0, 0.0]
max = [1.6, 1.2, 2.0]
[time]
duration = 0.25
frame_interval = 0.125
[[participants]]
name = 'water'
solver = 'fluid'
[participants.settings]
method = 'flip'
spacing = 0.025
substeps_max = 3
[[participants.settings.shapes]]
type = 'box'
min = [0.0, 0.0, 0.0]
max = [0.5, 1.2, 1.6]
";

/// Water that falls on a cloth with pinned edges, with a jet from above and a drain at a side: groups of both
/// that move, in slabs of few layers.
const CLOTH: &str = "
[scene]
name = 'cloth'
[domain]
min = [0.0, 0.0, 0.0]
max = [0.4, 0.4, 0.8]
[time]
duration = 0.12
frame_interval = 0.04
dt_max = 4e-3
[[participants]]
name = 'cloth'
solver = 'solid'
[participants.settings]
method = 'mass-spring'
[[participants.settings.bodies]]
type = 'sheet'
corner = [0.05, 0.05, 0.3]
edge_u = [0.3, 0.0, 0.0]
edge_v = [0.0, 0.3, 0.05]
spacing = 0.02
area_density = 1.0
structural_stiffness = 500.0
damping_ratio = 0.1
pinned = 'edges'
[[participants]]
name = 'water'
solver = 'fluid'
[participants.settings]
method = 'flip'
spacing = 0.02
substeps_max = 2
[[participants.settings.shapes]]
type = 'box'
min = [0.1, 0.1, 0.38]
max = [0.3, 0.3, 0.56]
velocity = [0.0, 0.0, -1.0]
[[participants.settings.emitters]]
center = [0.2, 0.2, 0.7]
axis = [0.0, 0.0, -1.0]
radius = 0.06
speed = 1.5
until = 0.1
[[participants.settings.sinks]]
min = [0.0, 0.0, 0.0]
max = [0.4, 0.4, 0.32]
[[probes]]
name = 'energy'
quantity = 'energy'
";

#[test]
fn a_dam_break_is_the_same_on_any_number_of_ranks() {
    let (_, files) = assert_same_on_ranks(DAM, &[], "water", &[2, 3, 5, 8]);
    assert!(files.len() > 2, "{:?}", files.keys());
}

#[test]
fn water_on_a_cloth_is_the_same_on_any_number_of_ranks() {
    let ([_, contacts], _) = assert_same_on_ranks(CLOTH, &[], "water", &[2, 3, 5, 8]);
    assert!(contacts["group_size_max"].as_u64() > Some(2), "{contacts}");
}

#[test]
fn the_contact_law_is_the_same_on_ranks() {
    assert_same_on_ranks(
        CLOTH,
        &["--set=coupling.method=contact-law", "--set=time.duration=0.06"],
        "water",
        &[4],
    );
}

/// Honey that sticks to the walls, and honey on a cloth, in sub-steps.
#[test]
fn viscous_fluids_are_the_same_on_any_number_of_ranks() {
    let settings =
        ["viscosity=20.0", "no_slip=true"].map(|value| format!("--set=participants.water.settings.{value}"));
    let [viscosity, no_slip] = settings.each_ref().map(String::as_str);
    assert_same_on_ranks(DAM, &[viscosity, no_slip], "water", &[2, 3, 5, 8]);
    assert_same_on_ranks(CLOTH, &[viscosity], "water", &[3, 8]);
}

#[test]
fn water_beside_obstacles_is_the_same_on_ranks() {
    let obstacles = "--set=domain.obstacles=[{ name = 'ball', shape = { type = 'sphere', center = [0.8, 0.6, 0.2], radius = 0.2 } }, \
                     { name = 'slope', shape = { type = 'plane', point = [1.6, 0.0, 0.3], normal = [-1.0, 0.0, 2.0] } }]";
    let law = "--set=coupling.method=contact-law";
    let ([_, contacts], _) = assert_same_on_ranks(DAM, &[law, obstacles], "water", &[3, 8]);
    assert_eq!(contacts["active_mean"].as_f64(), Some(0.0), "{contacts}");
}

#[test]
fn water_over_a_bed_is_the_same_on_ranks() {
    let scene = repository("scenes/small/flip-bed.toml");
    assert_file_is_same_on_ranks(&scene, &["--set=time.duration=0.3"], "water", &[3, 6]);
}

#[test]
fn a_snapshot_of_four_ranks_goes_on_with_others() {
    assert_goes_on(CLOTH, "water", 15);
}

#[test]
fn what_cannot_be_cut_says_what_to_write() {
    let refused = |arguments: &[&str]| {
        let folder = Folder::new();
        let scene = folder.scene(DAM);
        let output = folder.run(&scene, arguments);
        assert!(!output.status.success(), "{arguments:?}");
        stderr(&output)
    };
    let many = refused(&["--quiet", "--ranks=water=21"]);
    assert!(many.contains("among 20 ranks at most") && many.contains("write fewer ranks"), "{many}");
}
