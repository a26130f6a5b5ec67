//! Checks of the points at which a fluid starts: points that are too near each other, and the density, measured by
//! the kernel of SPH.

use std::borrow::Cow;

use amalgam_particles::reduce::CHUNK;
use amalgam_particles::{CellGrid, DVec3, Obstacle, ParticleId};
use amalgam_solver_kit::{Fields, Moves, Ranks, SectionError};
use rayon::prelude::*;

use super::evaluation::Evaluation;
use super::ghosts::{Ghosts, Share};
use super::neighbours::FixedPointGrid;
use super::pressure::equation_of_state::{EquationOfState, Law};
use super::walls::Walls;
use super::{Formulation, Morris, ObstacleDensity, Points, SphParameters};
use crate::filling::{FilledShape, total};
use crate::sources::Sources;

/// Relative excess over the rest density from which on a warning tells it.
const TOLD: f64 = 0.02;
/// Relative excess over the rest density from which on a start is refused.
const REFUSED: f64 = 0.1;

/// The points at which a fluid starts, each at the rank that owns its part of space, for checks of points and
/// their neighbours.
pub(crate) struct Start {
    ranks: Ranks,
    ids: Vec<ParticleId>,
    positions: Vec<DVec3>,
    velocities: Vec<DVec3>,
    ghosts: Ghosts,
}

/// The densest point of a body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Densest {
    /// Density over rest density.
    compression: f64,
    /// Position [m].
    place: DVec3,
}

impl Start {
    /// The points of bodies. Collective.
    pub(super) fn new(ranks: &Ranks, grid: &FixedPointGrid, bodies: &[FilledShape]) -> Self {
        let (ids, positions) = bodies.iter().flat_map(FilledShape::iter).unzip();
        Self::spread(ranks, grid, ids, positions)
    }

    /// Sends points to the ranks that own their parts of space. Collective.
    fn spread(
        ranks: &Ranks,
        grid: &FixedPointGrid,
        mut ids: Vec<ParticleId>,
        mut positions: Vec<DVec3>,
    ) -> Self {
        let mut share = Share::new(ranks, grid, &positions);
        let moves = Moves::new(ranks, &share.owners(grid, &positions));
        moves.apply(ranks, &mut ids);
        moves.apply(ranks, &mut positions);
        let mut start = Self {
            ranks: ranks.clone(),
            velocities: vec![DVec3::ZERO; ids.len()],
            ids,
            positions,
            ghosts: Ghosts::default(),
        };
        let mut ghosts = Ghosts::default();
        ghosts.exchange(&mut share, grid, start.points(), false);
        start.ghosts = ghosts;
        start
    }

    fn points(&self) -> Points<'_> {
        Points { ids: &self.ids, positions: &self.positions, velocities: &self.velocities }
    }

    /// Adds a fault if two points are nearer than half a spacing, since the fluid's pressure would throw them
    /// apart. Collective.
    pub(crate) fn check_overlaps(
        &self,
        bodies: &[FilledShape],
        spacing: f64,
        faults: &mut Vec<SectionError>,
    ) {
        let (reach, own) = (0.5 * spacing * (1.0 - 1e-9), self.ids.len());
        let (ids, positions) = (self.ghosts.points().ids, self.ghosts.points().positions);
        let all = match ids.is_empty() {
            true => Cow::Borrowed(&self.positions),
            false => Cow::Owned([&self.positions[..], positions].concat()),
        };
        let grid = CellGrid::new(&all, reach);
        let id_of = |k: usize| self.ids.get(k).or_else(|| ids.get(k - own)).map_or(u64::MAX, |id| id.0);
        // A pair belongs to its later point. The earliest pair is told.
        let pair = |i: usize| {
            let (id, mut other) = (self.ids[i].0, u64::MAX);
            grid.for_each_near(all[i], |j| {
                let j = j as usize;
                if id_of(j) < id && all[j].distance(all[i]) < reach {
                    other = other.min(id_of(j));
                }
            });
            (other != u64::MAX).then_some((id, other, i))
        };
        let first = (0..own).into_par_iter().with_min_len(CHUNK).filter_map(pair).min();
        let told = first.map(|(id, other, i)| {
            let [x, y, z] = self.positions[i].to_array().map(f64::to_bits);
            (self.ranks.rank(), [1, id, other, x, y, z])
        });
        let told = self.ranks.shared::<[u64; 6]>(self.ranks.size(), told);
        if let Some([_, id, other, place @ ..]) = told.into_iter().filter(|pair| pair[0] == 1).min() {
            let (of, other) = (body_of(bodies, id), body_of(bodies, other));
            let message = format!(
                "has a point at {} within half a spacing of one of shapes[{other}]: move them apart",
                DVec3::from_array(place.map(f64::from_bits))
            );
            faults.push(SectionError::new(format!("shapes[{of}]"), message));
        }
    }

    /// The densest point of each body, by the kernel of SPH. Points beyond those of the bodies belong to none.
    /// Collective.
    pub(crate) fn densest(&self, parameters: &SphParameters, bodies: &[FilledShape]) -> Vec<Option<Densest>> {
        let mut evaluation = Evaluation::default();
        evaluation.find_densities(parameters, self.points(), self.ghosts.points());
        // Of each body the density, as bits, with the id and the place.
        let mut densest = vec![[0; 5]; bodies.len()];
        for (i, compression) in evaluation.compressions().enumerate() {
            let id = self.ids[i].0;
            let body = body_of(bodies, id);
            // Bits of positive numbers have the order of the numbers.
            if body < bodies.len() && (compression.to_bits(), id) > (densest[body][0], densest[body][1]) {
                let [x, y, z] = self.positions[i].to_array().map(f64::to_bits);
                densest[body] = [compression.to_bits(), id, x, y, z];
            }
        }
        let (size, rank) = (self.ranks.size(), self.ranks.rank());
        let own = densest.into_iter().enumerate().map(|(body, densest)| (body * size + rank, densest));
        let of_ranks = self.ranks.shared(bodies.len() * size, own);
        let of_body = |of_ranks: &[[u64; 5]]| {
            let &[compression, _, x, y, z] = of_ranks.iter().max()?;
            let place = DVec3::from_array([x, y, z].map(f64::from_bits));
            (compression != 0).then_some(Densest { compression: f64::from_bits(compression), place })
        };
        of_ranks.chunks(size).map(of_body).collect()
    }
}

/// The body of a point, from its id; the number of bodies if it belongs to none.
fn body_of(bodies: &[FilledShape], id: u64) -> usize {
    let mut end = 0;
    let is_before = |body: &&FilledShape| {
        end += body.whole;
        end <= id
    };
    bodies.iter().take_while(is_before).count()
}

/// The densest point of each body by the kernel of SPH, for a fluid of another method, whose own measure of
/// density is coarser. Collective.
pub(crate) fn densest_by_kernel(
    ranks: &Ranks,
    bodies: &[FilledShape],
    spacing: f64,
    domain: (DVec3, DVec3),
    obstacles: &[Obstacle],
) -> Vec<Option<Densest>> {
    let support_radius = 2.0 * spacing;
    let (low, mut high) = domain;
    let (mut ids, mut points): (Vec<ParticleId>, Vec<DVec3>) =
        bodies.iter().flat_map(FilledShape::iter).unzip();
    let mut count = total(bodies);
    // Between two walls that are near each other, SPH lacks some images of images. So a narrow domain is
    // joined to its mirror image until it is two support radii wide.
    for axis in 0..3 {
        while high[axis] - low[axis] < 2.0 * support_radius {
            let wall = high[axis];
            let image = |&x: &DVec3| {
                let mut x = x;
                x[axis] = 2.0 * wall - x[axis];
                x
            };
            let images: Vec<DVec3> = points.iter().map(image).collect();
            points.extend(images);
            ids.extend_from_within(..);
            let first = ids.len() / 2;
            ids[first..].iter_mut().for_each(|id| id.0 += count);
            count *= 2;
            high[axis] += wall - low[axis];
        }
    }
    let formulation = Formulation::Morris(Morris { viscosity: 0.0 });
    let [kernel, _] = formulation.kernels(support_radius);
    let walls = Some(Walls::new((low, high), support_radius));
    let parameters = SphParameters {
        spacing,
        support_radius,
        mass: spacing.powi(3),
        radius: 0.5 * spacing,
        state: EquationOfState { law: Law::Tait, rest_density: 1.0, sound_speed: 1.0 },
        formulation,
        cfl: 1.0,
        substeps_max: 1,
        substeps_once: 1,
        gravity: DVec3::ZERO,
        walls,
        obstacles: ObstacleDensity::new(obstacles, walls, &kernel, spacing),
        sources: Sources::default(),
        fields: Fields::default(),
    };
    let grid = FixedPointGrid::new(support_radius, walls);
    Start::spread(ranks, &grid, ids, points).densest(&parameters, bodies)
}

/// Checks the density at which a fluid starts, from the densest point of each body. Returns warnings of an excess
/// over the rest density above [`TOLD`]. An excess above [`REFUSED`] is a fault.
pub(crate) fn check_density(
    densest: &[Option<Densest>],
    rest_density: f64,
    faults: &mut Vec<SectionError>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    for (k, densest) in densest.iter().enumerate() {
        let Some(Densest { compression, place }) = densest.filter(|densest| densest.compression > 1.0 + TOLD)
        else {
            continue;
        };
        let message = format!(
            "starts {:.1} % above the rest density, with {:.0} kg/m^3 at {place}: particles must be half a spacing \
             from walls and obstacles and a spacing from each other; write faces that lie whole spacings from the walls, from \
             obstacles and from other shapes",
            100.0 * (compression - 1.0),
            compression * rest_density
        );
        if compression > 1.0 + REFUSED {
            faults.push(SectionError::new(format!("shapes[{k}]"), message));
        } else {
            warnings.push(format!("shapes[{k}] {message}"));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use amalgam_particles::shapes::Shape;

    use super::*;

    #[test]
    fn a_narrow_domain_is_measured_like_a_wide_one() {
        let lattice = |max| Shape::Box { min: DVec3::ZERO, max }.sample(0.1).expect("a good box");
        for width in [0.2, 1.0] {
            let edges = DVec3::new(width, 1.0, 1.0);
            let points = lattice(edges);
            let body = FilledShape { first_id: 0, whole: points.len() as u64, points };
            let densest = densest_by_kernel(&Ranks::alone(), &[body], 0.1, (DVec3::ZERO, edges), &[]);
            assert!((densest[0].expect("points").compression - 1.0).abs() < 1e-4);
        }
    }

    #[test]
    fn density_at_the_start_is_passed_told_or_refused() {
        let at = |compression| Some(Densest { compression, place: DVec3::X });
        let mut faults = Vec::new();
        let warnings = check_density(&[at(1.01), at(1.05), at(1.2), None], 1000.0, &mut faults);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].starts_with("shapes[1] starts 5.0 % above the rest density, with 1050 kg/m^3"));
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].key, "shapes[2]");
    }

    #[test]
    fn overlaps_and_densest_points_are_those_of_one_rank() {
        let spacing = 0.1;
        let domain = (DVec3::ZERO, DVec3::splat(2.0));
        let boxes = [(0.0, 1.0), (0.9, 1.5)]
            .map(|(min, max)| Shape::Box { min: DVec3::Z * min, max: DVec3::new(1.5, 1.5, max) });
        let found = |ranks: &Ranks| {
            let body = |shape: &Shape| amalgam_particles::shapes::MovingShape {
                shape: shape.clone(),
                rotation: None,
                velocity: DVec3::ZERO,
                angular_velocity: DVec3::ZERO,
            };
            let (mut shapes, mut faults) = (boxes.each_ref().map(body), Vec::new());
            let bodies = crate::filling::fill(ranks, &mut shapes, spacing, None, &mut faults);
            let grid = FixedPointGrid::new(2.0 * spacing, None);
            Start::new(ranks, &grid, &bodies).check_overlaps(&bodies, spacing, &mut faults);
            let densest = densest_by_kernel(ranks, &bodies, spacing, domain, &[]);
            (
                faults.into_iter().map(|fault| (fault.key, fault.message)).collect::<Vec<_>>(),
                densest,
                total(&bodies),
            )
        };
        let one = found(&Ranks::alone());
        assert!(one.0.len() == 1 && one.0[0].0 == "shapes[1]", "{:?}", one.0);
        assert!(one.1[1].expect("points").compression > 1.1, "{:?}", one.1);
        for size in [2, 3, 5] {
            let all: Vec<_> = std::thread::scope(|scope| {
                let ranks: Vec<_> =
                    Ranks::threads(size).into_iter().map(|ranks| scope.spawn(|| found(&{ ranks }))).collect();
                ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect()
            });
            assert!(all.iter().all(|rank| *rank == one), "{size} ranks: {all:?}, one: {one:?}");
        }
    }
}
