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
use super::sweeps::{BesideKnown, Bring, Conduct, Forces, Know, PairUp, Push, Unknown, is_open};
use super::system::{BLOCK, RUN, Split, System};
use super::transfer::{Cell, Pairs};
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
    /// Velocity at the start of the sub-step [m/s], where one is known before the projection or after it.
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
    /// After it.
    projected: Field,
    /// Faces in the air to which velocities are carried on, of each axis one time after the other.
    carried: [[Vec<Beside>; EXTRAPOLATIONS]; 3],
    /// Whether those must be found anew: members do not change which faces particles reach.
    new: bool,
}

/// A face whose velocity is not known beside known ones: a bit for each of those, of [`around`].
#[derive(Clone, Copy, Debug)]
struct Beside {
    face: usize,
    known: u8,
}

/// Velocities of an axis, whether they are known, and old ones.
type Columns<'a> = (&'a mut [f64], &'a mut [bool], &'a mut [f64]);

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
        carry_on(grid, (&mut self.velocity[axis], &mut self.known[axis], old), &faces);
    }
}

/// Gives these faces of an axis the mean of the known ones around them, of velocities and of old ones.
fn carry_on(grid: &Grid, (velocity, known, old): Columns<'_>, faces: &[Beside]) {
    let around = around(grid);
    let mean = |beside: &Beside| {
        let mut sum = [0.0; 2];
        for (n, shift) in around.into_iter().enumerate() {
            let near = beside.face.wrapping_add_signed(shift);
            let on = beside.known >> n & 1 != 0;
            sum[0] += if on { velocity[near] } else { 0.0 };
            sum[1] += if on { old[near] } else { 0.0 };
        }
        sum.map(|sum| sum / f64::from(beside.known.count_ones()))
    };
    let means: Vec<_> = faces.par_iter().with_min_len(BLOCK).map(mean).collect();
    for (&Beside { face, .. }, mean) in faces.iter().zip(means) {
        [velocity[face], old[face]] = mean;
        known[face] = true;
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
            projected: Field::new(grid),
            carried: Default::default(),
            new: true,
        }
    }

    /// Velocities before the projection: those of the particles, changed by gravity and by what others give groups.
    /// Nothing flows through walls. Unless particles, cells or the length of the sub-step are `new`, only those faces
    /// are visited that members touch, or touched the last time.
    pub(super) fn gather(&mut self, forces: &Forces<'_>, extras: &Extras, new: bool) {
        let (grid, width) = (forces.grid, self.width);
        let Self { gathered, old, conductance, incomplete, changed, .. } = self;
        let Field { velocity, known } = gathered;
        changed.fill(new);
        let conducts = AtomicBool::new(new);
        let fields = velocity.par_iter_mut().zip(&mut *old).zip(known).zip(conductance).enumerate();
        fields.for_each(|(axis, (((velocity, old), known), conductance))| {
            if new {
                let moved = velocity.par_chunks_mut(BLOCK).zip(old.par_chunks_mut(BLOCK));
                let others = known.par_chunks_mut(BLOCK).zip(conductance.par_chunks_mut(BLOCK));
                moved.zip(others).enumerate().for_each(|(n, ((velocity, old), (known, conductance)))| {
                    let columns = (velocity, old, known, conductance);
                    width.run(Bring { forces, axis, begin: n * BLOCK, columns });
                });
            }
            let left = extras.left(axis).map(|face| (face, None));
            let faces = left.chain(extras.touched(axis).map(|(face, extra)| (face, Some(extra))));
            let faces: Vec<_> = faces.collect();
            let at = |&(face, extra): &(usize, _)| forces.at(axis, face, extra);
            let brought: Vec<_> = faces.par_iter().with_min_len(MEMBERS).map(at).collect();
            for (&(face, _), brought) in faces.iter().zip(brought) {
                let before = conductance[face];
                (velocity[face], old[face], known[face], conductance[face]) = brought;
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

    /// Subtracts the gradient of the pressure, and carries velocities on to the faces between cells of air.
    pub(super) fn push(&mut self, grid: &Grid, cell: &[Cell], split: &Split<f64>) {
        let Self { gathered, old, conductance, changed, projected, carried, new, pressure, width, .. } = self;
        let [red, black] = split;
        let pairs = pressure.par_chunks_exact_mut(2).zip(red.par_iter().zip(black)).with_min_len(BLOCK);
        pairs.for_each(|(pair, (&red, &black))| pair.copy_from_slice(&[red, black]));
        let (new_faces, width, pressure, changed) = (*new, *width, &pressure[..], &changed[..]);
        let Field { velocity, known } = projected;
        let columns = velocity.par_iter_mut().zip(known).zip(old).zip(carried).enumerate();
        columns.for_each(|(axis, (((velocity, known), old), carried))| {
            let (stride, cell_size) = (grid.strides()[axis], grid.cell_size);
            let (conductance, before) = (&conductance[axis], &gathered.velocity[axis]);
            velocity.par_chunks_mut(BLOCK).enumerate().for_each(|(n, after)| {
                let begin = n * BLOCK;
                width.run(Push { begin, stride, cell_size, conductance, changed, pressure, before, after });
            });
            if new_faces {
                let brought = &gathered.known[axis];
                known.par_chunks_mut(BLOCK).enumerate().for_each(|(n, known)| {
                    width.run(Know { begin: n * BLOCK, stride, brought, cell, known });
                });
            }
            for faces in carried {
                if new_faces {
                    *faces = beside_known(grid, width, axis, cell, known);
                }
                carry_on(grid, (velocity, known, old), faces);
            }
        });
        *new = false;
    }

    /// Stops what flows into walls that let go.
    pub(super) fn hold(&mut self, walls: &[WallFace]) {
        walls.iter().for_each(|wall| wall.hold(&mut self.projected.velocity));
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

    /// For each face its velocity, and what a particle gets to which `flip_share` of its old velocity is added. The
    /// largest of the latter along each axis [m/s].
    pub(super) fn pair_up(&self, flip_share: f64, pairs: &mut Pairs) -> DVec3 {
        let mut largest = DVec3::ZERO;
        for (axis, pairs) in pairs.iter_mut().enumerate() {
            let (velocity, old) = (&self.projected.velocity[axis], &self.old[axis]);
            pairs.resize(velocity.len(), [0.0; 2]);
            let blocks =
                pairs.par_chunks_mut(BLOCK).zip(velocity.par_chunks(BLOCK)).zip(old.par_chunks(BLOCK));
            let largest_of =
                |((pairs, velocity), old)| self.width.run(PairUp { flip_share, velocity, old, pairs });
            largest[axis] = blocks.map(largest_of).reduce(|| 0.0, larger);
        }
        largest
    }

    /// Velocities after and before the sub-step [m/s].
    pub(super) fn after_and_before(&self) -> [&Faces<f64>; 2] {
        [&self.projected.velocity, &self.old]
    }
}
