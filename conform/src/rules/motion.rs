//! Rules for the motion of particles at the end of a step.

use amalgam_particles::DVec3;
use amalgam_proto::contract::Integration;

use super::rule::{Rule, rule};
use crate::bench::Bench;
use crate::verdict::{Check, demand, skip};

pub(super) const RULES: &[Rule] = &[
    rule(
        "members-move",
        "The calls",
        "A group's members move by `group_velocity` x dt and then have their `member_velocity`, immovable ones excepted.",
        members_move,
    ),
    rule(
        "free-move",
        "The calls",
        "Free particles end the step with the velocities that the last answer said; those that a grid carries move by them.",
        free_move,
    ),
    rule(
        "paths",
        "The calls",
        "A free particle's way in a step is that of its velocities before and after.",
        paths,
    ),
    rule(
        "travel",
        "Integrate",
        "`travel_max` is the largest |v| dt / radius of free particles, or a bound below 1.",
        travel,
    ),
    rule(
        "births-and-deaths",
        "Own contacts, births and deaths",
        "Who lives after a step is who lived before, with those born and without those dead.",
        births_and_deaths,
    ),
];

fn members_move(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    if bench.has_bodies() {
        return skip("groups are bodies: see spin-taken");
    }
    bench.step()?;
    bench.begin()?;
    let ask = bench.pair()?;
    let answer = bench.integrate(&ask)?;
    let mut end = bench.end(&ask, &answer);
    let masses: Vec<f64> = ask.groups.member.iter().map(|id| bench.known[id].mass).collect();
    if let ([first, second], [one, two]) = (&mut end.member_velocity[..], &masses[..]) {
        // The members part with different velocities; the group keeps its momentum.
        *first += DVec3::new(0.02, 0.01, -0.03) / *one * one.min(*two);
        *second -= DVec3::new(0.02, 0.01, -0.03) / *two * one.min(*two);
    }
    let (before, place) = (bench.state.position.clone(), bench.places());
    let done = bench.commit(&ask, &end)?;
    if done.not_taken != 0.0 {
        return skip("the participant says that it could not take its members' velocities");
    }
    let frame = bench.frame()?;
    for (k, id) in ask.groups.member.iter().enumerate() {
        let Ok(at) = frame.id.binary_search(id) else { continue };
        let (from, to) = (before[place[id]], before[place[id]] + end.group_velocity[0] * ask.dt);
        let (found, velocity) = (frame.position[at], frame.velocity[at]);
        let way = end.group_velocity[0].length() * ask.dt;
        demand(found.distance(to) <= 1e-9 * way + 1e-14 * from.length(), || {
            format!(
                "member {id} moves from {from:?} to {found:?}, but its group's velocity moves it to {to:?}"
            )
        })?;
        demand(bench.known[id].immovable || velocity == end.member_velocity[k], || {
            format!("member {id} was given {:?} m/s, but has {velocity:?}", end.member_velocity[k])
        })?;
        demand(frame.group[at] == 7, || {
            format!("the frame says group {} of member {id}, but Commit numbered it 7", frame.group[at])
        })?;
    }
    Ok(())
}

fn free_move(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    if bench.has_bodies() {
        return skip("bodies turn on the way: see angular-momentum");
    }
    for is_grouped in [false, true] {
        bench.begin()?;
        let (before, place) = (bench.state.clone(), bench.places());
        let ask = if is_grouped { bench.pair()? } else { bench.nobody() };
        let answer = bench.integrate(&ask)?;
        let end = bench.end(&ask, &answer);
        bench.commit(&ask, &end)?;
        let frame = bench.frame()?;
        for (id, told) in ask.groups.watch.iter().zip(&answer.watch_velocity) {
            let Ok(at) = frame.id.binary_search(id) else { continue };
            if bench.integration == Integration::Projection {
                let way = frame.position[at] - before.position[place[id]];
                let radius = bench.known[id].radius;
                // The grid's velocity changes along the path, and the correction of density moves particles,
                // too.
                let allowed = 0.1 * ask.dt * told.length() + 0.5 * radius;
                demand(way.distance(*told * ask.dt) <= allowed, || {
                    format!(
                        "free particle {id} was said to move by {told:?} m/s, but moves by {way:?} m in {} s",
                        ask.dt
                    )
                })?;
            } else {
                let found = frame.velocity[at];
                demand(found.distance(*told) <= 1e-9 * told.length() + 1e-12, || {
                    format!("free particle {id} was said to get {told:?} m/s, but has {found:?}")
                })?;
            }
            demand(frame.group[at] == u32::MAX, || {
                format!("the frame says group {} of particle {id}, which is free", frame.group[at])
            })?;
        }
    }
    Ok(())
}

fn paths(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.step()?;
    bench.begin()?;
    let (before, place) = (bench.state.clone(), bench.places());
    let ask = bench.nobody();
    let answer = bench.integrate(&ask)?;
    let end = bench.end(&ask, &answer);
    let done = bench.commit(&ask, &end)?;
    let frame = bench.frame()?;
    // A grid carries particles by its own velocities, which are no larger than the largest speed of
    // particles.
    let is_carried = bench.integration == Integration::Projection;
    let carried = if is_carried { done.totals.speed_max * ask.dt } else { 0.0 };
    for (at, id) in frame.id.iter().enumerate() {
        let Some(&from) = place.get(id) else { continue };
        let way = frame.position[at] - before.position[from];
        let (old, new) = (before.velocity[from], frame.velocity[at]);
        let straight = (old + new) * (0.5 * ask.dt);
        // Sub-steps, turning bodies and walls bend a path, by at most dt times the change of velocity and the
        // mean of both speeds.
        let allowed = ask.dt * (old.distance(new) + 0.5 * (old.length() + new.length())) + carried + 1e-12;
        demand(way.distance(straight) <= allowed, || {
            format!(
                "particle {id} moves by {way:?} m, but its velocities {old:?} and {new:?} make it {straight:?}"
            )
        })?;
    }
    Ok(())
}

fn travel(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.step()?;
    bench.begin()?;
    let mut ask = bench.nobody();
    ask.groups.watch = bench.movable().into_iter().map(|place| bench.ids()[place]).collect();
    let answer = bench.integrate(&ask)?;
    let travel = |(velocity, id): (&DVec3, _)| velocity.length() * ask.dt / bench.known[id].radius;
    let most = answer.watch_velocity.iter().zip(&ask.groups.watch).map(travel).fold(0.0, f64::max);
    demand(answer.travel_max >= most * (1.0 - 1e-9), || {
        format!("travel_max is {}, but a free particle travels {most} of its radius", answer.travel_max)
    })?;
    demand(most >= 1.0 || answer.travel_max < 1.0, || {
        format!(
            "travel_max is {}, but no free particle travels more than {most} of its radius",
            answer.travel_max
        )
    })
}

fn births_and_deaths(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    for _ in 0..4 {
        // The call of Commit checks the number of particles, and that no id is born or dies twice.
        bench.step()?;
        let frame = bench.frame()?;
        demand(frame.id.len() == bench.known.len(), || {
            format!("the frame has {} particles, but {} are alive", frame.id.len(), bench.known.len())
        })?;
        if let Some(id) = frame.id.iter().find(|id| !bench.known.contains_key(id)) {
            return demand(false, || format!("the frame has particle {id}, which was never born or is dead"));
        }
    }
    Ok(())
}
