//! Counts particles that went through a sheet: the measure by which contact methods are judged in
//! [Truong2021].

use std::ops::Range;

use amalgam_particles::{DVec3, ParticleId};
use amalgam_proto::contract::Table;
use serde::{Deserialize, Serialize};

use crate::contacts::mesh::{SurfaceMesh, closest_on_triangle};
use crate::contacts::{Candidates, Contacts};

/// Watches particles near a sheet. The home side of a particle is the side from which it first touches the
/// sheet. It has crossed while it is on the other side. Going around the edge is no crossing.
///
/// A particle that leaves the sheet's neighbourhood without having crossed is forgotten. It cannot cross
/// without touching the sheet, since no particle travels more than its radius in a step. A particle at some
/// distance from the sheet stays on its side until both together have moved that far.
#[derive(Debug)]
pub(crate) struct Crossings {
    sheet: usize,
    of: usize,
    mesh: SurfaceMesh,
    vertices: Vec<DVec3>,
    /// Step in which each vertex was last among the candidates.
    vertex_seen: Vec<u64>,
    /// Ascending by id.
    watched: Vec<Watched>,
    /// Largest displacement of a vertex per step, summed over all steps [m].
    moved: f64,
    step: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Watched {
    id: ParticleId,
    home: bool,
    crossed: bool,
    /// True if the particle touches the sheet in this step.
    touches: bool,
    /// Position at which its side was found [m].
    position: DVec3,
    /// The particle cannot change sides before the sum of `moved` and its own displacement since then reaches
    /// this [m].
    until: f64,
}

/// A particle that touches the sheet, and its side of the sheet; none at the rim.
struct Sighting {
    id: ParticleId,
    side: Option<bool>,
    position: DVec3,
    /// Distance from the sheet [m].
    distance: f64,
}

/// State of the crossings of a sheet, for a checkpoint.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CrossingsState {
    vertices: Vec<DVec3>,
    vertex_seen: Vec<u64>,
    watched: Vec<Watched>,
    moved: f64,
    step: u64,
}

impl Crossings {
    /// State that outlives a step. The rest follows from the sheet.
    pub(super) fn state(&self) -> CrossingsState {
        let Self { vertices, vertex_seen, watched, moved, step, .. } = self;
        let (vertices, vertex_seen, watched) = (vertices.clone(), vertex_seen.clone(), watched.clone());
        CrossingsState { vertices, vertex_seen, watched, moved: *moved, step: *step }
    }

    /// Goes on from a checkpoint. Returns false if the checkpoint is of another sheet.
    pub(super) fn go_on(&mut self, state: CrossingsState) -> bool {
        let count = self.mesh.vertex_ids.len();
        let fits = (state.vertices.len(), state.vertex_seen.len()) == (count, count);
        let CrossingsState { vertices, vertex_seen, watched, moved, step } = state;
        (self.vertices, self.vertex_seen, self.watched) = (vertices, vertex_seen, watched);
        (self.moved, self.step) = (moved, step);
        fits
    }

    pub(crate) fn new(sheet: usize, of: usize, table: &Table) -> Self {
        let mesh = SurfaceMesh::new(table);
        let count = mesh.vertex_ids.len();
        Self {
            sheet,
            of,
            mesh,
            vertices: vec![DVec3::ZERO; count],
            vertex_seen: vec![0; count],
            watched: Vec::new(),
            moved: 0.0,
            step: 0,
        }
    }

    /// The participant whose triangles must have all corners among the candidates, once one corner is there.
    pub(crate) fn sheet(&self) -> usize {
        self.sheet
    }

    /// Takes in a step's candidates and contacts, and returns the number of particles on the wrong side.
    pub(crate) fn update(&mut self, candidates: &Candidates, contacts: &Contacts) -> u64 {
        self.step += 1;
        self.move_vertices(candidates);
        let sightings = self.sightings(candidates, contacts);
        self.note(&sightings);
        self.watched.retain(|watched| watched.touches || watched.crossed);
        self.watched.iter().filter(|watched| watched.crossed).count() as u64
    }

    /// Moves the sheet's vertices that are among the candidates.
    fn move_vertices(&mut self, candidates: &Candidates) {
        // Candidates and vertices are both in the order of ids.
        let own = range(candidates, self.sheet);
        let mut next = candidates.id[own.clone()].iter().zip(&candidates.position[own]).peekable();
        let mut moved: f64 = 0.0;
        let vertices = self.mesh.vertex_ids.iter().zip(&mut self.vertices);
        for ((id, vertex), seen) in vertices.zip(&mut self.vertex_seen) {
            while next.next_if(|entry| entry.0 < id).is_some() {}
            let Some((_, &position)) = next.next_if(|entry| entry.0 == id) else { continue };
            // A vertex that was no candidate was far from all particles, however it moved.
            if *seen + 1 == self.step {
                moved = moved.max((position - *vertex).length_squared());
            }
            (*vertex, *seen) = (position, self.step);
        }
        self.moved += moved.sqrt();
    }

    /// Finds the particles that touch the sheet and may have changed sides. Marks all watched particles that
    /// touch it.
    fn sightings(&mut self, candidates: &Candidates, contacts: &Contacts) -> Vec<Sighting> {
        let (own, of) = (range(candidates, self.sheet), range(candidates, self.of));
        // A pair begins with the candidate of the participant that comes first in the scene.
        let sheet_first = self.sheet < self.of;
        let (low, high) = if sheet_first { (&own, &of) } else { (&of, &own) };
        let touching = || {
            let pairs = contacts.active.iter().chain(&contacts.marked);
            let both = pairs.filter(|(i, j)| low.contains(&(*i as usize)) && high.contains(&(*j as usize)));
            both.map(|&(i, j)| if sheet_first { (j, i) } else { (i, j) })
        };
        // True for each particle that touches the sheet and whose side is not known.
        let mut look = vec![false; of.len()];
        touching().for_each(|(i, _)| look[i as usize - of.start] = true);
        let mut next =
            candidates.id[of.clone()].iter().zip(&candidates.position[of.clone()]).zip(&mut look).peekable();
        for watched in &mut self.watched {
            while next.next_if(|entry| *entry.0.0 < watched.id).is_some() {}
            let here = next.next_if(|entry| *entry.0.0 == watched.id);
            watched.touches = here.as_ref().is_some_and(|entry| *entry.1);
            if !watched.touches {
                // Without touch, the motion of the sheet near the particle is not known any longer.
                watched.until = 0.0;
            }
            if let Some(((_, &position), look)) = here {
                *look &= position.distance(watched.position) + self.moved >= watched.until;
            }
        }
        let mut unsure: Vec<(u32, u32)> = touching().filter(|&(i, _)| look[i as usize - of.start]).collect();
        unsure.sort_unstable();
        let mut near = Vec::new();
        let sighting = |pairs: &[(u32, u32)]| self.sighting(candidates, pairs, &mut near);
        unsure.chunk_by(|a, b| a.0 == b.0).filter_map(sighting).collect()
    }

    /// Side of the sheet on which a particle is. The sheet near it consists of the triangles around the
    /// vertices that it touches.
    fn sighting(
        &self,
        candidates: &Candidates,
        pairs: &[(u32, u32)],
        near: &mut Vec<u32>,
    ) -> Option<Sighting> {
        near.clear();
        for &(_, j) in pairs {
            if let Some(vertex) = self.mesh.vertex(candidates.id[j as usize]) {
                near.extend_from_slice(self.mesh.around(vertex));
            }
        }
        // Each triangle once.
        near.sort_unstable();
        near.dedup();
        let i = pairs[0].0 as usize;
        let (id, position) = (candidates.id[i], candidates.position[i]);
        let mut best = Nearest { distance: f64::INFINITY, height: 0.0, rim: false };
        near.iter().for_each(|&t| self.consider(t, position, &mut best));
        let Nearest { distance, height, rim } = best;
        let side = (!rim).then_some(height > 0.0);
        distance.is_finite().then_some(Sighting { id, side, position, distance })
    }

    fn consider(&self, t: u32, x: DVec3, best: &mut Nearest) {
        let [a, b, c] = self.mesh.triangles[t as usize].map(|v| self.vertices[v as usize]);
        let weights = closest_on_triangle(x, [a, b, c]);
        let away = x - (a * weights[0] + b * weights[1] + c * weights[2]);
        let distance = away.length();
        if distance - best.distance > 1e-9 * distance {
            return;
        }
        let height = away.dot((b - a).cross(c - a).normalize_or_zero());
        // At an edge or corner several triangles are equally near. The triangle decides from whose plane the
        // particle is farthest, on either side.
        let tie = (distance - best.distance).abs() <= 1e-9 * distance;
        if distance < best.distance && !tie || tie && height.abs() > best.height.abs() {
            let rim = self.mesh.is_rim(t, weights);
            *best = Nearest { distance, height, rim };
        }
    }

    /// Takes over the sightings, ascending by id.
    fn note(&mut self, sightings: &[Sighting]) {
        let mut new = Vec::new();
        for sighting in sightings {
            let known = self.watched.binary_search_by_key(&sighting.id, |watched| watched.id);
            let Some(side) = sighting.side else {
                // At the rim a particle may change sides without crossing.
                if let Ok(at) = known {
                    (self.watched[at].touches, self.watched[at].crossed) = (false, false);
                }
                continue;
            };
            let home = known.map_or(side, |at| self.watched[at].home);
            // A little less than the distance, because it is rounded.
            let until = self.moved + (1.0 - 1e-9) * sighting.distance;
            let Sighting { id, position, .. } = *sighting;
            let watched = Watched { id, home, crossed: side != home, touches: true, position, until };
            match known {
                Ok(at) => self.watched[at] = watched,
                Err(_) => new.push(watched),
            }
        }
        if !new.is_empty() {
            self.watched.append(&mut new);
            self.watched.sort_by_key(|watched| watched.id);
        }
    }
}

/// The candidates of a participant.
fn range(candidates: &Candidates, participant: usize) -> Range<usize> {
    let end = |after: usize| candidates.participant.partition_point(|&k| usize::from(k) < after);
    end(participant)..end(participant + 1)
}

struct Nearest {
    distance: f64,
    height: f64,
    rim: bool,
}

#[cfg(test)]
mod tests {
    use amalgam_particles::Particles;

    use super::*;

    /// A square sheet of 3 x 3 particles at z = 0, spacing 1, and one other particle.
    fn sheet() -> Table {
        let mut particles = Particles::default();
        for j in 0..3u64 {
            for i in 0..3u64 {
                let x = DVec3::new(i as f64, j as f64, 0.0);
                particles.push(ParticleId(j * 3 + i), x, DVec3::ZERO, 1.0, 0.75, false);
            }
        }
        let mut triangles = Vec::new();
        for j in 0..2u64 {
            for i in 0..2u64 {
                let [a, b, c, d] = [j * 3 + i, j * 3 + i + 1, j * 3 + i + 3, j * 3 + i + 4].map(ParticleId);
                triangles.extend([[a, b, d], [a, d, c]]);
            }
        }
        Table { particles, triangles, ..Table::default() }
    }

    fn crossed(path: &[DVec3]) -> Vec<u64> {
        let table = sheet();
        let mut crossings = Crossings::new(0, 1, &table);
        let mut candidates = Candidates::default();
        path.iter()
            .map(|&x| {
                candidates.clear();
                for i in 0..9 {
                    candidates.participant.push(0);
                    candidates.id.push(table.particles.id[i]);
                    candidates.position.push(table.particles.position[i]);
                }
                candidates.participant.push(1);
                candidates.id.push(ParticleId(7));
                candidates.position.push(x);
                let mut contacts = Contacts::default();
                contacts.marked.extend(
                    (0..9).filter(|&i| candidates.position[i as usize].distance(x) < 1.05).map(|i| (i, 9)),
                );
                crossings.update(&candidates, &contacts)
            })
            .collect()
    }

    #[test]
    fn going_through_counts_and_coming_back_does_not() {
        let path = [0.4, 0.1, -0.1, -0.4, -5.0, -0.4, 0.2].map(|z| DVec3::new(1.3, 1.2, z));
        assert_eq!(crossed(&path), [0, 0, 1, 1, 1, 1, 0]);
    }

    #[test]
    fn going_around_the_rim_does_not_count() {
        let path = [(1.5, 0.3), (2.3, 0.3), (2.5, 0.0), (2.3, -0.3), (1.5, -0.3)]
            .map(|(x, z)| DVec3::new(x, 1.0, z));
        assert_eq!(crossed(&path), [0; 5]);
    }

    #[test]
    fn a_particle_that_crossed_is_looked_at_again_when_it_is_back() {
        // It goes through, away, and back to near where it was last seen; meanwhile the sheet has moved below
        // it.
        let mut crossings = Crossings::new(0, 1, &sheet());
        let mut at = |z: f64, sheet_z: f64| {
            let mut candidates = Candidates::default();
            let away = (z - sheet_z).abs() > 1.0;
            for (i, id) in (0..9u64).enumerate().filter(|_| !away) {
                candidates.participant.push(0);
                candidates.id.push(ParticleId(id));
                candidates.position.push(DVec3::new((i % 3) as f64, (i / 3) as f64, sheet_z));
            }
            candidates.participant.push(1);
            candidates.id.push(ParticleId(7));
            candidates.position.push(DVec3::new(1.3, 1.2, z));
            let mut contacts = Contacts::default();
            if !away {
                contacts.marked.extend((0..9).map(|i| (i, 9)));
            }
            crossings.update(&candidates, &contacts)
        };
        assert_eq!([at(0.4, 0.0), at(-0.4, 0.0), at(-5.0, 0.0), at(-0.3, -0.6)], [0, 1, 1, 0]);
    }

    #[test]
    fn a_particle_that_was_away_has_no_home() {
        let path = [0.5, 3.0, -0.5].map(|z| DVec3::new(1.3, 1.2, z));
        assert_eq!(crossed(&path), [0; 3]);
    }
}
