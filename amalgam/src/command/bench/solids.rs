//! Bonds of peridynamics: passes over all of them, and implicit steps of a block that is struck.

use amalgam_solver_solid::measure::{BondLayout, bond_passes, implicit_step};

use super::measurement::{Bound, Idle, Measurement, Peer};

/// Time of LAMMPS per directed bond, a whole step included, on its own 2-core machine (AVX-512).
const LAMMPS: Peer = Peer { name: "LAMMPS peri/pmb, a step", ns: 6.8 };

/// Stages of the paper's Fig. 6 for 248,000 particles, 0.8 and 0.7 s [ns per particle].
const STAGES: [Peer; 2] = [
    Peer { name: "Truong et al. 2021, stage 1", ns: 3226.0 },
    Peer { name: "Truong et al. 2021, stage 2", ns: 2823.0 },
];

const REPETITIONS: usize = 20;
const STEPS: usize = 5;
/// Length of the implicit steps [s]: sound travels nine spacings.
const DT: f64 = 1e-3;

/// Operations and bytes of a pass per directed bond, and in addition per particle. A fused multiplication and
/// addition counts as one operation.
struct Count {
    operations: f64,
    bytes: f64,
    bytes_of_particle: f64,
}

/// A lattice computes a bond once for both ends, so that a directed bond has half of its operations and
/// bytes. Forces: 41 operations per bond and one bit that says whether it is live. Per particle: position,
/// displacement, five columns of sums, force. Operator: 28 operations per bond, a coefficient of 4 bytes and
/// the bit. Per particle: position, operand, three columns of sums and the image. Data of neighbours stay in
/// the cache.
const LATTICE: [Count; 2] = [
    Count { operations: 20.5, bytes: 1.0 / 16.0, bytes_of_particle: 24.0 + 24.0 + 40.0 + 24.0 },
    Count { operations: 14.0, bytes: 2.0 + 1.0 / 16.0, bytes_of_particle: 24.0 + 24.0 + 24.0 + 12.0 },
];

/// Rows have a bond in three fifths of their lanes. Names of four neighbours take 20 bytes and serve 9.6
/// bonds. Forces: 30 operations per lane, 4 bytes per bond for the inverse rest length, and the names. Per
/// particle: position, record, sums and force. Operator: 24 operations per lane, 4 bytes per bond for the
/// coefficient, and the names. Per particle: pair, operand and image.
const ROWS: [Count; 2] = [
    Count { operations: 30.0 / 0.6, bytes: 4.0 + 20.0 / 9.6, bytes_of_particle: 24.0 + 32.0 + 48.0 + 24.0 },
    Count { operations: 24.0 / 0.6, bytes: 4.0 + 20.0 / 9.6, bytes_of_particle: 64.0 + 24.0 + 24.0 },
];

/// All figures of solids, or only quick ones.
pub fn measure(quick: bool, idle: Idle) -> Vec<Measurement> {
    let sizes: &[usize] = if quick { &[100_000] } else { &[100_000, 250_000] };
    let layouts = [(BondLayout::Lattice, "lattice", LATTICE), (BondLayout::Rows, "rows", ROWS)];
    // Implicit steps come first, while the allocator keeps no memory of other measurements.
    let (mut figures, mut steps) = (Vec::new(), Vec::new());
    if !quick {
        for (layout, name, _) in &layouts {
            let mut held = None;
            let size = sizes[sizes.len() - 1];
            let step = implicit_step(size, *layout, DT, STEPS, || held = idle.held_for_each(size));
            for ((stage, peer), seconds) in STAGES.into_iter().enumerate().zip(step.stage_seconds) {
                let label = format!("implicit step, {name}, stage {}", stage + 1);
                let mut figure = Measurement::new(label, step.particles, seconds);
                figure.bytes_per_particle = held;
                steps.push(figure.beside(peer));
            }
        }
    }
    for &size in sizes {
        for (layout, name, [force, operator]) in &layouts {
            let passes = bond_passes(size, *layout, REPETITIONS);
            let (n, bonds) = (passes.particles, passes.directed_bonds as f64);
            let each = bonds / n as f64;
            for (what, seconds, count) in [
                ("force, breaking", passes.force_seconds, Some(force)),
                ("operator", passes.product_seconds, Some(operator)),
                ("operator, f64", passes.exact_seconds, None),
            ] {
                let mut figure = Measurement::new(format!("bonds, {name}, {what}"), n, seconds);
                figure.ns_per_bond = Some(figure.ns_per_particle / each);
                figure.bound = count.map(|count| Bound {
                    operations: each * count.operations,
                    bytes: each * count.bytes + count.bytes_of_particle,
                });
                figure.bytes_per_particle = Some(passes.bytes as f64 / n as f64);
                figures.push(figure.beside(LAMMPS));
            }
        }
    }
    figures.extend(steps);
    figures
}
