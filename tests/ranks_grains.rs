//! Grains cut among ranks: the same bits for any number of ranks, through real services.

mod support;

use amalgam_coordinator::settings::{ContactMethod, ContactSettings};
use amalgam_coordinator::{Checkpoint, Quantity, Simulation, StepRecord};
use amalgam_solver_solid::SolidProgram;
use support::Scene;
use support::at_once::at_once;

/// A scene's contacts, and whether its grains turn.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Merging,
    /// Merging grains that attract each other, by a tree if there are more than this number.
    Attracting(usize),
    Law,
    LawWithSpin,
}

/// Points of a floor, as a list of TOML.
fn rows(count: [i32; 2], spacing: f64, height: f64) -> String {
    let middle = |n: i32, count: i32| (f64::from(n) - 0.5 * f64::from(count - 1)) * spacing;
    let rows = (0..count[0]).flat_map(|i| (0..count[1]).map(move |j| (i, j)));
    let points =
        rows.map(|(i, j)| format!("[{:?}, {:?}, {height:?}]", middle(i, count[0]), middle(j, count[1])));
    points.collect::<Vec<_>>().join(", ")
}

impl Kind {
    /// The height of the heap [m] and the duration [s]: the contact law takes the coordinator long.
    fn size(self) -> (f64, f64) {
        if self.merges() { (0.6, 0.2) } else { (0.36, 0.125) }
    }

    fn merges(self) -> bool {
        matches!(self, Self::Merging | Self::Attracting(_))
    }
}

/// A heap of 294 grains, or half as many under the contact law, that falls on a floor of pinned ones. Five
/// balls are pushed through it from one side to the other, and some are let go on their way.
fn heap(kind: Kind) -> String {
    let floor = (0..80).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    let more = match kind {
        Kind::LawWithSpin => "spin = true\n".to_string(),
        // Grains in the heap fall towards its middle with some m/s^2.
        Kind::Attracting(direct_max) => {
            format!("gravitational_constant = 0.01\nsoftening = 0.02\ndirect_max = {direct_max}\n")
        }
        Kind::Merging | Kind::Law => String::new(),
    };
    format!(
        "method = 'grains'\n{more}drag = [{{ rate = 0.3, velocity = [0.5, 0.0, 0.0] }}]\n\
         [[bodies]]\ntype = 'points'\npositions = [{}]\nmass = 1.0\nradius = 0.049\npinned = [{floor}]\n\
         [[bodies]]\ntype = 'grains'\nshape = {{ type = 'box', min = [-0.28, -0.28, 0.12], max = [0.28, 0.28, {:?}] }}\n\
         rotation = {{ axis = [0.1, 0.05, 1.0], degrees = 10 }}\nspacing = 0.08\nradius = 0.039\ndensity = 800.0\n\
         velocity = [0.2, -0.1, -0.5]\nangular_velocity = [0.0, 0.5, 1.0]\n\
         [[bodies]]\ntype = 'points'\npositions = [[-0.6, -0.2, 0.16], [-0.6, -0.1, 0.16], [-0.6, 0.0, 0.16], \
         [-0.6, 0.1, 0.16], [-0.6, 0.2, 0.16]]\n\
         velocities = [[4, 0, 0], [4, 0, 0], [4, 0.5, 0], [4, 0, 0], [4, 0, 0]]\nmass = 0.6\nradius = 0.045\n\
         pinned = [0, 1, 2, 3, 4]\nrelease = [0.08, inf, inf, 0.12, inf]\n",
        rows([10, 8], 0.1, 0.0),
        kind.size().0
    )
}

/// A soft block that falls onto the heap.
fn block(kind: Kind) -> String {
    let low = kind.size().0 + 0.15;
    format!(
        "method = 'mass-spring'\n[[bodies]]\ntype = 'volume'\n\
         shape = {{ type = 'box', min = [-0.1, -0.1, {low:?}], max = [0.1, 0.1, {:?}] }}\nspacing = 0.05\n\
         density = 400.0\nyoung_modulus = 2e4\nvelocity = [0.0, 0.0, -2.0]\n",
        low + 0.2
    )
}

fn scene(kind: Kind, ranks: usize) -> Scene {
    let mut scene = Scene::new(kind.size().1, 1e-3).coupling(|coupling| {
        if !kind.merges() {
            coupling.method = Some(ContactMethod::ContactLaw);
            let contact = |between: [&str; 2], friction: f64| ContactSettings {
                between: between.map(String::from),
                friction,
                ..Default::default()
            };
            coupling.contact = vec![contact(["heap", "heap"], 0.4), contact(["heap", "block"], 0.2)];
        }
    });
    scene.ranks = vec![ranks];
    scene
        .with("heap", SolidProgram, heap(kind))
        .with("block", SolidProgram, block(kind))
        .probe("energy", Quantity::Energy {})
        .probe("turn", Quantity::AngularMomentum { participant: None })
}

/// All that a step tells but the time it took, to the bit.
fn told(simulation: &Simulation, record: &StepRecord) -> String {
    let mut record = *record;
    record.wall_s = 0.0;
    let probes: Vec<&[f64]> = simulation.probes().iter().map(|sample| &sample.values[..]).collect();
    format!("{record:?} {probes:?}")
}

/// The content of frames for all particles, to the bit.
fn state(simulation: &mut Simulation) -> String {
    let frames = simulation.frames().expect("frames");
    let frames = frames.iter().map(|frame| {
        format!(
            "{:?} {:?} {:?} {:?}",
            frame.id,
            frame.positions,
            frame.velocities,
            (&frame.group, &frame.fields)
        )
    });
    frames.collect()
}

/// The records of all steps until the end, and the state then.
fn finish(mut simulation: Simulation) -> (Vec<String>, String) {
    let mut steps = Vec::new();
    while !simulation.is_finished() {
        let record = simulation.step().unwrap_or_else(|error| panic!("{error}"));
        steps.push(told(&simulation, &record));
    }
    let state = state(&mut simulation);
    (steps, state)
}

fn connect(kind: Kind, ranks: usize) -> Simulation {
    scene(kind, ranks).connect().unwrap_or_else(|error| panic!("{error}"))
}

/// Compares two runs step by step.
fn assert_equal(expected: &(Vec<String>, String), seen: &(Vec<String>, String), what: &str) {
    for (step, (expected, seen)) in expected.0.iter().zip(&seen.0).enumerate() {
        assert_eq!(expected, seen, "{what}, step {step}");
    }
    assert_eq!(expected.0.len(), seen.0.len(), "{what}");
    assert!(expected.1 == seen.1, "{what}: the last frame differs");
}

fn ranks_give_the_same_bits(kind: Kind, numbers: &[usize]) {
    let alone = finish(connect(kind, 1));
    at_once(numbers, |&ranks| {
        assert_equal(&alone, &finish(connect(kind, ranks)), &format!("{kind:?} on {ranks} ranks"));
    });
}

#[test]
fn merged_heaps_do_not_depend_on_ranks() {
    ranks_give_the_same_bits(Kind::Merging, &[2, 3, 5]);
}

#[test]
fn heaps_that_attract_themselves_do_not_depend_on_ranks() {
    ranks_give_the_same_bits(Kind::Attracting(100), &[2, 5]);
    ranks_give_the_same_bits(Kind::Attracting(1000), &[3]);
}

#[test]
fn heaps_under_the_contact_law_do_not_depend_on_ranks() {
    ranks_give_the_same_bits(Kind::Law, &[3]);
}

#[test]
fn heaps_that_turn_do_not_depend_on_ranks() {
    ranks_give_the_same_bits(Kind::LawWithSpin, &[5]);
}

/// The heap hits its floor, the block and itself, and grains are let go: else the tests above would say
/// little.
#[test]
fn much_happens_in_the_first_scene() {
    let (mut own, mut most) = (0, 0);
    let mut simulation = scene(Kind::Merging, 3).run_with(|_, record| {
        own += record.active;
        most = most.max(record.active);
    });
    let frames = simulation.frames().expect("frames");
    let heap = &frames[0];
    let [last_held, let_go] = [4, 0].map(|k| heap.velocities[heap.velocities.len() - 5 + k]);
    assert!(own > 2_000 && most > 80, "{own} contacts, at most {most}");
    assert!(last_held.x == 4.0 && let_go.x < 4.0, "{last_held} {let_go}");
    assert!(frames[1].positions.iter().all(|x| x.z > 0.1));
}

/// A snapshot of three ranks goes on with any other number of them.
#[test]
fn snapshots_of_ranks_fit_any_number_of_them() {
    for (kind, numbers) in
        [(Kind::Merging, &[1, 2, 3][..]), (Kind::LawWithSpin, &[2]), (Kind::Attracting(100), &[1, 4])]
    {
        let mut simulation = connect(kind, 3);
        // Behind the first release, and not at a step at which space is cut.
        for _ in 0..103 {
            simulation.step().unwrap_or_else(|error| panic!("{error}"));
        }
        let checkpoint: Checkpoint = simulation.checkpoint(&|_| None).expect("a checkpoint");
        let through = finish(simulation);
        at_once(numbers, |&ranks| {
            let mut restored = connect(kind, ranks);
            restored.restore(&checkpoint).expect("restores");
            assert!(
                restored.checkpoint(&|_| None).expect("a checkpoint").participants[0].snapshot
                    == checkpoint.participants[0].snapshot
            );
            assert_equal(&through, &finish(restored), &format!("{kind:?} restored on {ranks} ranks"));
        });
    }
}
