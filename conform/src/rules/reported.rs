//! Rules for reports about particles: sums, hashes, cells, frames.

use amalgam_particles::{DVec3, Lattice, Reach};
use amalgam_proto::contract::{Committed, Frame};

use super::order::cell_size;
use super::rule::{Rule, rule};
use crate::bench::{Bench, state_hash};
use crate::verdict::{Check, Stop, demand};

pub(super) const RULES: &[Rule] = &[
    rule(
        "frame",
        "The calls",
        "A frame has the particles that Begin has, with the radii of the table.",
        frame,
    ),
    rule("sums", "The calls", "Momentum and mass moment in Commit are the sums over the particles.", sums),
    rule(
        "energy",
        "The calls",
        "The kinetic energy in Commit is that of the particles, more only where bodies spin.",
        energy,
    ),
    rule(
        "largest",
        "Columns",
        "The largest speed, speed over radius and acceleration in Commit are over all particles.",
        largest,
    ),
    rule(
        "state-hash",
        "State hash",
        "The hash in Commit is the one of ids, positions and velocities that this page defines.",
        hash,
    ),
    rule(
        "tracked",
        "Own contacts, births and deaths",
        "A tracked particle's state in Commit is that of the end of the step.",
        tracked,
    ),
    rule(
        "grids",
        "Occupancy",
        "The cells in Commit are those that hold the centre of a particle at the end of the step.",
        grids,
    ),
];

/// The end of the second step, and the particles then.
fn stepped(bench: &mut Bench<'_>) -> Result<(Committed, Frame), Stop> {
    bench.start()?;
    bench.step()?;
    let done = bench.step()?;
    Ok((done, bench.frame()?))
}

fn frame(bench: &mut Bench<'_>) -> Check {
    let (_, frame) = stepped(bench)?;
    let batch = bench.begin()?;
    let place = bench.places();
    demand(frame.id.len() == batch.position.len(), || {
        "Frame and Begin answer other numbers of particles".into()
    })?;
    for (at, id) in frame.id.iter().enumerate() {
        let Some(&there) = place.get(id) else {
            return demand(false, || format!("the frame has particle {id}, which Begin has not"));
        };
        demand(
            frame.position[at] == batch.position[there] && frame.velocity[at] == batch.velocity[there],
            || format!("particle {id} is elsewhere in the frame than in Begin"),
        )?;
        demand(frame.radius[at] == bench.known[id].radius, || {
            format!(
                "particle {id} has radius {} in the frame, {} in the table",
                frame.radius[at], bench.known[id].radius
            )
        })?;
    }
    Ok(())
}

fn close(what: &str, said: DVec3, found: DVec3, size: f64) -> Check {
    demand(said.distance(found) <= 1e-9 * size + 1e-300, || {
        format!("{what} is said to be {said:?}, but the particles add up to {found:?}")
    })
}

fn sums(bench: &mut Bench<'_>) -> Check {
    let (done, frame) = stepped(bench)?;
    let mass = |at: usize| bench.known[&frame.id[at]].mass;
    let all = 0..frame.id.len();
    let momentum = all.clone().map(|at| frame.velocity[at] * mass(at)).sum();
    let moment = all.clone().map(|at| frame.position[at] * mass(at)).sum();
    let size = |values: &[DVec3]| all.clone().map(|at| values[at].length() * mass(at)).sum::<f64>();
    close("momentum", done.totals.momentum, momentum, size(&frame.velocity))?;
    close("mass_moment", done.totals.mass_moment, moment, size(&frame.position))
}

fn energy(bench: &mut Bench<'_>) -> Check {
    let (done, frame) = stepped(bench)?;
    let each = |at: usize| 0.5 * bench.known[&frame.id[at]].mass * frame.velocity[at].length_squared();
    let (said, found) = (done.totals.kinetic_energy, (0..frame.id.len()).map(each).sum::<f64>());
    let least = said >= found * (1.0 - 1e-9);
    demand(least && (bench.has_bodies() || said <= found * (1.0 + 1e-9) + 1e-300), || {
        format!("kinetic_energy is said to be {said} J, but the particles add up to {found} J")
    })?;
    let turn = |at: usize| frame.position[at].cross(frame.velocity[at]) * bench.known[&frame.id[at]].mass;
    let (said, found) = (done.totals.angular_momentum, (0..frame.id.len()).map(turn).sum::<DVec3>());
    if bench.has_bodies() {
        return Ok(());
    }
    close("angular_momentum", said, found, (0..frame.id.len()).map(|at| turn(at).length()).sum())
}

fn largest(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.step()?;
    bench.begin()?;
    let (before, place) = (bench.state.velocity.clone(), bench.places());
    let ask = bench.nobody();
    let answer = bench.integrate(&ask)?;
    let end = bench.end(&ask, &answer);
    let done = bench.commit(&ask, &end)?;
    let frame = bench.frame()?;
    let all = || 0..frame.id.len();
    let most = |value: &dyn Fn(usize) -> f64| all().map(value).fold(0.0, f64::max);
    let change =
        |at: usize| place.get(&frame.id[at]).map_or(0.0, |&old| frame.velocity[at].distance(before[old]));
    for (name, said, found) in [
        ("speed_max", done.totals.speed_max, most(&|at| frame.velocity[at].length())),
        (
            "radius_rate_max",
            done.totals.radius_rate_max,
            most(&|at| frame.velocity[at].length() / frame.radius[at]),
        ),
        ("acceleration_max", done.totals.acceleration_max, most(&|at| change(at) / ask.dt)),
    ] {
        demand((said - found).abs() <= 1e-9 * found + 1e-300, || {
            format!("{name} is said to be {said}, but is {found}")
        })?;
    }
    Ok(())
}

fn hash(bench: &mut Bench<'_>) -> Check {
    let (done, frame) = stepped(bench)?;
    let found = state_hash(&frame);
    demand(done.state_hash == found, || {
        format!("state_hash is said to be {:016x}, but that of the frame is {found:016x}", done.state_hash)
    })
}

fn tracked(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.step()?;
    bench.begin()?;
    let ask = bench.nobody();
    let answer = bench.integrate(&ask)?;
    let mut end = bench.end(&ask, &answer);
    end.track = bench.ids().iter().rev().take(3).copied().collect();
    let done = bench.commit(&ask, &end)?;
    let frame = bench.frame()?;
    for (k, id) in end.track.iter().enumerate() {
        let Ok(at) = frame.id.binary_search(id) else { continue };
        let said = (done.track_position[k], done.track_velocity[k]);
        demand(said == (frame.position[at], frame.velocity[at]), || {
            format!("tracked particle {id} is said to be at {said:?}, but is at {:?}", frame.position[at])
        })?;
    }
    Ok(())
}

fn grids(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.begin()?;
    let ask = bench.nobody();
    let answer = bench.integrate(&ask)?;
    let mut end = bench.end(&ask, &answer);
    let cell = cell_size(bench);
    let at = |x: f64, cell_size: f64| Lattice { origin: DVec3::new(x, -0.3 * cell, 0.1 * cell), cell_size };
    end.grids = vec![at(0.0, cell), at(0.4 * cell, 1.7 * cell)];
    let done = bench.commit(&ask, &end)?;
    let frame = bench.frame()?;
    for (grid, said) in end.grids.iter().zip(&done.cells) {
        let found = grid.occupied(&frame.position, &frame.radius, Reach::Centre);
        demand(*said == found, || {
            format!(
                "{} cells of {} m are said to be occupied, but {} are, or others",
                said.len(),
                grid.cell_size,
                found.len()
            )
        })?;
    }
    Ok(())
}
