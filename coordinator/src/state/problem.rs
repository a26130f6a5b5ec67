//! The contacts of a step, and their bodies: single particles, or bodies that rotate.

use std::collections::HashMap;

use amalgam_meshes::{Beside, Obstacles};
use amalgam_particles::{Body, DVec3, reduce};
use rayon::prelude::*;

use super::surfaces::Surfaces;
use crate::contacts::Candidates;
use crate::contacts::facets::{Facet, FacetFinder};
use crate::law::bodies::{Blend, Bodies, InverseInertia, Motion};
use crate::law::contact::{Contact, Plane, Sphere, outruns};
use crate::law::{ContactLaw, LawStatistics, Step, WarmStart};
use crate::participant::Participant;

/// The contacts of a step, the bodies that have them, and the solver of their impulses. It is working storage
/// and may be replaced by a new one before any step.
#[derive(Debug, Default)]
pub(crate) struct ContactProblem {
    /// Contacts of `pairs`, then contacts with triangles, then contacts with obstacles.
    pub(crate) contacts: Vec<Contact>,
    /// Pairs of candidates that may touch in the step, ascending.
    pairs: Vec<(u32, u32)>,
    /// Contacts with triangles.
    pub(crate) facets: FacetFinder,
    pub(crate) law: ContactLaw,
    /// First the movable bodies, ordered by their smallest candidate: body k is group k. Then each immovable
    /// candidate, and one body for all obstacles. Then the points of triangles between bodies.
    pub(crate) bodies: Bodies,
    /// Number of bodies that can be moved.
    pub(crate) movable: usize,
    /// Candidates of movable bodies, body after body, ascending in each.
    pub(crate) members: Vec<u32>,
    /// Start of each movable body in `members`, and the end of the last body.
    pub(crate) offsets: Vec<u32>,
    /// Centre of mass of each body [m].
    centre: Vec<DVec3>,
    /// Motion of each body at the start of the step.
    before: Vec<Motion>,
    /// The body of each candidate, or [`NO_BODY`].
    body_of: Vec<u32>,
    /// Movable candidates beside obstacles, in the order of their names.
    touching: Vec<Touching>,
    /// The body of all obstacles, if any is touched.
    obstacle: u32,
    /// Candidates that touch obstacles or triangles, with their gaps [m].
    beside: Vec<(u32, f64)>,
    /// Pairs of the participants' own particles that may touch in the step.
    pub(crate) own: Vec<(u32, u32)>,
    /// Speed with which each candidate's contacts are sought [m/s].
    pub(crate) speed: Vec<f64>,
}

/// Index of no body.
const NO_BODY: u32 = u32::MAX;

/// A candidate beside an obstacle.
#[derive(Clone, Copy, Debug)]
struct Touching {
    surface: usize,
    /// Number of the place in the surface.
    part: u32,
    candidate: u32,
    /// Distance between the surfaces [m].
    gap: f64,
    /// Unit vector out of the obstacle.
    normal: DVec3,
}

impl Touching {
    fn name(&self) -> u64 {
        FIRST_OBSTACLE + ((self.surface as u64) << 32) + u64::from(self.part)
    }
}

/// Name of the first participant's first triangle. The names of particles are below it.
const FIRST_TRIANGLE: u64 = 1 << 63;

/// Name of the first surface of an obstacle. The names of particles and triangles are below it.
const FIRST_OBSTACLE: u64 = 0xffff << 48;

impl ContactProblem {
    /// Lists the movable candidates whose surface is nearer to an obstacle than `reach` says [m], of participants
    /// that have contacts with obstacles.
    pub(crate) fn list_beside(
        &mut self,
        candidates: &Candidates,
        (obstacles, meets_obstacles): (&Obstacles, &[bool]),
        reach: impl Fn(u32) -> f64 + Sync,
    ) {
        self.touching.clear();
        for surface in 0..obstacles.len() {
            let near =
                (0..candidates.len() as u32).into_par_iter().with_min_len(1024).flat_map_iter(|candidate| {
                    let mut near = Vec::new();
                    let participant = usize::from(candidates.participant[candidate as usize]);
                    if !candidates.is_immovable(candidate) && meets_obstacles[participant] {
                        let (i, reach) = (candidate as usize, reach(candidate));
                        let (centre, radius) = (candidates.position[i], candidates.radius[i]);
                        obstacles.all_beside(
                            surface,
                            centre,
                            reach + radius,
                            |part, Beside { distance, normal }| {
                                near.push(Touching {
                                    surface,
                                    part,
                                    candidate,
                                    gap: distance - radius,
                                    normal,
                                });
                            },
                        );
                    }
                    near
                });
            self.touching.par_extend(near);
        }
        self.touching.sort_unstable_by_key(|touching| (touching.name(), touching.candidate));
        self.beside.clear();
        self.beside.extend(self.touching.iter().map(|touching| (touching.candidate, touching.gap)));
    }

    /// Particles beside obstacles and triangles, and their gaps [m].
    pub(crate) fn beside(&self) -> &[(u32, f64)] {
        &self.beside
    }

    /// Lists the bodies of the candidates in `pairs`, at triangles and beside obstacles. A candidate is a body
    /// without spin unless its participant has bodies. Pairs with corners of triangles are left out, unless both
    /// are of one participant.
    pub(crate) fn list_bodies(
        &mut self,
        candidates: &Candidates,
        pairs: &[(u32, u32)],
        participants: &[Participant],
    ) {
        self.pairs.clear();
        let of = |i: u32| candidates.participant[i as usize];
        let facets = &self.facets;
        let are_spheres =
            |&&(i, j): &&(u32, u32)| of(i) == of(j) || !(facets.is_vertex(i) || facets.is_vertex(j));
        self.pairs.extend(pairs.iter().filter(are_spheres));
        self.body_of.clear();
        self.body_of.resize(candidates.len(), NO_BODY);
        let touching = self.touching.iter().map(|touching| touching.candidate);
        let of_pairs = self.pairs.iter().flat_map(|&(i, j)| [i, j]);
        let of_facets = self.facets.facets.iter().flat_map(|facet| {
            let corners = facet.corners.into_iter().zip(facet.weights).filter(|corner| corner.1 > 0.0);
            corners.map(|corner| corner.0).chain([facet.particle])
        });
        let body_of = &mut self.body_of;
        of_pairs.chain(of_facets).chain(touching).for_each(|i| body_of[i as usize] = 0);
        let near = (0..candidates.len() as u32).filter(|&i| self.body_of[i as usize] == 0);
        let (movable, immovable): (Vec<u32>, Vec<u32>) = near.partition(|&i| !candidates.is_immovable(i));
        self.number_bodies(candidates, movable, participants);
        self.bodies.clear();
        self.centre.clear();
        self.before.clear();
        let firsts = self.offsets[..self.movable].iter().map(|&at| self.members[at as usize]);
        for i in firsts.chain(immovable.iter().copied()) {
            let velocity = candidates.velocity[i as usize];
            let inverse_mass = 1.0 / candidates.mass[i as usize];
            self.bodies.push(inverse_mass, InverseInertia::None, velocity, DVec3::ZERO);
            self.centre.push(candidates.position[i as usize]);
            self.before.push(Motion { linear: velocity, angular: DVec3::ZERO });
        }
        (self.movable as u32..).zip(&immovable).for_each(|(body, &i)| self.body_of[i as usize] = body);
        if !self.touching.is_empty() {
            self.obstacle = self.bodies.push(0.0, InverseInertia::None, DVec3::ZERO, DVec3::ZERO);
            self.centre.push(DVec3::ZERO);
            self.before.push(Motion::default());
        }
    }

    /// Sorts movable candidates into bodies.
    fn number_bodies(&mut self, candidates: &Candidates, movable: Vec<u32>, participants: &[Participant]) {
        let mut named = HashMap::new();
        let mut sizes: Vec<u32> = Vec::new();
        for &i in &movable {
            let participant = candidates.participant[i as usize];
            let roster = &participants[usize::from(participant)].part.roster;
            let new = sizes.len() as u32;
            let body = match roster.has_bodies() {
                true => *named.entry((participant, roster.body(candidates.id[i as usize]))).or_insert(new),
                false => new,
            };
            if body == new {
                sizes.push(0);
            }
            sizes[body as usize] += 1;
            self.body_of[i as usize] = body;
        }
        self.movable = sizes.len();
        let mut end = 0;
        self.offsets.clear();
        self.offsets.push(0);
        self.offsets.extend(sizes.iter().map(|size| {
            end += size;
            end
        }));
        let mut next = self.offsets.clone();
        self.members.clear();
        self.members.resize(movable.len(), 0);
        for i in movable {
            let at = &mut next[self.body_of[i as usize] as usize];
            self.members[*at as usize] = i;
            *at += 1;
        }
    }

    /// Lists the contacts of the pairs of candidates. `error` is the error of a velocity [m/s], by its size.
    pub(crate) fn list_contacts(
        &mut self,
        candidates: &Candidates,
        surfaces: &Surfaces,
        error: impl Fn(f64) -> f64,
    ) {
        let Self { contacts, pairs, bodies, body_of, .. } = self;
        contacts.clear();
        contacts.extend(pairs.iter().map(|&(i, j)| {
            let sphere = |i: u32| Sphere {
                name: candidates.global_id(i),
                body: body_of[i as usize],
                centre: candidates.position[i as usize],
                offset: DVec3::ZERO,
                radius: candidates.radius[i as usize],
            };
            let [a, b] = [i, j].map(|i| usize::from(candidates.participant[i as usize]));
            let [u, v] = [i, j].map(|i| candidates.velocity[i as usize]);
            let mut contact =
                Contact::between_spheres(&sphere(i), &sphere(j), bodies, surfaces.between(a, b));
            let approach = (u - v).dot(contact.normal);
            let error = error(u.length().max(v.length()));
            contact.material = contact.material.merged(contact.gap, approach, error);
            contact
        }));
    }

    /// Adds the contacts with triangles.
    pub(crate) fn list_facets(
        &mut self,
        candidates: &Candidates,
        surfaces: &Surfaces,
        error: impl Fn(f64) -> f64,
    ) {
        let Self { contacts, facets, bodies, body_of, beside, .. } = self;
        for facet in &facets.facets {
            let Facet { surface, triangle, particle, corners, weights, normal, distance, radius, is_rim } =
                *facet;
            let (i, own) = (particle as usize, usize::from(surface));
            let centre = candidates.position[i];
            let sphere = Sphere {
                name: candidates.global_id(particle),
                body: body_of[i],
                centre,
                offset: DVec3::ZERO,
                radius: candidates.radius[i],
            };
            let body = body_between(bodies, body_of, corners, weights);
            let name = FIRST_TRIANGLE + ((own as u64) << 48) + u64::from(triangle);
            let material = surfaces.between(own, usize::from(candidates.participant[i]));
            // The rim ends like a row of spheres, and other places are planes.
            let foot = centre - normal * distance;
            let mut contact = match is_rim {
                true => {
                    let point = Sphere { name, body, centre: foot, offset: DVec3::ZERO, radius };
                    Contact::between_spheres(&point, &sphere, bodies, material)
                }
                false => {
                    let point = foot + normal * radius;
                    let plane = Plane { name, body, point, normal, centre: point };
                    Contact::with_plane(&plane, &sphere, material)
                }
            };
            let (u, v) = (bodies.velocity[body as usize], candidates.velocity[i]);
            let error = error(u.length().max(v.length()));
            contact.material = material.merged(contact.gap, (u - v).dot(contact.normal), error);
            beside.push((particle, contact.gap));
            contacts.push(contact);
        }
    }

    /// Adds the contacts with obstacles, whose names come after those of `participants`.
    pub(crate) fn list_obstacles(
        &mut self,
        candidates: &Candidates,
        obstacles: &Obstacles,
        surfaces: &Surfaces,
        participants: usize,
        error: impl Fn(f64) -> f64,
    ) {
        let Self { contacts, body_of, touching, obstacle: body, .. } = self;
        let body = *body;
        contacts.extend(touching.iter().map(|touching| {
            let Touching { surface, candidate: i, gap, normal, .. } = *touching;
            let (centre, radius) = (candidates.position[i as usize], candidates.radius[i as usize]);
            let name = touching.name();
            let plane =
                Plane { name, body, point: centre - normal * (gap + radius), normal, centre: DVec3::ZERO };
            let sphere = Sphere {
                name: candidates.global_id(i),
                body: body_of[i as usize],
                centre,
                offset: DVec3::ZERO,
                radius,
            };
            let participant = usize::from(candidates.participant[i as usize]);
            let material = surfaces.between(participants + obstacles.obstacle(surface), participant);
            let velocity = candidates.velocity[i as usize];
            let material = material.merged(gap, -velocity.dot(normal), error(velocity.length()));
            Contact::with_plane(&plane, &sphere, material)
        }));
    }

    /// Takes a group as a body that rotates, to which its participant gives `momentum` [kg m/s] in the step.
    pub(crate) fn take_body(&mut self, group: usize, body: &Body, momentum: DVec3) {
        let Body { mass, inertia, centre, velocity, spin } = *body;
        self.bodies.inverse_mass[group] = 1.0 / mass;
        let size = inertia.x_axis.x;
        self.bodies.inverse_inertia[group] =
            if inertia == amalgam_particles::DMat3::from_diagonal(DVec3::splat(size)) {
                InverseInertia::Sphere(1.0 / size)
            } else {
                InverseInertia::Tensor(inertia.inverse())
            };
        self.centre[group] = centre;
        self.before[group] = Motion { linear: velocity - momentum / mass, angular: spin };
    }

    /// Sets the places of contacts on bodies, once the bodies are known. Contacts of two bodies without
    /// rotation have no rolling resistance.
    pub(crate) fn place_contacts(&mut self, candidates: &Candidates) {
        let Self { contacts, pairs, bodies, centre, touching, facets, .. } = self;
        let facets = &facets.facets;
        let place = |i: u32, body: u32| candidates.position[i as usize] - centre[body as usize];
        for (contact, &(i, j)) in contacts.iter_mut().zip(&*pairs) {
            contact.offset = [place(i, contact.bodies[0]), place(j, contact.bodies[1])];
        }
        for (contact, facet) in contacts[pairs.len()..].iter_mut().zip(facets) {
            if let Some(&centre) = centre.get(contact.bodies[0] as usize) {
                let Facet { particle, normal, distance, radius, is_rim, .. } = *facet;
                let height = if is_rim { distance } else { distance - radius };
                contact.offset[0] = candidates.position[particle as usize] - normal * height - centre;
            }
            contact.offset[1] = place(facet.particle, contact.bodies[1]);
        }
        for (contact, touching) in contacts[pairs.len() + facets.len()..].iter_mut().zip(&*touching) {
            contact.offset[1] = place(touching.candidate, contact.bodies[1]);
        }
        for contact in contacts {
            let [a, b] = contact.bodies.map(|body| body as usize);
            if [a, b].iter().all(|&body| bodies.inverse_inertia[body] == InverseInertia::None) {
                contact.material.rolling = 0.0;
            }
        }
    }

    /// The velocity of each of [`Self::members`] [m/s].
    pub(crate) fn member_velocities(&self, candidates: &Candidates) -> Vec<DVec3> {
        let velocity = |(body, &i): (u32, &u32)| {
            let arm = candidates.position[i as usize] - self.centre[body as usize];
            self.bodies.motion(body).at(arm)
        };
        let bodies = self.offsets.windows(2).zip(0..);
        let bodies = bodies.flat_map(|(ends, body)| (ends[0]..ends[1]).map(move |_| body));
        bodies.zip(&self.members).map(velocity).collect()
    }

    /// Centres [m] and radii [m] of groups of one particle.
    pub(crate) fn particles(&self, groups: &[u32], candidates: &Candidates) -> (Vec<DVec3>, Vec<f64>) {
        let particle = |&group: &u32| self.members[self.offsets[group as usize] as usize] as usize;
        groups.iter().map(particle).map(|i| (candidates.position[i], candidates.radius[i])).unzip()
    }

    /// Motion of a body at the start of the step.
    fn before(&self, body: u32) -> Motion {
        match self.before.get(body as usize) {
            Some(&before) => before,
            None => {
                let parts = self.bodies.parts(body).into_iter();
                let linear = parts.map(|(body, part)| self.before[body as usize].linear * part).sum();
                Motion { linear, angular: DVec3::ZERO }
            }
        }
    }

    /// Velocity of a group of one particle at the start of the step [m/s].
    pub(crate) fn start(&self, group: u32) -> DVec3 {
        self.before[group as usize].linear
    }

    /// Raises the expected speed of each particle that contacts made more than twice as fast. Returns true if
    /// there is any.
    pub(crate) fn expect_more(&mut self, velocity: &[DVec3]) -> bool {
        let mut more = false;
        for &i in &self.members {
            let speed = velocity[i as usize].length();
            if outruns(self.speed[i as usize], speed) {
                self.speed[i as usize] = speed;
                more = true;
            }
        }
        more
    }

    /// Acceleration of the bodies without contacts [m/s^2]: the root mean square of |v* - v|/h.
    pub(crate) fn acceleration(&self, dt: f64) -> f64 {
        let change = |body: usize| (self.bodies.velocity[body] - self.before[body].linear).length_squared();
        let mean = reduce::sum(self.movable, 0.0, change) / self.movable.max(1) as f64;
        mean.sqrt() / dt
    }

    /// Solves for the impulses of the contacts, which take the bodies to their velocities at the end of the
    /// step; `again` if only answers of participants have changed since the last call.
    pub(crate) fn solve(&mut self, warm_start: &mut WarmStart, step: Step, again: bool) -> LawStatistics {
        let Self { law, bodies, contacts, .. } = self;
        match again {
            false => law.solve(warm_start, bodies, contacts, step),
            true => law.solve_again(warm_start, bodies, contacts, step),
        }
    }

    /// Energy that the contacts took [J]: minus the work of their impulses and couples, each times the mean
    /// of the relative velocities before and after the step.
    pub(crate) fn dissipated(&self) -> f64 {
        let impulses = self.law.impulses().iter().zip(self.law.couples());
        let works = self.contacts.iter().zip(impulses).map(|(contact, (impulse, couple))| {
            let [i, j] = contact.bodies;
            let [first, second] = contact.arms();
            let mean = |body: u32, arm: DVec3| {
                let (before, after) = (self.before(body), self.bodies.motion(body));
                ((before.at(arm) + after.at(arm)) * 0.5, (before.angular + after.angular) * 0.5)
            };
            let ((u_i, spin_i), (u_j, spin_j)) = (mean(i, first), mean(j, second));
            impulse.dot(u_j - u_i) + couple.dot(spin_j - spin_i)
        });
        -works.sum::<f64>()
    }

    /// Work of immovable bodies on bodies that touch them [J]: the sum of p . V, with p the impulse that an
    /// immovable body of velocity V gives.
    pub(crate) fn by_immovable(&self) -> f64 {
        let works = self.contacts.iter().zip(self.law.impulses()).map(|(contact, impulse)| {
            let immovable = |body: u32| {
                let parts = self.bodies.parts(body).into_iter();
                let parts = parts.filter(|&(body, _)| body as usize >= self.movable);
                parts.map(|(body, part)| self.before[body as usize].linear * part).sum::<DVec3>()
            };
            let [i, j] = contact.bodies;
            impulse.dot(immovable(i) - immovable(j))
        });
        works.sum()
    }
}

/// The body of a point of a triangle between candidates: the one body that has all corners with a weight, or a new
/// point between bodies.
fn body_between(bodies: &mut Bodies, body_of: &[u32], corners: [u32; 3], weights: [f64; 3]) -> u32 {
    let first = (0..3).find(|&corner| weights[corner] > 0.0).unwrap_or(0);
    let of = |corner: usize| body_of[corners[if weights[corner] > 0.0 { corner } else { first }] as usize];
    let all = [of(0), of(1), of(2)];
    match all.iter().all(|&body| body == all[0]) {
        true => all[0],
        false => bodies.push_blend(Blend { bodies: all, weights }),
    }
}
