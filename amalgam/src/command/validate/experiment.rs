//! Computing the scene of a case: the real coordinator and the real solvers, in this process.

use super::case::CaseError;
use crate::{
    cli::Transport,
    console::Console,
    error::CommandError,
    run::local::{Locals, Means},
    scene::Scene,
};
use amalgam_coordinator::{Cancel, ParticipantFrame, Simulation, StepRecord};

/// A scene that runs.
pub(super) struct Experiment {
    simulation: Simulation,
    _locals: Locals,
}

impl Experiment {
    /// Starts the scene `text` of the case `name`, with values replaced as by `--set KEY=VALUE`.
    pub(super) fn start(name: &str, text: &str, set: &[String]) -> Result<Self, CaseError> {
        let scene = Scene::parse(&format!("validation/{name}/scene.toml"), text, set)?;
        let console = Console::new(true);
        let locals = Locals::start(
            &scene,
            Means { transport: Transport::InProcess, threads: None, ..Means::default() },
            &console,
        );
        let (locals, participants) = locals.map_err(CommandError::from)?;
        let simulation = Simulation::connect(scene.plan(), participants, &Cancel::new());
        let simulation = simulation.map_err(|error| CommandError::at_start(&scene, error))?;
        Ok(Self { simulation, _locals: locals })
    }

    /// All particles now.
    pub(super) fn frames(&mut self) -> Result<Vec<ParticipantFrame>, CaseError> {
        Ok(self.simulation.frames()?)
    }

    /// Goes on to the end of the scene; gives all particles there.
    pub(super) fn end(self) -> Result<Vec<ParticipantFrame>, CaseError> {
        self.run(|_, _| Ok(()))
    }

    /// Goes on to the end of the scene and calls `each` after every step; gives all particles at the end.
    pub(super) fn run(
        self,
        mut each: impl FnMut(&StepRecord, &mut Simulation) -> Result<(), CaseError>,
    ) -> Result<Vec<ParticipantFrame>, CaseError> {
        self.run_while(|record, simulation| each(record, simulation).map(|()| true))
    }

    /// Calls `each` after every step and goes on while it says true, at most to the end of the scene; gives
    /// all particles then.
    pub(super) fn run_while(
        mut self,
        mut each: impl FnMut(&StepRecord, &mut Simulation) -> Result<bool, CaseError>,
    ) -> Result<Vec<ParticipantFrame>, CaseError> {
        let mut goes_on = true;
        while goes_on && !self.simulation.is_finished() {
            let record = self.simulation.step()?;
            goes_on = each(&record, &mut self.simulation)?;
        }
        let frames = self.simulation.frames()?;
        self.simulation.finish()?;
        Ok(frames)
    }
}
