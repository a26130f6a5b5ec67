//! Wall time of the coordinator's phases and the participants' calls, and the time spent waiting for each
//! participant.

use std::time::Instant;

use crate::participant::Participant;

/// A phase of a step, or what is done between steps, as wall time is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "docs/reference/summary.md describes every phase")]
pub enum Phase {
    Begin,
    Detect,
    Merge,
    Integrate,
    Synchronise,
    Split,
    Commit,
    Frames,
    Files,
    Checkpoints,
}

impl Phase {
    /// All phases, in the order of [`Self::name`]'s key in `phases_s` of the summary.
    pub const ALL: [Self; 10] = [
        Self::Begin,
        Self::Detect,
        Self::Merge,
        Self::Integrate,
        Self::Synchronise,
        Self::Split,
        Self::Commit,
        Self::Frames,
        Self::Files,
        Self::Checkpoints,
    ];

    /// Its key in `phases_s` of the summary.
    pub fn name(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Detect => "detect",
            Self::Merge => "merge",
            Self::Integrate => "integrate",
            Self::Synchronise => "synchronise",
            Self::Split => "split",
            Self::Commit => "commit",
            Self::Frames => "frames",
            Self::Files => "files",
            Self::Checkpoints => "checkpoints",
        }
    }
}

/// A phase that has passed.
#[derive(Clone, Copy, Debug)]
pub struct PhaseSpan {
    /// The phase.
    pub phase: Phase,
    /// Start of the phase.
    pub start: Instant,
    /// End of the phase.
    pub end: Instant,
}

/// A call of a participant that was answered.
#[derive(Clone, Copy, Debug)]
pub struct CallSpan {
    /// Index of the participant in the scene.
    pub participant: usize,
    /// Name of the call in the contract.
    pub call: &'static str,
    /// Time of the call.
    pub asked: Instant,
    /// Time of the answer.
    pub answered: Instant,
    /// Bytes of columns sent.
    pub bytes_out: u64,
    /// Bytes of columns received.
    pub bytes_in: u64,
}

/// Phases and calls since the spans were last taken.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    /// Phases, in the order of their ends.
    pub phases: Vec<PhaseSpan>,
    /// Calls; calls at once are in the order in which the run holds its participants.
    pub calls: Vec<CallSpan>,
}

/// Time and bytes of a participant so far.
#[derive(Clone, Copy, Debug)]
pub struct Traffic<'a> {
    /// Its name.
    pub name: &'a str,
    /// Wall time that was spent on waiting for it [s].
    pub waited_s: f64,
    /// Wall time in which its solver has computed [s].
    pub solver_s: f64,
    /// Bytes of columns sent.
    pub bytes_out: u64,
    /// Bytes of columns received.
    pub bytes_in: u64,
}

/// Charges the time since `asked` to the participants that were asked then. Each moment is charged in equal
/// parts to the participants whose answers were still missing. Adds the calls to `spans`.
pub(super) fn charge(participants: &mut [Participant], asked: Instant, spans: Option<&mut Spans>) {
    let mut calls: Vec<CallSpan> = Vec::with_capacity(participants.len());
    for (k, participant) in participants.iter_mut().enumerate() {
        if let Some(answer) = participant.part.connection.take_answer() {
            let (call, answered) = (answer.call, answer.at);
            let (bytes_out, bytes_in) = (answer.bytes_out, answer.bytes_in);
            calls.push(CallSpan { participant: k, call, asked, answered, bytes_out, bytes_in });
        }
    }
    let answered: Vec<(usize, f64)> = calls
        .iter()
        .map(|call| (call.participant, call.answered.saturating_duration_since(asked).as_secs_f64()))
        .collect();
    for (participant, seconds) in shares(answered) {
        participants[participant].part.waited_s += seconds;
    }
    if let Some(spans) = spans {
        spans.calls.append(&mut calls);
    }
}

/// Time that each participant is charged [s], from the time that it took to answer [s]. Between two answers,
/// n missing participants are charged 1/n of the time each.
fn shares(mut answered: Vec<(usize, f64)>) -> Vec<(usize, f64)> {
    answered.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (mut before, mut share, mut missing) = (0.0, 0.0, answered.len());
    for (_, seconds) in &mut answered {
        share += (*seconds - before) / missing as f64;
        before = *seconds;
        missing -= 1;
        *seconds = share;
    }
    answered
}

#[cfg(test)]
mod tests {
    use super::shares;

    #[test]
    fn every_moment_is_charged_to_those_who_have_not_answered() {
        // Three wait for 3 s, two for 3 more, the last for 4 more.
        assert_eq!(shares(vec![(0, 6.0), (1, 3.0), (2, 10.0)]), [(1, 1.0), (0, 2.5), (2, 6.5)]);
        assert_eq!(shares(Vec::new()), []);
    }

    #[test]
    fn all_of_the_time_is_charged() {
        let times = vec![(0, 0.25), (1, 0.25), (2, 2.0), (3, 0.5)];
        assert_eq!(shares(times).iter().map(|(_, seconds)| seconds).sum::<f64>(), 2.0);
    }
}
