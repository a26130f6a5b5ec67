//! Rules for what a service reports of its particles before a step.

use std::collections::HashSet;

use amalgam_particles::{CellSet, DVec3, Lattice, ParticleId, Reach};
use amalgam_proto::contract::{Batch, Table, Wanted};

use super::order::cell_size;
use super::rule::{Rule, rule};
use crate::bench::{Bench, everyone, interest};
use crate::verdict::{Check, Stop, demand, skip};

pub(super) const RULES: &[Rule] = &[
    rule(
        "begin",
        "The calls",
        "Begin for all answers every particle of the table where the table has it.",
        begin,
    ),
    rule(
        "brief",
        "The calls",
        "A brief answer to Initialize says what the table says, and Survey then names the cells that hold centres.",
        brief,
    ),
    rule(
        "survey",
        "The calls",
        "Survey names every cell that a collision sphere touches, larger by the margin, and none farther than a cell away.",
        survey,
    ),
    rule(
        "near",
        "Before a step",
        "Begin for NEAR answers every particle whose sphere, larger by the margin, touches a cell of interest.",
        near,
    ),
    rule(
        "listed",
        "Before a step",
        "Begin for LISTED answers the particles listed and those in own contacts, and AGAIN the same list.",
        listed,
    ),
    rule(
        "own-contacts",
        "Own contacts, births and deaths",
        "Own contacts intersect, the lower place first, and none joins two immovable particles.",
        own_contacts,
    ),
];

fn begin(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.begin()?;
    let place = bench.places();
    let table = &bench.table.particles;
    for (i, id) in table.id.iter().enumerate() {
        let Some(&at) = place.get(id) else {
            return demand(false, || format!("Begin for all leaves out particle {id}"));
        };
        let (position, velocity) = (bench.state.position[at], bench.state.velocity[at]);
        demand((position, velocity) == (table.position[i], table.velocity[i]), || {
            format!("particle {id} is at {position:?} in Begin, at {:?} in the table", table.position[i])
        })?;
    }
    Ok(())
}

fn brief(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    let Table { particles: whole, bodies, .. } = std::mem::take(&mut bench.table);
    let points = [DVec3::ZERO, whole.position.last().copied().unwrap_or_default()];
    bench.start_briefly(&points)?;
    let Some(brief) = bench.table.brief.clone() else { return skip("no answer is brief") };
    demand(brief.count == whole.len() as u64, || {
        format!("the brief answer has {} particles, the table {}", brief.count, whole.len())
    })?;
    let last = whole.id.iter().map(|id| id.0).max();
    demand(last.is_none_or(|last| last < brief.count), || {
        format!("the brief answer stands for {} particles, but there is particle {last:?}", brief.count)
    })?;
    let shares = bodies.iter().flatten().zip(&whole.id).find(|(body, id)| body != id);
    demand(shares.is_none() && bodies.is_some() == bench.table.bodies.is_some(), || {
        "the brief answer stands for particles of other bodies than the table's".to_string()
    })?;
    let other = (0..whole.len())
        .find(|&i| whole.immovable[i] || (whole.mass[i], whole.radius[i]) != (brief.mass, brief.radius));
    demand(other.is_none(), || {
        format!("the answer is brief, but particle {} is unlike", whole.id[other.unwrap_or(0)])
    })?;
    let speed = whole.velocity.iter().map(|v| v.length()).fold(0.0, f64::max);
    demand((brief.speed_max - speed).abs() <= 1e-9 * speed, || {
        format!("the largest speed is {speed} m/s by the table, {} m/s by the brief answer", brief.speed_max)
    })?;
    demand(brief.nearest.len() == points.len(), || {
        format!("{} points are nearest to 2", brief.nearest.len())
    })?;
    for (point, &(id, place)) in points.iter().zip(&brief.nearest) {
        let at = whole.id.iter().position(|&known| known == id);
        let least = whole.position.iter().map(|x| x.distance(*point)).fold(f64::INFINITY, f64::min);
        let is_nearest = at.is_some_and(|at| whole.position[at] == place) && place.distance(*point) <= least;
        demand(is_nearest, || format!("particle {id} at {place:?} is not the nearest to {point:?}"))?;
    }
    let lattice = Lattice { origin: DVec3::ZERO, cell_size: 4.0 * brief.radius };
    let said = bench.survey_centres(lattice.cell_size)?;
    let held = lattice.occupied(&whole.position, &whole.radius, Reach::Centre);
    demand(said == held, || format!("{} cells hold centres, Survey names {}", held.len(), said.len()))
}

/// Cells that a sphere touches for certain.
fn touched(lattice: &Lattice, centre: DVec3, radius: f64) -> Vec<[i32; 3]> {
    let (low, high) = (lattice.cell(centre - radius), lattice.cell(centre + radius));
    let mut cells = Vec::new();
    for z in low.z..=high.z {
        for y in low.y..=high.y {
            for x in low.x..=high.x {
                let corner = lattice.origin + DVec3::new(x.into(), y.into(), z.into()) * lattice.cell_size;
                let nearest = centre.clamp(corner, corner + lattice.cell_size);
                if nearest.distance(centre) < radius * (1.0 - 1e-9) {
                    cells.push([x, y, z]);
                }
            }
        }
    }
    cells
}

fn holds(set: &CellSet, [x, y, z]: [i32; 3]) -> bool {
    set.contains([x, y, z].into())
}

fn survey(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.begin()?;
    let margin = 0.5;
    let lattice = Lattice { origin: DVec3::ZERO, cell_size: cell_size(bench) };
    let said = bench.survey(lattice.cell_size, margin)?;
    let radii = bench.radii();
    for (at, &centre) in bench.state.position.iter().enumerate() {
        let missing = touched(&lattice, centre, radii[at] * (1.0 + margin))
            .into_iter()
            .find(|&cell| !holds(&said, cell));
        if let Some(cell) = missing {
            let id = bench.ids()[at];
            return demand(false, || format!("Survey leaves out cell {cell:?}, which particle {id} touches"));
        }
    }
    let wide: Vec<f64> = radii.iter().map(|radius| radius * (1.0 + margin) + lattice.cell_size).collect();
    let near = lattice.occupied(&bench.state.position, &wide, Reach::Sphere(0.0));
    let far = said.iter().find(|&cell| !near.contains(cell));
    demand(far.is_none(), || format!("Survey names cell {far:?}, which no particle is near"))
}

/// Checks that an answer about particles agrees with Begin for all.
fn same_state(bench: &Bench<'_>, batch: &Batch) -> Result<Vec<ParticleId>, Stop> {
    let (ids, place) = (batch.id.clone().unwrap_or_default(), bench.places());
    demand(ids.len() == batch.position.len(), || "an answer to another wish came without ids".into())?;
    for (at, id) in ids.iter().enumerate() {
        let there = place.get(id).map(|&there| bench.state.position[there]);
        demand(there == Some(batch.position[at]), || {
            format!("particle {id} is at {:?} here, and at {there:?} in Begin for all", batch.position[at])
        })?;
    }
    Ok(ids)
}

fn own(batch: &Batch, ids: &[ParticleId]) -> HashSet<ParticleId> {
    batch.contacts.iter().flatten().map(|&place| ids[place as usize]).collect()
}

fn near(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.begin()?;
    let (margin, lattice) = (0.5, Lattice { origin: DVec3::ZERO, cell_size: cell_size(bench) });
    let Some(&centre) = bench.state.position.get(bench.state.position.len() / 2) else {
        return skip("there are no particles");
    };
    let cells = lattice.occupied(&[centre], &[0.0], Reach::Centre);
    let batch = bench.begin_for(interest(Wanted::Near { lattice, cells: cells.clone(), margin }))?;
    let ids = same_state(bench, &batch)?;
    let (answered, contacts) = (ids.iter().copied().collect::<HashSet<_>>(), own(&batch, &ids));
    let radii = bench.radii();
    for (at, &id) in bench.ids().iter().enumerate() {
        let radius = radii[at] * (1.0 + margin);
        let is_near =
            touched(&lattice, bench.state.position[at], radius).into_iter().any(|cell| holds(&cells, cell));
        demand(!is_near || answered.contains(&id), || {
            format!("particle {id} touches a cell of interest, but is not answered")
        })?;
        let wide = touched(&lattice, bench.state.position[at], radius + lattice.cell_size);
        let is_far = !wide.into_iter().any(|cell| holds(&cells, cell));
        demand(!(is_far && answered.contains(&id) && !contacts.contains(&id)), || {
            format!("particle {id} is answered, but is more than a cell away from all cells of interest")
        })?;
    }
    Ok(())
}

fn listed(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.begin()?;
    let wanted: Vec<ParticleId> = bench.ids().iter().rev().step_by(2).take(3).copied().collect();
    let batch = bench.begin_for(interest(Wanted::Listed(wanted.clone())))?;
    let ids = same_state(bench, &batch)?;
    let contacts = own(&batch, &ids);
    let missing = wanted.iter().find(|id| !ids.contains(id));
    demand(missing.is_none(), || format!("listed particle {missing:?} is not answered"))?;
    let more = ids.iter().find(|id| !wanted.contains(id) && !contacts.contains(id));
    demand(more.is_none(), || {
        format!("particle {more:?} is answered, but is neither listed nor in contact")
    })?;
    let again = bench.begin_for(interest(Wanted::Again))?;
    demand(again.id.is_some() || ids.is_empty(), || "the repeated Begin answers no ids".into())?;
    let same: HashSet<_> = again.id.iter().flatten().collect();
    demand(same == ids.iter().collect(), || "AGAIN answers other particles than the list before".into())
}

fn own_contacts(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    for _ in 0..3 {
        bench.begin()?;
        let radii = bench.radii();
        for &[a, b] in &bench.state.contacts {
            let (i, j) = (a as usize, b as usize);
            let (one, other) = (bench.ids()[i], bench.ids()[j]);
            let distance = bench.state.position[i].distance(bench.state.position[j]);
            demand(distance < (radii[i] + radii[j]) * (1.0 + 1e-9), || {
                format!("{one} and {other} are said to be in contact, but are {distance} m apart")
            })?;
            demand(!(bench.known[&one].immovable && bench.known[&other].immovable), || {
                format!("{one} and {other} are said to be in contact, but nothing moves them")
            })?;
        }
        let batch = bench.begin_for(everyone())?;
        demand(batch.contacts == bench.state.contacts, || "Begin, repeated, answers other contacts".into())?;
        let ask = bench.nobody();
        let answer = bench.integrate(&ask)?;
        let end = bench.end(&ask, &answer);
        bench.commit(&ask, &end)?;
    }
    Ok(())
}
