//! Results do not depend on the order in which particles are stored.

mod common;

use std::collections::HashMap;

use amalgam_particles::{DVec3, GroupMap, ParticleId, Particles, random};
use amalgam_solver_fluid::{flip, sph};
use amalgam_solver_kit::{Alone, AloneGroups, Solver};
use common::world;

const SPH: &str =
    "spacing = 0.1\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [0.6, 0.5, 0.7]\nvelocity = [1, 0, 0]";
const FLIP: &str = "method = \"flip\"\nspacing = 0.05\ncfl = 0.2\nsubsteps_max = 3\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\n\
                    max = [0.6, 0.5, 0.7]\nvelocity = [1, 0, 0]";

/// The particles in an order that follows from `seed` alone.
fn shuffled(mut particles: Particles, seed: u64) -> Particles {
    let mut order: Vec<u32> = (0..particles.len() as u32).collect();
    order.sort_by_key(|&i| random::mix(seed ^ random::mix(u64::from(i))));
    particles.reorder(&order);
    particles
}

/// Bits of position and velocity by id after a few steps with groups of neighbouring ids, and the momenta
/// given to these.
fn bits(mut solver: impl Solver) -> Vec<u64> {
    let (mut bits, mut found) = (Vec::new(), 0);
    let mut alone = Alone::default();
    for step in 0..20 {
        let particles = solver.particles();
        let place = |id: u64| particles.id.iter().position(|one| one.0 == id).expect("nobody dies") as u32;
        let members: Vec<u32> = (0..30).map(|n| place(7 * n)).collect();
        let mut map = GroupMap::default();
        map.set(particles.len(), &Vec::from_iter((0..=30).step_by(5)), &members);
        let inertia = vec![20.0 * particles.mass[0]; map.len()];
        let velocity = map.len();
        let groups = AloneGroups::new(map, inertia, vec![DVec3::X; velocity]);
        // One sub-step now and then, in which the largest change of velocity is found.
        let dt = if step % 4 == 0 { 0.3 } else { 0.9 } * solver.stable_dt();
        let before: HashMap<ParticleId, DVec3> =
            particles.id.iter().copied().zip(particles.velocity.iter().copied()).collect();
        let report = alone.step(&mut solver, &groups, dt).expect("a good step");
        let after = solver.particles();
        let changes = after.id.iter().zip(&after.velocity).map(|(id, &v)| (v - before[id]).length_squared());
        assert!(!solver.finds_change_max() || report.change_max == changes.fold(0.0, f64::max).sqrt());
        found += usize::from(solver.finds_change_max());
        bits.extend(alone.answer.momentum.iter().flat_map(|j| j.to_array()).map(f64::to_bits));
    }
    assert!(found >= 5, "{found}");
    let particles = solver.particles();
    let mut order: Vec<usize> = (0..particles.len()).collect();
    order.sort_by_key(|&i| particles.id[i]);
    assert!(order.iter().enumerate().all(|(n, &i)| particles.id[i] == ParticleId(n as u64)));
    let values = |i: usize| [particles.position[i], particles.velocity[i]];
    bits.extend(order.into_iter().flat_map(values).flat_map(|v| v.to_array()).map(f64::to_bits));
    bits
}

#[test]
fn sph_does_not_depend_on_storage() {
    let world = world(DVec3::new(1.2, 0.5, 1.0), 9.81);
    let (parameters, particles) = sph::section::read(SPH, &world).expect("a good section");
    let run = |particles| bits(sph::Sph::new(parameters.clone(), particles));
    let as_made = run(particles.clone());
    for seed in 1..4 {
        assert!(run(shuffled(particles.clone(), seed)) == as_made, "seed {seed}");
    }
}

#[test]
fn flip_does_not_depend_on_storage() {
    let world = world(DVec3::new(1.2, 0.5, 1.0), 9.81);
    let (parameters, particles) = flip::section::read(FLIP, &world).expect("a good section");
    let run = |particles| bits(flip::Flip::new(parameters.clone(), particles));
    let as_made = run(particles.clone());
    for seed in 1..4 {
        assert!(run(shuffled(particles.clone(), seed)) == as_made, "seed {seed}");
    }
}
