//! Entries of columns that ranks send each other.

use std::ops::Range;

use amalgam_solver_kit::Ranks;
use bytemuck::Pod;

/// A plan by which ranks send each other entries of columns that one of them owns.
#[derive(Clone, Debug, Default)]
pub(in crate::flip) struct Halo {
    with: Vec<usize>,
    /// Entries that go to each of these ranks, and entries that come from there.
    send: Vec<Range<usize>>,
    receive: Vec<Range<usize>>,
}

impl Halo {
    /// The plan by which each rank gets the entries that it wants, of those that others own. Owned entries
    /// of different ranks are apart.
    pub(in crate::flip) fn new(
        ranks: &Ranks,
        owned: impl Fn(usize) -> Range<usize>,
        wanted: impl Fn(usize) -> Range<usize>,
    ) -> Self {
        let (mut halo, own) = (Self::default(), ranks.rank());
        for other in (0..ranks.size()).filter(|&other| other != own) {
            let both = |a: Range<usize>, b: Range<usize>| {
                let (start, end) = (a.start.max(b.start), a.end.min(b.end));
                // One of two ranks may send nothing, while the other does.
                if start < end { start..end } else { 0..0 }
            };
            let (send, receive) = (both(owned(own), wanted(other)), both(owned(other), wanted(own)));
            if !send.is_empty() || !receive.is_empty() {
                halo.with.push(other);
                halo.send.push(send);
                halo.receive.push(receive);
            }
        }
        halo
    }

    /// True if this rank neither sends nor receives.
    pub(in crate::flip) fn is_empty(&self) -> bool {
        self.with.is_empty()
    }

    /// Brings the wanted entries of columns. `pack` turns a value into one that can be sent, and `unpack`
    /// back. Collective among the ranks of the plan.
    pub(in crate::flip) fn exchange_as<T: Copy, P: Pod, const N: usize>(
        &self,
        ranks: &Ranks,
        columns: [&mut [T]; N],
        pack: impl Fn(T) -> P,
        unpack: impl Fn(P) -> T,
    ) {
        if self.is_empty() {
            return;
        }
        let message = |range: &Range<usize>| {
            let part = |column: &&mut [T]| column[range.clone()].iter().map(|&value| pack(value)).collect();
            let parts: Vec<Vec<P>> = columns.iter().map(part).collect();
            parts.concat()
        };
        let arrived = ranks.exchange(&self.with, self.send.iter().map(message).collect());
        let mut columns = columns;
        for (range, values) in self.receive.iter().zip(&arrived).filter(|(range, _)| !range.is_empty()) {
            for (column, values) in columns.iter_mut().zip(values.chunks_exact(range.len())) {
                for (to, &value) in column[range.clone()].iter_mut().zip(values) {
                    *to = unpack(value);
                }
            }
        }
    }

    /// Brings the wanted entries of columns. Collective among the ranks of the plan.
    pub(in crate::flip) fn exchange<T: Pod, const N: usize>(&self, ranks: &Ranks, columns: [&mut [T]; N]) {
        self.exchange_as(ranks, columns, |value| value, |value| value);
    }

    /// Brings the wanted entries of the columns of both colours.
    pub(in crate::flip) fn exchange_split<T: Pod>(&self, ranks: &Ranks, [red, black]: &mut [Vec<T>; 2]) {
        if self.is_empty() {
            return;
        }
        let both = |range: &Range<usize>| [0, 1].map(|colour| of_colour(range, colour));
        let message = |range: &Range<usize>| {
            let [even, odd] = both(range);
            [&red[even], &black[odd]].concat()
        };
        let arrived = ranks.exchange(&self.with, self.send.iter().map(message).collect());
        for (range, values) in self.receive.iter().zip(arrived) {
            let [even, odd] = both(range);
            let (to_even, to_odd) = values.split_at(even.len());
            red[even].copy_from_slice(to_even);
            black[odd].copy_from_slice(to_odd);
        }
    }

    /// Brings the wanted entries of the column of one colour.
    pub(in crate::flip) fn exchange_colour<T: Pod>(&self, ranks: &Ranks, colour: usize, column: &mut [T]) {
        if self.is_empty() {
            return;
        }
        let message = |range: &Range<usize>| column[of_colour(range, colour)].to_vec();
        let arrived = ranks.exchange(&self.with, self.send.iter().map(message).collect());
        for (range, values) in self.receive.iter().zip(arrived) {
            column[of_colour(range, colour)].copy_from_slice(&values);
        }
    }
}

/// Places, in the column of a colour, of the entries of that colour in a range.
fn of_colour(range: &Range<usize>, colour: usize) -> Range<usize> {
    let before = |entries: usize| (entries + 1 - colour) / 2;
    let start = before(range.start);
    start..before(range.end).max(start)
}
