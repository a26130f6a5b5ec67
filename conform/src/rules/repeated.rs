//! Calls that come again, and calls that must leave the state alone.

use amalgam_particles::{DVec3, ParticleId};
use amalgam_proto::contract::{Committed, Integrated, Next};

use super::order::cell_size;
use super::rule::{Rule, rule};
use crate::bench::{Bench, everyone, timeless};
use crate::verdict::{Check, Stop, broken, demand};

pub(super) const RULES: &[Rule] = &[
    rule(
        "begin-repeated",
        "The calls",
        "Begin may come again, and is then answered with the same particles and all ids.",
        begin_repeated,
    ),
    rule(
        "integrate-repeated",
        "The calls",
        "The last call of Integrate, repeated, gets the last answer to the bit.",
        integrate_repeated,
    ),
    rule(
        "integrate-tentative",
        "The calls",
        "Integrate leaves the state at the start of the step alone, whatever groups, impulses and step it is asked for.",
        integrate_tentative,
    ),
    rule(
        "left-out",
        "Integrate",
        "Without `inertia` in a repetition the last ones hold, and without `member_velocity` members have the velocity of their group.",
        left_out,
    ),
    rule(
        "commit-repeated",
        "The calls",
        "Commit, repeated for the same step, is answered again with all ids and not applied.",
        commit_repeated,
    ),
    rule(
        "commit-begins-next",
        "Before a step",
        "Commit with `next` begins the next step, and answers what Begin would.",
        commit_begins_next,
    ),
    rule(
        "next-needs-survey",
        "Before a step",
        "Commit does not begin the next step without a Survey, unless `next_within` is infinite.",
        next_needs_survey,
    ),
    rule(
        "determinism",
        "Testing a solver",
        "The same calls get the same answers to the bit in every run.",
        determinism,
    ),
];

fn begin_repeated(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    let first = bench.begin()?;
    let second = bench.begin()?;
    demand(second.id.is_some() || first.position.is_empty(), || "the repeated Begin answers no ids".into())?;
    demand(first == second, || "the repeated Begin answers something else".into())
}

fn integrate_repeated(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.step()?;
    bench.begin()?;
    let ask = bench.pair()?;
    let first = bench.integrate(&ask)?;
    for _ in 0..2 {
        let again = bench.integrate(&ask)?;
        demand(again == first, || "the repeated Integrate gets another answer".into())?;
    }
    Ok(())
}

/// Takes a step in which particles move. `disturb` makes calls before the Integrate that is committed.
fn step_after(
    bench: &mut Bench<'_>,
    disturb: impl FnOnce(&mut Bench<'_>) -> Check,
) -> Result<(Integrated, Committed, Vec<DVec3>), Stop> {
    bench.start()?;
    bench.step()?;
    bench.begin()?;
    disturb(bench)?;
    let ask = bench.nobody();
    let answer = bench.integrate(&ask)?;
    let end = bench.end(&ask, &answer);
    let done = bench.commit(&ask, &end)?;
    let frame = bench.frame()?;
    Ok((answer, done, frame.position))
}

fn integrate_tentative(bench: &mut Bench<'_>) -> Check {
    let (plain, _, there) = step_after(bench, |_| Ok(()))?;
    let (disturbed, _, here) = step_after(bench, |bench| {
        let mut ask = bench.pair()?;
        ask.impulse[0] = DVec3::splat(0.1 * ask.inertia[0].min(1e3));
        ask.dt *= 0.5;
        bench.integrate(&ask)?;
        ask.repetition = 1;
        ask.impulse[0] *= -1.0;
        bench.integrate(&ask).map(drop).map_err(Stop::from)
    })?;
    let tolerance = bench.tolerance();
    let changes = plain.watch_velocity.iter().map(|v| v.length()).fold(1e-9, f64::max);
    for (a, b) in plain.watch_velocity.iter().zip(&disturbed.watch_velocity) {
        demand(a.distance(*b) <= tolerance * changes, || {
            format!("after other calls of Integrate a watched velocity is {b:?} in place of {a:?}")
        })?;
    }
    let way = bench.dt * changes;
    let wrong = there.iter().zip(&here).find(|(a, b)| a.distance(**b) > 10.0 * tolerance * way + 1e-12);
    match wrong {
        Some((a, b)) => {
            broken(format!("after other calls of Integrate a particle ends at {b:?} in place of {a:?}"))
        }
        None => Ok(()),
    }
}

fn left_out(bench: &mut Bench<'_>) -> Check {
    let run = |bench: &mut Bench<'_>, leaves_out: bool| -> Result<(Integrated, u64), Stop> {
        bench.start()?;
        bench.begin()?;
        let mut ask = bench.pair()?;
        bench.integrate(&ask)?;
        ask.repetition = 1;
        ask.impulse[0] = DVec3::splat(0.1 * ask.inertia[0].min(1e3));
        let answer = bench.integrate_with(&ask, |packets| {
            for packet in packets.iter_mut().filter(|_| leaves_out) {
                packet.columns.retain(|column| column.name != "inertia");
            }
        })?;
        let mut end = bench.end(&ask, &answer);
        let of_groups = end.group_velocity.iter().zip(&ask.groups.size);
        end.member_velocity =
            of_groups.flat_map(|(&velocity, &size)| std::iter::repeat_n(velocity, size as usize)).collect();
        let done = bench.try_commit(&ask, &end, |packets| {
            for packet in packets.iter_mut().filter(|_| leaves_out) {
                packet.header.iter_mut().for_each(|header| header.members = 0);
                packet.columns.retain(|column| column.name != "member_velocity");
            }
        })?;
        Ok((answer, done.state_hash))
    };
    let (whole, left_out) = (run(bench, false)?, run(bench, true)?);
    demand(whole.0 == left_out.0, || "without `inertia` a repetition is answered otherwise".into())?;
    demand(whole.1 == left_out.1, || "without `member_velocity` the step ends otherwise".into())
}

fn commit_repeated(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    for is_next_wanted in [false, true] {
        if bench.context.step == 0 || !is_next_wanted {
            bench.begin()?;
        }
        let ask = bench.pair()?;
        let answer = bench.integrate(&ask)?;
        let mut end = bench.end(&ask, &answer);
        end.next = is_next_wanted.then(|| Next { interest: everyone(), within: f64::INFINITY });
        let first = bench.try_commit(&ask, &end, |_| ())?;
        let again = bench.try_commit(&ask, &end, |_| ())?;
        bench.note(&first)?;
        let bare = |done: &Committed| Committed { next: None, ..timeless(done) };
        demand(bare(&again) == bare(&first), || "the repeated Commit gets another answer".into())?;
        demand(
            again.next.as_ref().map(|next| &next.position) == first.next.as_ref().map(|next| &next.position),
            || "the repeated Commit begins the next step with other positions".into(),
        )?;
        demand(again.next.as_ref().is_none_or(|next| next.id.is_some() || next.position.is_empty()), || {
            "the repeated Commit answers no ids".into()
        })?;
        let frame = bench.frame()?;
        demand(crate::bench::state_hash(&frame) == first.state_hash, || {
            "after the repeated Commit the state is another: it was applied twice, or its hash is wrong"
                .into()
        })?;
        bench.begin()?;
    }
    Ok(())
}

fn commit_begins_next(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.begin()?;
    let cell = cell_size(bench);
    bench.survey(cell, 1.0)?;
    bench.begin()?;
    let ask = bench.nobody();
    let answer = bench.integrate(&ask)?;
    let mut end = bench.end(&ask, &answer);
    end.next = Some(Next { interest: everyone(), within: f64::INFINITY });
    let done = bench.commit(&ask, &end)?;
    let Some(next) = done.next else {
        return broken("Commit with `next_within` infinite did not begin the next step");
    };
    // The step has begun: Integrate may follow at once.
    bench.state.id = next.id.clone().or(bench.state.id.take());
    demand(bench.ids().len() == next.position.len(), || {
        "Commit begins the next step with other particles than before, and without ids".into()
    })?;
    (bench.state.position, bench.state.velocity) = (next.position, next.velocity);
    let begun = motions(bench);
    let ask = bench.nobody();
    let answer = bench.integrate(&ask)?;
    let end = bench.end(&ask, &answer);
    bench.commit(&ask, &end)?;
    // Takes the same steps again, each with a Begin of its own.
    bench.start()?;
    bench.step()?;
    bench.begin()?;
    demand(begun == motions(bench), || "Commit with `next` answers other particles than Begin".into())
}

/// Ids, positions and velocities of all particles, by id.
fn motions(bench: &Bench<'_>) -> Vec<(ParticleId, DVec3, DVec3)> {
    let (ids, state) = (bench.ids(), &bench.state);
    bench.by_id().into_iter().map(|i| (ids[i], state.position[i], state.velocity[i])).collect()
}

fn next_needs_survey(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.begin()?;
    let ask = bench.nobody();
    let answer = bench.integrate(&ask)?;
    let mut end = bench.end(&ask, &answer);
    end.next = Some(Next { interest: everyone(), within: 1e9 });
    let done = bench.commit(&ask, &end)?;
    demand(done.next.is_none() || bench.known.is_empty(), || {
        "the next step was begun, though there was no Survey from which displacements count".into()
    })
}

fn determinism(bench: &mut Bench<'_>) -> Check {
    let steps = |bench: &mut Bench<'_>| -> Result<Vec<(Integrated, Committed)>, Stop> {
        bench.start()?;
        let mut answers = Vec::new();
        for step in 0..4 {
            bench.begin()?;
            let ask = if step % 2 == 1 { bench.pair()? } else { bench.nobody() };
            let answer = bench.integrate(&ask)?;
            let end = bench.end(&ask, &answer);
            let done = bench.commit(&ask, &end)?;
            answers.push((answer, timeless(&done)));
        }
        Ok(answers)
    };
    let (first, second) = (steps(bench)?, steps(bench)?);
    match first.iter().zip(&second).position(|(a, b)| a != b) {
        Some(step) => broken(format!("step {step} is answered otherwise in a second run")),
        None => Ok(()),
    }
}
