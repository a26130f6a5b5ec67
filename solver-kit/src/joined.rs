//! Answers of ranks joined into that of the participant.
//!
//! A participant may be cut among several ranks. Each of them carries out the same calls on the particles
//! that it has, and the first one answers for all. Everything here is collective: all ranks call it, in the
//! same order.

use std::borrow::Cow;

use amalgam_particles::{CellSet, GroupMap};
use amalgam_ranks::Ranks;
use bytemuck::Pod;

use crate::error::SolverError;

/// The result on this rank if no rank has a fault; else, on all ranks, the fault of the lowest rank that has
/// one. Collective.
///
/// A solver that is cut among ranks agrees on faults before it goes on, since a rank that stopped alone would
/// leave the others waiting.
///
/// # Errors
/// The fault of a rank.
pub fn agreed<T>(ranks: &Ranks, result: Result<T, SolverError>) -> Result<T, SolverError> {
    match first_fault(ranks, result.as_ref().err().map(|SolverError(message)| message.as_str())) {
        None => result,
        Some(fault) => Err(SolverError(fault)),
    }
}

/// The fault of the lowest rank that has one.
pub(crate) fn first_fault(ranks: &Ranks, own: Option<&str>) -> Option<String> {
    if ranks.is_alone() {
        return own.map(str::to_string);
    }
    if !ranks.any(own.is_some()) {
        return None;
    }
    let own = own.unwrap_or_default().as_bytes().to_vec();
    let first = ranks.gather(own).and_then(|faults| faults.into_iter().find(|fault| !fault.is_empty()));
    let fault = ranks.broadcast(first.unwrap_or_default());
    Some(String::from_utf8_lossy(&fault).into_owned())
}

/// Places of a rank's things among those of all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbered {
    /// Number of this rank's first thing. The others follow.
    pub first: u64,
    /// The number of things on all ranks.
    pub whole: u64,
}

/// Numbers things of several kinds, kind after kind from 0 and in each kind rank after rank. This rank has `counts` of
/// them. Collective.
pub fn numbered(ranks: &Ranks, counts: &[u64]) -> Vec<Numbered> {
    let (size, rank) = (ranks.size(), ranks.rank());
    let own = counts.iter().enumerate().map(|(kind, &count)| (kind * size + rank, count));
    let counts = ranks.shared(counts.len() * size, own);
    let mut next = 0;
    let kinds = counts.chunks(size).map(|of_ranks| {
        let (first, whole) = (next + of_ranks[..rank].iter().sum::<u64>(), of_ranks.iter().sum());
        next += whole;
        Numbered { first, whole }
    });
    kinds.collect()
}

/// The members of a participant's groups, and which of them this rank has.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a> {
    /// The ranks that the participant is cut among.
    pub ranks: &'a Ranks,
    /// Number of each of this rank's members among all, in the order of [`GroupMap::all_members`].
    pub number: &'a [u32],
    /// Number of each group's first member, and the number of all members at the end.
    pub offsets: &'a [u32],
}

impl Members<'_> {
    /// Hands the value of every member to `add`, with its group, in the order in which the coordinator named
    /// the members, whichever rank has them. Only the first rank calls `add`. Collective.
    pub fn for_each<T: Pod>(
        &self,
        groups: &GroupMap,
        value: impl Fn(u32) -> T,
        mut add: impl FnMut(usize, T),
    ) {
        self.fold(groups, value, |_| Some(()), |(), group, value| add(group, value), |_, ()| ());
    }

    /// Joins the values of each group's members to one, in the order in which the coordinator named the
    /// members, whichever rank has them. `start` is what a group's values are joined to; a group without it
    /// is left out. `end` gets a group and the result. Only the first rank calls `start`, `join` and `end`.
    /// Collective.
    pub fn fold<T: Pod, A>(
        &self,
        groups: &GroupMap,
        value: impl Fn(u32) -> T,
        start: impl Fn(usize) -> Option<A>,
        mut join: impl FnMut(A, usize, T) -> A,
        mut end: impl FnMut(usize, A),
    ) {
        if self.ranks.is_alone() {
            for group in 0..groups.len() {
                if let Some(start) = start(group) {
                    let members = groups.members(group).iter();
                    end(group, members.fold(start, |joined, &member| join(joined, group, value(member))));
                }
            }
            return;
        }
        let own: Vec<T> = groups.all_members().iter().map(|&member| value(member)).collect();
        if let Some(values) = by_number(self.ranks, self.number, own) {
            for (group, range) in self.offsets.windows(2).enumerate() {
                if let Some(start) = start(group) {
                    let values = values[range[0] as usize..range[1] as usize].iter();
                    end(group, values.fold(start, |joined, &value| join(joined, group, value)));
                }
            }
        }
    }
}

/// The values of all ranks at the first rank, in the order of their numbers, which count from 0.
pub(crate) fn by_number<T: Pod>(ranks: &Ranks, number: &[u32], values: Vec<T>) -> Option<Vec<T>> {
    if ranks.is_alone() {
        return Some(values);
    }
    let (numbers, values) = (ranks.gather(number.to_vec()), ranks.gather(values));
    let (numbers, values) = numbers.zip(values)?;
    let mut all = vec![T::zeroed(); numbers.iter().map(Vec::len).sum()];
    for (number, value) in numbers.iter().flatten().zip(values.into_iter().flatten()) {
        all[*number as usize] = value;
    }
    Some(all)
}

/// The values of all ranks, rank after rank, at the first one; nothing at others.
pub(crate) fn concatenated<'a, T: Pod>(ranks: &Ranks, values: impl Into<Cow<'a, [T]>>) -> Cow<'a, [T]> {
    let values = values.into();
    if ranks.is_alone() {
        return values;
    }
    Cow::Owned(ranks.gather(values.into_owned()).map(|values| values.concat()).unwrap_or_default())
}

/// The cells of all ranks, at the first one.
pub(crate) fn united(ranks: &Ranks, cells: CellSet) -> CellSet {
    if ranks.is_alone() {
        return cells;
    }
    CellSet::from_keys(concatenated(ranks, Vec::from(cells)).into_owned())
}
