//! The order in which a scene lists its participants changes no bit under the contact law.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use amalgam_coordinator::Quantity;
use amalgam_coordinator::settings::{ContactMethod, ContactSettings, PairLaw};
use amalgam_particles::DVec3;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_kit::SolverProgram;
use amalgam_solver_solid::SolidProgram;
use support::Scene;

/// Name, program and section of a participant.
type Entry = (&'static str, Arc<dyn SolverProgram>, String);

/// The end of a run: positions and velocities of each participant, by its name, and the hash of the state.
#[derive(Debug, PartialEq)]
struct End {
    motion: BTreeMap<String, Vec<[u64; 3]>>,
    hash: String,
    steps: u64,
    energy: u64,
}

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// Surfaces with friction, restitution, rolling resistance and a pair that merges.
fn contacts() -> Vec<ContactSettings> {
    let between = |a: &str, b: &str| ContactSettings { between: [a.into(), b.into()], ..Default::default() };
    vec![
        ContactSettings { friction: 0.3, restitution: 0.5, ..between("sheet", "grains") },
        ContactSettings { friction: 0.4, rolling: 0.05, ..between("grains", "grains") },
        ContactSettings { law: PairLaw::Merge, ..between("grains", "water") },
    ]
}

fn run(mut scene: Scene, entries: &[Entry; 3], order: [usize; 3]) -> End {
    scene.plan.coupling.method = Some(ContactMethod::ContactLaw);
    scene.plan.coupling.contact = contacts();
    scene = scene.probe("energy", Quantity::Energy {});
    scene.participants = order.map(|k| entries[k].clone()).map(|(n, p, s)| (n.into(), p, s)).into();
    let (mut own, mut touched) = (0, 0);
    let mut simulation = scene.run_with(|_, record| {
        own += u64::from(record.iterations > 0);
        touched += record.active;
    });
    assert!(own > 10 && touched > 1000, "{own} steps with contacts, {touched} contacts");
    let bits = |v: &DVec3| v.to_array().map(f64::to_bits);
    let frames = simulation.frames().expect("frames");
    let (summary, participants) = (simulation.summary(), simulation.participants());
    for ((frame, k), participant) in frames.iter().zip(order).zip(participants) {
        assert_eq!((frame.name.as_str(), participant.name.as_str()), (entries[k].0, entries[k].0));
    }
    let motion = |frame: amalgam_coordinator::ParticipantFrame| {
        let both = frame.positions.iter().chain(&frame.velocities).map(bits).collect();
        (frame.name, both)
    };
    End {
        motion: frames.into_iter().map(motion).collect(),
        hash: summary.state_hash,
        steps: summary.steps,
        energy: support::last(&simulation, "energy", 4).to_bits(),
    }
}

fn check(scene: impl Fn() -> Scene, entries: &[Entry; 3]) {
    let first = run(scene(), entries, ORDERS[0]);
    for order in &ORDERS[1..] {
        assert!(run(scene(), entries, *order) == first, "{order:?} gives other bits");
    }
}

/// A sheet of springs with held edges, 0.2 m wide, through the origin.
fn sheet() -> String {
    "method = 'mass-spring'\nself_collision = true\n[[bodies]]\ntype = 'sheet'\ncorner = [-0.1, -0.1, 0]\n\
     edge_u = [0.2, 0, 0]\nedge_v = [0, 0.2, 0]\nspacing = 0.02\narea_density = 0.5\nstructural_stiffness = 300.0\n\
     damping_ratio = 0.1\npinned = 'edges'\n"
        .into()
}

/// Grains with spin that fall onto the sheet.
fn grains() -> String {
    "method = 'grains'\nspin = true\n[[bodies]]\ntype = 'grains'\nspacing = 0.02\nradius = 0.0099\ndensity = 1500.0\n\
     velocity = [0.3, 0, -1.0]\nshape = { type = 'box', min = [-0.06, -0.04, 0.02], max = [-0.01, 0.04, 0.06] }\n"
        .into()
}

/// Water beside the grains.
fn water(method: &str) -> String {
    format!(
        "method = '{method}'\nspacing = 0.02\n[[shapes]]\ntype = 'box'\nmin = [-0.01, -0.04, 0.03]\n\
         max = [0.07, 0.04, 0.08]\nvelocity = [-0.2, 0, -1.0]\n"
    )
}

#[test]
fn a_sheet_grains_and_sph_water_in_any_order() {
    let entries: [Entry; 3] = [
        ("sheet", Arc::new(SolidProgram), sheet()),
        ("grains", Arc::new(SolidProgram), grains()),
        ("water", Arc::new(FluidProgram), water("sph")),
    ];
    check(|| Scene::new(0.04, 1e-3), &entries);
}

#[test]
fn a_sheet_grains_and_flip_water_in_any_order() {
    let entries: [Entry; 3] = [
        ("water", Arc::new(FluidProgram), water("flip")),
        ("sheet", Arc::new(SolidProgram), sheet()),
        ("grains", Arc::new(SolidProgram), grains()),
    ];
    let scene = || {
        let mut scene = Scene::new(0.04, 1e-3);
        (scene.plan.domain.min, scene.plan.domain.max) =
            (DVec3::new(-0.2, -0.2, -0.2), DVec3::new(0.2, 0.2, 0.4));
        scene
    };
    check(scene, &entries);
}
