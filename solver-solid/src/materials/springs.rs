//! Springs between particles and to the ground: forces, and the linearised system of implicit Euler,
//! matrix-free.
//!
//! Force on particle i of a spring to j, with d = xj - xi, l = |d|, n = d / l:
//!
//! ```text
//! f = k (l - L) n + c ((vj - vi)·n) n
//! df/dxj = k (n n^T + t (I - n n^T)),  t = max(0, 1 - L/l)        df/dvj = c n n^T
//! ```
//!
//! [BaraffWitkin1998]. The transverse part of df/dx is 1 - L/l, negative in a spring under compression, which
//! would make the system indefinite: such a spring gets none, as [ChoiKo2002] argue (buckling is left to the
//! motion). The change of the damping force with position is left out, which keeps the system symmetric.
//!
//! The system of a step of length h is `M + h C + h^2 K`. A spring's share of `h C + h^2 K` is `h^2 k t I +
//! (h^2 k (1 - t) + h c) n n^T`. The second factor is never negative, so its square root goes into the axis:
//! a [`Coupling`] is four numbers.

mod couplings;

use std::ops::Range;
use std::sync::Arc;

use amalgam_particles::lanes::LANES;
use amalgam_particles::{DVec3, Particles};
use amalgam_solver_kit::{Field, FieldValues};
use rayon::prelude::*;

use crate::chunks::{CHUNK, CHUNKS_PER_TASK};
use crate::linear::block::Block;
use crate::linear::operator::{Operator, OperatorVersion};
use crate::linear::partition::Partition;
use crate::linear::vectors::{Columns, Slice, Vector};
use crate::materials::{Material, Positions};
use couplings::Slices;

/// A spring between two particles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spring {
    /// The particles it joins, by index.
    pub(crate) ends: [u32; 2],
    /// Stiffness [N/m].
    pub(crate) stiffness: f64,
    /// Damping along the spring [N s/m].
    pub(crate) damping: f64,
    /// Length without force [m].
    pub(crate) rest_length: f64,
}

/// A linear isotropic spring from a particle to a fixed point: force -k (x - anchor) - c v. Stiffness and
/// damping are 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Foundation {
    /// Fixed point of the spring [m].
    pub(crate) anchor: DVec3,
    /// Stiffness [N/m].
    pub(crate) stiffness: f64,
    /// Damping [N s/m].
    pub(crate) damping: f64,
}

/// A spring as seen from the particle at one of its ends.
#[derive(Clone, Copy, Debug, Default)]
struct Incidence {
    neighbour: u32,
    spring: u32,
}

/// The springs of each particle, by place.
#[derive(Clone, Debug, Default)]
struct Incidences {
    start: Vec<u32>,
    rows: Vec<Incidence>,
}

impl Incidences {
    fn new(springs: &[Spring], places: usize) -> Self {
        let mut start = vec![0u32; places + 1];
        for end in springs.iter().flat_map(|spring| spring.ends) {
            start[end as usize + 1] += 1;
        }
        for i in 0..places {
            start[i + 1] += start[i];
        }
        let mut next = start.clone();
        let mut rows = vec![Incidence::default(); 2 * springs.len()];
        for (index, spring) in springs.iter().enumerate() {
            for (end, neighbour) in [(spring.ends[0], spring.ends[1]), (spring.ends[1], spring.ends[0])] {
                let at = &mut next[end as usize];
                rows[*at as usize] = Incidence { neighbour, spring: index as u32 };
                *at += 1;
            }
        }
        Self { start, rows }
    }

    #[inline]
    fn of(&self, place: usize) -> &[Incidence] {
        &self.rows[self.start[place] as usize..self.start[place + 1] as usize]
    }
}

/// A spring at the start-of-step positions.
#[derive(Clone, Copy, Debug, Default)]
struct Geometry {
    /// Unit vector from the first end to the second.
    direction: DVec3,
    /// Length above rest length [m].
    elongation: f64,
}

/// A spring's share of `h C + h^2 K`: `transverse` I + `axis` `axis`^T [kg].
#[derive(Clone, Copy, Debug, Default)]
struct Coupling {
    axis: DVec3,
    transverse: f64,
}

/// The springs of the particles that a rank has, with their data for a step. Springs are stored once and
/// sorted by their first end; every particle lists its own, so that loops over particles gather and never
/// scatter. Ends are places (`partition.rs`), and so are rows of incidences; all other columns of particles
/// are by row. A spring between two ranks is on both.
#[derive(Clone, Debug)]
pub(crate) struct Springs {
    partition: Arc<Partition>,
    springs: Vec<Spring>,
    foundations: Vec<Foundation>,
    /// The springs of each place.
    incidences: Incidences,
    geometry: Vec<Geometry>,
    /// True if any particle of any rank has a foundation.
    any_foundation: bool,
    elastic_force: Vec<DVec3>,
    version: OperatorVersion,
    /// The operator that `couplings`, `grounding` and `slices` were computed for.
    prepared: Option<OperatorVersion>,
    couplings: Vec<Coupling>,
    /// Diagonal of `h C + h^2 K` that foundations give each particle [kg].
    grounding: Vec<f64>,
    /// The couplings as the products take them.
    slices: Slices,
}

impl Springs {
    /// Springs and foundations (one per particle) as they are laid out in a section.
    pub(crate) fn new(mut springs: Vec<Spring>, foundations: Vec<Foundation>) -> Self {
        let particles = foundations.len();
        for spring in &mut springs {
            spring.ends.sort_unstable();
        }
        springs.sort_by_key(|spring| spring.ends);
        let incidences = Incidences::new(&springs, particles);
        let slices =
            Slices::new(particles, |i| incidences.of(i).iter().map(|end| (end.neighbour, end.spring)));
        Self {
            partition: Arc::new(Partition::alone(particles)),
            slices,
            geometry: vec![Geometry::default(); springs.len()],
            couplings: vec![Coupling::default(); springs.len()],
            any_foundation: foundations.iter().any(|f| f.stiffness > 0.0 || f.damping > 0.0),
            elastic_force: vec![DVec3::ZERO; particles],
            grounding: vec![0.0; particles],
            version: OperatorVersion::default(),
            prepared: None,
            springs,
            foundations,
            incidences,
        }
    }

    /// True if there is neither a spring nor a foundation.
    pub(crate) fn is_empty(&self) -> bool {
        self.springs.is_empty() && !self.any_foundation
    }

    /// The largest strain (l - L) / L among the springs of each particle; 0 for a particle that has none with
    /// a rest length, negative if all are compressed.
    fn stretch(&self, position: &[DVec3]) -> Vec<f64> {
        let largest_strain = |i: usize| {
            let strains = self.row(i).iter().filter_map(|end| {
                let spring = &self.springs[end.spring as usize];
                (spring.rest_length > 0.0)
                    .then(|| spring_geometry(spring, position).elongation / spring.rest_length)
            });
            strains.reduce(f64::max).unwrap_or(0.0)
        };
        (0..self.foundations.len()).into_par_iter().with_min_len(CHUNK).map(largest_strain).collect()
    }

    /// The springs of a row.
    #[inline]
    fn row(&self, i: usize) -> &[Incidence] {
        self.incidences.of(self.partition.first_place() + i)
    }

    /// The sum of `term` over rows, of all ranks. Collective.
    fn sum(&self, term: impl Fn(usize) -> f64 + Sync) -> f64 {
        let rows = self.foundations.len();
        let chunks = (0..rows.div_ceil(CHUNK)).into_par_iter().with_min_len(CHUNKS_PER_TASK);
        let chunk = |chunk: usize| (chunk * CHUNK..rows.min((chunk + 1) * CHUNK)).map(&term).sum();
        self.partition.sum(&chunks.map(chunk).collect::<Vec<f64>>())
    }
}

impl Operator for Springs {
    fn version(&self) -> OperatorVersion {
        self.version
    }

    fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    fn visit_neighbours(&self, i: usize, visit: &mut dyn FnMut(u32)) {
        self.incidences.of(i).iter().for_each(|end| visit(end.neighbour));
    }

    fn force(&self, i: usize) -> DVec3 {
        self.elastic_force[i]
    }

    fn prepare(&mut self, dt: f64, square: f64) {
        self.version = OperatorVersion { dt, square, ..self.version };
        if self.prepared.replace(self.version) == Some(self.version) {
            return;
        }
        let (springs, geometry) = (&self.springs, &self.geometry);
        self.couplings
            .par_iter_mut()
            .with_min_len(CHUNK * CHUNKS_PER_TASK)
            .zip(springs.par_iter().zip(geometry))
            .for_each(|(coupling, (spring, geometry))| {
                *coupling = spring_coupling(spring, geometry, dt, square);
            });
        for (grounding, foundation) in self.grounding.iter_mut().zip(&self.foundations) {
            *grounding = square * foundation.stiffness + dt * foundation.damping;
        }
        let couplings = &self.couplings;
        let coupling = |spring: u32| (couplings[spring as usize].axis, couplings[spring as usize].transverse);
        self.slices.set(coupling, &self.grounding);
    }

    fn add_diagonal(&self, i: usize, internal: Option<&dyn Fn(u32) -> bool>, block: &mut Block) {
        block.add(self.grounding[i], DVec3::ZERO);
        for end in self.row(i).iter().filter(|end| !internal.is_some_and(|internal| internal(end.neighbour)))
        {
            let coupling = &self.couplings[end.spring as usize];
            block.add(coupling.transverse, coupling.axis);
        }
    }

    fn set_operand(&mut self, u: Vector<'_>, _wanted: Option<&[bool]>) {
        if let Vector::Exact(u) = u {
            self.slices.load(u);
        }
    }

    fn add_rows(&self, first: usize, u: &[DVec3], image: &mut [DVec3]) {
        for (i, image) in (first..).zip(image.iter_mut()) {
            *image += u[i] * self.grounding[i];
        }
        self.slices.add_exact(first / LANES, image);
    }

    fn add_rounded(&self, first: usize, u: &Columns, image: &mut [Slice]) {
        self.slices.add_rounded(first, u, image);
    }
}

impl Material for Springs {
    fn mark_read(&self, rows: Range<usize>, read: &mut [bool]) {
        self.slices.mark_read(rows.start / LANES..rows.end.div_ceil(LANES), read);
    }

    fn share(&mut self, partition: &Arc<Partition>) {
        let own = partition.own();
        // Of a spring with an own end the other end is read, so both have places.
        let is_kept = |spring: &Spring| spring.ends.iter().any(|&end| own.contains(&(end as usize)));
        let mut number = 0;
        let of_spring: Vec<u32> = self
            .springs
            .iter()
            .map(|spring| {
                number += u32::from(is_kept(spring));
                number.wrapping_sub(1)
            })
            .collect();
        let place = |index: u32| partition.place(index as usize).unwrap_or_default();
        let slices = self.slices.part(partition, |spring| of_spring[spring as usize]);
        self.springs.retain(is_kept);
        self.springs.iter_mut().for_each(|spring| spring.ends = spring.ends.map(place));
        self.foundations = self.foundations[own.clone()].to_vec();
        *self = Self {
            partition: partition.clone(),
            incidences: Incidences::new(&self.springs, partition.places()),
            geometry: vec![Geometry::default(); self.springs.len()],
            couplings: vec![Coupling::default(); self.springs.len()],
            any_foundation: self.any_foundation,
            elastic_force: vec![DVec3::ZERO; own.len()],
            grounding: vec![0.0; own.len()],
            version: self.version,
            prepared: None,
            slices,
            springs: std::mem::take(&mut self.springs),
            foundations: std::mem::take(&mut self.foundations),
        };
    }

    fn joined(&self, a: u32, b: u32) -> bool {
        self.incidences.of(a as usize).iter().any(|end| end.neighbour == b)
    }

    fn linearise(&mut self, Positions { values: position, .. }: Positions<'_>, _implicit: bool) {
        self.version.linearisation += 1;
        let springs = &self.springs;
        self.geometry.par_iter_mut().with_min_len(CHUNK * CHUNKS_PER_TASK).zip(springs).for_each(
            |(geometry, spring)| {
                *geometry = spring_geometry(spring, position);
            },
        );
        let (springs, geometry, foundations) = (&self.springs, &self.geometry, &self.foundations);
        let (incidences, first) = (&self.incidences, self.partition.first_place());
        self.elastic_force.par_iter_mut().enumerate().with_min_len(CHUNK * CHUNKS_PER_TASK).for_each(
            |(i, force)| {
                let foundation = &foundations[i];
                let place = first + i;
                *force = (foundation.anchor - position[place]) * foundation.stiffness;
                for end in incidences.of(place) {
                    let (spring, geometry) = (&springs[end.spring as usize], &geometry[end.spring as usize]);
                    let tension = spring.stiffness * geometry.elongation;
                    *force += geometry.direction
                        * if spring.ends[0] as usize == place { tension } else { -tension };
                }
            },
        );
    }

    fn energies(&self, position: &[DVec3]) -> Vec<(&'static str, f64)> {
        let first = self.partition.first_place();
        let energy = |spring: &Spring| {
            let elongation = spring_geometry(spring, position).elongation;
            0.5 * spring.stiffness * elongation * elongation
        };
        // A spring counts at its first end.
        let elastic = self.sum(|i| {
            let springs = self.row(i).iter().map(|end| &self.springs[end.spring as usize]);
            springs.filter(|spring| spring.ends[0] as usize == first + i).map(energy).sum()
        });
        let mut energies = vec![("elastic", elastic)];
        if self.any_foundation {
            let foundation = self.sum(|i| {
                let foundation = &self.foundations[i];
                0.5 * foundation.stiffness * (position[first + i] - foundation.anchor).length_squared()
            });
            energies.push(("foundation", foundation));
        }
        energies
    }

    /// `stretch`: the largest strain (l - L) / L among a particle's springs, without unit.
    fn fields(&self, position: &[DVec3]) -> Vec<Field> {
        let stretch = self.stretch(position);
        let values = FieldValues::Scalar(stretch.into_iter().map(|strain| strain as f32).collect());
        vec![Field { name: "stretch", values }]
    }

    /// By Gershgorin's circles the fastest oscillation of a particle has w^2 <= 2 sum k / m, and leapfrog is
    /// stable for w^2 h^2 + 2 r h <= 4, where r is the rate of damping, whose force is a step late.
    fn stable_dt(&self, particles: &Particles) -> f64 {
        (0..particles.len()).filter(|&i| !particles.immovable[i]).fold(f64::INFINITY, |least, i| {
            let (mut stiffness, mut damping) = (self.foundations[i].stiffness, self.foundations[i].damping);
            for end in self.row(i) {
                stiffness += 2.0 * self.springs[end.spring as usize].stiffness;
                damping += 2.0 * self.springs[end.spring as usize].damping;
            }
            let (square, rate) = (stiffness / particles.mass[i], damping / particles.mass[i]);
            least.min(4.0 / (rate + (rate * rate + 4.0 * square).sqrt()))
        })
    }
}

#[inline]
fn spring_geometry(spring: &Spring, position: &[DVec3]) -> Geometry {
    let difference = position[spring.ends[1] as usize] - position[spring.ends[0] as usize];
    let length = difference.length();
    // Coincident ends have no direction: a spring with a rest length is then at an unstable balance, without
    // force.
    let direction = if length > 0.0 { difference / length } else { DVec3::ZERO };
    Geometry { direction, elongation: length - spring.rest_length }
}

#[inline]
fn spring_coupling(spring: &Spring, geometry: &Geometry, dt: f64, square: f64) -> Coupling {
    let length = geometry.elongation + spring.rest_length;
    let transverse_share = if spring.rest_length == 0.0 {
        1.0
    } else if geometry.elongation > 0.0 {
        geometry.elongation / length
    } else {
        0.0
    };
    let stiffness = square * spring.stiffness;
    let longitudinal = stiffness * (1.0 - transverse_share) + dt * spring.damping;
    Coupling { axis: geometry.direction * longitudinal.sqrt(), transverse: stiffness * transverse_share }
}
