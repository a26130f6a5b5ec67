//! Bonds of peridynamics: passes over all of them, and implicit steps of a block that is struck.

use amalgam_solver_solid::measure::{Layout, bond_passes, implicit_step};

use super::fluids::resident_bytes;
use super::{Figure, Peer};

/// What LAMMPS takes for a directed bond on its own 2-core machine (AVX-512), everything of a step included.
const LAMMPS: Peer = Peer { name: "LAMMPS peri/pmb, a step", ns: 6.8 };

/// Stages of the paper's Fig. 6 for 248,000 particles, .8 and .7 s [ns a particle].
const STAGES: [Peer; 2] = [
    Peer { name: "Truong et al. 2021, stage 1", ns: 3226.0 },
    Peer { name: "Truong et al. 2021, stage 2", ns: 2823.0 },
];

const REPETITIONS: usize = 20;
const STEPS: usize = 5;
/// Length of the implicit steps [s]: sound travels nine spacings.
const DT: f64 = 1e-3;

/// All figures of solids, or those that take a few seconds.
pub fn measure(quick: bool) -> Vec<Figure> {
    let sizes: &[usize] = if quick { &[100_000] } else { &[100_000, 250_000] };
    let layouts = [(Layout::Lattice, "lattice"), (Layout::Rows, "rows")];
    let mut figures = Vec::new();
    for &size in sizes {
        for (layout, name) in layouts {
            let passes = bond_passes(size, layout, REPETITIONS);
            let (n, bonds) = (passes.particles, passes.directed_bonds as f64);
            for (what, seconds) in [
                ("force, breaking", passes.force_seconds),
                ("operator", passes.product_seconds),
                ("operator, f64", passes.exact_seconds),
            ] {
                let mut figure = Figure::new(format!("bonds, {name}, {what}"), n, vec![seconds]);
                figure.ns_per_bond = Some(seconds * 1e9 / bonds);
                figure.bytes_per_particle = Some(passes.bytes as f64 / n as f64);
                figures.push(figure.beside(LAMMPS));
            }
        }
    }
    if !quick {
        for (layout, name) in layouts {
            let before = resident_bytes();
            let mut resident = None;
            let size = sizes[sizes.len() - 1];
            let step = implicit_step(size, layout, DT, STEPS, || resident = resident_bytes());
            let held = resident.zip(before).map(|(now, before)| now.saturating_sub(before) as f64);
            for (stage, peer) in STAGES.into_iter().enumerate() {
                let label = format!("implicit step, {name}, stage {}", stage + 1);
                let seconds = step.stage_seconds[stage];
                let mut figure = Figure::new(label, step.particles, vec![seconds]);
                figure.bytes_per_particle = held.map(|bytes| bytes / step.particles as f64);
                figures.push(figure.beside(peer));
            }
        }
    }
    figures
}
