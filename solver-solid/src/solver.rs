//! The solver: particles, the materials that join them, and the explicit integrator. `solver/implicit.rs` has
//! the implicit ones.

mod implicit;

use amalgam_particles::{DVec3, MovingSurface, NO_GROUP, ParticleId, Particles, StepEnd};
use amalgam_solver_kit::{
    Answer, Field, FieldValues, Fields, Integration, Ranks, Report, Request, SectionError, SnapshotReader,
    SnapshotWriter, Solver, SolverError, World, agreed,
};
use rayon::prelude::*;

use crate::bodies::layout::Layout;
use crate::bodies::motion::Motion;
use crate::chunks::{CHUNK, CHUNKS_PER_TASK};
use crate::finite::check_finite;
use crate::linear::conjugate_gradients::ConjugateGradients;
use crate::linear::multilevel::Multilevel;
use crate::linear::operator::Operator as _;
use crate::linear::reduced::{Outside, Reduced, impulses};
use crate::linear::system::Limits;
use crate::materials::peridynamics::Bonds;
use crate::materials::springs::Springs;
use crate::materials::{Materials, Positions};
use crate::section::{self, Integrator};
use crate::spin::SpinGuard;

/// Particles joined by springs and by bonds that break.
///
/// Implicit Euler, linearised once a step as in [BaraffWitkin1998], has the groups of a stage as single
/// unknowns (`docs/theory/coupling.md`, "Integrating a meta-particle inside a participant"). What depends
/// neither on merging nor on the length of the step is done in [`Solver::begin`]. A repeated
/// [`Solver::integrate`] reuses it and starts from the last answer. With Newton's iterations the system is
/// linearised anew at the positions that each solve leads to.
///
/// The explicit integrator is velocity Verlet in its leapfrog form: velocities are those half a step before
/// the positions.
///
/// The method of [HilberHughesTaylor1977] with alpha = -1/3 has the same form, with forces that are
/// a mean over four positions:
///
/// ```text
/// M (v' - v) = h (a f(x + h v') + b f(x) + c f(x - h u) + e f(x - h u - h w)),  x' = x + h v'
/// a = 8/27, b = 12/27, c = 6/27, e = 1/27
/// ```
///
/// Here u is the velocity with which a particle came to x, and w the one before. The velocity u
/// differs from v where a contact or the scene has imposed v. Linearised at x the mean is `f(x) - a
/// h K (v' - t)` with `t = u + (w - u) e/a`. So an imposed velocity acts like the impulse that it
/// takes: were it to move particles as it is, a step that is long for a spring would stretch the
/// spring by h (v - u), with more energy than the velocity had. Damping acts at the end of the
/// step, as in implicit Euler.
///
/// Both leapfrog forms take h before forces as the time from the middle of the last step to the middle of
/// this one (`Integrator::factors`).
pub struct SolidSolver {
    particles: Particles,
    motion: Motion,
    materials: Materials,
    integrator: Integrator,
    newton_iterations: u32,
    /// Version of the particles' positions: it changes whenever they do.
    positions_version: u64,
    /// Positions [m] at the end of the step according to the last solve, for Newton's iterations.
    ends: Vec<DVec3>,
    /// Sum of the velocity changes of Newton's iterations [m/s].
    newton_change: Vec<DVec3>,
    /// Momentum that materials and gravity give each particle [kg m/s], where scripts or groups hold it.
    reaction: Vec<DVec3>,
    spin_guard: SpinGuard,
    /// Velocities with which particles came to where they are [m/s], u, and their mean with those
    /// before, t; none for other integrators than HHT-alpha.
    travel: Vec<DVec3>,
    mean_travel: Vec<DVec3>,
    triangles: Vec<[ParticleId; 3]>,
    gravity: DVec3,
    fields: Fields,
    /// Change of each particle's velocity by drags and fields of force in the step [m/s]; empty without them.
    pushed: Vec<DVec3>,
    self_collision: bool,
    limits: Limits,
    reduced: Reduced,
    iteration: ConjugateGradients,
    /// Velocities [m/s] that the next solve is expected to end with: where it starts.
    expected: Vec<DVec3>,
    iterations: u32,
}

impl SolidSolver {
    /// Reads and checks a participant's section, and lays its bodies out.
    ///
    /// # Errors
    /// Every fault of the section, each with the path of its key.
    pub fn from_section(section: &str, world: &World) -> Result<Self, Vec<SectionError>> {
        let solid = section::read(section, world.seed)?;
        let Layout {
            mut particles,
            bodies,
            springs,
            foundations,
            triangles,
            bonded,
            scripts,
            held_until,
            ..
        } = solid.layout;
        let count = particles.len();
        let motion = Motion::new(scripts, &held_until, &mut particles);
        let mut materials = Materials::new(count);
        let springs = Springs::new(springs, foundations);
        if !springs.is_empty() || bonded.is_empty() {
            materials.push(springs);
        }
        if !bonded.is_empty() {
            materials.push(Bonds::new(bonded, &particles, world.seed)?);
        }
        let is_joined = |i: usize| {
            let mut joined = false;
            materials.visit_neighbours(i, &mut |_| joined = true);
            joined
        };
        let spin_guard = SpinGuard::new(bodies, &held_until, is_joined);
        let travel = vec![DVec3::ZERO; if solid.integrator == Integrator::HhtAlpha { count } else { 0 }];
        let coarse = Multilevel::new(&particles.position, &materials.regions());
        let mut this = Self {
            iteration: ConjugateGradients::new(materials.partition(), coarse),
            motion,
            materials,
            integrator: solid.integrator,
            newton_iterations: solid.newton_iterations,
            positions_version: 0,
            ends: Vec::new(),
            newton_change: Vec::new(),
            reaction: Vec::new(),
            spin_guard,
            mean_travel: travel.clone(),
            travel,
            triangles,
            gravity: world.gravity,
            fields: solid.fields,
            pushed: Vec::new(),
            self_collision: solid.self_collision,
            limits: solid.limits,
            reduced: Reduced::default(),
            expected: vec![DVec3::ZERO; count],
            iterations: 0,
            particles,
        };
        this.linearise();
        Ok(this)
    }

    /// Iterations that the last [`Solver::integrate`] took.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Particles of other ranks whose values this rank holds.
    pub fn ghost_count(&self) -> usize {
        self.materials.partition().ghosts()
    }

    /// Number of springs and bonds.
    pub fn pair_count(&self) -> usize {
        let mut count = 0;
        self.visit_pairs(|_| count += 1);
        count
    }

    /// The pairs that springs and unbroken bonds join, the lower id first.
    pub fn joined_pairs(&self) -> Vec<(ParticleId, ParticleId)> {
        let id = &self.particles.id;
        let mut pairs = Vec::new();
        self.visit_pairs(|[a, b]| pairs.push((id[a], id[b])));
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }

    fn ranks(&self) -> &Ranks {
        self.materials.partition().ranks()
    }

    fn visit_pairs(&self, mut visit: impl FnMut([usize; 2])) {
        for i in 0..self.particles.len() {
            self.materials.visit_neighbours(i, &mut |j| {
                if i < j as usize {
                    visit([i, j as usize]);
                }
            });
        }
    }

    /// Sets velocities [m/s] by position [m], at the start of a case.
    pub(crate) fn set_velocities(&mut self, velocity: impl Fn(DVec3) -> DVec3) {
        for (v, &x) in self.particles.velocity.iter_mut().zip(&self.particles.position) {
            *v = velocity(x);
        }
    }

    /// [`Integrator::factors`] of a step of length `dt` [s].
    fn factors(&self, dt: f64) -> (f64, f64) {
        let [_, last] = self.motion.clock();
        self.integrator.factors(dt, last)
    }

    fn linearise(&mut self) {
        let positions = Positions { values: &self.particles.position, version: Some(self.positions_version) };
        let implicit = self.integrator.is_implicit();
        rayon::scope(|_| self.materials.linearise(positions, implicit));
    }

    /// Finds what drags and fields of force give each particle in a step of `dt` [s].
    fn find_pushes(&mut self, dt: f64) {
        if self.fields.is_empty() {
            return;
        }
        let Self { particles, fields, pushed, motion, .. } = self;
        let [time, _] = motion.clock();
        let of = |i: usize| match particles.immovable[i] {
            true => DVec3::ZERO,
            false => fields.change((particles.position[i], particles.velocity[i]), (time, dt)),
        };
        (0..particles.len()).into_par_iter().with_min_len(CHUNK).map(of).collect_into_vec(pushed);
    }

    /// Work [J] of the scripts against springs and bonds in the step that ends. What contacts hold in a group
    /// is the coordinator's to count.
    fn work_of_scripts(&mut self, end: &StepEnd<'_>) -> f64 {
        if !self.ranks().any(self.motion.is_moving(&self.particles)) {
            return 0.0;
        }
        if self.integrator.is_implicit() {
            self.find_reactions(end.dt);
        }
        let impulse = match self.integrator.is_implicit() {
            true => &self.reaction,
            false => &self.iteration.right_hand_side,
        };
        let (particles, group_of) = (&self.particles, end.groups.group_of());
        let fall = self.gravity * self.factors(end.dt).0;
        self.motion.work_against(particles, |i| match group_of[i] {
            NO_GROUP => impulse[i] - fall * particles.mass[i],
            _ => DVec3::ZERO,
        })
    }

    /// Kick of a leapfrog step. Damping takes the particles' own velocities, so that the momentum given to a
    /// group does not depend on how it was merged.
    fn integrate_explicit(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        let (kick, square) = self.factors(request.dt);
        let Self { particles, materials, iteration, .. } = self;
        materials.prepare(kick, square);
        let impulse = &mut iteration.right_hand_side;
        let outside = Outside { fall: self.gravity * kick, pushed: &self.pushed };
        impulses(particles, materials, outside, (kick, &particles.velocity), impulse);
        let group_of = request.groups.group_of();
        for (i, velocity) in answer.velocity.iter_mut().enumerate() {
            let kick = if particles.immovable[i] { DVec3::ZERO } else { impulse[i] / particles.mass[i] };
            *velocity = particles.velocity[i] + if group_of[i] == NO_GROUP { kick } else { DVec3::ZERO };
        }
        let Answer { momentum, velocity, .. } = answer;
        let impulse = |i: u32| impulse[i as usize];
        request.members.for_each(request.groups, impulse, |group, impulse| momentum[group] += impulse);
        check_finite(particles, velocity, "velocity")
    }
}

impl Solver for SolidSolver {
    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn joined(&self, a: u32, b: u32) -> bool {
        let first = self.materials.partition().first_place() as u32;
        self.materials.iter().any(|material| material.joined(first + a, first + b))
    }

    /// Ids of solids are indices.
    fn joined_across(&self, a: u32, b: ParticleId) -> bool {
        let partition = self.materials.partition();
        let first = partition.first_place() as u32;
        partition
            .place(b.0 as usize)
            .is_some_and(|b| self.materials.iter().any(|material| material.joined(first + a, b)))
    }

    fn self_colliding(&self) -> bool {
        self.self_collision
    }

    fn integration(&self) -> Option<Integration> {
        (self.integrator == Integrator::VelocityVerlet).then_some(Integration::Explicit)
    }

    fn triangles(&self) -> Vec<[ParticleId; 3]> {
        self.triangles.clone()
    }

    fn stable_dt(&self) -> f64 {
        let share = match self.integrator {
            Integrator::ImplicitEuler => return self.fields.stable_dt(),
            Integrator::HhtAlpha => HHT_STABLE_SHARE,
            Integrator::VelocityVerlet => STABLE_SHARE,
        };
        let limits = self.materials.iter().map(|material| material.stable_dt(&self.particles));
        // The largest is the only one that ranks can find: of the negative limits, that of the least.
        let mut limit = [-limits.fold(f64::INFINITY, f64::min)];
        self.ranks().max(&mut limit);
        (share * -limit[0]).min(self.fields.stable_dt())
    }

    fn begin(&mut self) -> Result<(), SolverError> {
        // The change of velocity of the last step is expected again.
        let expected = self.particles.velocity.par_iter().zip(&self.iteration.solution);
        let expected = expected.with_min_len(CHUNK * CHUNKS_PER_TASK).map(|(v, change)| *v + *change);
        expected.collect_into_vec(&mut self.expected);
        self.linearise();
        Ok(())
    }

    fn integrate(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        self.find_pushes(request.dt);
        // Inside a worker of the pool, the many short parallel loops start without a hand-over between
        // threads.
        rayon::scope(|_| match self.integrator {
            Integrator::ImplicitEuler | Integrator::HhtAlpha => self.integrate_implicit(request, answer),
            Integrator::VelocityVerlet => self.integrate_explicit(request, answer),
        })
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        let mut given = self.work_of_scripts(end);
        if self.integrator == Integrator::HhtAlpha {
            self.follow_travel(end, integrated);
        }
        let step = (self.motion.clock()[0], end.dt);
        let before = (!self.fields.is_empty())
            .then(|| (self.particles.position.clone(), self.particles.velocity.clone()));
        end.advance(&mut self.particles, integrated);
        self.positions_version += 1;
        let ranks = self.ranks().clone();
        if let Some((position, velocity)) = before {
            given += self.fields.work(&ranks, (&position, &velocity), &self.particles, step);
        }
        given += self.motion.advance(end.dt, self.gravity, &mut self.particles);
        let released = self.motion.release(&mut self.particles);
        let checked = check_finite(&self.particles, &self.particles.position, "position")
            .and_then(|()| check_finite(&self.particles, &self.particles.velocity, "velocity"));
        agreed(&ranks, checked)?;
        let mut report = Report { stable_dt: self.stable_dt(), given, released, ..Report::default() };
        let implicit = self.integrator.is_implicit();
        for material in self.materials.iter_mut() {
            let version = self.positions_version;
            let broken = rayon::scope(|_| material.update(&self.particles, version, implicit))?;
            // Ids of solids are indices.
            let id = |i: u32| ParticleId(i.into());
            report.broken.extend(broken.iter().map(|&[a, b]| (id(a), id(b))));
        }
        for (name, energy) in self.materials.energies(&self.particles.position) {
            match report.energies.iter_mut().find(|(known, _)| *known == name) {
                Some((_, total)) => *total += energy,
                None => report.energies.push((name, energy)),
            }
        }
        Ok(report)
    }

    /// Sheets and volumes as they are, and the surfaces of bodies that tear.
    fn surface(&self) -> Option<MovingSurface> {
        let mut surface = MovingSurface::default();
        let ranks = self.ranks();
        if ranks.any(!self.triangles.is_empty()) {
            // The first rank has all triangles. Ids of solids are indices.
            let whole = |own: &[DVec3]| ranks.gather(own.to_vec()).unwrap_or_default().concat();
            surface.vertices = whole(&self.particles.position);
            surface.velocities = whole(&self.particles.velocity);
            surface.triangles.extend(self.triangles.iter().map(|corners| corners.map(|id| id.0 as u32)));
        }
        self.materials.iter().for_each(|material| material.add_surface(&self.particles, &mut surface));
        Some(surface)
    }

    /// The fields of the materials; where two know the same field, a particle has the larger value.
    fn fields(&mut self) -> Vec<Field> {
        let mut fields: Vec<Field> = Vec::new();
        for field in self.materials.fields(&self.particles.position) {
            match fields.iter_mut().find(|known| known.name == field.name) {
                Some(known) => merge(&mut known.values, &field.values),
                None => fields.push(field),
            }
        }
        fields
    }

    fn share(&mut self, ranks: &Ranks) -> Result<(), SolverError> {
        let mut coarse = self.iteration.take_grids();
        self.materials.share(ranks, &mut coarse);
        let partition = self.materials.partition().clone();
        let own = partition.own();
        self.motion.share(ranks, &self.particles.id);
        self.particles.reorder(&Vec::from_iter(own.start as u32..own.end as u32));
        self.motion.follow(&self.particles.id);
        for column in [&mut self.travel, &mut self.mean_travel] {
            *column = column.get(own.clone()).unwrap_or_default().to_vec();
        }
        if !ranks.is_first() {
            self.triangles = Vec::new();
        }
        self.expected = vec![DVec3::ZERO; own.len()];
        self.iteration = ConjugateGradients::new(&partition, coarse);
        self.reduced = Reduced::default();
        self.positions_version += 1;
        self.linearise();
        Ok(())
    }

    fn save(&self) -> Result<Vec<u8>, SolverError> {
        let Self { travel, mean_travel, particles, iteration, .. } = self;
        let columns = [travel, mean_travel, &particles.position, &particles.velocity, &iteration.solution];
        let mut writer = SnapshotWriter::new(SNAPSHOT_HEADER);
        writer.integer(self.materials.partition().total() as u64);
        self.materials.iter().for_each(|material| writer.block(&material.save()));
        for column in columns {
            writer.vectors(&self.ranks().gather(column.clone()).unwrap_or_default().concat());
        }
        writer.numbers(self.motion.clock());
        Ok(writer.finish())
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), SolverError> {
        let mut reader = SnapshotReader::new(SNAPSHOT_HEADER, "the solid solver", snapshot)?;
        let partition = self.materials.partition().clone();
        reader.expect(partition.total(), "particles")?;
        self.positions_version += 1;
        for material in self.materials.iter_mut() {
            let own = reader.block()?;
            if !material.restore(own) {
                return Err(reader.refuse("a material is another one"));
            }
        }
        let Self { travel, mean_travel, particles, iteration, .. } = self;
        let Particles { position, velocity, .. } = particles;
        let has_travel = self.integrator == Integrator::HhtAlpha;
        let columns = [(travel, has_travel), (mean_travel, has_travel)];
        let always = [position, velocity, &mut iteration.solution].map(|column| (column, true));
        for (column, _) in columns.into_iter().chain(always).filter(|(_, is_kept)| *is_kept) {
            *column = reader.vectors(partition.total() as u64)?[partition.own()].to_vec();
        }
        self.motion.set_clock(reader.array()?, &mut self.particles);
        reader.finish()?;
        self.linearise();
        Ok(())
    }
}

/// The beginning of a snapshot: whose it is and in which version. Then follow the number of
/// particles (u64), what each material keeps (its length as u64 before it), with HHT-alpha the
/// velocities of travel and their means, and positions, velocities, the last step's velocity
/// changes, where the next solve starts, the time and the length of the last step (f64; all
/// little-endian).
const SNAPSHOT_HEADER: &[u8] = b"amalgam solid 3\n";

/// The part of the largest stable step that an explicit solver asks for.
const STABLE_SHARE: f64 = 0.9;

/// The same for HHT-alpha. Any step is stable for the linearised system, but a spring that turns
/// while contacts hold it is not: a cloth under a drop gained energy in steps of 95 times the
/// largest explicit one, and not in steps of 9.5 times (`docs/theory/solids.md`).
const HHT_STABLE_SHARE: f64 = 10.0;

fn merge(known: &mut FieldValues, more: &FieldValues) {
    if let (FieldValues::Scalar(known), FieldValues::Scalar(more)) = (known, more) {
        known.iter_mut().zip(more).for_each(|(known, more)| *known = known.max(*more));
    }
}
