//! The mass-spring solver: implicit Euler in steps of any length.

use amalgam_particles::{DVec3, ParticleId, Particles, StepEnd};
use amalgam_solver_kit::{
    Answer, Field, FieldValues, Report, SectionError, Solver, SolverError, Stage, World,
};

use crate::bodies::Layout;
use crate::conjugate_gradients::{ConjugateGradients, Failure, Limits};
use crate::motion::Motion;
use crate::reduced::Reduced;
use crate::section;
use crate::springs::Springs;

/// Particles joined by springs and integrated by implicit Euler, linearised once a step as in [BaraffWitkin1998],
/// with the groups of a stage as single unknowns (`docs/method.md`, section 4).
///
/// What does not depend on merging or on the length of the step is done in [`Solver::begin`]. A repeated
/// [`Solver::integrate`] reuses it and starts from the last answer.
pub struct MassSpring {
    particles: Particles,
    motion: Motion,
    springs: Springs,
    triangles: Vec<[ParticleId; 3]>,
    gravity: DVec3,
    self_collision: bool,
    limits: Limits,
    reduced: Reduced,
    iteration: ConjugateGradients,
    /// Velocities [m/s] that the next solve is expected to end with: where it starts.
    expected: Vec<DVec3>,
    iterations: u32,
}

impl MassSpring {
    /// Reads and checks a participant's section, and lays its bodies out.
    ///
    /// # Errors
    /// Every fault of the section, each with the path of its key.
    pub fn from_section(section: &str, world: &World) -> Result<Self, Vec<SectionError>> {
        let solid = section::read(section, world.seed)?;
        let Layout { mut particles, springs, foundations, triangles, scripts, .. } = solid.layout;
        let count = particles.len();
        Ok(Self {
            motion: Motion::new(scripts, &mut particles),
            springs: Springs::new(springs, foundations),
            triangles,
            gravity: world.gravity,
            self_collision: solid.self_collision,
            limits: solid.limits,
            reduced: Reduced::default(),
            iteration: ConjugateGradients::new(count),
            expected: vec![DVec3::ZERO; count],
            iterations: 0,
            particles,
        })
    }

    /// Iterations that the last [`Solver::integrate`] took.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Number of springs, foundations not counted.
    pub fn spring_count(&self) -> usize {
        self.springs.springs().len()
    }

    fn integrate_in_pool(&mut self, stage: &Stage<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        self.springs.prepare(stage.dt, &self.particles);
        self.reduced.set(&self.particles, &self.springs, stage)?;
        let sum = &mut self.iteration.right_hand_side;
        self.reduced.right_hand_side(&self.particles, &self.springs, self.gravity, stage, sum);
        self.reduced.starting_point(&self.particles, &self.expected, stage, &mut self.iteration.solution);
        let system = self.reduced.system(&self.springs, stage);
        self.iterations =
            self.iteration.solve(&system, &self.limits).map_err(|failure| self.explain(failure))?;
        tracing::debug!(step = stage.step, stage = stage.stage, iterations = self.iterations, "solved");
        self.answer(stage, answer)
    }

    fn answer(&mut self, stage: &Stage<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        let change = &self.iteration.solution;
        for ((end, start), change) in self.expected.iter_mut().zip(&self.reduced.velocity).zip(change) {
            *end = *start + *change;
        }
        check_finite(&self.particles, &self.expected, "velocity")?;
        answer.velocity.copy_from_slice(&self.expected);
        answer.slope.copy_from_slice(&self.reduced.slope);
        for (group, momentum) in answer.momentum.iter_mut().enumerate() {
            let (members, inertia) = (stage.groups.members(group), stage.inertia[group]);
            *momentum = match members.first() {
                Some(&leader) if inertia.is_finite() => {
                    change[leader as usize] * inertia - stage.impulse[group]
                }
                // A held group takes up whatever the springs give it: its row of the system without the inertia.
                _ => members.iter().map(|&i| self.reaction(i as usize)).sum(),
            };
        }
        Ok(())
    }

    fn reaction(&self, i: usize) -> DVec3 {
        self.springs.impulse(i, self.gravity * self.particles.mass[i], &self.expected)
    }

    fn explain(&self, failure: Failure) -> SolverError {
        match failure {
            Failure::Unconverged(residual) => SolverError(format!(
                "conjugate gradients reached a residual of {residual:.1e} of the right-hand side in {} iterations, \
                 not the tolerance {:.1e}: write a larger max_iterations or tolerance, or take shorter steps",
                self.limits.max_iterations, self.limits.tolerance
            )),
            Failure::NotFinite => match check_finite(
                &self.particles,
                &self.iteration.right_hand_side,
                "impulse",
            ) {
                Err(error) => error,
                Ok(()) => SolverError(
                    "conjugate gradients overflowed: stiffness, damping, inertia or the step is too large"
                        .into(),
                ),
            },
        }
    }
}

impl Solver for MassSpring {
    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn never_collide(&self) -> Vec<(ParticleId, ParticleId)> {
        let id = &self.particles.id;
        let mut pairs: Vec<_> = self.springs.springs().iter().map(|spring| spring.ends).collect();
        pairs.dedup();
        pairs.into_iter().map(|[a, b]| (id[a as usize], id[b as usize])).collect()
    }

    fn self_colliding(&self) -> bool {
        self.self_collision
    }

    fn triangles(&self) -> Vec<[ParticleId; 3]> {
        self.triangles.clone()
    }

    fn begin(&mut self) -> Result<(), SolverError> {
        // The change of velocity of the last step is expected again.
        let expected =
            self.particles.velocity.iter().zip(&self.iteration.solution).map(|(v, change)| *v + *change);
        self.expected.clear();
        self.expected.extend(expected);
        rayon::scope(|_| self.springs.linearise(&self.particles.position));
        Ok(())
    }

    fn integrate(&mut self, stage: &Stage<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        // Inside a worker of the pool, the many short parallel loops start without a hand-over between threads.
        rayon::scope(|_| self.integrate_in_pool(stage, answer))
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        end.advance(&mut self.particles, integrated);
        self.motion.advance(end.dt, &mut self.particles);
        check_finite(&self.particles, &self.particles.position, "position")?;
        check_finite(&self.particles, &self.particles.velocity, "velocity")?;
        let (elastic, foundation) = self.springs.energies(&self.particles.position);
        let mut energies = vec![("elastic", elastic)];
        if self.springs.any_foundation() {
            energies.push(("foundation", foundation));
        }
        Ok(Report { stable_dt: f64::INFINITY, energies, ..Report::default() })
    }

    /// `stretch`: the largest strain (l - L) / L among a particle's springs, without unit.
    fn fields(&self) -> Vec<Field> {
        let stretch = self.springs.stretch(&self.particles.position);
        let values = FieldValues::Scalar(stretch.into_iter().map(|strain| strain as f32).collect());
        vec![Field { name: "stretch", values }]
    }

    fn save(&self) -> Result<Vec<u8>, SolverError> {
        let columns = [&self.particles.position, &self.particles.velocity, &self.iteration.solution];
        let mut bytes =
            Vec::with_capacity(SNAPSHOT_HEADER.len() + 24 + columns.len() * 24 * self.particles.len());
        bytes.extend_from_slice(SNAPSHOT_HEADER);
        bytes.extend_from_slice(&(self.particles.len() as u64).to_le_bytes());
        let values = columns.into_iter().flatten().flat_map(|v| v.to_array());
        for value in values.chain(self.motion.clock()) {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        Ok(bytes)
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), SolverError> {
        let count = self.particles.len();
        let columns = snapshot
            .strip_prefix(SNAPSHOT_HEADER)
            .and_then(|rest| rest.strip_prefix(&(count as u64).to_le_bytes()))
            .filter(|columns| columns.len() == 3 * 24 * count + 16)
            .ok_or_else(|| {
                SolverError(format!(
                    "the snapshot is not one of the mass-spring solver, version 2, with {count} particles"
                ))
            })?;
        let mut numbers = columns.chunks_exact(8).map(|bytes| {
            let mut number = [0; 8];
            number.copy_from_slice(bytes);
            f64::from_le_bytes(number)
        });
        let mut read = |column: &mut Vec<DVec3>| {
            for value in column {
                *value = DVec3::from_array(std::array::from_fn(|_| numbers.next().unwrap_or(f64::NAN)));
            }
        };
        read(&mut self.particles.position);
        read(&mut self.particles.velocity);
        read(&mut self.iteration.solution);
        self.motion.set_clock(std::array::from_fn(|_| numbers.next().unwrap_or(f64::NAN)));
        check_finite(&self.particles, &self.particles.position, "position")?;
        check_finite(&self.particles, &self.particles.velocity, "velocity")?;
        check_finite(&self.particles, &self.iteration.solution, "velocity change")
    }
}

/// What a snapshot begins with: whose it is and in which version. Then follow the number of particles (u64), and
/// positions, velocities, the last step's velocity changes, where the next solve starts, the time and the length of
/// the last step (f64; all little-endian).
const SNAPSHOT_HEADER: &[u8] = b"amalgam mass-spring 2\n";

pub(crate) fn check_finite(particles: &Particles, column: &[DVec3], what: &str) -> Result<(), SolverError> {
    match column.iter().position(|value| !value.is_finite()) {
        Some(i) => Err(SolverError(format!("particle {}: {what} became {}", particles.id[i], column[i]))),
        None => Ok(()),
    }
}
