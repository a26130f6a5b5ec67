//! What the command uses of the coordinator, in one place.
#![allow(missing_docs, dead_code, clippy::all)]
pub use settings::*;
#[path = "../../coordinator/src/settings.rs"]
pub mod settings;
use amalgam_particles::DVec3;
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
pub struct Plan {
    pub scene: String,
    pub seed: u64,
    pub domain: DomainSettings,
    pub time: TimeSettings,
    pub coupling: CouplingSettings,
    pub probes: Vec<ProbeSettings>,
}
pub enum Address {
    Unix(PathBuf),
    Tcp(String),
    InProcess(tokio::sync::mpsc::Sender<tokio::io::DuplexStream>),
}
impl Address {
    pub fn parse(t: &str) -> Result<Self, String> {
        if let Some(p) = t.strip_prefix("unix:") {
            Ok(Self::Unix(p.into()))
        } else if t.contains(':') {
            Ok(Self::Tcp(t.into()))
        } else {
            Err("bad address".into())
        }
    }
}
pub struct ParticipantPlan {
    pub name: String,
    pub solver: String,
    pub section: String,
    pub address: Address,
}
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    #[error("section")]
    Section { participant: String, errors: Vec<Fault> },
    #[error("cancelled")]
    Cancelled,
    #[error("lost")]
    Lost,
}
#[derive(Clone)]
pub struct Cancel(Arc<AtomicBool>);
impl Cancel {
    pub fn new() -> Self {
        Self(Arc::default())
    }
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst)
    }
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
pub struct StepRecord {
    pub step: u64,
    pub dt: f64,
    pub time: f64,
    pub stages: u32,
    pub active: u64,
    pub marked: u64,
    pub groups: u64,
    pub wall_s: f64,
    pub frame_due: bool,
}
#[derive(Clone, Debug)]
pub enum FrameField {
    Scalar(Vec<f32>),
    Vector(Vec<[f32; 3]>),
}
pub struct ParticipantFrame {
    pub name: String,
    pub id: Vec<u64>,
    pub positions: Vec<DVec3>,
    pub velocities: Vec<DVec3>,
    pub radius: Vec<f64>,
    pub group: Vec<u32>,
    pub fields: Vec<(String, FrameField)>,
    pub triangles: Vec<[u32; 3]>,
}
pub struct ProbeSample {
    pub name: String,
    pub columns: Vec<String>,
    pub values: Vec<f64>,
}
#[derive(serde::Serialize, Clone)]
pub struct ParticipantSummary {
    pub name: String,
    pub solver: String,
    pub version: String,
    pub particles: u64,
}
#[derive(serde::Serialize, Clone)]
pub struct Summary {
    pub scene: String,
    pub steps: u64,
    pub simulated_s: f64,
    pub wall_s: f64,
    pub participants: Vec<ParticipantSummary>,
}
pub struct Simulation {
    plan: Plan,
    names: Vec<String>,
    t: f64,
    step: u64,
    frame: u64,
    probes: Vec<ProbeSample>,
    cancel: Cancel,
}
impl Simulation {
    pub fn connect(plan: Plan, p: Vec<ParticipantPlan>, cancel: Cancel) -> Result<Self, CoordinatorError> {
        for x in &p {
            if x.section.contains("-1") {
                return Err(CoordinatorError::Section {
                    participant: x.name.clone(),
                    errors: vec![Fault {
                        key: "bodies[0].spacing".into(),
                        message: "must be positive, not -1".into(),
                    }],
                });
            }
        }
        let probes = plan
            .probes
            .iter()
            .map(|p| ProbeSample { name: p.name.clone(), columns: vec!["x [m]".into()], values: vec![0.0] })
            .collect();
        Ok(Self {
            plan,
            names: p.into_iter().map(|x| x.name).collect(),
            t: 0.0,
            step: 0,
            frame: 0,
            probes,
            cancel,
        })
    }
    pub fn step(&mut self) -> Result<StepRecord, CoordinatorError> {
        std::thread::sleep(std::time::Duration::from_millis(20));
        if self.cancel.is_cancelled() {
            return Err(CoordinatorError::Cancelled);
        }
        if let Ok(n) = std::env::var("FAKE_LOST") {
            if self.step.to_string() == n {
                return Err(CoordinatorError::Lost);
            }
        }
        self.step += 1;
        let dt = self.plan.time.frame_interval / 4.0;
        self.t += dt;
        Ok(StepRecord {
            step: self.step,
            dt,
            time: self.t,
            stages: 2,
            active: 100,
            marked: 3,
            groups: 20,
            wall_s: 0.02,
            frame_due: self.step % 4 == 0,
        })
    }
    pub fn is_finished(&self) -> bool {
        self.t + 1e-9 >= self.plan.time.duration
    }
    pub fn frames(&mut self) -> Result<Vec<ParticipantFrame>, CoordinatorError> {
        Ok(self
            .names
            .iter()
            .enumerate()
            .map(|(k, n)| {
                let m = 12usize;
                let pos: Vec<DVec3> = (0..m * m)
                    .map(|i| {
                        DVec3::new(
                            -0.6 + 0.1 * (i % m) as f64,
                            -0.6 + 0.1 * (i / m) as f64,
                            0.5 + 0.5 * k as f64 - 0.3 * self.t,
                        )
                    })
                    .collect();
                let tri = if k == 0 {
                    (0..(m - 1) * (m - 1))
                        .map(|c| {
                            let a = ((c / (m - 1)) * m + c % (m - 1)) as u32;
                            [a, a + 1, a + m as u32]
                        })
                        .collect()
                } else {
                    vec![]
                };
                ParticipantFrame {
                    name: n.clone(),
                    id: (0..(m * m) as u64).collect(),
                    velocities: pos.iter().map(|p| DVec3::new(0.0, 0.0, p.x * 3.0)).collect(),
                    radius: vec![0.05; m * m],
                    group: vec![u32::MAX; m * m],
                    fields: vec![("density".into(), FrameField::Scalar(vec![1.0; m * m]))],
                    triangles: tri,
                    positions: pos,
                }
            })
            .collect())
    }
    pub fn probes(&self) -> &[ProbeSample] {
        &self.probes
    }
    pub fn summary(&self) -> Summary {
        Summary {
            scene: self.plan.scene.clone(),
            steps: self.step,
            simulated_s: self.t,
            wall_s: 0.02 * self.step as f64,
            participants: self
                .names
                .iter()
                .map(|n| ParticipantSummary {
                    name: n.clone(),
                    solver: "x".into(),
                    version: "0.1.0".into(),
                    particles: 144,
                })
                .collect(),
        }
    }
    pub fn finish(self) -> Result<(), CoordinatorError> {
        Ok(())
    }
}
