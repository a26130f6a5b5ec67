//! The experiment of Kalthoff and Winkler: a notched plate of steel, struck, cracks at 70 degrees to its
//! notches.

use amalgam_particles::CellGrid;
use glam::{DVec2, DVec3};

use crate::command::validate::alone::Alone;
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/kalthoff/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "kalthoff",
    about: "angle between crack and notch in a plate that is struck: the experiment's 70 degrees",
    quick: false,
    compute,
};

/// Speed that the striker gives the edge between the notches [m/s]; along the edge it is free to move.
const SPEED: f64 = 16.5;

/// Values of the scene: spacing, horizon and the ends of the notches [m].
const SPACING: f64 = 0.0005;
const HORIZON: f64 = 5.015 * SPACING;
const TIPS: [DVec2; 2] = [DVec2::new(0.05, 0.025), DVec2::new(0.05, -0.025)];

/// Share of broken bonds above which a particle counts as beside a crack. A particle beside a straight crack
/// has lost somewhat more.
const CRACKED: f32 = 0.3;

/// The fitted part of a crack begins this far from the notch [m], where the notch does not affect the damage.
const NEAR: f64 = 2.0 * HORIZON;

fn compute() -> Result<CaseOutcome, CaseError> {
    let mut plate = Alone::start(CASE.name, SCENE, &[])?;
    let rest = plate.particles().position.clone();
    let notched = plate.field("damage")?;
    let steps = (plate.duration / plate.dt).ceil() as u64;
    let struck: Vec<usize> =
        (0..rest.len()).filter(|&i| rest[i].x < SPACING && rest[i].y.abs() < TIPS[0].y).collect();
    for _ in 0..steps {
        let mut velocity = plate.forces()?;
        plate.kick(&mut velocity);
        struck.iter().for_each(|&i| velocity[i].x = SPEED);
        plate.commit(&velocity)?;
    }
    let damage = plate.field("damage")?;
    let cracked: Vec<DVec3> = rest
        .iter()
        .zip(damage.iter().zip(&notched))
        .filter(|(_, (after, before))| **after - **before > CRACKED)
        .map(|(x, _)| *x)
        .collect();
    let mut checks = Vec::new();
    let chart = |x: DVec2| DVec3::new(x.x, -0.01, x.y);
    let mut lines = Vec::new();
    for (tip, which) in TIPS.into_iter().zip(["upper", "lower"]) {
        let crack = grown_from(tip, &cracked);
        let Some((angle, error)) = fit(tip, &crack) else {
            return Err(CaseError::Failed(format!("no crack grew from the {which} notch")));
        };
        checks.push(Check::within(format!("angle of the {which} crack [degrees]"), 70.0, angle, 5.0));
        checks.push(Check::within(
            format!("its standard error [degrees], {} particles", crack.len()),
            0.0,
            error,
            1.0,
        ));
        let seventy = 70f64.to_radians();
        let direction = DVec2::new(seventy.cos(), seventy.sin() * tip.y.signum());
        lines.extend((0..40).map(|i| chart(tip + direction * (0.002 * f64::from(i)))));
    }
    let all = rest.iter().map(|x| DVec3::new(x.x, 0.0, x.y));
    let picture = Sketch::default().coloured(all, damage, [0.0, 1.0], 0.5 * SPACING).reference(lines);
    Ok(CaseOutcome { checks, picture })
}

/// The cracked particles that are connected to the end of a notch, by steps of at most a horizon.
fn grown_from(tip: DVec2, cracked: &[DVec3]) -> Vec<DVec2> {
    let grid = CellGrid::new(cracked, HORIZON);
    let mut reached = vec![false; cracked.len()];
    let mut crack = Vec::new();
    let mut front = vec![tip.extend(0.0)];
    while let Some(x) = front.pop() {
        grid.for_each_near(x, |j| {
            let j = j as usize;
            if !reached[j] && cracked[j].distance(x) <= HORIZON {
                reached[j] = true;
                front.push(cracked[j]);
                crack.push(cracked[j].truncate());
            }
        });
    }
    crack
}

/// Direction of the line of least squares of distances through the particles of a crack, as the angle to the
/// notch [degrees], outwards positive, and its standard error.
fn fit(tip: DVec2, crack: &[DVec2]) -> Option<(f64, f64)> {
    let points: Vec<DVec2> = crack.iter().copied().filter(|x| x.distance(tip) > NEAR).collect();
    let count = points.len() as f64;
    if count < 20.0 {
        return None;
    }
    let mean = points.iter().sum::<DVec2>() / count;
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for d in points.iter().map(|x| *x - mean) {
        (xx, xy, yy) = (xx + d.x * d.x, xy + d.x * d.y, yy + d.y * d.y);
    }
    // Axes of the scatter: eigenvalues of its matrix.
    let (half, root) = (0.5 * (xx + yy), (0.5 * (xx - yy)).hypot(xy));
    let (along, across) = (half + root, half - root);
    let angle = 0.5 * (2.0 * xy).atan2(xx - yy) * tip.y.signum();
    // The particles of the two rows beside a crack are not independent, so half of them count.
    let error = (across / (0.5 * count - 2.0) / along).sqrt();
    let degrees = angle.to_degrees();
    Some((if degrees < 0.0 { degrees + 180.0 } else { degrees }, error.to_degrees()))
}
