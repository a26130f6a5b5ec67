//! Emitters and sinks. Flows with a known answer are cases of `amalgam validate`.

mod common;

use amalgam_particles::DVec3;
use common::*;

/// A disc fills a tank until a time; a sink empties it from the bottom. Nothing is counted twice, no id comes
/// again, and a restored fluid goes on to the same bits.
#[test]
fn emitters_and_sinks_keep_account() {
    let section = "spacing = 0.05\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [1, 1, 0.2]\n\
                   [[emitters]]\ncenter = [0.5, 0.5, 0.9]\naxis = [0, 0, -1]\nradius = 0.15\nspeed = 2\nuntil = 0.25\n\
                   [[sinks]]\nmin = [0, 0, 0]\nmax = [0.3, 0.3, 0.1]";
    let world = world(DVec3::ONE, 9.81);
    let mut solver = create(section, &world);
    let start = solver.particles().len();
    let (mut alive, mut born, mut dead) =
        (solver.particles().id.clone().into_iter().collect::<std::collections::BTreeSet<_>>(), 0, 0);
    let mut largest = *alive.last().expect("particles");
    let mut snapshot = None;
    let (mut time, mut dt) = (0.0, solver.stable_dt());
    while time < 0.5 {
        let groups = Groups::none(solver.particles().len());
        let report = step(&mut *solver, &groups, dt);
        (time, dt) = (time + dt, report.stable_dt);
        for id in &report.dead {
            assert!(alive.remove(id), "{id} died twice");
        }
        for id in &report.born {
            assert!(*id > largest && time < 0.26, "{id} was used before");
            largest = *id;
            alive.insert(*id);
        }
        (born, dead) = (born + report.born.len(), dead + report.dead.len());
        let now: std::collections::BTreeSet<_> = solver.particles().id.iter().copied().collect();
        assert_eq!(now, alive);
        solver.particles().validate().expect("valid particles");
        if snapshot.is_none() && time > 0.1 {
            snapshot = Some((solver.save().expect("checkpoints"), time, dt));
        }
    }
    // Ten layers of the 29 lattice points within three spacings.
    assert_eq!(born, 10 * 29);
    assert!(dead > 100, "{dead} swallowed of {start}");

    let (snapshot, mut time, mut dt) = snapshot.expect("a snapshot");
    let mut restored = create(section, &world);
    restored.restore(&snapshot).expect("own snapshot");
    while time < 0.5 {
        let groups = Groups::none(restored.particles().len());
        let report = step(&mut *restored, &groups, dt);
        (time, dt) = (time + dt, report.stable_dt);
    }
    assert_eq!(restored.particles(), solver.particles());
}

/// Water that the floor throws back does not stand in the emitter, where it would make new particles burst apart.
#[test]
fn a_jet_that_strikes_a_floor_does_not_burst_at_its_emitter() {
    let sinks = ["min = [0, 0, 0]\nmax = [0.03, 0.32, 0.18]", "min = [0.29, 0, 0]\nmax = [0.32, 0.32, 0.18]"];
    let sinks: String = sinks.map(|sink| format!("[[sinks]]\n{sink}\n")).concat();
    let section = format!(
        "spacing = 0.01\nsound_speed = 20.0\n[[shapes]]\ntype = 'sphere'\ncenter = [0.16, 0.16, 0.06]\nradius = 0.01\nvelocity = \
         [0, 0, -2]\n[[emitters]]\ncenter = [0.16, 0.16, 0.12]\naxis = [0, 0, -1]\nradius = 0.025\nspeed = 2.0\nuntil = \
         10.0\n{sinks}"
    );
    let mut solver = create(&section, &world(DVec3::new(0.32, 0.32, 0.18), 0.0));
    let (mut fastest, mut now) = (0.0f64, 0.0);
    while now < 0.3 {
        let (groups, dt) = (Groups::none(solver.particles().len()), solver.stable_dt());
        step(solver.as_mut(), &groups, dt);
        now += dt;
        fastest = solver.particles().velocity.iter().map(|v| v.length()).fold(fastest, f64::max);
    }
    // Without a nozzle it reaches 8 m/s.
    assert!(fastest < 5.0, "{fastest}");
}
