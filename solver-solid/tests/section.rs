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
    assert_eq!(sheet.never_collide().len(), 22 + 16 + 14);
    assert!(sheet.never_collide().contains(&(ParticleId(0), ParticleId(6))));
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
    assert!(solid.never_collide().contains(&(ParticleId(15), ParticleId(16))));
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
            "method = \"mass-spring\"\ntolerance = 0\nmax_iterations = 0",
            vec!["tolerance", "max_iterations", "bodies"],
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
    assert!(solid.never_collide().is_empty());
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
