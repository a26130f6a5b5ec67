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
