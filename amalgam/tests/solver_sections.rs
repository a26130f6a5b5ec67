//! Sections of scenes as the solvers themselves read them.

use std::{fs, path::Path};

use amalgam::{
    console::render,
    scene::{Scene, SceneError, Served},
};
use amalgam_solver_kit::World;

/// Has every local solver check its section; the number of particles, or the first participant's faults.
fn check(scene: &Scene) -> Result<Vec<usize>, SceneError> {
    let mut particles = Vec::new();
    for participant in &scene.participants {
        let Served::Locally(kind) = participant.served else { continue };
        let world = World {
            participant: participant.name.clone(),
            domain: (scene.domain.min, scene.domain.max),
            gravity: scene.domain.gravity,
            seed: scene.header.seed,
            obstacles: Vec::new(),
            ranks: amalgam_solver_kit::Ranks::alone(),
        };
        let solver = kind.program().create(&participant.section, &world).map_err(|faults| {
            let faults: Vec<_> = faults.into_iter().map(|fault| (fault.key, fault.message)).collect();
            scene.section_error(&participant.name, &faults)
        })?;
        particles.push(solver.particles().len());
    }
    Ok(particles)
}

fn scenes() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenes")
}

fn read(path: &Path, overrides: &[&str]) -> Scene {
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    Scene::read(path, &overrides).unwrap_or_else(|error| panic!("{}", render(&error, false)))
}

#[test]
fn the_scenes_of_the_project_are_right() {
    let mut checked = 0;
    for folder in [scenes(), scenes().join("small")] {
        for entry in fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                if let Err(error) = check(&read(&path, &[])) {
                    panic!("{}", render(&error, false));
                }
                checked += 1;
            }
        }
    }
    assert!(checked >= 3, "{checked} scenes");
}

#[test]
fn the_main_scene_is_as_large_as_it_says() {
    let particles = check(&read(&scenes().join("water-on-cloth.toml"), &[]));
    let particles = particles.unwrap_or_else(|error| panic!("{}", render(&error, false)));
    let [cloth, water] = particles.as_slice() else { panic!("{particles:?}") };
    assert!(*cloth >= 10_000 && *water >= 50_000, "{particles:?}");
}

/// Faults reported for the drop scene with values replaced.
fn faults(overrides: &[&str]) -> String {
    // The path is relative to the package's folder, where tests run, so that the report names no folder of
    // this machine.
    let scene = read("../scenes/small/drop.toml".as_ref(), overrides);
    render(&check(&scene).expect_err("the section is wrong"), false)
}

macro_rules! wrong {
    ($($name:ident: $overrides:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(faults(&$overrides));
        }
    )*};
}

wrong! {
    negative_mass: ["participants.cloth.settings.bodies[0].area_density=-0.4"];
    negative_density_of_water: ["participants.water.settings.rest_density=-1000"];
    several_faults_of_a_solver: [
        "participants.cloth.settings.bodies[0].spacing=0",
        "participants.cloth.settings.bodies[0].pinned=rim",
    ];
    unknown_key_of_a_solver: ["participants.water.settings.viscocity=0.1"];
    unknown_key_of_a_body: ["participants.cloth.settings.bodies[0].densty=0.1"];
    unknown_key_of_a_shape: ["participants.water.settings.shapes[0].raduis=0.1"];
    wrong_type_in_a_shape: ["participants.water.settings.shapes[0].radius=big"];
    unknown_type_of_body: ["participants.cloth.settings.bodies[0].type=rope"];
    unknown_method: ["participants.water.settings.method=magic"];
    wrong_type_for_a_solver: ["participants.cloth.settings.iterations_max=many"];
    shape_outside_of_the_domain: ["participants.water.settings.shapes[0].center=[0, 0, 5]"];
}
