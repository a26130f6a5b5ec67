//! The choice of a method of contact where the scene names none.

use amalgam_proto::contract::Integration;

use super::coupling::{CouplingSettings, Inertia, SplitRule, Synchronise};
use super::method::ContactMethod;

/// Method of a run, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChosenMethod {
    pub(crate) method: ContactMethod,
    /// A clause for people, without a full stop.
    pub(crate) reason: String,
}

impl CouplingSettings {
    /// The method that the scene names, or else the default for participants with these names and
    /// integrations: the contact law, unless a pressure projection or two implicit participants have to agree.
    ///
    /// # Errors
    /// Without a named method, the text of a fault if the scene has a key that the default does not read.
    pub(crate) fn choose<'a>(
        &self,
        participants: impl IntoIterator<Item = (&'a str, Integration)>,
    ) -> Result<ChosenMethod, String> {
        if let Some(method) = self.method {
            return Ok(ChosenMethod { method, reason: "the scene says so".into() });
        }
        let others: Vec<_> =
            participants.into_iter().filter(|&(_, kind)| kind != Integration::Explicit).collect();
        let projection = others.iter().find(|&&(_, kind)| kind == Integration::Projection);
        let (method, reason) = match (projection, &others[..]) {
            (Some((name, _)), _) => (ContactMethod::MergeSplit, format!("{name} is a pressure projection")),
            (None, []) => (ContactMethod::ContactLaw, "all participants are explicit".to_string()),
            (None, [(name, _)]) => (ContactMethod::ContactLaw, format!("only {name} is implicit")),
            (None, [(name, _), (other, _), ..]) => {
                (ContactMethod::MergeSplit, format!("{name} and {other} are implicit"))
            }
        };
        match self.written().find(|&(_, reader)| reader != method) {
            None => Ok(ChosenMethod { method, reason: format!("the default, since {reason}") }),
            Some((key, reader)) => Err(format!(
                "{key} under [coupling] is for method = \"{reader}\", but without a method this scene has \"{method}\", \
                     since {reason}: write method = \"{reader}\" under [coupling], or leave {key} out"
            )),
        }
    }

    /// Keys that a single method reads and that have another value than their default, with this method.
    fn written(&self) -> impl Iterator<Item = (&'static str, ContactMethod)> {
        use ContactMethod::{ContactLaw, MergeSplit, PairwiseImpulse, Penalty, SphRepulsion};
        let usual = Self::default();
        let keys = [
            ("triangles", !self.triangles.is_empty(), ContactLaw),
            ("synchronise", self.synchronise != Synchronise::Impulse, MergeSplit),
            ("inertia", self.inertia != Inertia::Share, MergeSplit),
            ("split", self.split != SplitRule::Paper, MergeSplit),
            ("alpha", self.alpha.is_some(), MergeSplit),
            ("beta", self.beta != usual.beta, MergeSplit),
            ("stages_max", self.stages_max.is_some(), MergeSplit),
            ("converged_stages_max", self.converged_stages_max != usual.converged_stages_max, MergeSplit),
            ("group_limit", self.group_limit.is_some(), MergeSplit),
            ("keep_lone_contacts", self.keep_lone_contacts != usual.keep_lone_contacts, MergeSplit),
            ("contact", !self.contact.is_empty(), ContactLaw),
            ("contact_tolerance", self.contact_tolerance != usual.contact_tolerance, ContactLaw),
            (
                "contact_iterations_max",
                self.contact_iterations_max != usual.contact_iterations_max,
                ContactLaw,
            ),
            ("penalty", self.penalty != usual.penalty, Penalty),
            ("sph_repulsion", self.sph_repulsion != usual.sph_repulsion, SphRepulsion),
            ("pairwise_impulse", self.pairwise_impulse != usual.pairwise_impulse, PairwiseImpulse),
        ];
        keys.into_iter().filter(|&(_, is_written, _)| is_written).map(|(key, _, method)| (key, method))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPLICIT: (&str, Integration) = ("free", Integration::Explicit);
    const IMPLICIT: (&str, Integration) = ("stiff", Integration::Implicit);
    const PROJECTION: (&str, Integration) = ("pool", Integration::Projection);

    #[test]
    fn the_law_is_the_default_unless_several_have_to_agree() {
        let chosen = |participants: &[(&'static str, Integration)]| {
            let ChosenMethod { method, reason } =
                CouplingSettings::default().choose(participants.iter().copied()).expect("no stray key");
            (method, reason)
        };
        let law = chosen(&[EXPLICIT, ("grains", Integration::Explicit)]);
        assert_eq!(
            law,
            (ContactMethod::ContactLaw, "the default, since all participants are explicit".into())
        );
        let law = chosen(&[EXPLICIT, IMPLICIT, EXPLICIT]);
        assert_eq!(law, (ContactMethod::ContactLaw, "the default, since only stiff is implicit".into()));
        let merged = chosen(&[IMPLICIT, EXPLICIT, ("ball", Integration::Implicit)]);
        assert_eq!(
            merged,
            (ContactMethod::MergeSplit, "the default, since stiff and ball are implicit".into())
        );
        let merged = chosen(&[EXPLICIT, PROJECTION]);
        assert_eq!(
            merged,
            (ContactMethod::MergeSplit, "the default, since pool is a pressure projection".into())
        );
    }

    #[test]
    fn a_named_method_is_taken_with_any_participants_and_keys() {
        for method in [ContactMethod::MergeSplit, ContactMethod::ContactLaw, ContactMethod::Penalty] {
            let settings = CouplingSettings {
                method: Some(method),
                alpha: Some(0.0),
                contact_tolerance: 1e-3,
                ..CouplingSettings::default()
            };
            for participants in [[EXPLICIT, EXPLICIT], [EXPLICIT, IMPLICIT]] {
                let chosen = settings.choose(participants).expect("a named method");
                assert_eq!(chosen, ChosenMethod { method, reason: "the scene says so".into() });
            }
        }
    }

    /// A key, and what gives it another value than the default.
    type Change<'a> = (&'a str, &'a dyn Fn(&mut CouplingSettings));

    #[test]
    fn a_key_that_the_default_does_not_read_is_refused_with_what_to_write() {
        let refused = |participants: [(&'static str, Integration); 2],
                       set: &dyn Fn(&mut CouplingSettings)| {
            let mut settings = CouplingSettings::default();
            set(&mut settings);
            settings.choose(participants).expect_err("a stray key")
        };
        let merging: [Change<'_>; 9] = [
            ("synchronise", &|s| s.synchronise = Synchronise::Average),
            ("inertia", &|s| s.inertia = Inertia::Total),
            ("split", &|s| s.split = SplitRule::Symmetric),
            ("alpha", &|s| s.alpha = Some(0.0)),
            ("beta", &|s| s.beta = 1.0),
            ("stages_max", &|s| s.stages_max = Some(super::super::StagesMax::Converged)),
            ("converged_stages_max", &|s| s.converged_stages_max = 3),
            ("group_limit", &|s| s.group_limit = Some([2, 4])),
            ("keep_lone_contacts", &|s| s.keep_lone_contacts = false),
        ];
        for (key, set) in merging {
            let error = refused([EXPLICIT, EXPLICIT], set);
            let expected = format!(
                "{key} under [coupling] is for method = \"merge-split\", but without a method this scene has \
                 \"contact-law\", since all participants are explicit: write method = \"merge-split\" under [coupling], or \
                 leave {key} out"
            );
            assert_eq!(error, expected);
        }
        let law: [Change<'_>; 3] = [
            ("contact", &|s| s.contact.push(Default::default())),
            ("contact_tolerance", &|s| s.contact_tolerance = 1e-3),
            ("contact_iterations_max", &|s| s.contact_iterations_max = 7),
        ];
        for (key, set) in law {
            let error = refused([EXPLICIT, PROJECTION], set);
            assert!(
                error.contains(
                    "since pool is a pressure projection: write method = \"contact-law\" under [coupling]"
                ),
                "{key}: {error}"
            );
        }
    }
}
