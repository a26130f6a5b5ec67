//! Events for the followers of a run.

use std::sync::Weak;

use amalgam_proto::coordinator::{FollowResponse, ProbeValue, Step, follow_response::Event};
use tokio::sync::broadcast;

use super::runs::Runs;
use crate::run::watch::{Seen, Watch};

/// Events that wait for a follower. A slower follower loses the oldest events, and is told their number.
pub(super) const EVENTS_MAX: usize = 256;

/// Sends events to followers.
pub(super) type Sender = broadcast::Sender<FollowResponse>;

pub(super) fn event(event: Event) -> FollowResponse {
    FollowResponse { event: Some(event) }
}

/// Watches a run for its followers, and for the list of runs.
pub(super) struct Feed {
    pub(super) runs: Weak<Runs>,
    pub(super) id: String,
    pub(super) sender: Sender,
}

impl Watch for Feed {
    fn step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let record = seen.record;
        if let Some(runs) = self.runs.upgrade() {
            runs.note_progress(&self.id, record.step + 1, record.time);
        }
        if self.sender.receiver_count() == 0 {
            return Ok(());
        }
        let values = |sample: &amalgam_coordinator::ProbeSample| {
            let name = sample.name.clone();
            let pairs = sample.columns.iter().zip(&sample.values);
            let value = move |(column, value): (&String, &f64)| ProbeValue {
                probe: name.clone(),
                column: column.clone(),
                value: *value,
            };
            pairs.map(value).collect::<Vec<_>>()
        };
        let step = Step {
            step: record.step,
            time: record.time,
            dt: record.dt,
            stages: record.stages,
            contacts: record.active,
            groups: record.groups,
            wall: record.wall_s,
            frame: record.frame_due,
            probes: seen.simulation.probes().iter().flat_map(values).collect(),
        };
        // Nobody reading is no fault.
        let _ = self.sender.send(event(Event::Step(step)));
        Ok(())
    }

    fn recovered(&mut self, steps: u64) {
        if let Some(runs) = self.runs.upgrade() {
            runs.note_progress(&self.id, steps, f64::NAN);
        }
    }
}
