//! Common parts of the tests of whole scenes: real services in this process, over real gRPC.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

use std::sync::Arc;

use amalgam_coordinator::settings::ContactMethod;
use amalgam_coordinator::{
    Address, Cancel, CoordinatorError, CouplingSettings, DomainSettings, ParticipantPlan, Plan,
    ProbeSettings, Quantity, Simulation, StepRecord, TimeSettings,
};
use amalgam_particles::DVec3;
use amalgam_solver_kit::{SolverProgram, serve_in_process};

pub(crate) mod at_once;
pub(crate) mod checkpointed;
pub(crate) mod client;
pub(crate) mod process;
pub(crate) mod ranks;
pub(crate) mod relay;
pub(crate) mod service;

#[path = "../../solver-kit/examples/balls.rs"]
#[allow(unreachable_pub, missing_docs, reason = "an example's file")]
pub(crate) mod balls;

pub(crate) const GRAVITY: f64 = 9.81;

/// A scene without a file.
pub(crate) struct Scene {
    pub(crate) plan: Plan,
    pub(crate) participants: Vec<(String, Arc<dyn SolverProgram>, String)>,
    pub(crate) threads: usize,
    /// Ranks of each participant; 1 where nothing is said.
    pub(crate) ranks: Vec<usize>,
}

impl Scene {
    /// A box of 20 m around the origin, steps of `dt` at most, one frame at the end. Contacts merge, whatever
    /// the participants.
    pub(crate) fn new(duration: f64, dt: f64) -> Self {
        let plan = Plan {
            scene: "test".into(),
            seed: 1,
            domain: DomainSettings {
                min: DVec3::splat(-10.0),
                max: DVec3::splat(10.0),
                gravity: DVec3::NEG_Z * GRAVITY,
                obstacles: Vec::new(),
            },
            time: TimeSettings { duration, frame_interval: duration, dt_max: dt, cfl: 0.5 },
            coupling: CouplingSettings {
                method: Some(ContactMethod::MergeSplit),
                ..CouplingSettings::default()
            },
            probes: Vec::new(),
        };
        Self { plan, participants: Vec::new(), threads: 1, ranks: Vec::new() }
    }

    pub(crate) fn with(
        mut self,
        name: &str,
        program: impl SolverProgram,
        section: impl Into<String>,
    ) -> Self {
        self.participants.push((name.into(), Arc::new(program), section.into()));
        self
    }

    pub(crate) fn coupling(mut self, set: impl FnOnce(&mut CouplingSettings)) -> Self {
        set(&mut self.plan.coupling);
        self
    }

    pub(crate) fn probe(mut self, name: &str, quantity: Quantity) -> Self {
        self.plan.probes.push(ProbeSettings { name: name.into(), quantity });
        self
    }

    pub(crate) fn connect(self) -> Result<Simulation, CoordinatorError> {
        let ranks = self.ranks.iter().copied().chain(std::iter::repeat(1));
        let participants =
            self.participants.into_iter().zip(ranks).map(|((name, program, section), ranks)| {
                ParticipantPlan {
                    name,
                    solver: String::new(),
                    section,
                    address: Address::InProcess(
                        serve_in_process(program, self.threads, ranks, None).expect("threads"),
                    ),
                    access: Default::default(),
                    elastic: true,
                    wait: std::time::Duration::ZERO,
                }
            });
        Simulation::connect(self.plan, participants.collect(), &Cancel::new())
    }

    /// Runs to the end and calls `look` after every step.
    pub(crate) fn run_with(self, mut look: impl FnMut(&Simulation, &StepRecord)) -> Simulation {
        let mut simulation = self.connect().unwrap_or_else(|error| panic!("{error}"));
        while !simulation.is_finished() {
            let record = simulation.step().unwrap_or_else(|error| panic!("{error}"));
            look(&simulation, &record);
        }
        simulation
    }

    pub(crate) fn run(self) -> Simulation {
        self.run_with(|_, _| ())
    }
}

/// The last value of a probe's column.
pub(crate) fn last(simulation: &Simulation, probe: &str, column: usize) -> f64 {
    let sample =
        simulation.probes().iter().find(|sample| sample.name == probe).expect("a probe of this name");
    sample.values[column]
}

/// Positions of a participant, ascending by id.
pub(crate) fn positions(simulation: &mut Simulation, participant: &str) -> Vec<DVec3> {
    let frames = simulation.frames().unwrap_or_else(|error| panic!("{error}"));
    frames.into_iter().find(|frame| frame.name == participant).expect("a participant of this name").positions
}
