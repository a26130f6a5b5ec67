//! Columns over the sites of a lattice, and sums in them to which neighbouring tasks add.

use rayon::prelude::*;

/// Values in 4 KiB.
const PAGE: usize = 1024;

/// Values by which the beginnings of columns differ from one another, modulo a page. Columns at equal offsets
/// would share the few lines of the first cache that a site may be in. Loads would also wait for stores to
/// other columns, since processors distinguish addresses by their last twelve bits. Nine columns spread
/// evenly.
const STAGGER: usize = 112;

/// K columns.
#[derive(Debug, Default)]
pub(super) struct SiteColumns<T, const K: usize> {
    values: Vec<T>,
    first: usize,
    stride: usize,
    length: usize,
}

impl<T: Copy + Default, const K: usize> SiteColumns<T, K> {
    /// Columns of this length, beside others of which `before` are read or written in the same loops.
    pub(super) fn new(length: usize, before: usize) -> Self {
        let stride = length.next_multiple_of(PAGE) + STAGGER;
        let values = vec![T::default(); K * stride + PAGE];
        // Where the values lie in memory decides on speed only.
        let begins = values.as_ptr().addr() / size_of::<T>();
        let first = (before * STAGGER + PAGE - begins % PAGE) % PAGE;
        Self { values, first, stride, length }
    }

    pub(super) fn all(&self) -> [&[T]; K] {
        std::array::from_fn(|k| &self.values[self.first + k * self.stride..][..self.length])
    }

    pub(super) fn all_mut(&mut self) -> [&mut [T]; K] {
        let mut columns = self.values[self.first..].chunks_mut(self.stride);
        std::array::from_fn(|_| match columns.next() {
            Some(column) => &mut column[..self.length],
            None => panic!("there is room for all columns"),
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.values.len() * size_of::<T>()
    }
}

/// Sites cut into tasks, by their number alone. What a task adds to sites beyond its own it keeps apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cut {
    /// Sites of a task.
    length: usize,
    /// Sites beyond that it adds to, whole pages, so that columns stay where [`STAGGER`] has put them.
    spill: usize,
    tasks: usize,
}

impl Cut {
    /// Cuts `sites` sites into tasks. Each site adds to others up to `reach` sites on.
    pub(super) fn new(sites: usize, reach: usize) -> Self {
        let spill = reach.next_multiple_of(PAGE);
        // As many as may be if each is to add to the next one's sites only.
        let tasks = (sites / spill).max(1);
        let length = sites.div_ceil(tasks).max(1).next_multiple_of(PAGE);
        Self { length, spill, tasks: sites.div_ceil(length).max(1) }
    }

    /// The sites of each task.
    pub(super) fn starts(&self) -> impl Iterator<Item = usize> {
        let length = self.length;
        (0..=self.tasks).map(move |task| task * length)
    }

    /// The task of a site.
    pub(super) fn task(&self, site: usize) -> usize {
        site / self.length
    }

    /// Place of a site in sums.
    pub(super) fn place(&self, site: usize) -> usize {
        site + site / self.length * self.spill
    }

    /// The site that [`Self::place`] gave.
    pub(super) fn site(&self, place: usize) -> usize {
        place - place / (self.length + self.spill) * self.spill
    }
}

/// K sums at every site.
#[derive(Debug, Default)]
pub(super) struct Sums<const K: usize> {
    columns: SiteColumns<f32, K>,
    cut: Cut,
}

impl<const K: usize> Sums<K> {
    pub(super) fn new(cut: Cut, before: usize) -> Self {
        Self { columns: SiteColumns::new(cut.tasks * (cut.length + cut.spill), before), cut }
    }

    /// Fills the sums of each task that has an item with `none`, and runs `add` on them. Then joins the spill
    /// of each task to the sums of the next task by `with(k, sum, term)`, if both tasks ran. Returns the
    /// results in the order of tasks.
    pub(super) fn collect<I: Send, R: Send>(
        &mut self,
        none: [f32; K],
        with: impl Fn(usize, f32, f32) -> f32 + Sync,
        items: Vec<Option<I>>,
        add: impl Fn(I, [&mut [f32]; K]) -> R + Sync,
    ) -> Vec<R> {
        let Cut { length, spill, tasks } = self.cut;
        let mut windows = self.columns.all_mut().map(|column| column.chunks_mut(length + spill));
        let mut windows: Vec<[&mut [f32]; K]> =
            (0..tasks).map(|_| windows.each_mut().map(|column| column.next().unwrap_or_default())).collect();
        let runs: Vec<bool> = items.iter().map(Option::is_some).collect();
        let results = windows.par_iter_mut().zip(items).with_max_len(1).filter_map(|(window, item)| {
            let item = item?;
            window.iter_mut().zip(none).for_each(|(column, none)| column.fill(none));
            Some(add(item, window.each_mut().map(|column| &mut **column)))
        });
        let results = results.collect();
        let (mut own, beyond): (Vec<_>, Vec<_>) = windows
            .into_iter()
            .map(|window| {
                let mut parts = window.map(|column| column.split_at_mut(length));
                (parts.each_mut().map(|part| std::mem::take(&mut part.0)), parts.map(|part| &*part.1))
            })
            .unzip();
        let pairs = own[1..].par_iter_mut().zip(beyond).zip(runs.par_windows(2));
        pairs.filter(|(_, runs)| runs[0] && runs[1]).for_each(|((own, beyond), _)| {
            for k in 0..K {
                for (own, beyond) in own[k].iter_mut().zip(beyond[k]) {
                    *own = with(k, *own, *beyond);
                }
            }
        });
        results
    }

    /// The sums at a place.
    #[inline(always)]
    pub(super) fn at(&self, place: usize) -> [f32; K] {
        self.columns.all().map(|column| column[place])
    }

    /// All columns, by place.
    #[inline(always)]
    pub(super) fn all(&self) -> [&[f32]; K] {
        self.columns.all()
    }

    pub(super) fn bytes(&self) -> usize {
        self.columns.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tasks_add_beyond_their_own_sites_is_joined() {
        let (sites, reach) = (20_000, 1_500);
        let cut = Cut::new(sites, reach);
        let starts: Vec<usize> = cut.starts().map(|start| start.min(sites)).collect();
        assert!(starts.len() > 4, "{starts:?}");
        let steps = [0, 7, reach - 1];
        let none = [0.0, f32::INFINITY];
        let with = |k: usize, sum: f32, term: f32| if k == 0 { sum + term } else { sum.min(term) };
        let mut expected = vec![none; sites + reach];
        for site in 0..sites {
            for step in steps {
                let sum = &mut expected[site + step];
                *sum = std::array::from_fn(|k| with(k, sum[k], site as f32));
            }
        }
        let mut sums = Sums::new(cut, 9);
        for _ in 0..2 {
            let items = starts.windows(2).map(|of| Some(of[0]..of[1])).collect();
            sums.collect(none, with, items, |own: std::ops::Range<usize>, mut columns| {
                for site in own.clone() {
                    for step in steps {
                        for (k, column) in columns.iter_mut().enumerate() {
                            let sum = &mut column[site + step - own.start];
                            *sum = with(k, *sum, site as f32);
                        }
                    }
                }
            });
            for (site, expected) in expected[..sites].iter().enumerate() {
                assert_eq!(cut.site(cut.place(site)), site);
                assert_eq!(sums.at(cut.place(site)), *expected, "{site}");
            }
        }
    }
}
