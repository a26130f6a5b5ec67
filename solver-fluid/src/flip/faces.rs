//! Velocities at faces, from what particles bring to what they take: forces, walls, the pressure's push, and the velocity
//! of faces in the air.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use amalgam_particles::DVec3;
use amalgam_particles::lanes::{LANES, Width};
use rayon::prelude::*;

use super::grid::Grid;
use super::members::{Extras, MEMBERS};
use super::pressure::larger;
use super::sweeps::{BesideKnown, Bring, Conduct, Forces, Know, PairUp, Strongest, Unknown, is_open, pushed};
use super::system::{BLOCK, RUN, Split, System};
use super::transfer::{Cell, Pairs, pair};
use super::walls::WallFace;

/// Times that velocities are carried on to faces which have none.
const EXTRAPOLATIONS: usize = 2;

/// Columns of faces, one for each axis.
pub(super) type Faces<T> = [Vec<T>; 3];

/// A field of velocities.
#[derive(Clone, Debug)]
struct Field {
    /// [m/s]
    velocity: Faces<f64>,
    /// Whether it is known.
    known: Faces<bool>,
}

/// The fluid's velocity on the grid in a sub-step.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// Before the projection. Kept, so that a later stage computes anew only what groups touch.
    gathered: Field,
    /// The largest of what particles would find without members before the projection to which a share of their old velocity is
    /// added, along each axis [m/s]; and with members.
    most: [[f64; 3]; 2],
    /// Velocity at the start of the sub-step [m/s], where one is known.
    old: Faces<f64>,
    /// dt / (density cell_size^2) [m s/kg] of faces that the pressure pushes through, else zero.
    conductance: Faces<f32>,
    /// Which runs of cells ([`RUN`]) have a face that the last gathering visited.
    changed: Vec<bool>,
    /// Whether it changed a conductance.
    conducts: bool,
    /// The pressure of the last push in the order of cells [Pa].
    pressure: Vec<f64>,
    width: Width,
    /// Faces without particles beside cells that others occupy.
    incomplete: Faces<usize>,
    /// Whether a velocity is known after the push, before any is carried on and behind it.
    known: Faces<bool>,
    /// Faces whose push is undone, with their velocity before it and conductance.
    held: Vec<(WallFace, f64, f32)>,
    /// Faces in the air to which velocities are carried on, of each axis one time after the other.
    carried: [[Vec<Beside>; EXTRAPOLATIONS]; 3],
    /// For each of those, from which of the faces around it; 0 for all others.
    beside: Faces<u8>,
    /// Whether those must be found anew: members do not change which faces particles reach.
    new: bool,
}

/// A face whose velocity is not known beside known ones: a bit for each of those, of [`around`].
#[derive(Clone, Copy, Debug)]
struct Beside {
    face: usize,
    known: u8,
}

/// Where the six faces around one stand in a column.
fn around(grid: &Grid) -> [isize; 6] {
    let [one, row, layer] = grid.strides().map(usize::cast_signed);
    [-one, one, -row, row, -layer, layer]
}

/// Whether the pressure in a cell is zero.
fn is_free(cell: Cell) -> bool {
    matches!(cell, Cell::Air | Cell::Spray)
}

impl Field {
    fn new(grid: &Grid) -> Self {
        Self {
            velocity: [0, 1, 2].map(|_| vec![0.0; grid.len()]),
            known: [0, 1, 2].map(|_| vec![false; grid.len()]),
        }
    }

    /// Faces without particles beside a cell that is no air: others occupy it.
    fn incomplete(&self, grid: &Grid, width: Width, axis: usize, cell: &[Cell]) -> Vec<usize> {
        let (stride, known) = (grid.strides()[axis], &self.known[axis][..]);
        let mark = |begin, marks: &mut [u8]| width.run(Unknown { begin, stride, cell, known, marks });
        marked(grid.first() + stride..cell.len(), mark).map(|(face, _)| face).collect()
    }

    /// Lets these faces move like those around them, which see only what particles brought, not each other.
    fn complete(&mut self, grid: &Grid, axis: usize, old: &mut [f64], faces: &[usize]) {
        for &face in faces {
            self.known[axis][face] = false;
        }
        let known = &self.known[axis];
        let beside = |&face: &usize| {
            let bit = |(n, shift): (usize, isize)| u8::from(known[face.wrapping_add_signed(shift)]) << n;
            let known = around(grid).into_iter().enumerate().map(bit).sum();
            (known != 0).then_some(Beside { face, known })
        };
        let faces: Vec<_> = faces.par_iter().with_min_len(BLOCK).filter_map(beside).collect();
        let means = means(grid, |face| [self.velocity[axis][face], old[face]], &faces);
        for (Beside { face, .. }, mean) in faces.into_iter().zip(means) {
            [self.velocity[axis][face], old[face]] = mean;
            self.known[axis][face] = true;
        }
    }
}

impl Beside {
    /// The mean of what `at` finds at the known faces, given where the six around stand.
    fn mean(&self, around: [isize; 6], at: impl Fn(usize) -> [f64; 2]) -> [f64; 2] {
        let mut sums = [0.0; 2];
        for (_, shift) in around.into_iter().enumerate().filter(|(n, _)| self.known >> n & 1 != 0) {
            let values = at(self.face.wrapping_add_signed(shift));
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        sums.map(|sum| sum / f64::from(self.known.count_ones()))
    }
}

/// The means of what `at` finds at the known ones around these faces.
fn means(grid: &Grid, at: impl Fn(usize) -> [f64; 2] + Sync, faces: &[Beside]) -> Vec<[f64; 2]> {
    let around = around(grid);
    faces.par_iter().with_min_len(BLOCK).map(|beside| beside.mean(around, &at)).collect()
}

/// Velocities after a sub-step and before it, found where they are asked for.
#[derive(Clone, Copy)]
pub(super) struct AtFaces<'a> {
    strides: [usize; 3],
    cell_size: f64,
    /// Before the push.
    gathered: &'a Faces<f64>,
    conductance: &'a Faces<f32>,
    pressure: &'a [f64],
    old: &'a Faces<f64>,
    beside: &'a Faces<u8>,
    around: [isize; 6],
    pub(super) flip_share: f64,
}

impl AtFaces<'_> {
    #[inline(always)]
    pub(super) fn velocities(&self, axis: usize, face: usize) -> [f64; 2] {
        match self.beside[axis][face] {
            0 => self.own(axis, face),
            known => self.carried(axis, Beside { face, known }),
        }
    }

    /// Those of a face of which nothing is carried on to it.
    #[inline(always)]
    fn own(&self, axis: usize, face: usize) -> [f64; 2] {
        let pressure = [self.pressure[face], self.pressure[face.saturating_sub(self.strides[axis])]];
        let push = pushed(f64::from(self.conductance[axis][face]), self.cell_size, pressure);
        [self.gathered[axis][face] - push, self.old[axis][face]]
    }

    /// The mean of those that are known around a face, which may be carried on themselves.
    #[cold]
    fn carried(&self, axis: usize, beside: Beside) -> [f64; 2] {
        beside.mean(self.around, |face| self.velocities(axis, face))
    }
}

/// Faces of an axis whose velocity is not known, beside known ones.
fn beside_known(grid: &Grid, width: Width, axis: usize, cell: &[Cell], known: &[bool]) -> Vec<Beside> {
    let (first, last) = (grid.index([0, 0, 0]), grid.index(grid.cells.map(|n| n - 1)));
    let (around, stride) = (around(grid), grid.strides()[axis]);
    let mark = |begin, marks: &mut [u8]| {
        width.run(BesideKnown { begin, around, stride, cell, known, marks });
    };
    marked(first..last + 1, mark).map(|(face, known)| Beside { face, known }).collect()
}

/// Faces to which `mark`, given the first one of a block, gives a mark that is not zero, and their marks.
fn marked(
    faces: Range<usize>,
    mark: impl Fn(usize, &mut [u8]) + Sync + Send,
) -> impl ParallelIterator<Item = (usize, u8)> {
    let end = faces.end;
    faces.into_par_iter().step_by(BLOCK).flat_map_iter(move |begin| {
        let mut marks = [0; BLOCK];
        mark(begin, &mut marks[..BLOCK.min(end - begin)]);
        let mut some = Vec::new();
        // Few have one.
        for (n, eight) in marks.as_chunks::<8>().0.iter().enumerate().filter(|(_, eight)| **eight != [0; 8]) {
            for (l, &mark) in eight.iter().enumerate().filter(|(_, mark)| **mark != 0) {
                some.push((begin + 8 * n + l, mark));
            }
        }
        some
    })
}

impl Flow {
    pub(super) fn new(grid: &Grid, width: Width) -> Self {
        Self {
            gathered: Field::new(grid),
            old: [0, 1, 2].map(|_| vec![0.0; grid.len()]),
            conductance: [0, 1, 2].map(|_| vec![0.0; grid.len()]),
            changed: vec![true; grid.len() / RUN],
            conducts: true,
            pressure: vec![0.0; grid.len()],
            width,
            incomplete: [0, 1, 2].map(|_| Vec::new()),
            known: [0, 1, 2].map(|_| vec![false; grid.len()]),
            most: [[0.0; 3]; 2],
            held: Vec::new(),
            carried: Default::default(),
            beside: [0, 1, 2].map(|_| vec![0; grid.len()]),
            new: true,
        }
    }

    /// Velocities before the projection: those of the particles, changed by gravity and by what others give groups.
    /// Nothing flows through walls. Unless particles, cells or the length of the sub-step are `new`, only those faces
    /// are visited that members touch, or touched the last time.
    pub(super) fn gather(&mut self, forces: &Forces<'_>, extras: &Extras, new: bool) {
        let (grid, width) = (forces.grid, self.width);
        let Self { gathered, old, conductance, incomplete, changed, most, held, .. } = self;
        let Field { velocity, known } = gathered;
        for (wall, before, conducted) in held.drain(..) {
            (velocity[wall.axis][wall.face], conductance[wall.axis][wall.face]) = (before, conducted);
        }
        changed.fill(new);
        let conducts = AtomicBool::new(new);
        let [alone, with_members] = most;
        let fields = velocity.par_iter_mut().zip(&mut *old).zip(known).zip(conductance);
        let fields = fields.zip(alone.par_iter_mut().zip(with_members)).enumerate();
        fields.for_each(|(axis, ((((velocity, old), known), conductance), (alone, with_members)))| {
            if new {
                let moved = velocity.par_chunks_mut(BLOCK).zip(old.par_chunks_mut(BLOCK));
                let others = known.par_chunks_mut(BLOCK).zip(conductance.par_chunks_mut(BLOCK));
                let brought =
                    moved.zip(others).enumerate().map(|(n, ((velocity, old), (known, conductance)))| {
                        let columns = (velocity, old, known, conductance);
                        width.run(Bring { forces, axis, begin: n * BLOCK, columns })
                    });
                *alone = brought.reduce(|| 0.0, larger);
            }
            *with_members = *alone;
            let left = extras.left(axis).map(|face| (face, None));
            let faces = left.chain(extras.touched(axis).map(|(face, extra)| (face, Some(extra))));
            let faces: Vec<_> = faces.collect();
            let at = |&(face, extra): &(usize, _)| forces.at(axis, face, extra);
            let brought: Vec<_> = faces.par_iter().with_min_len(MEMBERS).map(at).collect();
            for (&(face, _), brought) in faces.iter().zip(brought) {
                let before = conductance[face];
                (velocity[face], old[face], known[face], conductance[face]) = brought;
                *with_members = larger(*with_members, forces.given(velocity[face], old[face]));
                if conductance[face] != before {
                    conducts.store(true, Ordering::Relaxed);
                }
            }
        });
        self.conducts = conducts.into_inner();
        self.new |= new;
        if new {
            *incomplete = [0, 1, 2].map(|axis| gathered.incomplete(grid, width, axis, forces.cell));
        }
        for (axis, faces) in incomplete.iter().enumerate() {
            gathered.complete(grid, axis, &mut old[axis], faces);
            let stride = grid.strides()[axis];
            let touched = extras.touched(axis).map(|(face, _)| face);
            for face in extras.left(axis).chain(touched).chain(faces.iter().copied()) {
                changed[face / RUN] = true;
                // Faces of cells beside the lower wall have none below.
                changed[face.saturating_sub(stride) / RUN] = true;
            }
        }
    }

    /// Which runs of cells may have other velocities or coefficients than before the last [`Self::gather`].
    pub(super) fn changed(&self) -> &[bool] {
        &self.changed
    }

    /// Whether coefficients are others than before the last [`Self::gather`].
    pub(super) fn conducts(&self) -> bool {
        self.conducts
    }

    /// Sets what has changed of the coefficients of the pressure's system.
    pub(super) fn conduct(&self, forces: &Forces<'_>, system: &mut System) {
        let (grid, cell) = (forces.grid, forces.cell);
        let System { common, face, ground, .. } = system;
        *common = forces.conductance_inside();
        let [x, y, z] = face.each_mut().map(|face| face.par_chunks_mut(BLOCK));
        let changed = self.changed.par_chunks(BLOCK / RUN);
        let blocks = (x, y, z, ground.par_chunks_mut(BLOCK), changed).into_par_iter().enumerate();
        blocks.for_each(|(n, (x, y, z, ground, changed))| {
            let conductance = self.conductance.each_ref().map(Vec::as_slice);
            let (begin, strides) = (n * BLOCK, grid.strides());
            let face = [x, y, z];
            self.width.run(Conduct { begin, strides, cell, conductance, changed, face, ground });
        });
    }

    /// What flows into each cell that is no air, by its volume [1/s]; found anew where something has changed.
    pub(super) fn convergence(&self, grid: &Grid, cell: &[Cell], result: &mut Split<f64>) {
        let strides = grid.strides();
        for (colour, result) in result.iter_mut().enumerate() {
            let runs =
                result.par_chunks_mut(LANES).zip(&self.changed).enumerate().with_min_len(BLOCK / LANES);
            runs.filter(|(_, (_, changed))| **changed).for_each(|(run, (result, _))| {
                for (m, result) in result.iter_mut().enumerate() {
                    let at = run * RUN + 2 * m + colour;
                    *result = 0.0;
                    if is_open(cell[at]) {
                        let flow = |axis: usize| {
                            let velocity = &self.gathered.velocity[axis];
                            velocity[at + strides[axis]] - velocity[at]
                        };
                        *result = -(flow(0) + flow(1) + flow(2)) / grid.cell_size;
                    }
                }
            });
        }
    }

    /// Finds to which faces velocities are carried on.
    fn find_carried(&mut self, grid: &Grid, cell: &[Cell]) {
        let Self { gathered: Field { known: brought, .. }, known, carried, beside, width, .. } = self;
        let (width, columns) =
            (*width, known.par_iter_mut().zip(carried).zip(beside).zip(brought).enumerate());
        columns.for_each(|(axis, (((known, carried), beside), brought))| {
            let stride = grid.strides()[axis];
            known.par_chunks_mut(BLOCK).enumerate().for_each(|(n, known)| {
                width.run(Know { begin: n * BLOCK, stride, brought, cell, known });
            });
            carried.iter().flatten().for_each(|before| beside[before.face] = 0);
            for faces in carried {
                *faces = beside_known(grid, width, axis, cell, known);
                for of in faces {
                    (known[of.face], beside[of.face]) = (true, of.known);
                }
            }
        });
    }

    /// Takes the pressure, whose gradient is subtracted where velocities are asked for, and stops what flows into walls that let
    /// go. A bound of what particles find along each axis to which `flip_share` of their old velocity is added [m/s].
    pub(super) fn push(
        &mut self,
        (grid, cell): (&Grid, &[Cell]),
        split: &Split<f64>,
        walls: &[WallFace],
        flip_share: f64,
    ) -> DVec3 {
        if std::mem::take(&mut self.new) {
            self.find_carried(grid, cell);
        }
        let [red, black] = split;
        let pairs = self.pressure.par_chunks_exact_mut(2).zip(red.par_iter().zip(black)).with_min_len(BLOCK);
        pairs.for_each(|(pair, (&red, &black))| pair.copy_from_slice(&[red, black]));
        let mut bound = DVec3::ZERO;
        for axis in 0..3 {
            let (stride, cell_size, pressure) = (grid.strides()[axis], grid.cell_size, &self.pressure[..]);
            let blocks = self.conductance[axis].par_chunks(BLOCK).enumerate().map(|(n, conductance)| {
                let begin = n * BLOCK;
                self.width.run(Strongest { begin, stride, cell_size, conductance, pressure })
            });
            bound[axis] = self.most[1][axis] + blocks.reduce(|| 0.0, larger);
        }
        for &wall in walls {
            let WallFace { axis, face, .. } = wall;
            let [velocity, old] = self.at_faces(grid, flip_share).velocities(axis, face);
            if wall.holds(velocity) {
                let columns = (&mut self.gathered.velocity[axis][face], &mut self.conductance[axis][face]);
                self.held.push((wall, *columns.0, *columns.1));
                (*columns.0, *columns.1) = (0.0, 0.0);
                bound[axis] = larger(bound[axis], (flip_share * old).abs());
            }
        }
        bound
    }

    /// Adds -grad `potential` to the velocity at faces, at most `speed_max` [m/s]. Faces that members touch or that are
    /// beside cells of others stay as they are.
    pub(super) fn spread(
        &self,
        grid: &Grid,
        (cell, extras): (&[Cell], &Extras),
        potential: &Split<f64>,
        speed_max: f64,
        pairs: &mut Pairs,
    ) {
        let at = |n: usize| potential[n % 2][n / 2];
        let own = |cell: Cell| is_free(cell) || cell == Cell::Fluid;
        for (axis, pairs) in pairs.iter_mut().enumerate() {
            let (stride, conductance) = (grid.strides()[axis], &self.conductance[axis]);
            let speed = |face: usize| {
                let pair = [face, face - stride].map(|n| cell[n]);
                if pair.contains(&Cell::Fluid) && pair.into_iter().all(own) && !extras.touch(axis, face) {
                    let slope = at(face - stride) - at(face);
                    (f64::from(conductance[face]) * grid.cell_size * slope).clamp(-speed_max, speed_max)
                        as f32
                } else {
                    0.0
                }
            };
            let first = grid.index([0, 0, 0]);
            let last = grid.index(grid.cells);
            let faces = pairs[first..last].par_iter_mut().enumerate().with_min_len(BLOCK);
            faces.for_each(|(n, [velocity, _])| *velocity += speed(first + n));
        }
    }

    /// What particles find at each face.
    pub(super) fn pair_up(&self, grid: &Grid, flip_share: f64, pairs: &mut Pairs) {
        let at_faces = self.at_faces(grid, flip_share);
        let AtFaces { gathered, conductance, pressure, old, cell_size, .. } = at_faces;
        pairs.par_iter_mut().zip(&self.carried).enumerate().for_each(|(axis, (pairs, carried))| {
            let (stride, conductance) = (grid.strides()[axis], &conductance[axis][..]);
            let (before, old) = (&gathered[axis][..], &old[axis][..]);
            pairs.resize(before.len(), [0.0; 2]);
            pairs.par_chunks_mut(BLOCK).enumerate().for_each(|(n, pairs)| {
                let (begin, columns) = (n * BLOCK, (before, old, pairs));
                self.width.run(PairUp {
                    begin,
                    stride,
                    cell_size,
                    flip_share,
                    pressure,
                    conductance,
                    columns,
                });
            });
            for faces in carried {
                let found = faces.par_iter().with_min_len(BLOCK);
                let found = found.map(|of| pair(flip_share, at_faces.velocities(axis, of.face)));
                for (of, found) in faces.iter().zip(found.collect::<Vec<_>>()) {
                    pairs[of.face] = found;
                }
            }
        });
    }

    /// Velocities after and before the sub-step [m/s].
    pub(super) fn at_faces(&self, grid: &Grid, flip_share: f64) -> AtFaces<'_> {
        let Self { gathered: Field { velocity: gathered, .. }, conductance, pressure, old, beside, .. } =
            self;
        let (strides, cell_size, around) = (grid.strides(), grid.cell_size, around(grid));
        AtFaces { strides, cell_size, gathered, conductance, pressure, old, beside, around, flip_share }
    }
}
