//! What a run says at its end about how far to trust it: plain rules over the summary.

use amalgam_coordinator::{ParticipantSummary, Summary};

/// An overlap beyond this part of the smaller radius [1] lets the next layer of particles through.
const OVERLAP_MAX: f64 = 0.5;

/// Relative errors of momentum and energy in merging and splitting that are more than rounding [1].
const ROUNDING_MAX: f64 = 1e-6;

/// Lines about a run that began with the participants `at_start`: first what was found, then what is wrong.
pub(super) fn lines(summary: &Summary, at_start: &[ParticipantSummary]) -> Vec<String> {
    let rules = [unresolved, overlap, unconverged, rounding];
    let mut lines = vec![found(summary)];
    lines.extend(rules.iter().filter_map(|rule| rule(summary)).map(|text| format!("caution: {text}")));
    lines.extend(lost(summary, at_start));
    lines
}

fn found(summary: &Summary) -> String {
    let (contacts, coupling) = (&summary.contacts, &summary.coupling);
    format!(
        "deepest overlap {:.2} of the smaller radius, {} unresolved pairs, {:.1e} J dissipated in coupling",
        contacts.overlap_relative_max, contacts.unresolved_after_last_stage, coupling.energy_dissipated
    )
}

fn unresolved(summary: &Summary) -> Option<String> {
    let contacts = &summary.contacts;
    let (unresolved, ignored) = (contacts.unresolved_after_last_stage, contacts.ignored_by_group_limit);
    if unresolved == 0 {
        return None;
    }
    let steps = summary.steps.max(1);
    let limited = match ignored {
        0 => "write coupling.max_stages = \"converged\" or a shorter time.dt_max".to_string(),
        _ => format!("the group limit kept {ignored} pairs apart (ignored): raise coupling.group_limit"),
    };
    let mean = unresolved as f64 / steps as f64;
    Some(format!(
        "{unresolved} pairs ({mean:.1} per step) still approached after the last stage of a step, and may have passed \
         through each other; {limited}"
    ))
}

fn overlap(summary: &Summary) -> Option<String> {
    let overlap = summary.contacts.overlap_relative_max;
    // Written so that NaN is told.
    (!(overlap <= OVERLAP_MAX)).then(|| {
        format!(
            "two particles of a contact overlapped by {overlap:.2} of the smaller radius; a shorter time.dt_max or a \
             smaller time.cfl keeps them apart"
        )
    })
}

fn unconverged(summary: &Summary) -> Option<String> {
    let (steps, of) = (summary.coupling.law_unconverged_steps, summary.steps);
    (steps > 0).then(|| format!("the contact law stopped before its tolerance in {steps} of {of} steps"))
}

fn rounding(summary: &Summary) -> Option<String> {
    let coupling = &summary.coupling;
    let (momentum, energy) = (coupling.momentum_error_relative_max, coupling.energy_error_relative_max);
    (!(momentum.max(energy) <= ROUNDING_MAX)).then(|| {
        format!("coupling kept momentum to {momentum:.0e} and energy to {energy:.0e} only, which is more than rounding")
    })
}

fn lost(summary: &Summary, at_start: &[ParticipantSummary]) -> Vec<String> {
    let pairs = at_start.iter().zip(&summary.participants);
    let lost = pairs.filter(|(before, after)| after.particles < before.particles);
    lost.map(|(before, after)| {
        let (of, number) = (before.particles, before.particles - after.particles);
        format!("{}: {number} of {of} particles are gone", before.name)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(change: impl FnOnce(&mut Summary)) -> Summary {
        let participant = ParticipantSummary {
            name: "a".into(),
            solver: String::new(),
            version: String::new(),
            particles: 10,
            solver_s: 0.0,
        };
        let mut summary = Summary {
            scene: String::new(),
            steps: 4,
            simulated_s: 0.0,
            wall_s: 0.0,
            participants: vec![participant],
            phases_s: Default::default(),
            stages: Default::default(),
            contacts: Default::default(),
            wire: Default::default(),
            coupling: Default::default(),
            speed_max: 0.0,
            probes: Default::default(),
            state_hash: String::new(),
        };
        change(&mut summary);
        summary
    }

    fn said(change: impl FnOnce(&mut Summary)) -> Vec<String> {
        let at_start = summary(|_| ()).participants;
        lines(&summary(change), &at_start).split_off(1)
    }

    #[test]
    fn a_run_without_faults_has_none_told() {
        assert_eq!(said(|_| ()), Vec::<String>::new());
        assert_eq!(said(|s| s.contacts.overlap_relative_max = 0.49), Vec::<String>::new());
    }

    #[test]
    fn unresolved_pairs_are_told_with_what_to_write() {
        let told = said(|s| s.contacts.unresolved_after_last_stage = 6);
        assert!(told[0].starts_with("caution: 6 pairs (1.5 per step)"), "{told:?}");
        assert!(told[0].contains("coupling.max_stages"), "{told:?}");
        let told = said(|s| {
            s.contacts.unresolved_after_last_stage = 6;
            s.contacts.ignored_by_group_limit = 5;
        });
        assert!(told[0].contains("kept 5 pairs apart (ignored): raise coupling.group_limit"), "{told:?}");
    }

    #[test]
    fn deep_overlaps_are_told() {
        for overlap in [0.51, f64::NAN] {
            let told = said(|s| s.contacts.overlap_relative_max = overlap);
            assert!(told.len() == 1 && told[0].contains("overlapped by"), "{told:?}");
        }
    }

    #[test]
    fn steps_of_the_contact_law_that_stopped_early_are_told() {
        let told = said(|s| s.coupling.law_unconverged_steps = 3);
        assert_eq!(told, ["caution: the contact law stopped before its tolerance in 3 of 4 steps"]);
    }

    #[test]
    fn errors_beyond_rounding_are_told() {
        assert_eq!(said(|s| s.coupling.energy_error_relative_max = 1e-9), Vec::<String>::new());
        let told = said(|s| s.coupling.energy_error_relative_max = 1e-3);
        assert!(told[0].contains("energy to 1e-3"), "{told:?}");
    }

    #[test]
    fn particles_that_are_gone_are_told() {
        assert_eq!(said(|s| s.participants[0].particles = 7), ["a: 3 of 10 particles are gone"]);
        assert_eq!(said(|s| s.participants[0].particles = 12), Vec::<String>::new());
    }
}
