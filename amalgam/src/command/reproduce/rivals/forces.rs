//! Rivals of the second order: forces alone.

use super::Rival;
use super::discs::{Attraction, Discs};

/// Points that pass through each other: attraction and nothing else.
pub(super) struct Forces {
    pub(super) attraction: Attraction,
    /// Force per depth of an overlap [N/m]; 0 without contacts.
    pub(super) stiffness: f64,
}

impl Rival for Forces {
    fn step(&mut self, discs: &mut Discs, dt: f64) {
        // Both forces are those at the start of the step.
        let overlapping = if self.stiffness > 0.0 { discs.overlapping() } else { Vec::new() };
        discs.kick(self.attraction, dt);
        for (i, j) in overlapping {
            let pair = discs.pair(i, j);
            discs.push(i, j, pair.normal * (-self.stiffness * pair.gap * dt));
        }
        discs.drift(dt);
    }
}
