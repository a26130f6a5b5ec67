//! Drag in fluids: a block in a wind, its energy, groups, and a snapshot.

mod common;

use amalgam_particles::{DVec3, Particles};
use amalgam_solver_kit::Solver;
use common::{Groups, create, integrate, kinetic_energy, step, world};

fn block(method: &str, drag: &str) -> Box<dyn Solver> {
    let section = format!(
        "{method}\nspacing = 0.05\n[[drag]]\nvelocity = [0.5, 0, 0]\n{drag}\n[[shapes]]\ntype = 'box'\nmin = [0.8, 0.8, 0.8]\nmax = [1.2, 1.2, 1.2]\nvelocity = [0, 0.2, -0.3]"
    );
    create(&section, &world(DVec3::splat(2.0), 0.0))
}

const METHODS: [&str; 2] = ["method = 'sph'\nsound_speed = 5.0", "method = 'flip'"];

const LATER: &str = "rate = 3.0\nfrom = 0.05";

/// From the time on at which it begins, the wind takes all particles along at the same rate, and its work is
/// their energy.
#[test]
fn a_block_of_fluid_goes_with_the_wind() {
    for method in METHODS {
        let mut solver = block(method, LATER);
        let groups = Groups::none(solver.particles().len());
        let (before, mut given) = (kinetic_energy(solver.as_ref()), 0.0);
        for _ in 0..100 {
            given += step(solver.as_mut(), &groups, 3e-3).given;
        }
        let wind = 0.5 * DVec3::X;
        let expected = wind + (DVec3::new(0.0, 0.2, -0.3) - wind) * (-3.0f64 * 0.25).exp();
        for velocity in &solver.particles().velocity {
            assert!(velocity.distance(expected) < 1e-4, "{method}: {velocity} {expected}");
        }
        let gained = kinetic_energy(solver.as_ref()) - before;
        assert!(
            (gained - given).abs() < 1e-3 * before,
            "{method}: {gained} J, of which {given} J are accounted for"
        );
    }
}

/// A group gets what its members would get alone.
#[test]
fn drag_pulls_at_groups_as_at_particles() {
    for method in METHODS {
        let mut solver = block(method, "rate = 100.0");
        let Particles { velocity, mass, .. } = solver.particles();
        // In the midst of the block.
        let members = [292, 293, 300];
        let (start, mass) = (velocity[292], mass[0] * 3.0);
        let groups = Groups::one(solver.particles().len(), &members, mass, start, DVec3::ZERO);
        solver.begin().expect("a good state");
        let answer = integrate(solver.as_mut(), &groups, 3e-3);
        let expected = (start - 0.5 * DVec3::X) * (-100.0f64 * 3e-3).exp_m1() * mass;
        assert!(
            answer.momentum[0].distance(expected) < 1e-4 * expected.length(),
            "{method}: {} {expected}",
            answer.momentum[0]
        );
    }
}

#[test]
fn drag_goes_on_from_a_snapshot() {
    for method in METHODS {
        let (mut first, mut second) = (block(method, LATER), block(method, LATER));
        let groups = Groups::none(first.particles().len());
        (0..30).for_each(|_| drop(step(first.as_mut(), &groups, 3e-3)));
        second.restore(&first.save().expect("a snapshot")).expect("the same fluid");
        for _ in 0..10 {
            step(first.as_mut(), &groups, 3e-3);
            step(second.as_mut(), &groups, 3e-3);
        }
        assert_eq!(first.particles().velocity, second.particles().velocity);
    }
}
