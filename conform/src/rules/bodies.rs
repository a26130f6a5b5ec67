//! Participants whose particles belong to bodies that may turn, and participants that ask for occupied cells.

use amalgam_particles::DVec3;
use amalgam_proto::v1;
use tonic::Code;

use super::rule::{Rule, rule};
use crate::bench::{Ask, Bench, refused};
use crate::verdict::{Check, Stop, broken, demand, skip};

pub(super) const RULES: &[Rule] = &[
    rule(
        "bodies-described",
        "Bodies",
        "An answer describes a group's body: mass and centre of its particles, and J as what changes its velocity.",
        described,
    ),
    rule(
        "angular-momentum",
        "Bodies",
        "Bodies that nothing touches, without gravity, keep their momentum and their angular momentum.",
        angular_momentum,
    ),
    rule(
        "spin-taken",
        "Bodies",
        "Commit gives a body the velocity of its centre and its spin: angular momentum changes by inertia x spin.",
        spin_taken,
    ),
    rule(
        "spin-wanted",
        "Bodies",
        "Commit without spins is refused where groups are bodies, and with spins where they are not.",
        spin_wanted,
    ),
    rule(
        "occupancy",
        "Occupancy",
        "A participant that gives a grid takes the cells that anyone occupies, and refuses a set that is none.",
        occupancy,
    ),
];

fn bodies(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    if bench.has_bodies() { Ok(()) } else { skip("the participant has no bodies") }
}

fn described(bench: &mut Bench<'_>) -> Check {
    bodies(bench)?;
    bench.step()?;
    bench.begin()?;
    let ask = bench.pair()?;
    let answer = bench.integrate(&ask)?;
    let Some(body) = answer.bodies.as_ref().map(|bodies| bodies[0]) else {
        return broken("the answer to Integrate has no bodies");
    };
    let of = bench.known[&ask.groups.member[0]].body;
    let mine: Vec<usize> =
        (0..bench.ids().len()).filter(|&at| bench.known[&bench.ids()[at]].body == of).collect();
    let mass_of = |at: usize| bench.known[&bench.ids()[at]].mass;
    let mass: f64 = mine.iter().map(|&at| mass_of(at)).sum();
    let mean = |values: &[DVec3]| mine.iter().map(|&at| values[at] * mass_of(at)).sum::<DVec3>() / mass;
    let (centre, velocity) = (mean(&bench.state.position), mean(&bench.state.velocity));
    demand((body.mass - mass).abs() <= 1e-6 * mass, || {
        format!("body_mass is {} kg, but the particles of body {of} add up to {mass} kg", body.mass)
    })?;
    let extent = mine.iter().map(|&at| bench.state.position[at].distance(centre)).fold(0.0, f64::max);
    demand(body.centre.distance(centre) <= 1e-6 * extent + 1e-9 * centre.length(), || {
        format!("body_centre is {:?}, but the particles' is {centre:?}", body.centre)
    })?;
    let (changed, given) = (body.velocity - velocity, answer.momentum[0] / body.mass);
    let size = changed.length() + velocity.length();
    demand(changed.distance(given) <= 1e-6 * size + 1e-12, || {
        format!("the body's velocity changes by {changed:?}, but J over its mass is {given:?}")
    })
}

fn angular_momentum(bench: &mut Bench<'_>) -> Check {
    bench.gravity = DVec3::ZERO;
    bodies(bench)?;
    if bench.known.values().any(|known| known.immovable) {
        return skip("particles are immovable: they take angular momentum");
    }
    let first = bench.step()?.totals;
    bench.step()?;
    let last = bench.step()?.totals;
    let (before, after) = (first.momentum, last.momentum);
    let size = first.momentum.length() + (2.0 * first.kinetic_energy * last_mass(bench)).sqrt();
    demand(before.distance(after) <= 1e-6 * size, || format!("momentum goes from {before:?} to {after:?}"))?;
    let (before, after) = (first.angular_momentum, last.angular_momentum);
    let reach = bench.state.position.iter().map(|x| x.length()).fold(0.0, f64::max);
    demand(before.distance(after) <= 1e-6 * (before.length() + reach * size), || {
        format!("angular momentum goes from {before:?} to {after:?}")
    })
}

fn last_mass(bench: &Bench<'_>) -> f64 {
    bench.known.values().map(|known| known.mass).sum()
}

fn spin_taken(bench: &mut Bench<'_>) -> Check {
    bodies(bench)?;
    let turn = DVec3::new(0.3, -0.2, 0.5);
    let mut ended = |extra: DVec3| -> Result<_, Stop> {
        bench.start()?;
        bench.begin()?;
        let ask = bench.pair()?;
        let answer = bench.integrate(&ask)?;
        let Some(body) = answer.bodies.as_ref().map(|bodies| bodies[0]) else {
            return broken("the answer to Integrate has no bodies");
        };
        let mut end = bench.end(&ask, &answer);
        end.spin[0] += extra;
        for (velocity, id) in end.member_velocity.iter_mut().zip(&ask.groups.member) {
            let at = bench.places()[id];
            *velocity += extra.cross(bench.state.position[at] - body.centre);
        }
        Ok((body, bench.commit(&ask, &end)?.totals))
    };
    let (_, plain) = ended(DVec3::ZERO)?;
    let (body, turned) = ended(turn)?;
    let (found, told) = (turned.angular_momentum - plain.angular_momentum, body.inertia * turn);
    demand(found.distance(told) <= 1e-6 * (told.length() + 1e-6 * plain.angular_momentum.length()), || {
        format!("a spin larger by {turn:?} rad/s gives {found:?} kg m^2/s, but body_inertia says {told:?}")
    })?;
    let (found, size) = (turned.momentum.distance(plain.momentum), plain.momentum.length());
    demand(found <= 1e-9 * size + 1e-12, || "a larger spin changes the momentum".into())
}

fn spin_wanted(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.begin()?;
    let ask = bench.pair()?;
    let answer = bench.integrate(&ask)?;
    let end = bench.end(&ask, &answer);
    let has_bodies = bench.has_bodies();
    let changed = |packets: &mut Vec<v1::CommitRequest>| {
        let packet = &mut packets[0];
        if let Some(header) = &mut packet.header {
            header.bodies = !has_bodies;
        }
        packet.columns.retain(|column| column.name != "group_spin");
        if !has_bodies {
            packet.columns.push(v1::Column { name: "group_spin".into(), data: vec![0; 24].into() });
        }
    };
    let what = if has_bodies { "Commit without spins" } else { "Commit with spins" };
    refused(bench.try_commit(&ask, &end, changed), Code::InvalidArgument, what)
}

fn occupancy(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    if bench.table.occupancy.is_none() {
        return skip("the participant wants no cells");
    }
    bench.begin()?;
    let ask = bench.nobody();
    let spoil = |packets: &mut Vec<v1::IntegrateRequest>| {
        for column in packets.iter_mut().flat_map(|packet| &mut packet.columns) {
            if column.name == "occupied" {
                column.data = vec![0xff; 40].into();
            }
        }
    };
    refused(bench.integrate_with(&ask, spoil), Code::InvalidArgument, "Integrate with cells that are none")?;
    // Further cells, as if other participants occupied them.
    let mut more: Ask = bench.nobody();
    if let (Some(lattice), Some(cells)) = (bench.table.occupancy, &mut more.groups.occupied) {
        let there = lattice.occupied(
            &[bench.section.domain.0.midpoint(bench.section.domain.1)],
            &[1.0],
            amalgam_particles::Reach::Centre,
        );
        *cells = amalgam_particles::CellSet::union([&*cells, &there]);
    }
    let answer = bench.integrate(&more)?;
    let end = bench.end(&more, &answer);
    bench.commit(&more, &end).map(drop)
}
