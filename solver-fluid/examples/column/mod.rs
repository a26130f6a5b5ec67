//! A collapsing column of FLIP water, for examples that measure.

use amalgam_particles::DVec3;
use amalgam_solver_fluid::flip::{Flip, section};
use amalgam_solver_kit::{Ranks, World};

/// This rank's part of a column of water that falls, in `edge`^3 cells: 1.6 million particles in 64^3.
pub(crate) fn column(edge: f64, ranks: &Ranks) -> Flip {
    let world = World {
        participant: "water".into(),
        domain: (DVec3::ZERO, DVec3::splat(edge)),
        gravity: DVec3::NEG_Z * 9.81,
        seed: 1,
        obstacles: Vec::new(),
        ranks: ranks.clone(),
    };
    let text = format!(
        "method = 'flip'\nspacing = 0.5\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0]\nmax = [{}, {edge}, {edge}]\n",
        (0.76 * edge).round()
    );
    let (parameters, particles) = section::read(&text, &world).unwrap_or_else(|faults| panic!("{faults:?}"));
    Flip::new(parameters, particles)
}
