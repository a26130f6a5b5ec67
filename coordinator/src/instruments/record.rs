//! Record of a step.

/// Record of a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepRecord {
    /// Step, from 0.
    pub step: u64,
    /// Its length [s].
    pub dt: f64,
    /// Time at its end [s].
    pub time: f64,
    /// Stages it took.
    pub stages: u32,
    /// Pairs that intersected and approached at its start.
    pub active: u64,
    /// Pairs that intersected and did not approach at its start.
    pub marked: u64,
    /// Meta-particles of the last stage.
    pub groups: u64,
    /// Particles in the largest of them.
    pub group_size_max: u64,
    /// Pairs that the group limit kept from merging in the last stage.
    pub ignored: u64,
    /// Pairs that still approach after the last stage, ignored ones among them.
    pub unresolved: u64,
    /// Number of times that implicit participants were asked again, in all stages.
    pub repetitions: u32,
    /// Disagreement of implicit participants at the end, relative to their impulses.
    pub disagreement: f64,
    /// Largest relative error of momentum in merging, synchronising and splitting.
    pub momentum_error: f64,
    /// Largest relative error of energy in merging and splitting.
    pub energy_error: f64,
    /// Energy that merging, synchronising and splitting did not give back [J].
    pub dissipated: f64,
    /// Work of immovable particles that move, under the contact law [J].
    pub(crate) by_immovable: f64,
    /// Kinetic energy of the difference between reported velocities v and actual motion dx/dt [J]: the sum of
    /// m |v - dx/dt|^2 / 2.
    pub phantom: f64,
    /// Iterations of the contact law.
    pub iterations: u64,
    /// True if the contact law stopped before its tolerance.
    pub unconverged: bool,
    /// True if a pressure projection and an implicit participant shared a meta-particle that moves freely.
    pub projected: bool,
    /// Bonds that broke at its end.
    pub broken: u64,
    /// Number of times that the step was restarted with a shorter dt.
    pub retries: u32,
    /// Wall time [s].
    pub wall_s: f64,
    /// True if the step ends at the time of a frame.
    pub frame_due: bool,
}

impl StepRecord {
    /// Keeps the largest relative errors of momentum and energy.
    pub(crate) fn note_errors(&mut self, momentum: f64, energy: f64) {
        self.momentum_error = self.momentum_error.max(momentum);
        self.energy_error = self.energy_error.max(energy);
    }
}
