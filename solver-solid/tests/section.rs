//! Reading the section: what bodies are made, and which faults are reported where.

mod support;

use amalgam_particles::{DVec3, ParticleId};
use amalgam_solver_kit::{Solver, SolverProgram};
use amalgam_solver_solid::SolidProgram;
use support::{faults, solid, world};

const SHEET: &str = "method = \"mass-spring\"\n[[bodies]]\ntype = \"sheet\"\ncorner = [0, 0, 1]\nedge_u = [0.4, 0, 0]\nedge_v = [0, 0.21, 0]\n\
    spacing = 0.1\narea_density = 2.0\nstructural_stiffness = 100\n";

#[test]
fn a_sheet_is_a_lattice_of_its_mass() {
    let sheet = solid(SHEET, DVec3::ZERO);
    let particles = sheet.particles();
    assert_eq!(particles.len(), 5 * 3);
    assert_eq!(particles.id[7], ParticleId(7));
    assert!((particles.position[6] - DVec3::new(0.1, 0.105, 1.0)).length() < 1e-15);
    assert!((particles.mass.iter().sum::<f64>() - 2.0 * 0.4 * 0.21).abs() < 1e-15);
    assert!((particles.mass[6] / particles.mass[0] - 4.0).abs() < 1e-14);
    assert!(particles.radius.iter().all(|r| (r - 0.75 * 0.105).abs() < 1e-15));
    assert!(sheet.self_colliding());
    assert_eq!(sheet.triangles().len(), 2 * 4 * 2);
    // 4 x 3 + 5 x 2 structural, 2 x 8 shear, 3 x 3 + 5 x 1 bending.
    assert_eq!(sheet.joined_pairs().len(), 22 + 16 + 14);
    assert!(sheet.joined_pairs().contains(&(ParticleId(0), ParticleId(6))));
    assert!(sheet.triangles().contains(&[ParticleId(0), ParticleId(1), ParticleId(6)]));
}

#[test]
fn parts_of_a_sheet_are_pinned_by_name() {
    for (pinned, count) in [
        ("\"none\"", 0),
        ("\"corners\"", 4),
        ("\"edges\"", 12),
        ("\"edge_u0\"", 3),
        ("\"edge_v1\"", 5),
        ("[\"edge_u1\", \"edge_v0\"]", 7),
        ("[]", 0),
    ] {
        let sheet = solid(&format!("{SHEET}pinned = {pinned}"), DVec3::ZERO);
        assert_eq!(sheet.particles().immovable.iter().filter(|&&p| p).count(), count, "{pinned}");
    }
    let sheet = solid(&format!("{SHEET}pinned = \"edge_u1\""), DVec3::ZERO);
    assert!(sheet.particles().immovable[4] && !sheet.particles().immovable[0]);
}

#[test]
fn bodies_follow_one_another() {
    let two = format!(
        "{SHEET}[[bodies]]\ntype = \"points\"\npositions = [[0, 0, 5], [1, 0, 5]]\nmass = [1, 2]\nradius = 0.1\nsprings = [{{ a = 1, b = 0, stiffness = 5 }}]"
    );
    let solid = solid(&two, DVec3::ZERO);
    assert_eq!(solid.particles().mass[15..], [1.0, 2.0]);
    assert!(solid.joined_pairs().contains(&(ParticleId(15), ParticleId(16))));
}

#[test]
fn the_program_describes_and_creates() {
    assert_eq!(SolidProgram.describe().name, "solid");
    let created = SolidProgram.create(SHEET, &world(DVec3::ZERO)).map(|solid| solid.particles().len());
    assert_eq!(created, Ok(15));
}

/// Replaces or adds lines of a good section and gives the keys of the faults.
fn keys(section: &str) -> Vec<String> {
    faults(section).into_iter().map(|fault| fault.key).collect()
}

#[test]
fn faults_name_their_keys() {
    let cases = [
        ("method = \"springs\"", vec!["method"]),
        ("method = \"mass-spring\"", vec!["bodies"]),
        (
            "method = \"mass-spring\"\ntolerance = 0\niterations_max = 0",
            vec!["tolerance", "iterations_max", "bodies"],
        ),
        ("method = \"mass-spring\"\nself_colision = true", vec!["self_colision"]),
        ("method = \"mass-spring\"\n[[bodies]]\nspacing = 1", vec!["bodies[0].type"]),
        ("method = \"mass-spring\"\n[[bodies]]\ntype = \"sheet\"", vec!["bodies[0]"]),
    ];
    for (section, expected) in cases {
        assert_eq!(keys(section), expected, "{section}");
    }
    let replaced = |old: &str, new: &str| SHEET.replace(old, new);
    assert_eq!(keys(&replaced("spacing = 0.1", "spacing = \"wide\"")), ["bodies[0].spacing"]);
    assert_eq!(
        keys(&replaced("spacing = 0.1", "spacing = -0.1\nradius = -1")),
        ["bodies[0].spacing", "bodies[0].radius"]
    );
    assert_eq!(keys(&replaced("spacing = 0.1", "spacing = nan\nradius = 0.01")), ["bodies[0].spacing"]);
    assert_eq!(keys(&replaced("spacing = 0.1", "spacing = 1e-9")), ["bodies[0].spacing"]);
    assert_eq!(keys(&replaced("[0, 0.21, 0]", "[0.3, 0, 0]")), ["bodies[0].edge_v"]);
    assert_eq!(keys(&replaced("[0, 0.21, 0]", "[0.3, 0]")), ["bodies[0].edge_v"]);
    for (line, key) in [
        ("radius = 0.13", "radius"),
        ("pinned = \"corner\"", "pinned"),
        ("young_modulus = 1e6", "structural_stiffness"),
        ("scripted = [{ part = \"edge_u0\", angular_velocity = [0, 0, 1] }]", "scripted[0].angular_velocity"),
        ("scripted = [{ part = \"edge_u0\", from = 2, until = 1 }]", "scripted[0].until"),
        ("scripted = [{ part = \"top\" }]", "scripted[0].part"),
        ("attached_mass = [{ part = \"edge_u0\", mass = 0 }]", "attached_mass[0].mass"),
        ("pinned = [{ type = \"box\", min = [5, 5, 5], max = [6, 6, 6] }]", "pinned[0]"),
        ("pinned = { type = \"sphere\", center = [0, 0, 0], radius = -1 }", "pinned.radius"),
        ("pinned = 3", "pinned"),
        ("shear_stiffness = -1", "shear_stiffness"),
        ("bending_stiffness = inf", "bending_stiffness"),
        ("damping = 1\ndamping_ratio = 0.1", "damping_ratio"),
        ("velocity = [nan, 0, 0]", "velocity"),
        ("foundation = { stiffness = -1 }", "foundation.stiffness"),
        ("foundation = { stiffness = 1, damp = 2 }", "foundation.damp"),
    ] {
        assert_eq!(keys(&format!("{SHEET}{line}")), [format!("bodies[0].{key}")], "{line}");
    }
}

#[test]
fn faults_of_points_name_their_keys() {
    let points = |lines: &str| format!("method = \"mass-spring\"\n[[bodies]]\ntype = \"points\"\n{lines}");
    let good = "positions = [[0, 0, 0], [1, 0, 0], [1, 0, 0]]\n";
    for (lines, expected) in [
        ("positions = []\nmass = 1\nradius = 1".to_string(), vec!["positions"]),
        (format!("{good}mass = [1, 2]\nradius = 0"), vec!["mass", "radius"]),
        (format!("{good}mass = [1, 2, -3]\nradius = 1\npinned = [3]"), vec!["mass[2]", "pinned[0]"]),
        (format!("{good}mass = 1\nradius = 1\nvelocities = [[0, 0, 1]]"), vec!["velocities"]),
        (format!("{good}mass = \"heavy\"\nradius = 1"), vec!["mass"]),
        (
            format!(
                "{good}mass = 1\nradius = 1\nsprings = [{{ a = 0, b = 7, stiffness = 1 }}, {{ a = 1, b = 1, stiffness = -1 }}]"
            ),
            vec!["springs[0].b", "springs[1].stiffness", "springs[1].b"],
        ),
        (
            format!(
                "{good}mass = 1\nradius = 1\nsprings = [{{ a = 1, b = 2, stiffness = 1, rest_length = 1 }}]"
            ),
            vec!["springs[0].rest_length"],
        ),
        (format!("{good}mass = 1\nradius = 1\nsprings = [{{ a = 0, b = 1 }}]"), vec!["springs[0]"]),
        ("positions = [[0, 0, 2e12]]\nmass = 1\nradius = 1".to_string(), vec!["bodies"]),
    ] {
        let expected: Vec<String> = expected
            .iter()
            .map(|key| if *key == "bodies" { key.to_string() } else { format!("bodies[0].{key}") })
            .collect();
        assert_eq!(keys(&points(&lines)), expected, "{lines}");
    }
}

#[test]
fn grains_fill_a_shape_and_fall() {
    let grains = |lines: &str| {
        format!(
            "method = \"mass-spring\"\n[[bodies]]\ntype = \"grains\"\n{lines}\nshape = {{ type = \"box\", min = [0, 0, 0], max = [0.2, 0.1, 0.3] }}"
        )
    };
    let good = "spacing = 0.1\ndensity = 1500\nvelocity = [0, 1, 0]";
    let mut solid = solid(&grains(good), DVec3::new(0.0, 0.0, -10.0));
    assert_eq!(solid.particles().len(), 6);
    assert!((solid.particles().mass.iter().sum::<f64>() - 1500.0 * 0.2 * 0.1 * 0.3).abs() < 1e-12);
    assert_eq!(solid.particles().radius[0], 0.05);
    assert!(solid.joined_pairs().is_empty());
    support::step(&mut solid, 0.01);
    assert!(solid.particles().velocity.iter().all(|v| (*v - DVec3::new(0.0, 1.0, -0.1)).length() < 1e-14));

    assert_eq!(keys(&grains("spacing = 0\ndensity = -1")), ["bodies[0].spacing", "bodies[0].density"]);
    assert_eq!(keys(&grains("spacing = 0.1\ndensity = 1\nradius = 0.06")), ["bodies[0].radius"]);
    assert_eq!(keys(&grains("spacing = 1e-6\ndensity = 1")), ["bodies[0].spacing"]);
    let inside_out = grains(good).replace("0.3]", "-0.3]");
    assert_eq!(keys(&inside_out), ["bodies[0].shape.max"]);
    let turned = grains(&format!("{good}\nrotation = {{ axis = [0, 0, 0], degrees = 30 }}"));
    assert_eq!(keys(&turned), ["bodies[0].rotation.axis"]);
}

const VOLUME: &str = "method = \"mass-spring\"\n[[bodies]]\ntype = \"volume\"\nspacing = 0.1\ndensity = 500\n\
    shape = { type = \"box\", min = [0, 0, 0], max = [0.3, 0.2, 0.1] }\nyoung_modulus = 1e6\n";

#[test]
fn a_volume_is_a_lattice_of_its_mass() {
    let block = solid(VOLUME, DVec3::ZERO);
    let particles = block.particles();
    assert_eq!(particles.len(), 4 * 3 * 2);
    assert!((particles.mass.iter().sum::<f64>() - 500.0 * 0.3 * 0.2 * 0.1).abs() < 1e-12);
    assert!(
        particles.position[0].length() < 1e-15 && (particles.position[1] - DVec3::X * 0.1).length() < 1e-15
    );
    // Edges along x, y and z, and the diagonals of faces across z, y and x.
    let edges = 3 * 3 * 2 + 4 * 2 * 2 + 4 * 3;
    let diagonals = 2 * (3 * 2 * 2 + 3 * 3 + 4 * 2);
    assert_eq!(block.joined_pairs().len(), edges + diagonals);
    // Two triangles for each outer face.
    assert_eq!(block.triangles().len(), 2 * 2 * (6 + 3 + 2));
    let volume: f64 = block
        .triangles()
        .iter()
        .map(|t| t.map(|id| particles.position[id.0 as usize]))
        .map(|[a, b, c]| a.dot(b.cross(c)) / 6.0)
        .sum();
    assert!((volume - 0.3 * 0.2 * 0.1).abs() < 1e-15, "faces look outwards: {volume}");
}

#[test]
fn a_body_spins_about_its_middle_and_may_be_heavier_in_part() {
    let block = solid(
        &format!(
            "{VOLUME}velocity = [0, 0, 1]\nangular_velocity = [0, 0, 2]\n\
             attached_mass = [{{ part = {{ type = \"sphere\", center = [0, 0, 0], radius = 0.05 }}, mass = 7 }}]"
        ),
        DVec3::ZERO,
    );
    let particles = block.particles();
    for (x, v) in particles.position.iter().zip(&particles.velocity) {
        let arm = *x - DVec3::new(0.15, 0.1, 0.05);
        assert!((*v - DVec3::new(-2.0 * arm.y, 2.0 * arm.x, 1.0)).length() < 1e-14);
    }
    assert!((particles.mass[0] - 7.0 - 500.0 * 1e-3 / 8.0).abs() < 1e-12);
}

#[test]
fn faults_of_volumes_name_their_keys() {
    for (from, to, key) in [
        ("young_modulus = 1e6", "", "bodies[0]"),
        ("young_modulus = 1e6", "young_modulus = 1e6\nstiffness = 3", "bodies[0].stiffness"),
        ("density = 500", "density = 0", "bodies[0].density"),
        ("spacing = 0.1", "spacing = 1e-5", "bodies[0].spacing"),
        ("0.1] }", "-0.1] }", "bodies[0].shape.max"),
        ("young_modulus = 1e6", "young_modulus = 1e6\nradius = 0.09", "bodies[0].radius"),
        (
            "young_modulus = 1e6",
            "young_modulus = 1e6\nrotation = { axis = [0, 0, 0], degrees = 3 }",
            "bodies[0].rotation.axis",
        ),
        (
            "{ type = \"box\", min = [0, 0, 0], max = [0.3, 0.2, 0.1] }",
            "{ type = \"mesh\", file = \"no.obj\" }",
            "bodies[0].shape.file",
        ),
        (
            "{ type = \"box\", min = [0, 0, 0], max = [0.3, 0.2, 0.1] }",
            "{ type = \"points\", positions = [[0, 0, 0]] }",
            "bodies[0].shape",
        ),
    ] {
        assert_eq!(keys(&VOLUME.replace(from, to)), [key], "{to}");
    }
    let skewed = SHEET.replace("[0, 0.21, 0]", "[0.1, 0.21, 0]").replace(
        "area_density = 2.0\nstructural_stiffness = 100",
        "young_modulus = 1e6\nthickness = 0.01\ndensity = 200",
    );
    assert_eq!(keys(&skewed), ["bodies[0].edge_v"]);
    assert_eq!(keys(&SHEET.replace("area_density = 2.0\n", "")), ["bodies[0]"]);
}

/// A plate of 4 x 4 x 1 cells without the 2 x 2 in its middle, where it has an inner wall.
#[test]
fn a_volume_with_a_hole_has_an_inner_wall() {
    let hole = "{ type = 'box', min = [0.1, 0.1, -1], max = [0.3, 0.3, 1] }";
    let section = format!(
        "method = 'mass-spring'\n[[bodies]]\ntype = 'volume'\nshape = {{ type = 'difference', from = {{ type = 'box', \
         min = [0, 0, 0], max = [0.4, 0.4, 0.1] }}, subtract = [{hole}] }}\nspacing = 0.1\ndensity = 1000\nstiffness = 10\n\
         pinned = {hole}"
    );
    let plate = solid(&section, DVec3::ZERO);
    let particles = plate.particles();
    assert_eq!(particles.len(), 2 * (25 - 1));
    assert!((particles.mass.iter().sum::<f64>() - 12.0).abs() < 1e-12);
    // Two faces of 12 squares, and walls of 16 and 8.
    assert_eq!(plate.triangles().len(), 2 * (2 * 12 + 16 + 8));
    let at = |id: ParticleId| particles.position[id.0 as usize];
    // The surface is closed: each edge belongs to two triangles that run through it in opposite directions.
    let mut edges: Vec<[u64; 2]> = Vec::new();
    for [a, b, c] in plate.triangles() {
        edges.extend([[a.0, b.0], [b.0, c.0], [c.0, a.0]]);
    }
    edges.sort_unstable();
    assert!(edges.iter().all(|&[a, b]| edges.binary_search(&[b, a]).is_ok()));
    // Its volume by Gauss is that of the cells: outwards, at the hole too.
    let volume: f64 = plate.triangles().iter().map(|&[a, b, c]| at(a).dot(at(b).cross(at(c))) / 6.0).sum();
    assert!((volume - 0.012).abs() < 1e-12, "{volume}");
    // No spring crosses the hole.
    let middle = DVec3::new(0.2, 0.2, 0.05);
    for (a, b) in plate.joined_pairs() {
        assert!((0.5 * (at(a) + at(b)) - middle).truncate().abs().max_element() > 0.099);
    }
    // What lies on the hole's wall is in the part of that shape.
    assert_eq!(particles.immovable.iter().filter(|&&held| held).count(), 16);
}
