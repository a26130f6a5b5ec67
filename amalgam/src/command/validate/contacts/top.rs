//! Boxes that turn freely: a symmetric one precesses, an asymmetric one turns over.

use glam::{DQuat, DVec3};

use super::{set, set_body, vector};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/free-top/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "free-top",
    about: "boxes that turn freely: precession in closed form, Euler's equations, energy and angular momentum",
    quick: true,
    compute,
};

const DURATION: f64 = 5.0;

/// A box with its middle in the origin, its axes along x, y and z at the start.
#[derive(Clone, Copy)]
struct Top {
    /// Half of its edges [m].
    half: DVec3,
    /// Angular velocity at the start [rad/s].
    spin: DVec3,
}

/// Rotation of the top.
struct Turned {
    before: Vec<DVec3>,
    after: Vec<DVec3>,
    /// Largest relative changes on the way.
    energy: f64,
    momentum: f64,
}

impl Top {
    fn run(self) -> Result<Turned, CaseError> {
        let shape =
            format!("{{ type = \"box\", min = {}, max = {} }}", vector(-self.half), vector(self.half));
        let settings = [
            set_body("shape", shape),
            set_body("angular_velocity", vector(self.spin)),
            set("time.duration", format!("{DURATION:?}")),
        ];
        let mut experiment = Experiment::start(CASE.name, SCENE, &settings)?;
        let before = experiment.frames()?.swap_remove(0).positions;
        let (mut start, mut energy, mut momentum) = (None, 0.0f64, 0.0f64);
        let frames = experiment.run(|_, simulation| {
            let values = |probe: usize| &simulation.probes()[probe].values;
            let now = (values(0)[0], DVec3::from_slice(values(1)));
            let first = *start.get_or_insert(now);
            energy = energy.max((now.0 / first.0 - 1.0).abs());
            momentum = momentum.max(now.1.distance(first.1) / first.1.length());
            Ok(())
        })?;
        Ok(Turned { before, after: frames[0].positions.clone(), energy, momentum })
    }

    /// Moments of inertia of a box over its mass [m^2].
    fn moments(self) -> DVec3 {
        let squares = self.half * self.half / 3.0;
        DVec3::splat(squares.element_sum()) - squares
    }

    /// Final orientation by Euler's equations, integrated at fourth order in steps much shorter than the
    /// run's.
    fn orientation(self) -> DQuat {
        let (moments, steps) = (self.moments(), 200_000u32);
        let dt = DURATION / f64::from(steps);
        let rate = |q: DQuat, spin: DVec3| {
            let turn = q * DQuat::from_xyzw(0.5 * spin.x, 0.5 * spin.y, 0.5 * spin.z, 0.0);
            (turn, (moments * spin).cross(spin) / moments)
        };
        let (mut q, mut spin) = (DQuat::IDENTITY, self.spin);
        for _ in 0..steps {
            let (q1, s1) = rate(q, spin);
            let (q2, s2) = rate(q + q1 * (0.5 * dt), spin + s1 * (0.5 * dt));
            let (q3, s3) = rate(q + q2 * (0.5 * dt), spin + s2 * (0.5 * dt));
            let (q4, s4) = rate(q + q3 * dt, spin + s3 * dt);
            q = (q + (q1 + (q2 + q3) * 2.0 + q4) * (dt / 6.0)).normalize();
            spin += (s1 + (s2 + s3) * 2.0 + s4) * (dt / 6.0);
        }
        q
    }

    /// The final orientation in closed form, if the moments about x and y are equal. The box turns about its
    /// angular momentum L at the rate |L|/I_x, and about its own axis z at the rate spin_z (1 - I_z/I_x).
    fn precession(self) -> DQuat {
        let moments = self.moments();
        let momentum = moments * self.spin;
        let about = DQuat::from_axis_angle(momentum.normalize(), momentum.length() / moments.x * DURATION);
        about * DQuat::from_rotation_z(self.spin.z * (1.0 - moments.z / moments.x) * DURATION)
    }
}

/// Largest distance of a particle from its exact place, over the largest distance from the middle.
fn miss(turned: &Turned, orientation: DQuat) -> f64 {
    let off = turned.before.iter().zip(&turned.after).map(|(x, y)| y.distance(orientation * *x));
    off.fold(0.0, f64::max) / turned.before.iter().map(|x| x.length()).fold(0.0, f64::max)
}

fn compute() -> Result<CaseOutcome, CaseError> {
    let symmetric = Top { half: DVec3::new(0.1, 0.1, 0.2), spin: DVec3::new(2.0, 0.0, 8.0) };
    let asymmetric = Top { half: DVec3::new(0.05, 0.1, 0.2), spin: DVec3::new(0.1, 10.0, 0.2) };
    let mut checks = Vec::new();
    let mut picture = Sketch::default();
    for (k, (name, top, orientation)) in [
        ("symmetric", symmetric, symmetric.precession()),
        ("asymmetric", asymmetric, asymmetric.orientation()),
    ]
    .into_iter()
    .enumerate()
    {
        let turned = top.run()?;
        // The step turns bodies to fourth order: (10 rad/s x 2 ms)^4 is 2e-7, over 50 radians.
        checks.push(Check::within(
            format!("{name}: distance from where it should be / size"),
            0.0,
            miss(&turned, orientation),
            1e-5,
        ));
        checks.push(Check::within(
            format!("{name}: largest change of energy / energy"),
            0.0,
            turned.energy,
            1e-7,
        ));
        checks.push(Check::within(
            format!("{name}: change of angular momentum / itself"),
            0.0,
            turned.momentum,
            1e-11,
        ));
        let shift = DVec3::X * 0.5 * k as f64;
        picture = picture
            .measured(turned.after.iter().map(|x| *x + shift))
            .reference(turned.before.iter().map(|x| orientation * *x + shift));
    }
    // Compares the two references with each other.
    let apart = symmetric.precession().angle_between(symmetric.orientation());
    checks.push(Check::within("closed form against Euler's equations [rad]", 0.0, apart, 1e-7));
    Ok(CaseOutcome { checks, picture })
}
