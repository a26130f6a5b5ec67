//! Velocities at faces through a sub-step: forces, walls, the pressure's gradient, and extrapolation into the
//! air.

mod extrapolation;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use amalgam_particles::DVec3;
use amalgam_particles::lanes::{LANES, Width};
use glam::Vec4;
use rayon::prelude::*;

use super::arithmetic::larger;
use super::cell::{Cell, is_free, is_open};
use super::forces::{ApplyForces, FaceForces, ForcesVersion};
use super::grid::{CutCells, Faces, Grid, lay_out};
use super::grid_to_particle::{FacePairs, FaceSource, SetFacePairs, pair};
use super::group_members::{MEMBERS, MemberContributions};
use super::pressure::gradient::{LargestPressureChange, SetCoefficients, pressure_change};
use super::pressure::separating_walls::WallFace;
use super::pressure::{BLOCK, RUN, Split, System};
use super::slab::{Slab, depth};
use extrapolation::{
    ExtrapolatedFace, MarkKnown, MarkMissing, faces_to_extrapolate, marked, means, neighbours,
};

/// Layers of faces in the air to which velocities are extrapolated.
const EXTRAPOLATIONS: usize = 2;

/// A field of velocities.
#[derive(Clone, Debug)]
struct Field {
    /// Velocities [m/s].
    velocity: Faces<f64>,
    /// For each face, true if its velocity is known.
    known: Faces<bool>,
}

/// The fluid's velocity on the grid in a sub-step.
#[derive(Clone, Debug)]
pub(super) struct FaceVelocities {
    /// Before the projection. Kept, so that a later stage computes again only the faces that groups touch.
    unprojected: Field,
    /// Largest |v - flip_ratio v_old| of any face before the projection, along each axis [m/s]: first
    /// without, then with group members. It bounds the velocity of free particles.
    change_max: [[f64; 3]; 2],
    /// Velocity at the start of the sub-step [m/s], where one is known.
    old: Faces<f64>,
    /// dt / (density cell_size^2) [m s/kg] of faces that feel the pressure, else zero.
    conductance: Faces<f32>,
    /// For each run of cells ([`RUN`]), true if forces were last applied to one of its faces.
    changed: Vec<bool>,
    /// Version of the velocities before the projection; `None` before the first.
    forces: Option<ForcesVersion>,
    /// Version of `conductance` as forces set it, without the changes at `stopped` walls.
    conductance_version: u64,
    /// The pressure set last, in the order of cells [Pa].
    pressure: Vec<f64>,
    width: Width,
    /// Faces without particles beside cells that others occupy.
    missing: Faces<usize>,
    /// For each face, true if its velocity is known after the projection, extrapolated ones included.
    known: Faces<bool>,
    /// Faces of walls at which the fluid is stopped, with their velocity before the projection and their
    /// conductance.
    stopped: Vec<(WallFace, f64, f32)>,
    /// Faces in the air to which velocities are extrapolated, layer after layer of each axis.
    extrapolated: [[Vec<ExtrapolatedFace>; EXTRAPOLATIONS]; 3],
    /// For each extrapolated face, the known faces around it as bits; 0 for all others.
    known_around: Faces<u8>,
    /// Version of the velocities from which extrapolated faces were found. Members change no velocity from
    /// unknown to known.
    extrapolated_from: Option<ForcesVersion>,
}

impl Field {
    fn new(grid: &Grid) -> Self {
        Self {
            velocity: [0, 1, 2].map(|_| vec![0.0; grid.len()]),
            known: [0, 1, 2].map(|_| vec![false; grid.len()]),
        }
    }

    /// Open faces without particles beside a cell that is no air: others occupy it, or an obstacle keeps particles
    /// out of it.
    fn missing(
        &self,
        (grid, seen): (&Grid, &Range<usize>),
        width: Width,
        axis: usize,
        (cell, cut): (&[Cell], Option<&CutCells>),
    ) -> Vec<usize> {
        let (stride, known) = (grid.strides()[axis], &self.known[axis][..]);
        let mark = |begin, marks: &mut [u8]| width.run(MarkMissing { begin, stride, cell, known, marks });
        let faces = seen.start.max(grid.first() + stride)..seen.end;
        let faces = marked(faces, mark).map(|(face, _)| face);
        faces.filter(|&face| cut.is_none_or(|cut| !cut.is_closed(axis, face))).collect()
    }

    /// Gives these faces the mean velocities of the known faces around them. Faces filled here do not count as
    /// known for each other.
    fn fill_missing(&mut self, grid: &Grid, axis: usize, old: &mut [f64], faces: &[usize]) {
        for &face in faces {
            self.known[axis][face] = false;
        }
        let known = &self.known[axis];
        let beside = |&face: &usize| {
            let bit = |(n, shift): (usize, isize)| u8::from(known[face.wrapping_add_signed(shift)]) << n;
            let known = neighbours(grid).into_iter().enumerate().map(bit).sum();
            (known != 0).then_some(ExtrapolatedFace { face, known })
        };
        let faces: Vec<_> = faces.par_iter().with_min_len(BLOCK).filter_map(beside).collect();
        let means = means(grid, |face| [self.velocity[axis][face], old[face]], &faces);
        for (ExtrapolatedFace { face, .. }, mean) in faces.into_iter().zip(means) {
            [self.velocity[axis][face], old[face]] = mean;
            self.known[axis][face] = true;
        }
    }
}

/// Velocities after a sub-step and before it, found where they are asked for.
#[derive(Clone, Copy)]
pub(super) struct ProjectedVelocities<'a> {
    strides: [usize; 3],
    cell_size: f64,
    /// Before the projection [m/s].
    unprojected: &'a Faces<f64>,
    conductance: &'a Faces<f32>,
    pressure: &'a [f64],
    old: &'a Faces<f64>,
    known_around: &'a Faces<u8>,
    around: [isize; 6],
    pub(super) flip_ratio: f64,
}

impl ProjectedVelocities<'_> {
    #[inline(always)]
    pub(super) fn velocities(&self, axis: usize, face: usize) -> [f64; 2] {
        match self.known_around[axis][face] {
            0 => self.own(axis, face),
            known => self.extrapolated(axis, ExtrapolatedFace { face, known }),
        }
    }

    /// The velocities of a face that is not extrapolated.
    #[inline(always)]
    fn own(&self, axis: usize, face: usize) -> [f64; 2] {
        let pressure = [self.pressure[face], self.pressure[face.saturating_sub(self.strides[axis])]];
        let change = pressure_change(f64::from(self.conductance[axis][face]), self.cell_size, pressure);
        [self.unprojected[axis][face] - change, self.old[axis][face]]
    }

    /// The mean of the known velocities around a face, which may be extrapolated themselves.
    #[cold]
    fn extrapolated(&self, axis: usize, known_around: ExtrapolatedFace) -> [f64; 2] {
        known_around.mean(self.around, |face| self.velocities(axis, face))
    }
}

/// Source for a few particles.
impl FaceSource for ProjectedVelocities<'_> {
    #[inline(always)]
    fn four(self, axis: usize, low: usize, rows: &[Range<usize>; 4]) -> [Vec4; 4] {
        let pair = |face| pair(self.flip_ratio, self.velocities(axis, face));
        rows.each_ref().map(|row| {
            let ([a, b], [c, d]) = (pair(low + row.start), pair(low + row.start + 1));
            Vec4::new(a, b, c, d)
        })
    }
}

impl FaceVelocities {
    pub(super) fn new(grid: &Grid, width: Width) -> Self {
        Self {
            unprojected: Field::new(grid),
            old: [0, 1, 2].map(|_| vec![0.0; grid.len()]),
            conductance: [0, 1, 2].map(|_| vec![0.0; grid.len()]),
            changed: vec![true; grid.len() / RUN],
            forces: None,
            conductance_version: 0,
            pressure: vec![0.0; grid.len()],
            width,
            missing: [0, 1, 2].map(|_| Vec::new()),
            known: [0, 1, 2].map(|_| vec![false; grid.len()]),
            change_max: [[0.0; 3]; 2],
            stopped: Vec::new(),
            extrapolated: Default::default(),
            known_around: [0, 1, 2].map(|_| vec![0; grid.len()]),
            extrapolated_from: None,
        }
    }

    /// Computes the velocities before the projection: the velocities that particles brought, changed by
    /// `forces` and by the impulses of groups. Nothing flows through walls. If only the members have changed,
    /// it visits only the faces that members touch now, or touched the last time.
    ///
    /// All ranks visit the faces of their slab and those beside it that others need as well. Collective.
    pub(super) fn apply_forces(
        &mut self,
        slab: &Slab,
        forces: &FaceForces<'_>,
        contributions: &MemberContributions,
    ) {
        let new = self.forces.replace(forces.version) != Some(forces.version);
        let (grid, width) = (forces.grid, self.width);
        let (seen, own) = (slab.vectors(depth::FORCES), slab.entries(0));
        let Self { unprojected, old, conductance, missing, changed, change_max, stopped, .. } = self;
        let Field { velocity, known } = unprojected;
        for (wall, before, coefficient) in stopped.drain(..) {
            (velocity[wall.axis][wall.face], conductance[wall.axis][wall.face]) = (before, coefficient);
        }
        changed.fill(new);
        let conductance_changed = AtomicBool::new(new);
        let [alone, with_members] = change_max;
        let fields = (velocity, &mut *old, known, conductance, alone, with_members).into_par_iter();
        fields.enumerate().for_each(|(axis, (velocity, old, known, conductance, alone, with_members))| {
            if new {
                let blocks = (
                    velocity[seen.clone()].par_chunks_mut(BLOCK),
                    old[seen.clone()].par_chunks_mut(BLOCK),
                    known[seen.clone()].par_chunks_mut(BLOCK),
                    conductance[seen.clone()].par_chunks_mut(BLOCK),
                );
                let changes = blocks.into_par_iter().enumerate().map(|(n, columns)| {
                    width.run(ApplyForces { forces, axis, begin: seen.start + n * BLOCK, columns })
                });
                *alone = changes.reduce(|| 0.0, larger);
                for &face in forces.cut.map_or(&[][..], |cut| cut.faces(axis, &seen)) {
                    (velocity[face], old[face], known[face], conductance[face]) = forces.at(axis, face, None);
                }
            }
            *with_members = *alone;
            let left = contributions.left(axis).map(|face| (face, None));
            let faces = left
                .chain(contributions.touched(axis).map(|(face, contribution)| (face, Some(contribution))));
            let faces: Vec<_> = faces.collect();
            let at = |&(face, contribution): &(usize, _)| forces.at(axis, face, contribution);
            let states: Vec<_> = faces.par_iter().with_min_len(MEMBERS).map(at).collect();
            for (&(face, _), state) in faces.iter().zip(states) {
                let before = conductance[face];
                (velocity[face], old[face], known[face], conductance[face]) = state;
                if own.contains(&face) {
                    *with_members = larger(*with_members, forces.update(velocity[face], old[face]));
                    if conductance[face] != before {
                        conductance_changed.store(true, Ordering::Relaxed);
                    }
                }
            }
        });
        let conductance_changed = slab.ranks.any(conductance_changed.into_inner());
        self.conductance_version += u64::from(conductance_changed);
        if new {
            let kinds = (forces.cell, forces.cut);
            *missing = [0, 1, 2].map(|axis| unprojected.missing((grid, &seen), width, axis, kinds));
        }
        for (axis, faces) in missing.iter().enumerate() {
            unprojected.fill_missing(grid, axis, &mut old[axis], faces);
            let stride = grid.strides()[axis];
            let touched = contributions.touched(axis).map(|(face, _)| face);
            for face in contributions.left(axis).chain(touched).chain(faces.iter().copied()) {
                changed[face / RUN] = true;
                // Faces of cells beside the lower wall have none below.
                changed[face.saturating_sub(stride) / RUN] = true;
            }
        }
        if !new {
            slab.unite(changed);
        }
    }

    /// For each run of cells, true if its velocities or coefficients may have changed in the last
    /// [`Self::apply_forces`].
    pub(super) fn changed(&self) -> &[bool] {
        &self.changed
    }

    /// Version of the coefficients that [`Self::set_coefficients`] sets.
    pub(super) fn conductance_version(&self) -> u64 {
        self.conductance_version
    }

    /// Sets the coefficients of the pressure's system in all runs of cells of the slab that have changed.
    pub(super) fn set_coefficients(&self, slab: &Slab, forces: &FaceForces<'_>, system: &mut System) {
        let (grid, cell) = (forces.grid, forces.cell);
        let System { common, face, ground, .. } = system;
        *common = forces.conductance_inside();
        let [x, y, z] = face.each_mut().map(|face| face.par_chunks_mut(BLOCK));
        let changed = self.changed.par_chunks(BLOCK / RUN);
        let blocks = (x, y, z, ground.par_chunks_mut(BLOCK), changed).into_par_iter().enumerate();
        let own = slab.chunks(0, BLOCK);
        blocks.skip(own.start).take(own.len()).for_each(|(n, (x, y, z, ground, changed))| {
            let conductance = self.conductance.each_ref().map(Vec::as_slice);
            let area = forces.cut.map(|cut| cut.area.each_ref().map(Vec::as_slice));
            let (begin, strides) = (n * BLOCK, grid.strides());
            let face = [x, y, z];
            self.width.run(SetCoefficients {
                begin,
                strides,
                cell,
                conductance,
                area,
                changed,
                face,
                ground,
            });
        });
    }

    /// Minus the divergence of each cell of the slab that is no air [1/s], computed again where something has
    /// changed.
    pub(super) fn negative_divergence(
        &self,
        (grid, slab): (&Grid, &Slab),
        (cell, cut): (&[Cell], Option<&CutCells>),
        result: &mut Split<f64>,
    ) {
        let own = slab.chunks(0, RUN);
        let strides = grid.strides();
        for (colour, result) in result.iter_mut().enumerate() {
            let runs =
                result.par_chunks_mut(LANES).zip(&self.changed).enumerate().with_min_len(BLOCK / LANES);
            let runs = runs.skip(own.start).take(own.len());
            runs.filter(|(_, (_, changed))| **changed).for_each(|(run, (result, _))| {
                for (m, result) in result.iter_mut().enumerate() {
                    let at = run * RUN + 2 * m + colour;
                    *result = 0.0;
                    if is_open(cell[at]) {
                        let flow = |axis: usize| {
                            let velocity = &self.unprojected.velocity[axis];
                            let through = |face: usize| match cut {
                                Some(cut) => f64::from(cut.area[axis][face]) * velocity[face],
                                None => velocity[face],
                            };
                            through(at + strides[axis]) - through(at)
                        };
                        *result = -(flow(0) + flow(1) + flow(2)) / grid.cell_size;
                    }
                }
            });
        }
    }

    /// Finds the faces to which velocities are extrapolated.
    fn find_extrapolated(&mut self, (grid, slab): (&Grid, &Slab), (cell, cut): (&[Cell], Option<&CutCells>)) {
        let (seen, some) = (slab.vectors(depth::FORCES), slab.entries(depth::FILLED));
        let Self { unprojected, known, extrapolated, known_around, width, .. } = self;
        let (width, by_particles) = (*width, &unprojected.known);
        let columns = (known, extrapolated, known_around, by_particles).into_par_iter();
        columns.enumerate().for_each(|(axis, (known, extrapolated, known_around, by_particles))| {
            let stride = grid.strides()[axis];
            known[seen.clone()].par_chunks_mut(BLOCK).enumerate().for_each(|(n, known)| {
                let begin = seen.start + n * BLOCK;
                width.run(MarkKnown { begin, stride, brought: by_particles, cell, known });
            });
            for &face in cut.map_or(&[][..], |cut| cut.faces(axis, &seen)) {
                known[face] &= !cut.is_some_and(|cut| cut.is_closed(axis, face));
            }
            extrapolated.iter().flatten().for_each(|before| known_around[before.face] = 0);
            for faces in extrapolated {
                *faces = faces_to_extrapolate((grid, &some), width, axis, cell, known);
                for of in faces {
                    (known[of.face], known_around[of.face]) = (true, of.known);
                }
            }
        });
    }

    /// Takes the pressure, whose gradient is subtracted where velocities are asked for. Stops the fluid where
    /// it flows into walls that let go. Returns a bound of the velocity that particles take along each axis,
    /// besides `flip_ratio` of their old one [m/s]. Collective.
    pub(super) fn set_pressure(
        &mut self,
        slab: &Slab,
        (grid, kinds): (&Grid, (&[Cell], Option<&CutCells>)),
        split: &Split<f64>,
        walls: &[WallFace],
        flip_ratio: f64,
    ) -> DVec3 {
        if self.extrapolated_from != self.forces {
            self.extrapolated_from = self.forces;
            self.find_extrapolated((grid, slab), kinds);
        }
        let [red, black] = split;
        let seen = slab.chunks(depth::FORCES, 2);
        let columns = self.pressure[2 * seen.start..2 * seen.end].par_chunks_exact_mut(2);
        let pairs = columns.zip(red[seen.clone()].par_iter().zip(&black[seen])).with_min_len(BLOCK);
        pairs.for_each(|(pair, (&red, &black))| pair.copy_from_slice(&[red, black]));
        let (mut bound, own) = ([0.0; 3], slab.vectors(depth::PROJECTED));
        for (axis, bound) in bound.iter_mut().enumerate() {
            let (stride, cell_size, pressure) = (grid.strides()[axis], grid.cell_size, &self.pressure[..]);
            let conductance = self.conductance[axis][own.clone()].par_chunks(BLOCK);
            let blocks = conductance.enumerate().map(|(n, conductance)| {
                let begin = own.start + n * BLOCK;
                self.width.run(LargestPressureChange { begin, stride, cell_size, conductance, pressure })
            });
            let changes = [self.change_max[1][axis], blocks.reduce(|| 0.0, larger)];
            let [before, by_pressure] = slab.largest(changes);
            *bound = before + by_pressure;
        }
        let filled = slab.entries(depth::FILLED);
        for &wall in walls.iter().filter(|wall| filled.contains(&wall.face)) {
            let WallFace { axis, face, .. } = wall;
            let [velocity, old] = self.projected(grid, flip_ratio).velocities(axis, face);
            if wall.holds(velocity) {
                let columns = (&mut self.unprojected.velocity[axis][face], &mut self.conductance[axis][face]);
                self.stopped.push((wall, *columns.0, *columns.1));
                (*columns.0, *columns.1) = (0.0, 0.0);
                bound[axis] = larger(bound[axis], (flip_ratio * old).abs());
            }
        }
        slab.largest(bound).into()
    }

    /// Adds -grad `potential` to the velocity at faces, at most `speed_max` [m/s]. Faces that members touch
    /// or that are beside cells of others stay as they are.
    pub(super) fn add_correction(
        &self,
        (grid, slab): (&Grid, &Slab),
        (cell, contributions): (&[Cell], &MemberContributions),
        potential: &Split<f64>,
        speed_max: f64,
        pairs: &mut FacePairs,
    ) {
        let at = |n: usize| potential[n % 2][n / 2];
        let own = |cell: Cell| is_free(cell) || cell == Cell::Fluid;
        for (axis, pairs) in pairs.iter_mut().enumerate() {
            let (stride, conductance) = (grid.strides()[axis], &self.conductance[axis]);
            let speed = |face: usize| {
                let pair = [face, face - stride].map(|n| cell[n]);
                if pair.contains(&Cell::Fluid)
                    && pair.into_iter().all(own)
                    && !contributions.touch(axis, face)
                {
                    let slope = at(face - stride) - at(face);
                    (f64::from(conductance[face]) * grid.cell_size * slope).clamp(-speed_max, speed_max)
                        as f32
                } else {
                    0.0
                }
            };
            let Range { start, end } = slab.entries(depth::PROJECTED);
            let first = start.max(grid.index([0, 0, 0]));
            let last = end.min(grid.index(grid.cells));
            let faces = pairs[first..last].par_iter_mut().enumerate().with_min_len(BLOCK);
            faces.for_each(|(n, [velocity, _])| *velocity += speed(first + n));
        }
    }

    /// Fills in the pairs that particles of the slab read at each face.
    pub(super) fn set_face_pairs(
        &self,
        (grid, slab): (&Grid, &Slab),
        flip_ratio: f64,
        pairs: &mut FacePairs,
    ) {
        let own = slab.chunks(depth::PROJECTED, BLOCK);
        let projected = self.projected(grid, flip_ratio);
        let ProjectedVelocities { unprojected, conductance, pressure, old, cell_size, .. } = projected;
        pairs.par_iter_mut().zip(&self.extrapolated).enumerate().for_each(|(axis, (pairs, extrapolated))| {
            let (stride, conductance) = (grid.strides()[axis], &conductance[axis][..]);
            let (before, old) = (&unprojected[axis][..], &old[axis][..]);
            lay_out(grid, pairs);
            pairs.par_chunks_mut(BLOCK).enumerate().skip(own.start).take(own.len()).for_each(|(n, pairs)| {
                let (begin, columns) = (n * BLOCK, (before, old, pairs));
                self.width.run(SetFacePairs {
                    begin,
                    stride,
                    cell_size,
                    flip_ratio,
                    pressure,
                    conductance,
                    columns,
                });
            });
            for faces in extrapolated {
                let found = faces.par_iter().with_min_len(BLOCK);
                let found = found.map(|of| pair(flip_ratio, projected.velocities(axis, of.face)));
                for (of, found) in faces.iter().zip(found.collect::<Vec<_>>()) {
                    pairs[of.face] = found;
                }
            }
        });
    }

    /// Velocities after and before the sub-step [m/s].
    pub(super) fn projected(&self, grid: &Grid, flip_ratio: f64) -> ProjectedVelocities<'_> {
        let Self {
            unprojected: Field { velocity: unprojected, .. },
            conductance,
            pressure,
            old,
            known_around,
            ..
        } = self;
        let (strides, cell_size, around) = (grid.strides(), grid.cell_size, neighbours(grid));
        ProjectedVelocities {
            strides,
            cell_size,
            unprojected,
            conductance,
            pressure,
            old,
            known_around,
            around,
            flip_ratio,
        }
    }
}
