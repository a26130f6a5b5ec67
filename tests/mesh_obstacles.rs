//! Obstacles from mesh files, through real services: what slides on a face, rolls in a hollow, and which
//! files are refused.

mod support;

use std::f64::consts::FRAC_PI_6;
use std::fs;

use amalgam::scene::Scene as Read;
use amalgam_coordinator::settings::{ContactMethod, ContactSettings, ObstacleSettings, ObstacleShape};
use amalgam_coordinator::{FrameField, Quantity};
use amalgam_particles::DVec3;
use amalgam_particles::shapes::Rotation;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_solid::SolidProgram;
use support::at_once::at_once;
use support::{GRAVITY, Scene, last, positions};

/// A mesh as the text of an OBJ file.
fn obj(vertices: &[DVec3], triangles: &[[usize; 3]]) -> String {
    let vertices = vertices.iter().map(|v| format!("v {:?} {:?} {:?}\n", v.x, v.y, v.z));
    let faces = triangles.iter().map(|[a, b, c]| format!("f {} {} {}\n", a + 1, b + 1, c + 1));
    vertices.chain(faces).collect()
}

/// A slab of 4 x 2 x 0.5 m below z = 0, whose faces are cut into many triangles.
fn slab() -> String {
    const N: [usize; 2] = [24, 12];
    let place = |i: usize, j: usize, k: usize| (k * (N[1] + 1) + j) * (N[0] + 1) + i;
    let (mut vertices, mut triangles) = (Vec::new(), Vec::new());
    for z in [0.0, -0.5] {
        for j in 0..=N[1] {
            for i in 0..=N[0] {
                vertices.push(DVec3::new(
                    -1.0 + 4.0 * i as f64 / N[0] as f64,
                    -1.0 + 2.0 * j as f64 / N[1] as f64,
                    z,
                ));
            }
        }
    }
    let mut quad = |[a, b, c, d]: [usize; 4]| triangles.extend([[a, b, c], [a, c, d]]);
    for (i, j) in (0..N[0]).flat_map(|i| (0..N[1]).map(move |j| (i, j))) {
        quad([place(i, j, 0), place(i + 1, j, 0), place(i + 1, j + 1, 0), place(i, j + 1, 0)]);
        quad([place(i, j, 1), place(i, j + 1, 1), place(i + 1, j + 1, 1), place(i + 1, j, 1)]);
    }
    for i in 0..N[0] {
        quad([place(i, 0, 1), place(i + 1, 0, 1), place(i + 1, 0, 0), place(i, 0, 0)]);
        let j = N[1];
        quad([place(i + 1, j, 1), place(i, j, 1), place(i, j, 0), place(i + 1, j, 0)]);
    }
    for j in 0..N[1] {
        quad([place(0, j + 1, 1), place(0, j, 1), place(0, j, 0), place(0, j + 1, 0)]);
        let i = N[0];
        quad([place(i, j, 1), place(i, j + 1, 1), place(i, j + 1, 0), place(i, j, 0)]);
    }
    obj(&vertices, &triangles)
}

const CORNERS: [DVec3; 6] = [DVec3::X, DVec3::NEG_X, DVec3::Y, DVec3::NEG_Y, DVec3::Z, DVec3::NEG_Z];
const FACES: [[usize; 3]; 8] =
    [[0, 2, 4], [2, 1, 4], [1, 3, 4], [3, 0, 4], [2, 0, 5], [1, 2, 5], [3, 1, 5], [0, 3, 5]];

/// A sphere of 1 m, each of an octahedron's faces cut into four, `times` times.
fn sphere(times: usize) -> String {
    let (mut vertices, mut faces) = (CORNERS.to_vec(), FACES.to_vec());
    for _ in 0..times {
        let mut cut = Vec::new();
        for [a, b, c] in faces {
            let mut middle = |a: usize, b: usize| {
                let point = (vertices[a] + vertices[b]).normalize();
                let known = vertices.iter().position(|&v| v == point);
                known.unwrap_or_else(|| {
                    vertices.push(point);
                    vertices.len() - 1
                })
            };
            let [ab, bc, ca] = [middle(a, b), middle(b, c), middle(c, a)];
            cut.extend([[a, ab, ca], [ab, b, bc], [ca, bc, c], [ab, bc, ca]]);
        }
        faces = cut;
    }
    obj(&vertices, &faces)
}

fn law(
    mut scene: Scene,
    shape: ObstacleShape,
    rotation: Option<Rotation>,
    inside: bool,
    friction: f64,
) -> Scene {
    scene.plan.domain.obstacles = vec![ObstacleSettings { name: "ground".into(), shape, rotation, inside }];
    scene.coupling(|coupling| {
        coupling.method = Some(ContactMethod::ContactLaw);
        coupling.contact = vec![ContactSettings {
            between: ["ground", "grains"].map(String::from),
            friction,
            ..Default::default()
        }];
    })
}

/// Down a slab of triangles a ball slides and rolls as down a plane, and as in a textbook.
#[test]
fn a_ball_on_a_mesh_moves_as_on_a_plane() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("slab.obj");
    fs::write(&file, slab()).expect("writes");
    let rotation = Rotation { axis: DVec3::Y, degrees: 30.0 };
    let (sin, cos) = FRAC_PI_6.sin_cos();
    let [along, up] = [DVec3::new(cos, 0.0, -sin), DVec3::new(sin, 0.0, cos)];
    // The slab turns about the middle of its box.
    let top = DVec3::new(1.0, 0.0, -0.25) + 0.25 * up;
    let start = top - 1.3 * along + 0.1 * up + DVec3::Y * 0.013;
    let grain = format!(
        "method = 'grains'\nspin = true\n[[bodies]]\ntype = 'points'\npositions = [[{:?}, {:?}, {:?}]]\nmass = 2.0\n\
         radius = 0.1\n",
        start.x, start.y, start.z
    );
    let (time, dt) = (0.7, 1e-3);
    for (friction, acceleration) in
        [(0.0, GRAVITY * sin), (0.1, GRAVITY * (sin - 0.1 * cos)), (0.5, GRAVITY * sin * 5.0 / 7.0)]
    {
        let run = |shape: ObstacleShape, rotation: Option<Rotation>| {
            let scene = law(Scene::new(time, dt), shape, rotation, false, friction);
            let mut simulation = scene.with("grains", SolidProgram, grain.clone()).run();
            positions(&mut simulation, "grains")[0]
        };
        let mesh =
            ObstacleShape::Mesh { file: file.display().to_string(), scale: 1.0, translation: DVec3::ZERO };
        let on_mesh = run(mesh, Some(rotation));
        let on_plane = run(ObstacleShape::Plane { point: top, normal: up }, None);
        let way = 0.5 * acceleration * time * time;
        let went = (on_mesh - start).dot(along);
        // Symplectic Euler is ahead by half of a step.
        assert!((went - way).abs() < acceleration * time * dt, "{friction}: {went} of {way}");
        assert!((on_mesh - start).dot(up).abs() < 1e-6, "{friction}: {}", (on_mesh - start).dot(up));
        assert!(on_mesh.distance(on_plane) < 1e-6, "{friction}: {}", on_mesh.distance(on_plane));
    }
}

/// A lattice of water that lies on an obstacle is at rest density, since SPH counts what the obstacle fills.
#[test]
fn water_on_an_obstacle_is_at_rest_density() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("slab.obj");
    fs::write(&file, slab()).expect("writes");
    let water = "walls = false\nsound_speed = 20.0\nspacing = 0.1\n[[shapes]]\ntype = 'box'\nmin = [0, -0.5, 0]\nmax = [2, 0.5, 0.6]\n";
    let plane = ObstacleShape::Plane { point: DVec3::ZERO, normal: DVec3::Z };
    let mesh = ObstacleShape::Mesh { file: file.display().to_string(), scale: 1.0, translation: DVec3::ZERO };
    let deep = ObstacleShape::Plane { point: DVec3::Z * -5.0, normal: DVec3::Z };
    // The slab ends where no particle feels it. Without an obstacle the lowest layer lacks an eighth.
    for (shape, expected) in [(plane, 1.0), (mesh, 1.0), (deep, 0.87)] {
        let mut scene = Scene::new(1e-5, 1e-5).with("water", FluidProgram, water);
        scene.plan.domain.gravity = DVec3::ZERO;
        scene.plan.domain.obstacles =
            vec![ObstacleSettings { name: "ground".into(), shape, rotation: None, inside: false }];
        let mut simulation =
            scene.coupling(|coupling| coupling.method = Some(ContactMethod::ContactLaw)).run();
        let frame = simulation.frames().expect("frames").swap_remove(0);
        let densities = frame.fields.iter().find(|(name, _)| name == "density").expect("a density");
        let FrameField::Scalar(densities) = &densities.1 else { panic!("a scalar") };
        let mut seen = 0;
        for (x, density) in frame.positions.iter().zip(densities) {
            let is_inner = (0.3..1.7).contains(&x.x) && x.y.abs() < 0.3 && x.z < 0.1;
            if is_inner {
                seen += 1;
                let compression = f64::from(*density) / 1000.0;
                assert!((compression - expected).abs() < 4e-3, "{compression}, not {expected}");
            }
        }
        assert!(seen > 50, "{seen}");
    }
}

/// Grains that fall and roll in hollow surfaces of triangles stay inside, and energy never rises.
#[test]
fn a_hollow_mesh_holds_what_is_inside() {
    let folder = tempfile::tempdir().expect("a folder");
    let deepest = 1e-4;
    at_once(&[(3, 0.0), (3, 0.4), (0, 0.0), (0, 0.4)], |&(times, friction)| {
        let file = folder.path().join(format!("hollow{times}-{friction}.obj"));
        fs::write(&file, sphere(times)).expect("writes");
        let shape =
            ObstacleShape::Mesh { file: file.display().to_string(), scale: 0.4, translation: DVec3::ZERO };
        let radius = 0.019;
        let grains = format!(
            "method = 'grains'\nspin = true\n[[bodies]]\ntype = 'grains'\nspacing = 0.04\nradius = {radius}\n\
             density = 1500.0\nshape = {{ type = 'box', min = [-0.12, -0.1, -0.1], max = [0.04, 0.06, 0.1] }}\n\
             velocity = [0.5, 0.3, 0.0]\n"
        );
        let scene = law(Scene::new(1.0, 1e-3), shape, None, true, friction)
            .with("grains", SolidProgram, grains)
            .probe("energy", Quantity::Energy {})
            .probe("overlap", Quantity::Overlap {});
        let (mut before, mut overlap, mut contacts) = (f64::INFINITY, 0.0f64, 0);
        let mut simulation = scene.run_with(|simulation, record| {
            let energy = last(simulation, "energy", 4);
            assert!(energy <= before, "{times} {friction}: {energy} J after {before} J");
            before = energy;
            overlap = overlap.max(last(simulation, "overlap", 1));
            contacts += record.active;
            assert_eq!(record.phantom, 0.0);
        });
        assert!(overlap < deepest && contacts > 10_000, "{times} {friction}: {overlap}, {contacts}");
        let farthest = positions(&mut simulation, "grains").iter().map(|x| x.length()).fold(0.0, f64::max);
        assert!(farthest < 0.4 - (1.0 - deepest) * radius, "{times} {friction}: {farthest}");
    });
}

/// Output of `amalgam check` for a scene whose obstacle is this file.
fn faults(folder: &std::path::Path, text: Option<&str>, shape: &str) -> String {
    let file = folder.join("rock.obj");
    match text {
        Some(text) => fs::write(&file, text).expect("writes"),
        None => fs::remove_file(&file).expect("removes"),
    }
    let scene = format!(
        "[scene]\nname = \"rocks\"\n[domain]\nmin = [-1, -1, -1]\nmax = [1, 1, 1]\n[[domain.obstacles]]\nname = \"rock\"\n\
         shape = {{ type = \"mesh\", {shape} }}\n[time]\nduration = 1.0\n[coupling]\nmethod = \"contact-law\"\n\
         [[participants]]\nname = \"grains\"\nsolver = \"solid\"\n"
    );
    let path = folder.join("rocks.toml");
    fs::write(&path, scene).expect("writes");
    match Read::read(&path, &[]) {
        Ok(scene) => {
            // Wherever the scene is read next, it finds the file.
            assert!(scene.effective_text().contains(&file.display().to_string()));
            String::new()
        }
        Err(error) => amalgam::console::render(&error, false),
    }
}

#[test]
fn wrong_meshes_are_refused_with_the_reason_and_the_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let named = "file = \"rock.obj\"";
    let whole = obj(&CORNERS, &FACES);
    assert_eq!(faults(folder.path(), Some(&whole), named), "");
    let flat: Vec<DVec3> = CORNERS.iter().map(|v| DVec3::new(v.x + 0.1 * v.z, v.y, 0.0)).collect();
    let inwards: Vec<[usize; 3]> = FACES.iter().map(|&[a, b, c]| [a, c, b]).collect();
    let scaled = |scale: &str| format!("{named}, scale = {scale}");
    for (text, shape, reason) in [
        (Some(obj(&CORNERS, &FACES[1..])), named.to_string(), "has a hole: 3 edges"),
        (Some(obj(&flat, &FACES)), named.to_string(), "encloses no volume"),
        (Some(obj(&CORNERS, &inwards)), named.to_string(), "is inside out"),
        (Some(obj(&CORNERS, &[])), named.to_string(), "holds no triangle"),
        (
            Some(whole.replacen("1.0", "nan", 1)),
            named.to_string(),
            "every coordinate must be a finite number",
        ),
        (Some(whole.replacen("f 1", "f 99", 1)), named.to_string(), "is no good OBJ"),
        (Some(whole.clone()), scaled("0.0"), "must be above 0, for example 0.001 for millimetres"),
        (Some(whole.clone()), scaled("-1.0"), "must be above 0"),
        (Some(whole.clone()), scaled("nan"), "must be above 0"),
        (Some(whole.clone()), scaled("1e20"), "write a smaller scale"),
        (Some(whole.clone()), scaled("1e300"), "write a smaller scale"),
        (Some(whole.clone()), scaled("1e-200"), "encloses no volume"),
        (Some(whole.clone()), format!("{named}, translation = [1e15, 0, 0]"), "write a smaller scale"),
        (Some(whole), "file = \"rock.off\"".to_string(), "neither OBJ, STL nor PLY"),
        (None, named.to_string(), "write a path relative to the scene's file"),
    ] {
        let error = faults(folder.path(), text.as_deref(), &shape);
        let text = error.split_whitespace().collect::<Vec<_>>().join(" ").replace(" │ ", " ");
        assert!(text.contains(reason), "{shape}: {reason:?} is not in {error}");
        assert!(error.contains("rocks.toml:8:"), "{error}");
    }
}
