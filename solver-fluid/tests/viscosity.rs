//! Viscosity and walls at which the fluid sticks, against analytic flows.

mod common;

use std::f64::consts::PI;

use amalgam_particles::{DVec3, Particles};
use amalgam_solver_fluid::{flip, sph};
use amalgam_solver_kit::{Solver, World};
use common::{Groups, create, kinetic_energy, momentum, step, world};

/// Kinematic viscosity of all tests [m^2/s]: 100 Pa s at 1000 kg/m^3.
const NU: f64 = 0.1;

/// A slab of fluid between z = 0 and 1, open at its ends in x, that gravity `pull` drives along x.
fn channel(extra: &str, pull: f64) -> Box<dyn Solver> {
    let section = format!(
        "spacing = 0.05\nsound_speed = 0.5\nviscosity = 100\n{extra}\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0]\nmax = [1, 0.3, 1]"
    );
    let world = World { gravity: DVec3::X * pull, ..world(DVec3::new(1.0, 0.3, 1.0), 0.0) };
    create(&section, &world)
}

fn run(solver: &mut dyn Solver, time: f64) -> f64 {
    let groups = Groups::none(solver.particles().len());
    let (mut now, mut dt) = (0.0, solver.stable_dt());
    while now < time {
        let stable = step(solver, &groups, dt).stable_dt;
        now += dt;
        dt = stable;
    }
    now
}

/// Poiseuille flow that starts from rest, Eq. 21 of [Morris1997]: `u = G/2nu z(H-z) - sum 4GH^2/(nu pi^3 n^3)
/// sin(n pi z/H) exp(-n^2 pi^2 nu t/H^2)` over odd n.
fn poiseuille(pull: f64, z: f64, time: f64) -> f64 {
    let series = (0..20).map(|n| f64::from(2 * n + 1)).map(|n| {
        4.0 * pull / (NU * (PI * n).powi(3)) * (PI * n * z).sin() * (-n * n * PI * PI * NU * time).exp()
    });
    0.5 * pull / NU * z * (1.0 - z) - series.sum::<f64>()
}

/// So slow that the lattice is hardly sheared, and no pressure acts.
#[test]
fn fluid_between_sticking_walls_flows_as_poiseuille_says() {
    let pull = 1e-3;
    for viscosity in ["", "smoothing_ratio = 1.3", "kernels = 'mueller'"] {
        let mut solver =
            channel(&format!("walls = ['y0', 'y1', 'z0', 'z1']\nno_slip = ['z0', 'z1']\n{viscosity}"), pull);
        let mut reached = 0.0;
        for time in [0.3, 1.0] {
            reached += run(solver.as_mut(), time - reached);
            let top = poiseuille(pull, 0.5, reached);
            let Particles { position, velocity, .. } = solver.particles();
            let error = |(x, v): (&DVec3, &DVec3)| (v.x - poiseuille(pull, x.z, reached)).abs() / top;
            let worst = position.iter().zip(velocity).map(error).fold(0.0, f64::max);
            assert!(worst < 0.02, "{viscosity} at {reached} s: {worst}");
        }
    }
}

/// Without `no_slip` nothing holds the fluid.
#[test]
fn fluid_slides_along_other_walls() {
    let mut solver = channel("walls = ['y0', 'y1', 'z0', 'z1']", 1e-3);
    let time = run(solver.as_mut(), 0.3);
    let slowest = solver.particles().velocity.iter().map(|v| v.x).fold(f64::INFINITY, f64::min);
    assert!((slowest / (1e-3 * time) - 1.0).abs() < 1e-3);
}

/// Speeds are damped whatever their direction, by a wall on one side: energy only falls.
#[test]
fn sticking_walls_only_take_energy() {
    let section = "spacing = 0.05\nsound_speed = 20\nviscosity = 20\nno_slip = true\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0]\n\
                   max = [0.5, 0.5, 0.5]\nvelocity = [0.3, 0.2, 0.1]";
    let mut solver = create(section, &world(DVec3::splat(0.5), 0.0));
    let groups = Groups::none(solver.particles().len());
    let owned = |solver: &dyn Solver, stored: f64| kinetic_energy(solver) + stored;
    let mut most = owned(solver.as_ref(), 0.0);
    for _ in 0..200 {
        let dt = solver.stable_dt();
        let before = solver.particles().clone();
        let report = step(solver.as_mut(), &groups, dt);
        // The energy of compression is that at the start of the step.
        let kinetic: f64 =
            before.velocity.iter().zip(&before.mass).map(|(v, m)| 0.5 * m * v.length_squared()).sum();
        let now = kinetic + report.energies[0].1;
        assert!(now < most * 1.02, "{now} J after {most} J");
        most = most.min(now);
    }
    assert!(kinetic_energy(solver.as_ref()) < 0.02 * 0.5 * 125.0 * 0.14);
}

/// A fluid in a closed square box of walls at which it sticks: whatever moves slowly in it ends as the
/// slowest eigenmode of the Stokes operator, with the eigenvalue 52.3447 / L^2 [Leriche2004].
const STOKES: f64 = 52.3447;

/// Velocities of a single vortex with the velocity and its normal derivative zero at the walls, as a stream
/// function sin^2(pi x) sin^2(pi z).
fn stuck_vortex(x: DVec3) -> DVec3 {
    let (s, c) = (|x: f64| (PI * x).sin(), |x: f64| (PI * x).cos());
    DVec3::new(s(x.x).powi(2) * s(x.z) * c(x.z), 0.0, -s(x.z).powi(2) * s(x.x) * c(x.x))
}

/// The vortex of free-slip walls, a stream function sin(pi x) sin(pi z): velocities decay at the rate 2 pi^2
/// nu.
fn free_vortex(x: DVec3) -> DVec3 {
    let (s, c) = (|x: f64| (PI * x).sin(), |x: f64| (PI * x).cos());
    DVec3::new(s(x.x) * c(x.z), 0.0, -c(x.x) * s(x.z))
}

/// FLIP in a square of 1 m that is 4 cells deep along y. With `above` cells over it, gravity keeps the
/// surface flat.
fn flip_square(extra: &str, above: u32, flow: fn(DVec3) -> DVec3) -> flip::Flip {
    let h = 0.05;
    let section = format!(
        "method = 'flip'\nspacing = 0.025\nflip_ratio = 1.0\njitter = 0.25\nviscosity = 100\n{extra}\n[[shapes]]\n\
         type = 'box'\nmin = [0, 0, 0]\nmax = [1, 0.2, 1]"
    );
    let world =
        world(DVec3::new(1.0, 4.0 * h, 1.0 + h * f64::from(above)), if above > 0 { 100.0 } else { 0.0 });
    let read = flip::section::read(&section, &world);
    let (parameters, mut particles) = read.unwrap_or_else(|faults| panic!("{faults:?}"));
    set(&mut particles, flow);
    flip::Flip::new(parameters, particles)
}

/// SPH in the same square, closed.
fn sph_square(extra: &str, flow: fn(DVec3) -> DVec3) -> sph::Sph {
    let section = format!(
        "spacing = 0.05\nsound_speed = 5\nviscosity = 100\n{extra}\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0]\nmax = [1, 0.2, 1]"
    );
    let read = sph::section::read(&section, &world(DVec3::new(1.0, 0.2, 1.0), 0.0));
    let (parameters, mut particles) = read.unwrap_or_else(|faults| panic!("{faults:?}"));
    set(&mut particles, flow);
    sph::Sph::new(parameters, particles)
}

fn set(particles: &mut Particles, flow: fn(DVec3) -> DVec3) {
    for (v, x) in particles.velocity.iter_mut().zip(&particles.position) {
        *v = 0.01 * flow(*x);
    }
}

/// The rate at which a flow's amplitude falls between two times [1/s].
fn decay(solver: &mut dyn Solver, flow: fn(DVec3) -> DVec3, (from, to): (f64, f64)) -> f64 {
    let groups = Groups::none(solver.particles().len());
    let (mut now, mut start) = (0.0, None);
    while now < to {
        let dt = solver.stable_dt().min(0.005);
        step(solver, &groups, dt);
        now += dt;
        if now >= from && start.is_none() {
            start = Some((now, amplitude(solver, flow)));
        }
    }
    let (from, before) = start.expect("the time has come");
    (before / amplitude(solver, flow)).ln() / (now - from)
}

/// The amplitude of a flow: the part of it that the velocities have.
fn amplitude(solver: &dyn Solver, flow: fn(DVec3) -> DVec3) -> f64 {
    let Particles { position, velocity, .. } = solver.particles();
    let both = || position.iter().zip(velocity);
    both().map(|(x, v)| v.dot(flow(*x))).sum::<f64>()
        / both().map(|(x, _)| flow(*x).length_squared()).sum::<f64>()
}

#[test]
fn a_flip_vortex_between_sliding_walls_decays_as_it_should() {
    let found = decay(&mut flip_square("", 4, free_vortex), free_vortex, (0.02, 0.5));
    let expected = 2.0 * PI * PI * NU;
    assert!((found / expected - 1.0).abs() < 0.05, "{found} 1/s, not {expected} 1/s");
}

/// Between sticking walls the slowest eigenmode of the Stokes operator is left, whose rate is 2.65 times that
/// of the sliding walls.
#[test]
fn a_vortex_between_sticking_walls_decays_as_the_slowest_stokes_mode() {
    let no_slip = "no_slip = ['x0', 'x1', 'z0', 'z1']";
    let mut flip = flip_square(no_slip, 0, stuck_vortex);
    let mut sph = sph_square(no_slip, stuck_vortex);
    let solvers: [(&str, &mut dyn Solver); 2] = [("flip", &mut flip), ("sph", &mut sph)];
    for (method, solver) in solvers {
        let found = decay(solver, stuck_vortex, (0.1, 0.4));
        let expected = STOKES * NU;
        assert!((found / expected - 1.0).abs() < 0.05, "{method}: {found} 1/s, not {expected} 1/s");
    }
}

/// A drop that flies and turns: what surfaces lose of momentum and spin without viscosity, below 0.1 % and some
/// percent, is not much more with a viscosity that makes it as stiff as tar.
#[test]
fn a_viscous_drop_flies_and_spins_on() {
    let fly = |viscosity: f64| {
        let section = format!(
            "method = 'flip'\nspacing = 0.05\nviscosity = {viscosity}\n[[shapes]]\ntype = 'sphere'\ncenter = [1, 1, 1]\n\
             radius = 0.5\nvelocity = [0.3, 0.2, 0.1]\nangular_velocity = [0, 2, 0]"
        );
        let mut solver = create(&section, &world(DVec3::splat(2.0), 0.0));
        let groups = Groups::none(solver.particles().len());
        let before = (momentum(solver.as_ref()), spin(solver.as_ref()));
        (0..40).for_each(|_| drop(step(solver.as_mut(), &groups, 0.01)));
        let after = (momentum(solver.as_ref()), spin(solver.as_ref()));
        ((after.0 - before.0).length() / before.0.length(), after.1.y / before.1.y)
    };
    let (lost, kept) = fly(0.0);
    assert!(lost < 0.9e-3, "{lost}");
    for viscosity in [1.0, 30.0, 300.0] {
        let (lost_now, kept_now) = fly(viscosity);
        assert!(lost_now < 1.9e-3, "{viscosity}: {lost_now}");
        assert!((kept_now / kept - 1.0).abs() < 0.02, "{viscosity}: {kept_now} {kept}");
    }
}

/// Angular momentum about the centre of mass.
fn spin(solver: &dyn Solver) -> DVec3 {
    let Particles { position, velocity, mass, .. } = solver.particles();
    let centre = position.iter().sum::<DVec3>() / position.len() as f64;
    position.iter().zip(velocity).zip(mass).map(|((x, v), m)| *m * (*x - centre).cross(*v)).sum()
}
