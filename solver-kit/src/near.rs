//! The particles of a solver that a coordinator is told of before a step: those of them that may touch
//! others' (`docs/reference/protocol.md`, "Before a step").

pub(crate) mod ghosts;
pub(crate) mod own_contacts;

use amalgam_particles::text::number;
use amalgam_particles::{CellMask, DVec3, Lattice, ParticleId, Particles, Reach, reduce};
use amalgam_proto::columns::WireError;
use amalgam_proto::contract::{Batch, Interest, Survey, Surveyed, Wanted};
use amalgam_ranks::{Moves, Ranks};
use rayon::prelude::*;

use crate::error::SolverError;
use crate::ids::IdIndex;
use crate::joined::{concatenated, united};
use crate::solver::Solver;
use own_contacts::OwnContacts;

/// The particles that a coordinator is told of, and the particles that it knows already. Ranks call all but
/// [`Self::allow`] and [`Self::reorder`] together.
pub(crate) struct NearParticles {
    ranks: Ranks,
    /// Absent if own particles do not collide with each other.
    own_contacts: Option<OwnContacts>,
    triangles: Vec<[ParticleId; 3]>,
    /// Positions of the particles at the last survey [m], if there was one; NaN for particles born since.
    surveyed: Option<Vec<DVec3>>,
    /// The last list of wanted particles.
    listed: Option<Vec<ParticleId>>,
    /// The particles of the last batch, if the coordinator is sure to know them.
    told: Option<Vec<ParticleId>>,
}

/// Cells along the radius of the largest particle, at most.
const CELLS_PER_RADIUS_MAX: f64 = 16.0;

impl NearParticles {
    /// # Errors
    /// Contacts among the solver's own particles that could never be resolved.
    pub(crate) fn new(ranks: &Ranks, solver: &dyn Solver) -> Result<Self, SolverError> {
        Ok(Self {
            ranks: ranks.clone(),
            own_contacts: solver.self_colliding().then(|| OwnContacts::new(ranks, solver)).transpose()?,
            triangles: solver.triangles(),
            surveyed: None,
            listed: None,
            told: None,
        })
    }

    /// Keeps the triangles with a corner among these particles, those that this rank has for the whole run.
    pub(crate) fn share(&mut self, particles: &Particles) {
        let mut ids = IdIndex::default();
        ids.update(&particles.id);
        self.triangles.retain(|corners| corners.iter().any(|&id| ids.find(id).is_some()));
        self.triangles.shrink_to_fit();
    }

    /// The cells that particles touch, or those that hold their centres.
    ///
    /// # Errors
    /// Cells that are too small.
    pub(crate) fn survey(&mut self, particles: &Particles, call: &Survey) -> Result<Surveyed, WireError> {
        check_cells(&self.ranks, particles, &call.lattice, call.margin)?;
        if call.centres {
            let own = call.lattice.occupied(&particles.position, &particles.radius, Reach::Centre);
            return Ok(Surveyed(united(&self.ranks, own)));
        }
        self.surveyed.get_or_insert_default().clone_from(&particles.position);
        let reach = Reach::Sphere(call.margin);
        let own = call.lattice.occupied(&particles.position, &particles.radius, reach);
        Ok(Surveyed(united(&self.ranks, own)))
    }

    /// The largest displacement since the last survey, relative to the particle's radius; infinite without
    /// one.
    pub(crate) fn drift(&self, particles: &Particles) -> f64 {
        let Particles { position, radius, .. } = particles;
        let Some(surveyed) = &self.surveyed else { return f64::INFINITY };
        let mut drift = [reduce::max(position.len(), 0.0, |i| {
            let drift = (position[i] - surveyed[i]).length() / radius[i];
            if drift.is_nan() { f64::INFINITY } else { drift }
        })];
        self.ranks.max(&mut drift);
        drift[0]
    }

    /// # Errors
    /// A fault of the coordinator's interest.
    pub(crate) fn check(
        &self,
        particles: &Particles,
        ids: &IdIndex,
        interest: &Interest,
    ) -> Result<(), WireError> {
        match &interest.wanted {
            Wanted::All => Ok(()),
            Wanted::Near { lattice, margin, .. } => check_cells(&self.ranks, particles, lattice, *margin),
            Wanted::Listed(listed) => ids.resolve(&self.ranks, "listed", listed).map(drop),
            Wanted::Again if self.listed.is_some() => Ok(()),
            Wanted::Again => {
                Err(WireError::Rule("no particles were listed yet that could be wanted again".into()))
            }
        }
    }

    /// The particles that are wanted, as far as they are alive, and own particles in contact with each other.
    /// The interest has been checked.
    pub(crate) fn begin(&mut self, solver: &dyn Solver, ids: &IdIndex, interest: Interest) -> Batch {
        let particles = solver.particles();
        let (count, mut corners) = (particles.len() as u32, interest.triangles);
        let places =
            |listed: &[ParticleId]| -> Vec<u32> { listed.iter().filter_map(|&id| ids.find(id)).collect() };
        let mut wanted: Vec<u32> = match interest.wanted {
            Wanted::All => {
                corners = false;
                (0..count).collect()
            }
            Wanted::Near { lattice, cells, margin } => {
                let (mask, grown) = (CellMask::new(lattice, cells), 1.0 + margin);
                let near = |&i: &u32| {
                    mask.touches(particles.position[i as usize], particles.radius[i as usize] * grown)
                };
                (0..count).into_par_iter().with_min_len(reduce::CHUNK).filter(near).collect()
            }
            Wanted::Listed(listed) => {
                let mut wanted = places(&listed);
                self.listed = Some(listed);
                if std::mem::take(&mut corners) {
                    self.add_corners(particles.len(), ids, &mut wanted);
                    self.listed = Some(wanted.iter().map(|&i| particles.id[i as usize]).collect());
                }
                wanted
            }
            Wanted::Again => {
                // The last list holds the corners already.
                corners = false;
                places(self.listed.as_deref().unwrap_or_default())
            }
        };
        if corners {
            self.add_corners(particles.len(), ids, &mut wanted);
        }
        let own = self.own_contacts.as_mut().map_or(&[][..], |own| own.update(solver, interest.look_ahead));
        if !own.is_empty() {
            // Ghosts are behind own particles; the ranks that own them report them.
            wanted.extend(own.iter().flat_map(|&(i, j)| [i, j]).filter(|&i| i < count));
            wanted.par_sort_unstable();
            wanted.dedup();
        }
        let of = |column: &[DVec3]| {
            let own: Vec<DVec3> = wanted.iter().map(|&i| column[i as usize]).collect();
            concatenated(&self.ranks, own).into_owned()
        };
        let (position, velocity) = (of(&particles.position), of(&particles.velocity));
        let ids: Vec<ParticleId> = wanted.iter().map(|&i| particles.id[i as usize]).collect();
        let ids = concatenated(&self.ranks, ids).into_owned();
        let contacts = if self.ranks.is_alone() {
            let place = |i: u32| wanted.partition_point(|&other| other < i) as u32;
            own.par_iter().with_min_len(1024).map(|&(i, j)| [place(i), place(j)]).collect()
        } else {
            self.joined_contacts(particles, &ids)
        };
        let new = (self.told.as_ref() != Some(&ids)).then(|| ids.clone());
        self.told = Some(ids);
        Batch { contacts, id: new, position, velocity }
    }

    /// The contacts that ranks found among own particles, as places in the batch of these ids; at the first
    /// rank.
    fn joined_contacts(&self, particles: &Particles, batch: &[ParticleId]) -> Vec<[u32; 2]> {
        let Some(own) = &self.own_contacts else { return Vec::new() };
        let pairs = concatenated(&self.ranks, own.reported(particles));
        let mut places = IdIndex::default();
        places.update(batch);
        let place = |id: ParticleId| places.find(id).expect("particles of contacts are in the batch");
        let sorted = |[i, j]: [u32; 2]| [i.min(j), i.max(j)];
        let mut contacts: Vec<[u32; 2]> = pairs.iter().map(|pair| sorted(pair.map(place))).collect();
        contacts.par_sort_unstable();
        contacts
    }

    /// Adds all corners of triangles with a wanted corner, which may be another rank's.
    fn add_corners(&self, count: usize, ids: &IdIndex, wanted: &mut Vec<u32>) {
        let mut is_wanted = vec![false; count];
        wanted.iter().for_each(|&i| is_wanted[i as usize] = true);
        let mut of_others = Vec::new();
        for corners in &self.triangles {
            let own = corners.map(|id| ids.find(id));
            if own.iter().flatten().any(|&i| is_wanted[i as usize]) {
                wanted.extend(own.iter().flatten());
                of_others.extend(corners.iter().zip(own).filter(|(_, own)| own.is_none()).map(|(&id, _)| id));
            }
        }
        if !self.ranks.is_alone() {
            let corners = self.ranks.all_to_all(vec![of_others; self.ranks.size()]);
            wanted.extend(corners.iter().flatten().filter_map(|&id| ids.find(id)));
        }
        wanted.par_sort_unstable();
        wanted.dedup();
    }

    /// Lets particles collide whose bond has broken.
    pub(crate) fn allow(&mut self, broken: &[(ParticleId, ParticleId)], ids: &IdIndex) {
        if let Some(own) = &mut self.own_contacts {
            own.allow(broken, ids);
        }
    }

    /// Follows a solver that now stores its particles in another order than `before`, or stores other
    /// particles.
    pub(crate) fn reorder(&mut self, before: &IdIndex, particles: &Particles) {
        if let Some(surveyed) = &mut self.surveyed {
            let position = |&id| before.find(id).map_or(DVec3::NAN, |i| surveyed[i as usize]);
            *surveyed = particles.id.par_iter().with_min_len(reduce::CHUNK).map(position).collect();
        }
    }

    /// Follows particles that have moved between ranks.
    pub(crate) fn follow(&mut self, moves: &Moves) {
        if let Some(surveyed) = &mut self.surveyed {
            moves.apply(&self.ranks, surveyed);
        }
    }

    /// Makes the next batch name all ids.
    pub(crate) fn say_all(&mut self) {
        self.told = None;
    }

    /// Forgets everything, because the particles are other ones or have moved without a step.
    pub(crate) fn forget(&mut self) {
        self.surveyed = None;
        self.listed = None;
        self.told = None;
        if let Some(own) = &mut self.own_contacts {
            own.forget();
        }
    }
}

/// Refuses cells so small that a particle would fill millions of them.
fn check_cells(
    ranks: &Ranks,
    particles: &Particles,
    lattice: &Lattice,
    margin: f64,
) -> Result<(), WireError> {
    let radius = &particles.radius;
    let mut largest = [reduce::max(radius.len(), 0.0, |i| radius[i])];
    ranks.max(&mut largest);
    let smallest = largest[0] * (1.0 + margin) / CELLS_PER_RADIUS_MAX;
    if lattice.cell_size >= smallest {
        return Ok(());
    }
    let (size, smallest) = (number(lattice.cell_size), number(smallest));
    Err(WireError::Rule(format!(
        "cells of {size} m are too small for these particles: use {smallest} m or more"
    )))
}
