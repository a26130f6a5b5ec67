//! Cautions at the end of a run about how far to trust its results: plain rules over the summary.

use super::with_four_decimals;
use amalgam_coordinator::{ParticipantSummary, Summary};

/// An overlap beyond this part of the smaller radius [1] lets the next layer of particles through.
const OVERLAP_MAX: f64 = 0.5;

/// Relative errors of momentum and energy in merging and splitting that are more than rounding [1].
const ROUNDING_MAX: f64 = 1e-6;

/// Part of the steps in which a pressure projection may touch a solid that bends before a caution is given
/// [1].
const PROJECTED_MAX: f64 = 0.1;

/// Lines about a run that began with the participants `at_start`: first the findings, then the cautions.
pub(super) fn lines(summary: &Summary, at_start: &[ParticipantSummary]) -> Vec<String> {
    let method = format!("contacts: {} ({})", summary.coupling.method, summary.coupling.method_reason);
    let mut lines = vec![method, found(summary), balance(summary)];
    lines.extend(cautions(summary, at_start).into_iter().map(|text| format!("caution: {text}")));
    lines
}

/// Cautions about a run that began with the participants `at_start`.
pub(super) fn cautions(summary: &Summary, at_start: &[ParticipantSummary]) -> Vec<String> {
    let rules = [overlap, unconverged, rounding, projected];
    rules.iter().filter_map(|rule| rule(summary)).chain(lost(summary, at_start)).collect()
}

fn found(summary: &Summary) -> String {
    let (contacts, coupling) = (&summary.contacts, &summary.coupling);
    format!(
        "deepest overlap {:.2} of the smaller radius, {} unresolved pairs, {} ignored by the group limit, {} J dissipated \
         in coupling",
        contacts.overlap_relative_max,
        contacts.unresolved_after_last_stage,
        contacts.ignored_by_group_limit,
        with_four_decimals(coupling.energy_dissipated),
    )
}

/// Line about the energy that the scene was given and lost.
fn balance(summary: &Summary) -> String {
    let energy = &summary.energy;
    format!(
        "energy: {} J at the start, {} J by gravity, {} J by scripts and sources; {} J at the end, {} J lost; at most {:.1} % of what was \
         in play came from nowhere",
        with_four_decimals(energy.start),
        with_four_decimals(energy.by_gravity),
        with_four_decimals(energy.by_scripts_and_sources),
        with_four_decimals(energy.end),
        with_four_decimals(energy.lost),
        100.0 * energy.unaccounted_relative_max,
    )
}

/// Unresolved pairs matter if they end in deep overlaps: pairs that part again by themselves are harmless.
fn overlap(summary: &Summary) -> Option<String> {
    let contacts = &summary.contacts;
    let overlap = contacts.overlap_relative_max;
    // Written so that NaN is reported.
    if overlap <= OVERLAP_MAX {
        return None;
    }
    let (unresolved, ignored) = (contacts.unresolved_after_last_stage, contacts.ignored_by_group_limit);
    let mut text = format!(
        "two particles overlapped by {overlap:.2} of the smaller radius and may have passed through each other: write a \
         shorter time.dt_max or a smaller time.cfl"
    );
    if unresolved > 0 {
        text += &format!(
            ", or coupling.stages_max = \"converged\" ({unresolved} pairs still approached after the last stage)"
        );
    }
    if ignored > 0 {
        text += &format!(", or a larger coupling.group_limit ({ignored} pairs were kept from merging)");
    }
    Some(text)
}

fn unconverged(summary: &Summary) -> Option<String> {
    let (steps, of) = (summary.coupling.law_unconverged_steps, summary.steps);
    (steps > 0).then(|| format!("the contact law stopped before its tolerance in {steps} of {of} steps"))
}

/// Under a pressure projection, solids bend too little in long steps. A run cannot tell by itself which steps
/// are long.
fn projected(summary: &Summary) -> Option<String> {
    let (steps, of) = (summary.coupling.projected_steps, summary.steps);
    let step = summary.simulated_s / of.max(1) as f64;
    (steps as f64 > PROJECTED_MAX * of as f64).then(|| {
        format!(
            "FLIP and a solid that bends touched in {steps} of {of} steps, of {step:.1e} s on the mean: in long steps the solid bends too \
             little. Write time.dt_max = {:.1e}, and see whether the result stays",
            0.5 * step
        )
    })
}

fn rounding(summary: &Summary) -> Option<String> {
    let coupling = &summary.coupling;
    let (momentum, energy) = (coupling.momentum_error_relative_max, coupling.energy_error_relative_max);
    (momentum.max(energy) > ROUNDING_MAX).then(|| {
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
pub(super) mod tests {
    use super::*;

    /// A summary of a run of four steps with one participant, changed.
    pub(in crate::run) fn summary(change: impl FnOnce(&mut Summary)) -> Summary {
        let participant = ParticipantSummary { name: "a".into(), particles: 10, ..Default::default() };
        let mut summary = Summary { steps: 4, participants: vec![participant], ..Default::default() };
        change(&mut summary);
        summary
    }

    fn said(change: impl FnOnce(&mut Summary)) -> Vec<String> {
        let at_start = summary(|_| ()).participants;
        lines(&summary(change), &at_start).split_off(3)
    }

    #[test]
    fn a_run_without_faults_has_none_told() {
        assert_eq!(said(|_| ()), Vec::<String>::new());
        assert_eq!(said(|s| s.contacts.overlap_relative_max = 0.49), Vec::<String>::new());
    }

    #[test]
    fn deep_overlaps_are_told_with_what_to_write() {
        for overlap in [0.51, f64::NAN] {
            let told = said(|s| s.contacts.overlap_relative_max = overlap);
            assert!(
                told.len() == 1 && told[0].starts_with("caution: two particles overlapped by"),
                "{told:?}"
            );
            assert!(!told[0].contains("stages_max") && !told[0].contains("group_limit"), "{told:?}");
        }
    }

    #[test]
    fn unresolved_and_ignored_pairs_are_counted_and_matter_where_overlaps_are_deep() {
        let change = |overlap| {
            move |s: &mut Summary| {
                s.contacts.overlap_relative_max = overlap;
                s.contacts.unresolved_after_last_stage = 6;
                s.contacts.ignored_by_group_limit = 5;
            }
        };
        let found = found(&summary(change(0.1)));
        assert!(found.contains("6 unresolved pairs, 5 ignored"), "{found}");
        assert_eq!(said(change(0.1)), Vec::<String>::new());
        let told = said(change(0.7));
        assert!(told[0].contains("\"converged\" (6 pairs"), "{told:?}");
        assert!(told[0].contains("coupling.group_limit (5 pairs"), "{told:?}");
    }

    #[test]
    fn steps_of_the_contact_law_that_stopped_early_are_told() {
        let told = said(|s| s.coupling.law_unconverged_steps = 3);
        assert_eq!(told, ["caution: the contact law stopped before its tolerance in 3 of 4 steps"]);
    }

    #[test]
    fn flip_that_moves_solids_is_told_with_a_shorter_step() {
        let run =
            |steps: u64| said(|s| (s.steps, s.simulated_s, s.coupling.projected_steps) = (400, 0.4, steps));
        assert_eq!(run(40), Vec::<String>::new());
        let told = run(41);
        assert!(
            told[0].contains("in 41 of 400 steps, of 1.0e-3 s") && told[0].contains("dt_max = 5.0e-4"),
            "{told:?}"
        );
    }

    #[test]
    fn errors_beyond_rounding_are_told() {
        assert_eq!(said(|s| s.coupling.energy_error_relative_max = 1e-9), Vec::<String>::new());
        let told = said(|s| s.coupling.energy_error_relative_max = 1e-3);
        assert!(told[0].contains("energy to 1e-3"), "{told:?}");
    }

    #[test]
    fn particles_that_are_gone_are_told() {
        assert_eq!(said(|s| s.participants[0].particles = 7), ["caution: a: 3 of 10 particles are gone"]);
        assert_eq!(said(|s| s.participants[0].particles = 12), Vec::<String>::new());
    }
}
