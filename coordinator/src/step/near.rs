//! Which particles the participants are asked for: those that may touch others' (`docs/method.md`, "Contacts").

use amalgam_particles::CellSet;
use amalgam_proto::contract::{Batch, Begin, Interest, Next, Survey, Wanted};
use futures_util::future::join_all;

use super::{Scratch, first_error};
use crate::error::CoordinatorError;
use crate::simulation::Simulation;

/// Near pairs are found with spheres larger by this part of their radius, on average over the two that move fastest: the
/// list then serves until they have moved as far. A longer list costs more in each step, a shorter one serves for fewer.
const NEAR_MARGIN: f64 = 0.5;

/// No participant's spheres count as larger by less than this part of their radius: even what rests is soon pushed.
const NEAR_MARGIN_MIN: f64 = 0.05;

impl Simulation {
    /// Asks every participant for its particles that are near others'.
    pub(super) fn survey(&mut self) -> Result<Vec<Batch>, CoordinatorError> {
        let wanted = if self.plan.coupling.interest_mask {
            let rates: Vec<f64> = self.committed.iter().map(|c| c.totals.radius_rate_max).collect();
            self.scratch.margin = margins(&rates);
            let (lattice, margins) = (self.lattice, &self.scratch.margin);
            let calls = self.participants.iter_mut().zip(margins).map(|(participant, &margin)| async move {
                participant.survey(&Survey { context: participant.context(), lattice, margin }).await
            });
            let cells = first_error(self.io.block_on(join_all(calls)))?;
            let others = |k: usize| {
                let others = cells.iter().enumerate().filter(move |&(j, _)| j != k);
                CellSet::union(others.map(|(_, cells)| cells))
            };
            let near = |(k, &margin)| Wanted::Near { lattice, cells: others(k), margin };
            margins.iter().enumerate().map(near).collect()
        } else {
            vec![Wanted::All; self.participants.len()]
        };
        let interests: Vec<Interest> =
            wanted.into_iter().enumerate().map(|(k, wanted)| self.interest(k, wanted)).collect();
        let calls = self.participants.iter_mut().zip(interests).map(|(participant, interest)| {
            let context = participant.context();
            participant.begin(Begin { context, interest })
        });
        first_error(self.io.block_on(join_all(calls)))
    }

    /// Crossings are counted with whole triangles.
    fn interest(&self, participant: usize, wanted: Wanted) -> Interest {
        let triangles = self.probes.iter().any(|probe| probe.sheet() == Some(participant));
        Interest { wanted, triangles }
    }

    /// What to ask for with Commit: the particles in near pairs, as long as nobody has moved far.
    pub(super) fn next(&self, participant: usize) -> Option<Next> {
        if self.clock.is_finished() {
            return None;
        }
        let Scratch { finder, listed, margin, .. } = &self.scratch;
        // A little less than the margin, since displacements and distances are rounded.
        let within = || 0.999 * margin[participant];
        let (wanted, within) = match listed {
            _ if !self.plan.coupling.interest_mask => (Wanted::All, f64::INFINITY),
            true => (Wanted::Listed(finder.listed(participant as u16)), within()),
            false => (Wanted::Again, within()),
        };
        Some(Next { interest: self.interest(participant, wanted), within })
    }
}

/// By how much of their radius the spheres of each participant count as larger when near pairs are listed, from the
/// largest |v| / radius of each [1/s]: so that all use up their margins in the same time.
fn margins(rates: &[f64]) -> Vec<f64> {
    let (mut first, mut second) = (0.0, 0.0f64);
    for &rate in rates {
        (first, second) = if rate > first { (rate, first) } else { (first, second.max(rate)) };
    }
    // Finite, if nobody moves, or next to nothing.
    let time = (2.0 * NEAR_MARGIN / (first + second)).min(f64::MAX);
    rates.iter().map(|rate| (rate * time).max(NEAR_MARGIN_MIN)).collect()
}

#[cfg(test)]
mod tests {
    use super::margins;

    #[test]
    fn margins_are_used_up_in_the_same_time() {
        assert_eq!(margins(&[3.0, 1.0]), [0.75, 0.25]);
        assert_eq!(margins(&[1.0, 3.0, 1.0]), [0.25, 0.75, 0.25]);
        assert_eq!(margins(&[0.0, 7.0]), [0.05, 1.0]);
        assert_eq!(margins(&[0.0, 0.0]), [0.05; 2]);
        assert_eq!(margins(&[5e-324, 0.0]), [0.05; 2]);
        assert_eq!(margins(&[f64::MAX; 2]), [0.05; 2]);
    }
}
