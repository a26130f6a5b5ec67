//! Surfaces of triangles under the contact law, through real services: a flat sheet is smooth, a sheet with holes
//! between its spheres is closed, and the bits do not depend on what is asked for.

mod support;

use amalgam_coordinator::Quantity;
use amalgam_coordinator::settings::{ContactMethod, ContactSettings};
use amalgam_particles::DVec3;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_solid::SolidProgram;
use support::{GRAVITY, Scene, last, positions};

/// The contact law between `sheet` and `other`, with triangles of the sheet or not.
fn law(scene: Scene, triangles: bool, other: &str, friction: f64) -> Scene {
    scene.coupling(|coupling| {
        coupling.method = Some(ContactMethod::ContactLaw);
        coupling.contact =
            vec![ContactSettings { between: ["sheet".into(), other.into()], friction, ..Default::default() }];
        if triangles {
            coupling.triangles = vec!["sheet".into()];
        }
    })
}

/// A sheet of 4 x 1 m in the plane z = 0 with particles every 0.1 m.
fn sheet(radius: f64, more: &str) -> String {
    format!(
        "method = 'mass-spring'\n[[bodies]]\ntype = 'sheet'\ncorner = [-1, -0.5, 0]\nedge_u = [4, 0, 0]\n\
         edge_v = [0, 1, 0]\nspacing = 0.1\nradius = {radius}\narea_density = 1.0\nstructural_stiffness = 1000.0\n{more}\n"
    )
}

/// Grains of radius 0.05.
fn grains(places: &[DVec3], velocity: DVec3, spin: bool) -> String {
    let list = |v: &DVec3| format!("[{:?}, {:?}, {:?}]", v.x, v.y, v.z);
    let all = |list: Vec<String>| list.join(", ");
    format!(
        "method = 'grains'\nspin = {spin}\n[[bodies]]\ntype = 'points'\npositions = [{}]\nvelocities = [{}]\nmass = 1.0\n\
         radius = 0.05\n",
        all(places.iter().map(list).collect()),
        all(vec![list(&velocity); places.len()]),
    )
}

/// On a slope of 30 degrees a grain slides and rolls as in a textbook, wherever the corners are.
#[test]
fn a_flat_sheet_is_smooth() {
    let (time, dt) = (0.6, 1e-3);
    let (sin, cos) = 30f64.to_radians().sin_cos();
    // Radii of half of the spacing: between the spheres a grain could sink.
    let slide = |triangles: bool, friction: f64, start: DVec3| {
        let mut scene = Scene::new(time, dt);
        scene.plan.domain.gravity = DVec3::new(sin, 0.0, -cos) * GRAVITY;
        let scene = law(scene, triangles, "grain", friction)
            .with("sheet", SolidProgram, sheet(0.05, "pinned = 'all'"))
            .with("grain", SolidProgram, grains(&[start], DVec3::ZERO, true));
        positions(&mut scene.run(), "grain")[0] - start
    };
    let start = DVec3::new(-0.531, 0.013, 0.1);
    for (friction, acceleration) in
        [(0.0, GRAVITY * sin), (0.1, GRAVITY * (sin - 0.1 * cos)), (0.5, GRAVITY * sin * 5.0 / 7.0)]
    {
        let (way, moved) = (0.5 * acceleration * time * time, slide(true, friction, start));
        // Symplectic Euler is ahead by half of a step.
        assert!((moved.x - way).abs() < acceleration * time * dt, "{friction}: {moved} of {way}");
        assert!(moved.y.hypot(moved.z) < 1e-6, "{friction}: {moved}");
    }
    // The spheres are bumps.
    let (way, moved) = (0.5 * GRAVITY * sin * time * time, slide(false, 0.0, start));
    assert!(moved.x < 0.8 * way, "{moved} of {way}");
}

/// Balls rest on a net whose spheres would let them pass, and shots do not pass it.
#[test]
fn nothing_passes_between_the_spheres() {
    let places: Vec<DVec3> = (0..5).map(|i| DVec3::new(0.05 + 0.137 * f64::from(i), 0.05, 0.1)).collect();
    let drop = |triangles: bool, speed: f64| {
        let scene = law(Scene::new(0.2, 1e-3), triangles, "grains", 0.0)
            .with("sheet", SolidProgram, sheet(0.01, "pinned = 'edges'\ndamping = 50.0"))
            .with("grains", SolidProgram, grains(&places, DVec3::NEG_Z * speed, false))
            .probe("crossings", Quantity::Crossings { sheet: "sheet".into(), of: "grains".into() })
            .probe("overlap", Quantity::Overlap {});
        let mut overlap = 0.0f64;
        let simulation =
            scene.run_with(|simulation, _| overlap = overlap.max(last(simulation, "overlap", 1)));
        (last(&simulation, "crossings", 0), overlap)
    };
    for speed in [0.0, 1.0] {
        let (crossed, overlap) = drop(true, speed);
        assert_eq!(crossed, 0.0, "{speed}");
        assert!(overlap < 0.05, "{speed}: {overlap}");
    }
    // A shot bends the sheet by half an edge in a step, so that triangles beside it overlap with the shot.
    assert_eq!(drop(true, 50.0).0, 0.0);
    assert!(drop(false, 1.0).0 > 0.0);
}

/// A blob of water that falls onto a loose sheet: momentum is kept, contacts give no energy, and what is reported
/// moves. The bits are the same whatever is asked for, on any threads and in any order.
#[test]
fn water_on_triangles_keeps_momentum_and_its_bits() {
    let sheet = "method = 'mass-spring'\n[[bodies]]\ntype = 'sheet'\ncorner = [-0.1, -0.1, 0.1]\nedge_u = [0.2, 0, 0]\n\
                 edge_v = [0, 0.2, 0]\nspacing = 0.02\narea_density = 0.4\nstructural_stiffness = 300.0\n\
                 damping_ratio = 0.1\n";
    let water = "method = 'sph'\nspacing = 0.02\n[[shapes]]\ntype = 'sphere'\ncenter = [0, 0, 0.18]\nradius = 0.05\n\
                 velocity = [0, 0, -2.0]\n";
    let run = |mask: bool, threads: usize, is_first: bool| {
        let mut scene = law(Scene::new(0.08, 1e-3), true, "water", 0.2);
        scene.plan.domain.gravity = DVec3::ZERO;
        scene.threads = threads;
        scene = scene.coupling(|coupling| {
            coupling.interest_mask = mask;
            coupling.coupling_tolerance = 1e-4;
        });
        scene = match is_first {
            true => scene.with("sheet", SolidProgram, sheet).with("water", FluidProgram, water),
            false => scene.with("water", FluidProgram, water).with("sheet", SolidProgram, sheet),
        };
        let scene = scene
            .probe("momentum", Quantity::Momentum { participant: None })
            .probe("energy", Quantity::Energy {})
            .probe("phantom", Quantity::Phantom {});
        let mut seen = Vec::new();
        let mut simulation = scene.run_with(|simulation, record| {
            assert!(!record.unconverged);
            let value = |probe: &str, column: usize| last(simulation, probe, column);
            let vector = |probe: &str| DVec3::from_array([0, 1, 2].map(|k| value(probe, k)));
            seen.push((vector("momentum"), value("energy", 0), value("energy", 3), value("phantom", 0)));
        });
        (seen, positions(&mut simulation, "water"), positions(&mut simulation, "sheet"))
    };
    let (seen, water_at, sheet_at) = run(true, 1, true);
    let (momentum, kinetic, ..) = seen[0];
    for pair in seen.windows(2) {
        let (p, energy, dissipated, phantom) = pair[1];
        assert!((p - momentum).length() < 1e-9 * momentum.length(), "{p} {momentum}");
        let given = pair[0].2 - dissipated;
        assert!(given < 1e-6 * kinetic, "contacts give {given} J of {kinetic} J");
        assert!(phantom < 1e-12 * energy, "{phantom}");
    }
    let moved = sheet_at.iter().map(|x| (x.z - 0.1).abs()).fold(0.0, f64::max);
    assert!(moved > 0.01, "the water moves the sheet by {moved} m only");
    for other in [run(false, 1, true), run(true, 3, true), run(true, 1, false)] {
        assert_eq!((&other.1, &other.2), (&water_at, &sheet_at));
    }
}

/// Faults of the key.
#[test]
fn a_surface_that_is_none_is_refused() {
    let told = |change: &dyn Fn(&mut amalgam_coordinator::CouplingSettings)| {
        let scene = law(Scene::new(0.1, 1e-3), true, "grain", 0.0)
            .with("sheet", SolidProgram, sheet(0.05, "pinned = 'all'"))
            .with("grain", SolidProgram, grains(&[DVec3::Z], DVec3::ZERO, false))
            .coupling(change);
        scene.connect().err().expect("a fault").to_string()
    };
    let unknown = told(&|coupling| coupling.triangles = vec!["shet".into()]);
    assert!(unknown.contains("there is no participant \"shet\", but grain, sheet"), "{unknown}");
    let points = told(&|coupling| coupling.triangles = vec!["grain".into()]);
    assert!(points.contains("\"grain\" has no triangles"), "{points}");
    let merging = told(&|coupling| coupling.method = Some(ContactMethod::MergeSplit));
    assert!(merging.contains("write method = \"contact-law\""), "{merging}");
}
