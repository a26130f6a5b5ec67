//! The solver of rigid bodies, explicit.

use std::ops::Range;

use amalgam_particles::{Body, DVec3, ParticleId, Particles, StepEnd};
use amalgam_solver_kit::{
    Answer, Integration, Report, Request, SectionError, SnapshotReader, SnapshotWriter, Solver, SolverError,
    World,
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
    particles: Range<usize>,
    mass: f64,
    /// Centre of mass [m].
    centre: DVec3,
    velocity: DVec3,
    rotation: Rotation,
    /// Vectors from the centre of mass to each particle, along the principal axes [m].
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
        Self { particles: of(), mass, centre, velocity, rotation, offsets }
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
pub struct RigidSolver {
    particles: Particles,
    motion: Motion,
    triangles: Vec<[ParticleId; 3]>,
    gravity: DVec3,
    self_collision: bool,
    bodies: Vec<RigidBody>,
    /// The number of each particle's body in the section.
    body_of: Vec<u32>,
    /// The free body of each particle, or [`HELD`].
    free: Vec<u32>,
    /// Moment of inertia of each particle about its middle [kg m^2].
    own: Vec<f64>,
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
        let (mut body_of, mut free) = (vec![0; particles.len()], vec![HELD; particles.len()]);
        let mut bodies = Vec::new();
        for (number, range) in layout.bodies.iter().enumerate() {
            body_of[range.clone()].fill(number as u32);
            if !particles.immovable[range.start] {
                free[range.clone()].fill(bodies.len() as u32);
                bodies.push(RigidBody::new(&particles, range.clone(), &own, layout.spin[range.start]));
            }
        }
        bodies.iter().for_each(|body| body.place(&mut particles));
        let (triangles, gravity) = (layout.triangles, world.gravity);
        Ok(Self { particles, motion, triangles, gravity, self_collision, bodies, body_of, free, own })
    }

    fn body_of_group(&self, request: &Request<'_>, group: usize) -> Option<&RigidBody> {
        let first = request.groups.members(group)[0];
        self.bodies.get(self.free[first as usize] as usize)
    }

    /// Angular momentum [kg m^2/s] and kinetic energy [J] of the particles about their own middles.
    fn own_spin(&self) -> (DVec3, f64) {
        self.bodies.iter().fold((DVec3::ZERO, 0.0), |(momentum, energy), body| {
            let own: f64 = body.particles.clone().map(|i| self.own[i]).sum();
            let spin = body.rotation.spin();
            (momentum + spin * own, energy + 0.5 * own * spin.length_squared())
        })
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
        let mut first = Vec::new();
        for (&id, &body) in self.particles.id.iter().zip(&self.body_of) {
            if body as usize == first.len() {
                first.push(id);
            }
        }
        Some(self.body_of.iter().map(|&body| first[body as usize]).collect())
    }

    fn joined(&self, a: u32, b: u32) -> bool {
        self.body_of[a as usize] == self.body_of[b as usize]
    }

    fn self_colliding(&self) -> bool {
        self.self_collision
    }

    fn triangles(&self) -> Vec<[ParticleId; 3]> {
        self.triangles.clone()
    }

    fn stable_dt(&self) -> f64 {
        let radius = self.particles.radius.iter().copied().fold(f64::INFINITY, f64::min);
        (FALL * radius / self.gravity.length()).sqrt()
    }

    fn integrate(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        let change = self.gravity * request.dt;
        answer.velocity.copy_from_slice(&self.particles.velocity);
        for body in &self.bodies {
            answer.velocity[body.particles.clone()].iter_mut().for_each(|velocity| *velocity += change);
        }
        for group in 0..request.groups.len() {
            let body = self.body_of_group(request, group).ok_or_else(|| {
                let id = self.particles.id[request.groups.members(group)[0] as usize];
                SolverError(format!("particle {id} is in a group, but its body is held"))
            })?;
            answer.momentum[group] = change * body.mass;
            answer.bodies.push(Body {
                mass: body.mass,
                inertia: body.rotation.inertia(),
                centre: body.centre,
                velocity: body.velocity + change,
                spin: body.rotation.spin(),
            });
        }
        check_finite(&self.particles, &answer.velocity, "velocity")
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        for body in &mut self.bodies {
            body.velocity += self.gravity * end.dt;
        }
        for (group, (&velocity, &spin)) in end.group_velocity.iter().zip(end.group_spin).enumerate() {
            let body = self.free[end.groups.members(group)[0] as usize];
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

    fn save(&self) -> Result<Vec<u8>, SolverError> {
        let mut writer = SnapshotWriter::new(SNAPSHOT_HEADER);
        writer.integer(self.particles.len() as u64);
        writer.integer(self.bodies.len() as u64);
        writer.vectors(&self.particles.position);
        writer.vectors(&self.particles.velocity);
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
        reader.expect(self.particles.len(), "particles")?;
        reader.expect(self.bodies.len(), "free bodies")?;
        for column in [&mut self.particles.position, &mut self.particles.velocity] {
            *column = reader.vectors(column.len() as u64)?;
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
