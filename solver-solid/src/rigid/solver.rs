//! The solver of rigid bodies, explicit.

use std::ops::Range;

use amalgam_particles::{Body, DVec3, ParticleId, Particles, StepEnd};
use amalgam_solver_kit::{
    Answer, Integration, Ranks, Report, Request, SectionError, SnapshotReader, SnapshotWriter, Solver,
    SolverError, World,
};
use glam::{DMat3, DQuat};
use nalgebra::{Matrix3, SymmetricEigen};

use crate::bodies::motion::Motion;
use crate::finite::check_finite;
use crate::rigid::rotation::Rotation;
use crate::rigid::section;

/// Part of its radius that a particle may fall in a step from rest.
const FALL: f64 = 0.25;

/// A rigid body that is free to move.
#[derive(Clone, Debug, PartialEq)]
struct RigidBody {
    /// Its particles on this rank.
    particles: Range<usize>,
    /// Mass of the whole body [kg].
    mass: f64,
    /// Moments of inertia of all its particles about their own middles [kg m^2].
    own: f64,
    /// Centre of mass [m].
    centre: DVec3,
    velocity: DVec3,
    rotation: Rotation,
    /// Vectors from the centre of mass to each particle on this rank, along the principal axes [m].
    offsets: Vec<DVec3>,
}

impl RigidBody {
    /// The rigid body of particles that each have the moment of inertia `own` [kg m^2] about every axis
    /// through their middle.
    fn new(all: &Particles, particles: Range<usize>, own: &[f64], spin: DVec3) -> Self {
        let of = || particles.clone();
        let mass: f64 = of().map(|i| all.mass[i]).sum();
        let mean = |column: &[DVec3]| of().map(|i| column[i] * all.mass[i]).sum::<DVec3>() / mass;
        let (centre, velocity) = (mean(&all.position), mean(&all.velocity));
        let mut inertia = DMat3::ZERO;
        for i in of() {
            let (arm, mass) = (all.position[i] - centre, all.mass[i]);
            let square = DMat3::from_cols(arm * arm.x, arm * arm.y, arm * arm.z);
            let about_centre = DMat3::from_diagonal(DVec3::splat(arm.length_squared())) - square;
            inertia += about_centre * mass + DMat3::from_diagonal(DVec3::splat(own[i]));
        }
        let (moments, orientation) = principal_axes(inertia);
        let turned_back = orientation.conjugate();
        let offsets = of().map(|i| turned_back * (all.position[i] - centre)).collect();
        let mut rotation = Rotation { moments, orientation, momentum: DVec3::ZERO };
        rotation.set_spin(spin);
        let own = of().map(|i| own[i]).sum();
        Self { particles: of(), mass, own, centre, velocity, rotation, offsets }
    }

    /// Keeps the particles in `run`, which are then stored from 0 on.
    fn keep(&mut self, run: &Range<usize>) {
        let Range { start, end } = self.particles;
        let kept = start.max(run.start)..end.min(run.end);
        if kept.is_empty() {
            (self.particles, self.offsets) = (0..0, Vec::new());
            return;
        }
        self.offsets = self.offsets[kept.start - start..kept.end - start].to_vec();
        self.particles = kept.start - run.start..kept.end - run.start;
    }

    /// Puts the particles where they are on the body.
    fn place(&self, all: &mut Particles) {
        let spin = self.rotation.spin();
        for (i, offset) in self.particles.clone().zip(&self.offsets) {
            let arm = self.rotation.orientation * *offset;
            all.position[i] = self.centre + arm;
            all.velocity[i] = self.velocity + spin.cross(arm);
        }
    }
}

/// Principal moments of inertia [kg m^2], and the rotation from the principal axes to the world's.
fn principal_axes(inertia: DMat3) -> (DVec3, DQuat) {
    let SymmetricEigen { eigenvalues, eigenvectors } =
        SymmetricEigen::new(Matrix3::from_column_slice(&inertia.to_cols_array()));
    let column = |k: usize| DVec3::new(eigenvectors[(0, k)], eigenvectors[(1, k)], eigenvectors[(2, k)]);
    let (x, y) = (column(0), column(1));
    // Right-handed.
    let axes = DMat3::from_cols(x, y, x.cross(y));
    (DVec3::new(eigenvalues[0], eigenvalues[1], eigenvalues[2]), DQuat::from_mat3(&axes).normalize())
}

/// Rigid bodies. A step is symplectic Euler for the centres, and the free rotation about them with the
/// angular momentum that contacts leave.
///
/// Ranks cut the particles into runs in the order of ids, wherever bodies begin. Each rank moves all bodies,
/// which are few beside their particles, and places the particles that it has.
pub struct RigidSolver {
    particles: Particles,
    motion: Motion,
    triangles: Vec<[ParticleId; 3]>,
    gravity: DVec3,
    self_collision: bool,
    bodies: Vec<RigidBody>,
    /// Id of the first particle of each body in the section.
    first: Vec<ParticleId>,
    /// The free body of each particle, or [`HELD`].
    free: Vec<u32>,
    /// The free body that each group of the last stage is.
    body_of_group: Vec<u32>,
    /// Number of particles of all ranks.
    count: usize,
    /// The smallest radius of all ranks' particles [m].
    radius_min: f64,
    ranks: Ranks,
}

const HELD: u32 = u32::MAX;

impl RigidSolver {
    /// Reads and checks a participant's section, and lays its bodies out.
    ///
    /// # Errors
    /// Every fault of the section, each with the path of its key.
    pub fn from_section(section: &str, world: &World) -> Result<Self, Vec<SectionError>> {
        let section::Rigid { mut layout, self_collision } = section::read(section, world.seed)?;
        let mut particles = layout.particles;
        let motion = Motion::new(std::mem::take(&mut layout.scripts), &layout.held_until, &mut particles);
        let own: Vec<f64> =
            layout.lever.iter().zip(&particles.mass).map(|(lever, mass)| mass * lever * lever).collect();
        let mut free = vec![HELD; particles.len()];
        let mut bodies = Vec::new();
        for range in &layout.bodies {
            if !particles.immovable[range.start] {
                free[range.clone()].fill(bodies.len() as u32);
                bodies.push(RigidBody::new(&particles, range.clone(), &own, layout.spin[range.start]));
            }
        }
        bodies.iter().for_each(|body| body.place(&mut particles));
        let first = layout.bodies.iter().map(|range| particles.id[range.start]).collect();
        Ok(Self {
            motion,
            triangles: layout.triangles,
            gravity: world.gravity,
            self_collision,
            bodies,
            first,
            free,
            body_of_group: Vec::new(),
            count: particles.len(),
            radius_min: particles.radius.iter().copied().fold(f64::INFINITY, f64::min),
            ranks: Ranks::alone(),
            particles,
        })
    }

    /// Id of the first particle of the body that holds a particle.
    fn body_of(&self, id: ParticleId) -> ParticleId {
        self.first[self.first.partition_point(|&first| first <= id) - 1]
    }

    /// Finds the free body that each group is. Collective.
    fn find_groups(&mut self, request: &Request<'_>) -> Result<(), SolverError> {
        let free = |group: usize| match request.groups.members(group).first() {
            Some(&member) => f64::from(self.free[member as usize]),
            None => f64::NEG_INFINITY,
        };
        let mut bodies: Vec<f64> = (0..request.groups.len()).map(free).collect();
        self.ranks.max(&mut bodies);
        self.body_of_group = bodies.iter().map(|&body| body as u32).collect();
        match self.body_of_group.iter().position(|&body| body == HELD) {
            Some(group) => Err(SolverError(format!("group {group} is a body, but this body is held"))),
            None => Ok(()),
        }
    }

    /// Angular momentum [kg m^2/s] and kinetic energy [J] of all particles about their own middles.
    fn own_spin(&self) -> (DVec3, f64) {
        self.bodies.iter().fold((DVec3::ZERO, 0.0), |(momentum, energy), body| {
            let (own, spin) = (body.own, body.rotation.spin());
            (momentum + spin * own, energy + 0.5 * own * spin.length_squared())
        })
    }

    /// A column of all ranks at the first rank; nothing at others. Collective.
    fn whole(&self, own: &[DVec3]) -> Vec<DVec3> {
        self.ranks.gather(own.to_vec()).map(|columns| columns.concat()).unwrap_or_default()
    }
}

impl Solver for RigidSolver {
    fn integration(&self) -> Option<Integration> {
        Some(Integration::Explicit)
    }

    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn bodies(&self) -> Option<Vec<ParticleId>> {
        Some(self.particles.id.iter().map(|&id| self.body_of(id)).collect())
    }

    fn joined(&self, a: u32, b: u32) -> bool {
        self.joined_across(a, self.particles.id[b as usize])
    }

    fn joined_across(&self, a: u32, b: ParticleId) -> bool {
        self.body_of(self.particles.id[a as usize]) == self.body_of(b)
    }

    fn self_colliding(&self) -> bool {
        self.self_collision
    }

    fn triangles(&self) -> Vec<[ParticleId; 3]> {
        self.triangles.clone()
    }

    fn stable_dt(&self) -> f64 {
        (FALL * self.radius_min / self.gravity.length()).sqrt()
    }

    fn integrate(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        let change = self.gravity * request.dt;
        answer.velocity.copy_from_slice(&self.particles.velocity);
        for body in &self.bodies {
            answer.velocity[body.particles.clone()].iter_mut().for_each(|velocity| *velocity += change);
        }
        self.find_groups(request)?;
        for (group, &body) in self.body_of_group.iter().enumerate() {
            let body = &self.bodies[body as usize];
            answer.momentum[group] = change * body.mass;
            if self.ranks.is_first() {
                answer.bodies.push(Body {
                    mass: body.mass,
                    inertia: body.rotation.inertia(),
                    centre: body.centre,
                    velocity: body.velocity + change,
                    spin: body.rotation.spin(),
                });
            }
        }
        check_finite(&self.particles, &answer.velocity, "velocity")
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        for body in &mut self.bodies {
            body.velocity += self.gravity * end.dt;
        }
        let moved = end.group_velocity.iter().zip(end.group_spin);
        for (&body, (&velocity, &spin)) in self.body_of_group.iter().zip(moved) {
            let body = &mut self.bodies[body as usize];
            body.velocity = velocity;
            body.rotation.set_spin(spin);
        }
        // Held particles go where their script wants them.
        for (i, velocity) in integrated.iter().enumerate().filter(|&(i, _)| self.free[i] == HELD) {
            self.particles.position[i] += *velocity * end.dt;
        }
        for body in &mut self.bodies {
            body.centre += body.velocity * end.dt;
            body.rotation.advance(end.dt);
            body.place(&mut self.particles);
        }
        let given = self.motion.advance(end.dt, self.gravity, &mut self.particles);
        check_finite(&self.particles, &self.particles.position, "position")?;
        check_finite(&self.particles, &self.particles.velocity, "velocity")?;
        Ok(Report {
            stable_dt: self.stable_dt(),
            energies: vec![("stored", 0.0)],
            given,
            spin: self.own_spin(),
            ..Report::default()
        })
    }

    fn share(&mut self, ranks: &Ranks) -> Result<(), SolverError> {
        self.ranks = ranks.clone();
        self.motion.share(ranks, &self.particles.id);
        let begin = |rank: usize| self.count * rank / ranks.size();
        let run = begin(ranks.rank())..begin(ranks.rank() + 1);
        let own: Vec<u32> = run.clone().map(|i| i as u32).collect();
        self.particles.reorder(&own);
        self.free = self.free[run.clone()].to_vec();
        self.bodies.iter_mut().for_each(|body| body.keep(&run));
        self.motion.follow(&self.particles.id);
        Ok(())
    }

    fn save(&self) -> Result<Vec<u8>, SolverError> {
        let mut writer = SnapshotWriter::new(SNAPSHOT_HEADER);
        writer.integer(self.count as u64);
        writer.integer(self.bodies.len() as u64);
        writer.vectors(&self.whole(&self.particles.position));
        writer.vectors(&self.whole(&self.particles.velocity));
        for body in &self.bodies {
            writer.vectors(&[body.centre, body.velocity]);
            writer.numbers(body.rotation.orientation.to_array());
            writer.vectors(&[body.rotation.momentum]);
        }
        writer.numbers(self.motion.clock());
        Ok(writer.finish())
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), SolverError> {
        let mut reader = SnapshotReader::new(SNAPSHOT_HEADER, "the rigid solver", snapshot)?;
        reader.expect(self.count, "particles")?;
        reader.expect(self.bodies.len(), "free bodies")?;
        let Particles { id, position, velocity, .. } = &mut self.particles;
        for column in [position, velocity] {
            let whole = reader.vectors(self.count as u64)?;
            *column = id.iter().map(|id| whole[id.0 as usize]).collect();
        }
        for body in &mut self.bodies {
            let [centre, velocity] = [reader.array()?, reader.array()?].map(DVec3::from_array);
            (body.centre, body.velocity) = (centre, velocity);
            body.rotation.orientation = DQuat::from_array(reader.array()?);
            body.rotation.momentum = DVec3::from_array(reader.array()?);
        }
        self.motion.set_clock(reader.array()?, &mut self.particles);
        reader.finish()
    }
}

/// The beginning of a snapshot. Then follow the numbers of particles and of free bodies (u64), positions,
/// velocities, for each free body its centre, velocity, orientation (x, y, z, w) and angular momentum, and
/// the time and the length of the last step (f64; all little-endian).
const SNAPSHOT_HEADER: &[u8] = b"amalgam rigid 1\n";
