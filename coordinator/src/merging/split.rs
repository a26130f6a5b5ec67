//! Splitting meta-particles after a step (`docs/theory/coupling.md`, "Splitting").

use amalgam_particles::{DVec3, reduce};

use super::merge::{Bond, ConservationErrors, Forest, for_each_group};
use crate::contacts::Candidates;
use crate::settings::SplitRule;

/// Parameters of the split of groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitSettings<'a> {
    /// The rule.
    pub rule: SplitRule,
    /// Part of a bond's energy that is given back, 0 to 1 (Eq. 9 [Truong2021]). With `symmetric` it is a part
    /// of the energy of the normal motion.
    pub alpha: f64,
    /// Factor of `alpha` for the contacts of each participant, 0 to 1. Between two participants the smaller
    /// one counts. Empty: 1 for all.
    pub elasticity: &'a [f64],
    /// Part of the energy lost in synchronising that is given back, 0 to 1 (Eq. 20 [Truong2021]).
    pub beta: f64,
}

impl Default for SplitSettings<'_> {
    /// The paper's parameters: all energy lost in merging is given back, and none lost in synchronising.
    fn default() -> Self {
        Self { rule: SplitRule::Paper, alpha: 1.0, elasticity: &[], beta: 0.0 }
    }
}

impl SplitSettings<'_> {
    /// Checks the ranges.
    ///
    /// # Errors
    /// A sentence that names the setting and says what it may be.
    pub fn validate(&self) -> Result<(), String> {
        for (name, value) in [("alpha", self.alpha), ("beta", self.beta)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(format!("{name} is {value}, but must be a number from 0 to 1"));
            }
        }
        Ok(())
    }

    /// Part of this bond's energy that is given back.
    #[inline]
    fn alpha(&self, bond: &Bond) -> f64 {
        let elasticity =
            |participant: u16| self.elasticity.get(usize::from(participant)).copied().unwrap_or(1.0);
        let [first, second] = bond.participants.map(elasticity);
        self.alpha * first.min(second)
    }
}

impl Forest {
    /// Splits every group, walking its merges in reverse.
    ///
    /// - `group_velocity`: velocity v' of each group at the end of the step [m/s]. With an immovable member
    ///   it is the prescribed velocity of this member.
    /// - `synchronisation_energy`: energy dE_k that synchronising took from each group [J] (Eq. 19
    ///   [Truong2021]). Times beta it is added to the bond of the last merge. A value that rounding makes
    ///   negative counts as 0.
    /// - `member_velocity`: becomes the velocity of each member [m/s], in the order of
    ///   [`Forest::all_members`].
    ///
    /// # Panics
    /// If there are not as many velocities and energies as groups.
    pub fn split(
        &self,
        group_velocity: &[DVec3],
        synchronisation_energy: &[f64],
        settings: &SplitSettings<'_>,
        member_velocity: &mut Vec<DVec3>,
    ) {
        assert_eq!(group_velocity.len(), self.len(), "one velocity for each group");
        assert_eq!(synchronisation_energy.len(), self.len(), "one energy for each group");
        member_velocity.resize(self.all_members().len(), DVec3::ZERO);
        // Bonds are only read here. Elements of no size take no memory.
        let mut no_bonds = vec![(); self.bonds().len()];
        for_each_group(self.offsets(), 0, member_velocity, &mut no_bonds, &|group, velocity, _| {
            velocity[0] = group_velocity[group];
            let mut extra = settings.beta * synchronisation_energy[group].max(0.0);
            for bond in self.bonds_of(group).iter().rev() {
                let together = velocity[bond.first as usize];
                let apart = bond.relative_velocity_after(together, extra, settings);
                velocity[bond.first as usize] = together - apart * bond.first_weight;
                velocity[bond.second as usize] = together + apart * bond.second_weight;
                extra = 0.0;
            }
        });
    }

    /// Energy [J] that merging and synchronising took and splitting does not give back. The arguments are
    /// those of [`Self::split`].
    pub fn dissipated(&self, synchronisation_energy: &[f64], settings: &SplitSettings<'_>) -> f64 {
        let kept = |at: usize| {
            let bond = &self.bonds()[at];
            bond.energy(bond.relative_velocity.length_squared()) - bond.prescribed_energy(0.0, settings)
        };
        let lost = |group: usize| {
            let energy = synchronisation_energy[group];
            energy - settings.beta * energy.max(0.0)
        };
        reduce::sum(self.bonds().len(), 0.0, kept) + reduce::sum(self.len(), 0.0, lost)
    }

    /// Errors of conservation in splitting: rounding, if all is well. The arguments are those of
    /// [`Self::split`] and its result.
    pub fn split_errors(
        &self,
        candidates: &Candidates,
        group_velocity: &[DVec3],
        synchronisation_energy: &[f64],
        settings: &SplitSettings<'_>,
        member_velocity: &[DVec3],
    ) -> ConservationErrors {
        let bond_energy = |group: usize| {
            let mut extra = settings.beta * synchronisation_energy[group].max(0.0);
            let mut energy = 0.0;
            for bond in self.bonds_of(group).iter().rev() {
                energy += bond.prescribed_energy(extra, settings);
                extra = 0.0;
            }
            energy
        };
        self.largest_errors(candidates, group_velocity, bond_energy, |place, _| member_velocity[place])
    }
}

impl Bond {
    /// The relative velocity u' = v2' - v1' [m/s] with which the clusters part. `together` is their common
    /// velocity v' [m/s], and `extra` the energy of the bond from synchronising [J].
    fn relative_velocity_after(&self, together: DVec3, extra: f64, settings: &SplitSettings<'_>) -> DVec3 {
        let (n, u) = (self.normal, self.relative_velocity);
        let extra_square = 2.0 * extra / self.reduced_mass;
        match settings.rule {
            SplitRule::Paper => {
                let speed = (settings.alpha(self) * u.length_squared() + extra_square).sqrt();
                self.paper(together - self.velocity, speed)
            }
            SplitRule::Symmetric => {
                // u' = u_t + k n. Since n x u' = n x u, the spin of the pair is kept.
                let normal_part = u.dot(n);
                let k = (settings.alpha(self) * normal_part * normal_part + extra_square).sqrt();
                (u - n * normal_part) + n * k
            }
        }
    }

    /// Eq. 12-16 [Truong2021] in relative form, for a given length |u'| = `speed`.
    ///
    /// Eq. 10 says that v1' lies on a sphere around v' of radius s = w1 |u'|, and v' - v1' = w1 u'. Let d be
    /// the part of v' - v1 orthogonal to n. The smaller root of Eq. 13 (eps = 0) is v' - v1' = d + sqrt(s^2 -
    /// |d|^2) n. Without a root Eq. 15-16 give v' - v1' = s d/|d|. Division by w1 gives u'. An infinite m1
    /// has w1 = 0, and the roles are swapped: v2' - v' = w2 u', with d the orthogonal part of v2 - v'.
    fn paper(&self, change: DVec3, speed: f64) -> DVec3 {
        let (n, u) = (self.normal, self.relative_velocity);
        let (weight, change) =
            if self.first_weight > 0.0 { (self.first_weight, change) } else { (self.second_weight, -change) };
        let d = u * weight + change;
        let d = d - n * d.dot(n);
        // Projected twice: if the change along n is much larger than the rest, the first projection leaves a
        // rounding error that would show up in the energy.
        let d = d - n * d.dot(n);
        let radius = weight * speed;
        let rest = radius * radius - d.length_squared();
        if rest >= 0.0 { (d + n * rest.sqrt()) / weight } else { d * (speed / d.length()) }
    }

    /// Energy of the relative motion that the split must reach [J]. `symmetric` with alpha < 1 differs from
    /// Eq. 9 [Truong2021] by the energy that the tangential part keeps.
    fn prescribed_energy(&self, extra: f64, settings: &SplitSettings<'_>) -> f64 {
        if self.reduced_mass.is_infinite() {
            return 0.0;
        }
        let square = self.relative_velocity.length_squared();
        let kept = match settings.rule {
            SplitRule::Paper => settings.alpha(self) * square,
            SplitRule::Symmetric => {
                let normal_part = self.relative_velocity.dot(self.normal).powi(2);
                (square - normal_part) + settings.alpha(self) * normal_part
            }
        };
        self.energy(kept) + extra
    }
}

#[cfg(test)]
mod tests {
    use amalgam_particles::{ParticleId, random};
    use proptest::prelude::*;

    use super::*;
    use crate::merging::merge::GroupLimit;

    proptest! {
        /// Eq. 14 [Truong2021] at every node of the tree, seen from the members' velocities.
        #[test]
        fn clusters_part_at_every_node(seed: u64, count in 2usize..200, paper: bool, alpha in 0.0f64..=1.0) {
            let vector = |i: usize, purpose: u64| {
                DVec3::from_array([0, 1, 2].map(|k| random::uniform_f64(&[seed, i as u64, purpose, k]) - 0.5))
            };
            let mut candidates = Candidates::default();
            for i in 0..count {
                candidates.participant.push(0);
                candidates.id.push(ParticleId(i as u64));
                candidates.position.push(vector(i, 1));
                candidates.velocity.push(vector(i, 2));
                candidates.mass.push(1e6f64.powf(random::uniform_f64(&[seed, i as u64, 3])));
                candidates.radius.push(1.0);
            }
            let mut pairs: Vec<(u32, u32)> = (1..count)
                .map(|i| (random::uniform_u32(0, i as u32 - 1, &[seed, i as u64]), i as u32))
                .collect();
            pairs.sort_unstable();
            let mut forest = Forest::new();
            let limit = GroupLimit { min: u32::MAX, max: u32::MAX, keep_lone_contacts: true, seed: 0, step: 0 };
            forest.merge(&candidates, &pairs, &limit);
            let rule = if paper { SplitRule::Paper } else { SplitRule::Symmetric };
            let settings = SplitSettings { rule, alpha, beta: 1.0, ..SplitSettings::default() };
            let mut velocity = Vec::new();
            forest.split(&[forest.velocity()[0] + vector(0, 4)], &[0.1], &settings, &mut velocity);

            let mut clusters: Vec<(f64, DVec3, DVec3)> = (0..count)
                .map(|i| (candidates.mass[i], candidates.position[i], velocity[i]))
                .collect();
            for bond in forest.bonds() {
                let (a, b) = (clusters[bond.first as usize], clusters[bond.second as usize]);
                let n = (b.1 - a.1).normalize();
                prop_assert!(n.distance(bond.normal) < 1e-9);
                prop_assert!((b.2 - a.2).dot(n) >= -1e-11, "{}", (b.2 - a.2).dot(n));
                let mass = a.0 + b.0;
                let mean = |x: DVec3, y: DVec3| (x * a.0 + y * b.0) / mass;
                clusters[bond.first as usize] = (mass, mean(a.1, b.1), mean(a.2, b.2));
            }
        }
    }
}
