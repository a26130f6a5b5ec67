//! Accretion: discs that overlap become one.

use super::Rival;
use super::discs::{Attraction, Discs};

/// Merges discs that overlap after each step.
pub(super) struct Accretion;

impl Rival for Accretion {
    fn step(&mut self, discs: &mut Discs, dt: f64) {
        discs.kick(Attraction::Newton, dt);
        discs.drift(dt);
        loop {
            let pairs = discs.overlapping();
            let mut merged = vec![false; discs.len()];
            for &(i, j) in &pairs {
                // A disc that has merged has another place and radius: whether it still overlaps is found in
                // the next search.
                if !(merged[i] || merged[j]) {
                    merge(discs, i, j);
                    (merged[i], merged[j]) = (true, true);
                }
            }
            if pairs.is_empty() {
                return;
            }
            remove_merged(discs);
        }
    }
}

/// Merges disc j into disc i and leaves j without mass. Mass, momentum, centre of mass and area are kept. The
/// angular momentum of the two about their common centre is lost, since a disc has no spin.
fn merge(discs: &mut Discs, i: usize, j: usize) {
    let (a, b) = (discs.mass[i], discs.mass[j]);
    discs.position[i] = (a * discs.position[i] + b * discs.position[j]) / (a + b);
    discs.velocity[i] = (a * discs.velocity[i] + b * discs.velocity[j]) / (a + b);
    discs.radius[i] = discs.radius[i].hypot(discs.radius[j]);
    (discs.mass[i], discs.mass[j]) = (a + b, 0.0);
}

fn remove_merged(discs: &mut Discs) {
    fn keep<T>(column: &mut Vec<T>, kept: &[bool]) {
        let mut at = kept.iter();
        column.retain(|_| *at.next().expect("an entry per disc"));
    }
    let kept: Vec<bool> = discs.mass.iter().map(|&mass| mass > 0.0).collect();
    keep(&mut discs.id, &kept);
    keep(&mut discs.position, &kept);
    keep(&mut discs.velocity, &kept);
    keep(&mut discs.mass, &kept);
    keep(&mut discs.radius, &kept);
}
