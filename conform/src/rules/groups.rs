//! Rules for answers about particles that move as one.

use amalgam_particles::{DMat3, DVec3};
use amalgam_proto::contract::Integration;

use super::rule::{Rule, rule};
use crate::bench::Bench;
use crate::verdict::{Check, Stop, broken, demand, skip};

pub(super) const RULES: &[Rule] = &[
    rule(
        "group-of-one",
        "Integrate",
        "A group that is one particle, with its mass and velocity, gets the momentum that changes the free particle's.",
        group_of_one,
    ),
    rule(
        "group-order",
        "Integrate",
        "Answers stand in the order of the groups, and do not depend on it.",
        group_order,
    ),
    rule(
        "explicit",
        "Integrate",
        "The momentum that an explicit participant gives a group depends neither on its inertia nor on its impulse, except at walls.",
        explicit,
    ),
    rule(
        "slope-kind",
        "Integrate",
        "Explicit participants and projections answer slopes of zero.",
        slope_kind,
    ),
    rule(
        "slopes",
        "Integrate",
        "The slope of an implicit participant is how much J falls with the group's velocity while others keep theirs.",
        slopes,
    ),
    rule(
        "prescribed",
        "Integrate",
        "A group of infinite inertia is answered, and no impulse changes what an explicit or implicit participant gives it.",
        prescribed,
    ),
    rule(
        "momentum-of-groups",
        "Integrate",
        "J is what the own particles and gravity give a group: in a closed body the momentum is kept, J_ext is not in J.",
        momentum_of_groups,
    ),
];

fn group_of_one(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    if bench.has_bodies() {
        return skip("groups are bodies: see bodies-described");
    }
    bench.step()?;
    bench.begin()?;
    let alone = bench.ask(&[bench.group(1)?]);
    let id = alone.groups.member[0];
    let mut free = bench.nobody();
    free.groups.watch = vec![id];
    let answer = bench.integrate(&alone)?;
    let told = bench.integrate(&free)?;
    let end = bench.end(&free, &told);
    bench.commit(&free, &end)?;
    let frame = bench.frame()?;
    let Ok(at) = frame.id.binary_search(&id) else { return skip("the particle has left") };
    let velocity = frame.velocity[at];
    let before = alone.groups.velocity[0];
    let (change, given) = (velocity - before, answer.momentum[0] / alone.inertia[0]);
    let size = change.length() + 1e-3 * (velocity.length() + before.length());
    // A grid interpolates a free particle's velocity, but it gives a group the momentum from the faces around
    // it.
    let tolerance = if bench.integration == Integration::Projection { 0.1 } else { bench.tolerance() };
    demand(change.distance(given) <= tolerance * size + 1e-12, || {
        format!(
            "particle {id} changes its velocity by {change:?} m/s if it is free, but J over its mass is {given:?} m/s"
        )
    })
}

fn group_order(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.step()?;
    bench.begin()?;
    let chosen = bench.group(2)?;
    let [a, b] = chosen[..] else { return skip("two particles that can move are wanted") };
    if bench.has_bodies() {
        return skip("two groups of one body are not possible");
    }
    let first = bench.integrate(&bench.ask(&[vec![a], vec![b]]))?;
    let second = bench.integrate(&bench.ask(&[vec![b], vec![a]]))?;
    let size = first.momentum.iter().map(|j| j.length()).sum::<f64>();
    for (one, other) in [(0, 1), (1, 0)] {
        let (one, other) = (first.momentum[one], second.momentum[other]);
        demand(one.distance(other) <= bench.tolerance() * size + 1e-12 * one.length(), || {
            format!("a group gets momentum {one:?} in one order of groups and {other:?} in the other")
        })?;
    }
    Ok(())
}

fn explicit(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    if bench.integration != Integration::Explicit {
        return skip("the participant is not explicit");
    }
    bench.step()?;
    bench.begin()?;
    let mut ask = bench.pair()?;
    let plain = bench.integrate(&ask)?;
    ask.repetition = 1;
    ask.inertia[0] *= 10.0;
    ask.impulse[0] = DVec3::new(1.0, -2.0, 3.0) * ask.inertia[0].min(1e3);
    let pushed = bench.integrate(&ask)?;
    demand(plain.momentum == pushed.momentum, || {
        format!("J is {:?}, and {:?} with another inertia and impulse", plain.momentum, pushed.momentum)
    })
}

fn slope_kind(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    if bench.integration == Integration::Implicit {
        return skip("the participant is implicit");
    }
    bench.begin()?;
    let ask = bench.pair()?;
    let slope = bench.integrate(&ask)?.slope_of(0);
    demand(slope == DMat3::ZERO, || format!("the slope of a group is {slope:?}"))
}

fn slopes(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    if bench.integration != Integration::Implicit {
        return skip("the participant is not implicit");
    }
    bench.step()?;
    bench.begin()?;
    let one = bench.group(1)?;
    let others: Vec<usize> = bench.by_id().into_iter().filter(|place| *place != one[0]).collect();
    let groups = if others.is_empty() { vec![one] } else { vec![one, others] };
    let mut ask = bench.ask(&groups);
    // All other groups have a prescribed velocity, so that their motion does not enter.
    ask.inertia.iter_mut().skip(1).for_each(|inertia| *inertia = f64::INFINITY);
    let rest = bench.integrate(&ask)?;
    let (mass, mut largest) = (ask.inertia[0], 0.0f64);
    let slope = rest.slope_of(0);
    let mut wrong = None;
    for axis in DVec3::AXES {
        ask.repetition += 1;
        ask.impulse[0] = axis * (mass * 0.01);
        let pushed = bench.integrate(&ask)?;
        let fall = rest.momentum[0] - pushed.momentum[0];
        let faster = (ask.impulse[0] - fall) / mass;
        let told = slope * faster;
        largest = largest.max(told.length()).max(fall.length());
        if fall.distance(told) > 0.02 * told.length().max(fall.length()) + 1e-6 * mass * 0.01 {
            wrong = Some((axis, fall, told, faster));
        }
    }
    match wrong {
        Some((axis, fall, told, faster)) => broken(format!(
            "pushed along {axis:?} a group gets faster by {faster:?} m/s: J falls by {fall:?}, but the slope says {told:?}"
        )),
        None => demand(largest > 0.0 || slope == DMat3::ZERO, || "the slope is not that of J".into()),
    }
}

fn prescribed(bench: &mut Bench<'_>) -> Check {
    // Each answer comes from a run of its own, so that iterations start from the same place.
    let mut given = |impulse: DVec3| -> Result<DVec3, Stop> {
        bench.start()?;
        bench.step()?;
        bench.begin()?;
        let mut ask = bench.pair()?;
        (ask.inertia[0], ask.impulse[0]) = (f64::INFINITY, impulse);
        Ok(bench.integrate(&ask)?.momentum[0])
    };
    let (a, b) = (given(DVec3::ZERO)?, given(DVec3::new(1.0, 2.0, -3.0))?);
    if bench.integration == Integration::Projection {
        // On a grid a large mass stands for an infinite one, and J is a small difference of large numbers.
        return Ok(());
    }
    demand(a.distance(b) <= bench.tolerance() * a.length().max(b.length()) + 1e-12, || {
        format!("a group whose velocity is prescribed gets {a:?}, and {b:?} with another impulse")
    })
}

fn momentum_of_groups(bench: &mut Bench<'_>) -> Check {
    // If walls, pins or foundations take momentum, the sum cannot be checked from outside.
    let change = |bench: &mut Bench<'_>, is_pushed: bool| -> Result<(DVec3, f64), Stop> {
        bench.start()?;
        let before = bench.step()?.totals.momentum;
        bench.begin()?;
        let mut ask = bench.nobody();
        if is_pushed {
            ask = bench.pair()?;
            ask.impulse[0] = DVec3::X * (0.1 * ask.inertia[0]);
        }
        let answer = bench.integrate(&ask)?;
        let end = bench.end(&ask, &answer);
        let done = bench.commit(&ask, &end)?;
        let mass: f64 = bench.known.values().map(|known| known.mass).sum();
        let weight = bench.gravity * (mass * ask.dt);
        let pushed = ask.impulse.iter().sum::<DVec3>();
        let size = weight.length() + before.length() + pushed.length();
        Ok((done.totals.momentum - before - weight - pushed, size))
    };
    let (alone, size) = change(bench, false)?;
    if bench.integration == Integration::Projection {
        return skip("a projection hands a push on to walls at once");
    }
    if bench.has_bodies() {
        return skip("groups are bodies: see bodies-described");
    }
    if bench.known.values().any(|known| known.immovable) || alone.length() > 1e-6 * size {
        return skip("the participant is not closed: walls, pins or others take momentum");
    }
    let (merged, size) = change(bench, true)?;
    demand(merged.length() <= 1e-3 * bench.tolerance().sqrt() * size, || {
        format!("with a group that is pushed, {merged:?} kg m/s are there that nobody gave")
    })
}
