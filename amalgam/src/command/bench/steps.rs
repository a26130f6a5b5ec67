//! Steps of a fluid on its own, and the wall time of each call in them.

use std::time::Instant;

use amalgam_particles::DVec3;
use amalgam_solver_kit::{Alone, AloneGroups, Solver, SolverError, World};

/// Wall time of each call in every step [s].
#[derive(Default)]
pub(super) struct StepTimes {
    pub(super) begin: Vec<f64>,
    pub(super) first_stage: Vec<f64>,
    pub(super) second_stage: Vec<f64>,
    pub(super) commit: Vec<f64>,
}

impl StepTimes {
    /// Takes `warm_up` steps, then `steps` steps of which the calls are timed.
    pub(super) fn measure(
        (warm_up, steps): (u64, u64),
        mut step: impl FnMut(&mut Self) -> Result<(), SolverError>,
    ) -> Result<Self, String> {
        let mut repeat = |count: u64| {
            let mut times = Self::default();
            (0..count).try_for_each(|_| step(&mut times)).map(|()| times).map_err(|error| error.to_string())
        };
        repeat(warm_up)?;
        repeat(steps)
    }

    /// Takes a step of two stages with the groups of each, and calls `after_stage` after each stage. Groups
    /// end with the velocity that the momentum of the second stage gives them.
    pub(super) fn step<S: Solver>(
        &mut self,
        solver: &mut S,
        alone: &mut Alone,
        [first, second]: [&AloneGroups; 2],
        mut after_stage: impl FnMut(&S),
    ) -> Result<(), SolverError> {
        let dt = solver.stable_dt();
        let mut clock = Instant::now();
        let mut lap = |times: &mut Vec<f64>| {
            times.push(clock.elapsed().as_secs_f64());
            clock = Instant::now();
        };
        solver.begin()?;
        lap(&mut self.begin);
        for (groups, times) in [(first, &mut self.first_stage), (second, &mut self.second_stage)] {
            alone.integrate(solver, (groups, 0.0), dt)?;
            after_stage(solver);
            lap(times);
        }
        let end = alone.group_velocities(second);
        alone.commit(solver, (second, &end), dt)?;
        lap(&mut self.commit);
        Ok(())
    }

    /// Wall time of every step [s] as if it had one stage.
    pub(super) fn of_steps(&self) -> Vec<f64> {
        let calls = self.begin.iter().zip(&self.first_stage).zip(&self.commit);
        calls.map(|((begin, stage), commit)| begin + stage + commit).collect()
    }
}

/// A world of water in a domain from the origin to `max` [m].
pub(super) fn world(max: DVec3) -> World {
    World {
        participant: "water".into(),
        domain: (DVec3::ZERO, max),
        gravity: DVec3::new(0.0, 0.0, -9.81),
        seed: 1,
        obstacles: Vec::new(),
        ranks: amalgam_solver_kit::Ranks::alone(),
    }
}
