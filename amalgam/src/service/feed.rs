//! Events for the followers of a run.

use amalgam_proto::coordinator::{FollowResponse, ProbeValue, Step, follow_response::Event};
use tokio::sync::broadcast;

use crate::observers::{Seen, Watch};

/// Events that wait for a follower. A slower follower loses the oldest events, and is told their number.
pub(super) const EVENTS_MAX: usize = 256;

/// Sends events to followers.
pub(super) type Sender = broadcast::Sender<FollowResponse>;

pub(super) fn event(event: Event) -> FollowResponse {
    FollowResponse { event: Some(event) }
}

/// Watches a run for its followers, and for the list of runs.
pub(super) struct Feed {
    /// Takes note of steps and time [s]. A time that is not a number leaves the last one.
    pub(super) note: Box<dyn Fn(u64, f64) + Send>,
    pub(super) sender: Sender,
}

impl Watch for Feed {
    fn step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let record = seen.record;
        (self.note)(record.step + 1, record.time);
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
        // A run without followers is no fault.
        let _ = self.sender.send(event(Event::Step(step)));
        Ok(())
    }

    fn recovered(&mut self, steps: u64) {
        (self.note)(steps, f64::NAN);
    }
}
