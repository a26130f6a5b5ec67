//! Speed and memory of the hot loops, for benchmarks: cases built here, timed in this process.

use std::time::Instant;

use amalgam_particles::lanes::LANES;
use amalgam_particles::{DVec3, GroupMap};
use amalgam_solver_kit::{Alone, AloneGroups, Solver, World};
use rayon::prelude::*;

use crate::chunks::CHUNK;
use crate::linear::operator::Operator as _;
use crate::linear::vectors::{Columns, Slice, Vector};
use crate::materials::peridynamics::Bonds;
use crate::materials::{Material as _, Positions};
use crate::section;
use crate::solver::SolidSolver;

/// Storage of bonds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BondLayout {
    /// Words of sixteen live bits a stencil of a lattice.
    Lattice,
    /// Compressed rows.
    Rows,
}

/// Passes over all bonds of a body, timed.
#[derive(Clone, Debug)]
pub struct BondPasses {
    /// Number of particles.
    pub particles: usize,
    /// Bonds, counted from both of their ends.
    pub directed_bonds: usize,
    /// Everything that is held for the bonds [bytes], what belongs to particles included.
    pub bytes: usize,
    /// Times of passes of forces in which bonds may break [s].
    pub force_seconds: Vec<f64>,
    /// Times of multiplications with the linearised system in f64, as residuals take it [s].
    pub exact_seconds: Vec<f64>,
    /// Times of multiplications as an iteration takes it, vectors rearranged both ways [s].
    pub product_seconds: Vec<f64>,
    /// Time to build the table [s].
    pub build_seconds: f64,
}

/// Implicit steps of a block that is struck, timed.
#[derive(Clone, Debug)]
pub struct ImplicitStep {
    /// Number of particles.
    pub particles: usize,
    /// Mean time of the work that does not depend on merging [s].
    pub begin_seconds: f64,
    /// Times of the first and of the second stage [s].
    pub stage_seconds: [Vec<f64>; 2],
    /// Mean iterations in the first and in the second stage.
    pub iterations: [f64; 2],
    /// Mean time of the commit [s].
    pub commit_seconds: f64,
    /// Bonds that broke in all steps.
    pub broken: usize,
}

fn block(particles: usize, layout: BondLayout, material: &str) -> String {
    let edge = (particles as f64).cbrt().round() * SPACING;
    let storage = if layout == BondLayout::Rows { "rows" } else { "automatic" };
    format!(
        "method = \"peridynamics\"\n{material}\n[[bodies]]\ntype = \"peridynamic\"\nstorage = \"{storage}\"\n\
         shape = {{ type = \"box\", min = [0, 0, 0], max = [{edge}, {edge}, {edge}] }}\nspacing = {SPACING}\n\
         density = 1200\nyoung_modulus = 1e7\nfracture_energy = 20.0\n"
    )
}

const SPACING: f64 = 0.01;

/// Times passes over the bonds of a cubic block of about `particles` particles, `repeats` of each kind. Run
/// it inside the thread pool to be measured.
pub fn bond_passes(particles: usize, layout: BondLayout, repeats: usize) -> BondPasses {
    let solid = section::read(&block(particles, layout, ""), 1).unwrap_or_else(|faults| panic!("{faults:?}"));
    let mut state = solid.layout.particles;
    let start = Instant::now();
    let mut bonds = Bonds::new(solid.layout.bonded, &state, 1).unwrap_or_else(|faults| panic!("{faults:?}"));
    let build_seconds = start.elapsed().as_secs_f64();
    for x in &mut state.position {
        *x += 1e-4 * SPACING * DVec3::new((37.0 * x.y).sin(), (51.0 * x.z).cos(), (29.0 * x.x).sin());
    }
    let u: Vec<DVec3> = state.position.iter().map(|x| DVec3::new(x.y * x.z, x.x.sin(), 1.0 - x.z)).collect();
    bonds.linearise(Positions::tentative(&state.position), true);
    bonds.prepare(1e-3, 1e-6);
    let mut image = vec![DVec3::ZERO; u.len()];
    let mut rounded = Columns::new(u.len());
    (0..u.len()).for_each(|i| rounded.set(i, u[i].as_vec3().to_array()));
    let mut rounded_image = vec![Slice::default(); u.len().div_ceil(LANES)];
    let (mut force_seconds, mut exact_seconds, mut product_seconds) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeats {
        let start = Instant::now();
        let broken = bonds.update(&state, 0, true).unwrap_or_else(|error| panic!("{error}"));
        force_seconds.push(start.elapsed().as_secs_f64());
        assert!(broken.is_empty(), "the block is not strained enough to break");
        let start = Instant::now();
        bonds.set_operand(Vector::Exact(&u), None);
        bonds.add_rows(0, &u, &mut image);
        exact_seconds.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        bonds.set_operand(Vector::Rounded(&rounded), None);
        let chunks = rounded_image.par_chunks_mut(CHUNK / LANES).enumerate();
        chunks.for_each(|(chunk, image)| bonds.add_rounded(chunk * CHUNK / LANES, &rounded, image));
        product_seconds.push(start.elapsed().as_secs_f64());
    }
    let (bytes, directed_bonds) = bonds.size();
    BondPasses {
        particles: u.len(),
        directed_bonds,
        bytes,
        force_seconds,
        exact_seconds,
        product_seconds,
        build_seconds,
    }
}

/// Measures the time of `steps` implicit steps of `dt` [s] of a cubic block of about `particles` particles. A
/// corner of it flies at 2 m/s against the rest, and a second stage holds one particle in eight on a face.
/// One step before is not timed: in its second stage nothing pulls at the face yet. Tolerance 1e-4. Calls
/// `done` after the last step, while the solver holds all that it needs.
pub fn implicit_step(
    particles: usize,
    layout: BondLayout,
    dt: f64,
    steps: usize,
    mut done: impl FnMut(),
) -> ImplicitStep {
    let world = World {
        participant: "block".into(),
        domain: (DVec3::splat(-10.0), DVec3::splat(10.0)),
        gravity: DVec3::new(0.0, 0.0, -9.81),
        seed: 1,
        obstacles: Vec::new(),
        ranks: amalgam_solver_kit::Ranks::alone(),
    };
    let section = block(particles, layout, "tolerance = 1e-4");
    let mut solid = SolidSolver::from_section(&section, &world).unwrap_or_else(|faults| panic!("{faults:?}"));
    let edge = (particles as f64).cbrt().round() * SPACING;
    solid.set_velocities(|x| {
        if (x - DVec3::splat(edge)).length() < 0.2 * edge { DVec3::splat(-1.2) } else { DVec3::ZERO }
    });
    let count = solid.particles().len();
    let held: Vec<u32> = (0..count as u32)
        .filter(|&i| solid.particles().position[i as usize].z < SPACING && i % 8 == 0)
        .collect();
    let mut map = GroupMap::none(count);
    map.set(count, &(0..=held.len() as u32).collect::<Vec<_>>(), &held);
    let inertia = vec![2.0 * solid.particles().mass[0]; held.len()];
    let groups = [AloneGroups::none(count), AloneGroups::new(map, inertia, vec![DVec3::ZERO; held.len()])];
    let (mut begin_seconds, mut stage_seconds, mut iterations, mut commit_seconds) =
        (Vec::new(), [Vec::new(), Vec::new()], [Vec::new(), Vec::new()], Vec::new());
    let mut alone = Alone::default();
    let mut broken = 0;
    for _ in 0..=steps {
        let start = Instant::now();
        solid.begin().unwrap_or_else(|error| panic!("{error}"));
        begin_seconds.push(start.elapsed().as_secs_f64());
        for (stage, groups) in groups.iter().enumerate() {
            let start = Instant::now();
            let answer = alone.integrate(&mut solid, (groups, 0.0), dt);
            answer.unwrap_or_else(|error| panic!("{error}"));
            stage_seconds[stage].push(start.elapsed().as_secs_f64());
            iterations[stage].push(f64::from(solid.iterations()));
        }
        let velocity: Vec<DVec3> = held.iter().map(|&i| alone.answer.velocity[i as usize]).collect();
        let start = Instant::now();
        let report = alone.commit(&mut solid, (&groups[1], &velocity), dt);
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        commit_seconds.push(start.elapsed().as_secs_f64());
        broken += report.broken.len();
    }
    done();
    let mean = |of_steps: Vec<f64>| of_steps[1..].iter().sum::<f64>() / steps as f64;
    ImplicitStep {
        particles: count,
        begin_seconds: mean(begin_seconds),
        stage_seconds: stage_seconds.map(|of_steps| of_steps[1..].to_vec()),
        iterations: iterations.map(mean),
        commit_seconds: mean(commit_seconds),
        broken,
    }
}
