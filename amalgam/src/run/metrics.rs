//! Metrics of runs for Prometheus: a registry, and the address where it is read.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicI64, AtomicU64},
};

use amalgam_network::Pages;

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use crate::observers::{Seen, Watch};
use crate::pages::http::{self, Answer, At};
use amalgam_coordinator::{Phase, Simulation};

/// Serves the metrics for Prometheus, as long as the process lives. Returns `http://HOST:PORT`.
///
/// # Errors
/// An address that cannot be listened at.
pub fn serve(metrics: Metrics, at: &At) -> anyhow::Result<String> {
    const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    http::serve("metrics", at, Pages::open(), move |path, _| match path {
        "/metrics" => Answer::ok(KIND, metrics.text()),
        _ => Answer::missing("metrics are at /metrics\n"),
    })
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfRun {
    run: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfPhase {
    run: String,
    phase: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfParticipant {
    run: String,
    participant: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfDirection {
    run: String,
    participant: String,
    direction: &'static str,
}

type Seconds = Counter<f64, AtomicU64>;
type Value = Gauge<f64, AtomicU64>;

/// Metrics of all runs of this process.
#[derive(Clone)]
pub struct Metrics(Arc<Families>);

struct Families {
    registry: Mutex<Registry>,
    steps: Family<OfRun, Counter>,
    simulated: Family<OfRun, Value>,
    dt: Family<OfRun, Value>,
    contacts: Family<OfRun, Gauge<i64, AtomicI64>>,
    groups: Family<OfRun, Gauge<i64, AtomicI64>>,
    step_seconds: Family<OfRun, Histogram>,
    phases: Family<OfPhase, Seconds>,
    waited: Family<OfParticipant, Seconds>,
    solver: Family<OfParticipant, Seconds>,
    bytes: Family<OfDirection, Counter>,
    recoveries: Family<OfRun, Counter>,
    checkpoints: Family<OfRun, Counter>,
}

/// Buckets from 0.1 ms to about 200 s, each three times the last.
fn step_buckets() -> Histogram {
    Histogram::new(exponential_buckets(1e-4, 3.0, 14))
}

impl Default for Metrics {
    fn default() -> Self {
        let families = Families {
            registry: Mutex::new(Registry::with_prefix("amalgam")),
            steps: Family::default(),
            simulated: Family::default(),
            dt: Family::default(),
            contacts: Family::default(),
            groups: Family::default(),
            step_seconds: Family::new_with_constructor(step_buckets),
            phases: Family::default(),
            waited: Family::default(),
            solver: Family::default(),
            bytes: Family::default(),
            recoveries: Family::default(),
            checkpoints: Family::default(),
        };
        families.register();
        Self(Arc::new(families))
    }
}

impl Families {
    fn register(&self) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let registry = &mut *registry;
        registry.register("steps", "Steps taken", self.steps.clone());
        registry.register_with_unit("simulated", "Simulated time", Unit::Seconds, self.simulated.clone());
        registry.register_with_unit("dt", "Length of the last step", Unit::Seconds, self.dt.clone());
        let contacts = "Pairs that intersected and approached at the start of the last step";
        registry.register("contacts", contacts, self.contacts.clone());
        registry.register("groups", "Meta-particles of the last step", self.groups.clone());
        registry.register_with_unit("step", "Wall time of a step", Unit::Seconds, self.step_seconds.clone());
        registry.register_with_unit("phase", "Wall time by phase", Unit::Seconds, self.phases.clone());
        let waited = "Wall time spent on waiting for a participant";
        registry.register_with_unit("waited", waited, Unit::Seconds, self.waited.clone());
        let solver = "Wall time in which a participant's solver computed";
        registry.register_with_unit("solver", solver, Unit::Seconds, self.solver.clone());
        let bytes = "Bytes of columns sent to and received from a participant";
        registry.register("column_bytes", bytes, self.bytes.clone());
        registry.register(
            "recoveries",
            "Losses of a participant that were recovered",
            self.recoveries.clone(),
        );
        registry.register("checkpoints", "Checkpoints written", self.checkpoints.clone());
    }
}

impl Metrics {
    /// The metrics as Prometheus reads them (OpenMetrics text format).
    pub fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.0.registry.lock().unwrap_or_else(PoisonError::into_inner);
        encode(&mut text, &registry).expect("a string takes all text");
        text
    }

    /// The metrics of one run. They are there until all of its handles are dropped.
    pub fn of_run(&self, run: &str) -> RunMetrics {
        RunMetrics(Arc::new(Owned {
            families: Arc::clone(&self.0),
            run: run.into(),
            known: Mutex::default(),
        }))
    }
}

/// Metrics of a run.
#[derive(Clone)]
pub struct RunMetrics(Arc<Owned>);

struct Owned {
    families: Arc<Families>,
    run: String,
    known: Mutex<Known>,
}

/// Values of the counters when they were last set.
#[derive(Default)]
struct Known {
    participants: Vec<String>,
    phases: [f64; Phase::ALL.len()],
    waited: Vec<f64>,
    solver: Vec<f64>,
    bytes: Vec<[u64; 2]>,
}

/// Growth of a sum since `before`, which is updated. A sum that fell, because the run went back, counts as 0.
fn grown(before: &mut f64, now: f64) -> f64 {
    (now - std::mem::replace(before, now)).max(0.0)
}

impl Owned {
    fn of_run(&self) -> OfRun {
        OfRun { run: self.run.clone() }
    }

    fn of_participant(&self, participant: &str) -> OfParticipant {
        OfParticipant { run: self.run.clone(), participant: participant.into() }
    }

    fn of_direction(&self, participant: &str, direction: &'static str) -> OfDirection {
        OfDirection { run: self.run.clone(), participant: participant.into(), direction }
    }

    fn begin(&self, simulation: &Simulation) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Known { phases: known.phases, ..Known::default() };
        for traffic in simulation.traffic() {
            known.participants.push(traffic.name.into());
            known.waited.push(traffic.waited_s);
            known.solver.push(traffic.solver_s);
            known.bytes.push([traffic.bytes_out, traffic.bytes_in]);
        }
        for (before, phase) in known.phases.iter_mut().zip(Phase::ALL) {
            *before = simulation.profile().seconds(phase);
        }
        // Counters exist from the start, at zero.
        let (families, run) = (&self.families, self.of_run());
        drop((families.recoveries.get_or_create(&run), families.checkpoints.get_or_create(&run)));
    }

    fn step(&self, seen: &Seen<'_>) {
        let (families, run) = (&self.families, self.of_run());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { phases, waited, solver, bytes, .. } = &mut *known;
        let record = seen.record;
        families.steps.get_or_create(&run).inc();
        families.simulated.get_or_create(&run).set(record.time);
        families.dt.get_or_create(&run).set(record.dt);
        families.contacts.get_or_create(&run).set(record.active as i64);
        families.groups.get_or_create(&run).set(record.groups as i64);
        families.step_seconds.get_or_create(&run).observe(record.wall_s);
        for (before, phase) in phases.iter_mut().zip(Phase::ALL) {
            let label = OfPhase { run: self.run.clone(), phase: phase.name() };
            let grown = grown(before, seen.simulation.profile().seconds(phase));
            families.phases.get_or_create(&label).inc_by(grown);
        }
        for (k, traffic) in seen.simulation.traffic().enumerate() {
            let label = self.of_participant(traffic.name);
            families.waited.get_or_create(&label).inc_by(grown(&mut waited[k], traffic.waited_s));
            families.solver.get_or_create(&label).inc_by(grown(&mut solver[k], traffic.solver_s));
            let now = [traffic.bytes_out, traffic.bytes_in];
            let before = std::mem::replace(&mut bytes[k], now);
            for (direction, (now, before)) in DIRECTIONS.into_iter().zip(now.into_iter().zip(before)) {
                let label = self.of_direction(traffic.name, direction);
                families.bytes.get_or_create(&label).inc_by(now.saturating_sub(before));
            }
        }
    }
}

/// Bytes sent, and bytes received.
const DIRECTIONS: [&str; 2] = ["out", "in"];

impl Drop for Owned {
    fn drop(&mut self) {
        let (families, run) = (&self.families, self.of_run());
        families.steps.remove(&run);
        families.simulated.remove(&run);
        families.dt.remove(&run);
        families.contacts.remove(&run);
        families.groups.remove(&run);
        families.step_seconds.remove(&run);
        families.recoveries.remove(&run);
        families.checkpoints.remove(&run);
        for phase in Phase::ALL {
            families.phases.remove(&OfPhase { run: self.run.clone(), phase: phase.name() });
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for participant in &known.participants {
            families.waited.remove(&self.of_participant(participant));
            families.solver.remove(&self.of_participant(participant));
            for direction in DIRECTIONS {
                families.bytes.remove(&self.of_direction(participant, direction));
            }
        }
    }
}

impl Watch for RunMetrics {
    fn begin(&mut self, simulation: &Simulation) -> Result<(), String> {
        self.0.begin(simulation);
        Ok(())
    }

    fn step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        self.0.step(seen);
        Ok(())
    }

    fn checkpoint(&mut self, _steps: u64) {
        self.0.families.checkpoints.get_or_create(&self.0.of_run()).inc();
    }

    fn recovered(&mut self, _steps: u64) {
        self.0.families.recoveries.get_or_create(&self.0.of_run()).inc();
    }
}
