//! Newton's iterations: the nonlinear equation of implicit Euler is met, not only its linearisation.

mod support;

use amalgam_particles::{DVec3, GroupMap};
use amalgam_solver_kit::Solver;
use amalgam_solver_solid::SolidSolver;
use support::{Groups, integrate, solid, step};

const MASS: f64 = 0.2;
const STIFFNESS: f64 = 800.0;
const DAMPING: f64 = 0.5;
const LENGTH: f64 = 1.0;
const GRAVITY: DVec3 = DVec3::new(0.0, 0.0, -9.81);

/// Two masses on a spring that swings fast: the directions of a step of 0.05 s change by half a radian.
fn dumbbell(newton_iterations: u32) -> SolidSolver {
    let section = format!(
        "method = \"mass-spring\"\ntolerance = 1e-10\nnewton_iterations = {newton_iterations}\n[[bodies]]\ntype = \"points\"\n\
         positions = [[0, 0, 0], [{LENGTH}, 0, 0]]\nvelocities = [[0, 0, 0], [0, 10, 1]]\nmass = {MASS}\nradius = 0.1\n\
         springs = [{{ a = 0, b = 1, stiffness = {STIFFNESS}, damping = {DAMPING}, rest_length = {LENGTH} }}]"
    );
    solid(&section, GRAVITY)
}

/// The pull of the spring on the second mass at these positions and velocities [N].
fn pull(position: [DVec3; 2], velocity: [DVec3; 2]) -> DVec3 {
    let d = position[0] - position[1];
    let n = d.normalize();
    n * (STIFFNESS * (d.length() - LENGTH) + DAMPING * (velocity[0] - velocity[1]).dot(n))
}

/// The residual of `m dv = h (f + m g)` in a step [m/s], forces taken where it ends.
fn remainder(solid: &mut SolidSolver, dt: f64) -> f64 {
    let before = solid.particles().velocity.clone();
    step(solid, dt);
    let particles = solid.particles();
    let (x, v) = (&particles.position, &particles.velocity);
    let force = pull([x[0], x[1]], [v[0], v[1]]);
    let of = |i: usize, force: DVec3| (v[i] - before[i] - (force / MASS + GRAVITY) * dt).length();
    of(0, -force).max(of(1, force))
}

#[test]
fn a_step_meets_the_nonlinear_equation() {
    let dt = 0.05;
    assert!(remainder(&mut dumbbell(1), dt) > 0.1);
    let mut exact = dumbbell(40);
    for _ in 0..5 {
        let left = remainder(&mut exact, dt);
        assert!(left < 1e-7, "{left}");
    }
}

#[test]
fn a_held_group_takes_what_the_spring_gives_at_the_end() {
    let (dt, velocity) = (0.05, DVec3::new(0.3, -0.2, 0.1));
    let mut solid = dumbbell(40);
    let groups = Groups::one(solid.particles().len(), &[0], f64::INFINITY, velocity, DVec3::ZERO);
    solid.begin().expect("begin");
    let answer = integrate(&mut solid, dt, &groups);
    let x = [0, 1].map(|i| solid.particles().position[i] + answer.velocity[i] * dt);
    let expected = (GRAVITY * MASS - pull(x, [answer.velocity[0], answer.velocity[1]])) * dt;
    assert!((answer.momentum[0] - expected).length() < 1e-7, "{} {expected}", answer.momentum[0]);
}

/// Stages that follow begin anew at the start of the step.
#[test]
fn a_stage_does_not_depend_on_those_before() {
    let none =
        |solid: &SolidSolver| Groups { map: GroupMap::none(solid.particles().len()), ..Groups::default() };
    let mut solid = dumbbell(40);
    solid.begin().expect("begin");
    let held = Groups::one(solid.particles().len(), &[0], f64::INFINITY, DVec3::X, DVec3::ZERO);
    integrate(&mut solid, 0.05, &held);
    let groups = none(&solid);
    let after = integrate(&mut solid, 0.05, &groups);
    let mut fresh = dumbbell(40);
    fresh.begin().expect("begin");
    let alone = integrate(&mut fresh, 0.05, &groups);
    for (a, b) in after.velocity.iter().zip(&alone.velocity) {
        assert!((*a - *b).length() < 1e-7, "{a} {b}");
    }
}
