//! Which sections the records of a stream are in.
//!
//! *Owns*: the runs of one stream, and how many bytes of each section they take. *May not touch*:
//! where in a section a record is (`section.rs`).
//!
//! A run is consecutive sequence numbers in one section, stored in 16 bytes. It ends where the next
//! run begins, or at the stream's next number. An idle stream has one run, which needs no heap
//! block.

use smallvec::SmallVec;

use crate::record::Run;

/// No section: records that are lost, since they could not be read any more, or that a salvaged log
/// may have had.
pub(crate) const LOST: u32 = u32::MAX;

/// Counts live bytes by section.
pub(crate) trait Live {
    fn gain(&mut self, section: u32, bytes: u32);
    fn lose(&mut self, section: u32, bytes: u32);
}

/// An opening of a salvaged log counts at its end.
impl Live for () {
    fn gain(&mut self, _: u32, _: u32) {}
    fn lose(&mut self, _: u32, _: u32) {}
}

/// The runs of one stream, by their first numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Runs(SmallVec<[Run; 1]>);

impl Runs {
    pub(crate) fn as_slice(&self) -> &[Run] {
        &self.0
    }

    #[cfg(test)]
    pub(crate) fn is_on_heap(&self) -> bool {
        self.0.spilled()
    }

    /// Adds runs of a table after those that are here.
    pub(crate) fn extend(&mut self, runs: &[Run]) {
        self.0.extend_from_slice(runs);
        self.0.shrink_to_fit();
    }

    /// Adds the record after the last one.
    pub(crate) fn push(&mut self, number: u64, section: u32, bytes: u32, live: &mut impl Live) {
        live.gain(section, bytes);
        match self.0.last_mut() {
            Some(last) if last.section == section && last.bytes.checked_add(bytes).is_some() => {
                last.bytes += bytes;
            }
            _ => {
                if self.0.len() == self.0.capacity() && self.0.len() < 4 {
                    self.0.reserve_exact(1);
                }
                self.0.push(Run { first: number, section, bytes });
            }
        }
    }

    /// Adds one record before all others, which begin at `first`. Those in between are lost, and so
    /// is the one if it is in no section.
    pub(crate) fn add_before(&mut self, number: u64, section: u32, first: u64) {
        if number + 1 < first && section != LOST {
            self.0.insert(0, Run { first: number + 1, section: LOST, bytes: 0 });
        }
        self.0.insert(0, Run { first: number, section, bytes: 0 });
    }

    /// Removes the records before `first`; `next` is the stream's next number.
    pub(crate) fn truncate_before(&mut self, first: u64, next: u64, live: &mut impl Live) {
        let whole = (0..self.0.len()).take_while(|place| self.end(*place, next) <= first).count();
        self.0.drain(..whole).for_each(|run| live.lose(run.section, run.bytes));
        if let Some(run) = self.0.first().copied().filter(|run| run.first < first) {
            let share = share(run.bytes, first - run.first, self.end(0, next) - run.first);
            live.lose(run.section, share);
            self.0[0] = Run { first, bytes: run.bytes - share, ..run };
        }
        self.shrink();
    }

    /// Frees memory that is mostly unused.
    fn shrink(&mut self) {
        let (runs, room) = (self.0.len(), self.0.capacity());
        if self.0.spilled() && (runs <= 1 || room > 16 && runs < room / 4) {
            self.0.shrink_to_fit();
        }
    }

    /// Removes the records from `end` on; `next` is the stream's next number until now.
    pub(crate) fn truncate_from(&mut self, end: u64, next: u64, live: &mut impl Live) {
        while let Some(run) = self.0.last().copied() {
            let place = self.0.len() - 1;
            if run.first >= end {
                self.0.pop();
                live.lose(run.section, run.bytes);
                continue;
            }
            let run_end = self.end(place, next);
            if run_end > end {
                let share = share(run.bytes, run_end - end, run_end - run.first);
                live.lose(run.section, share);
                self.0[place].bytes -= share;
            }
            break;
        }
        self.shrink();
    }

    /// Moves the record to section `to`, if it is in section `from`.
    pub(crate) fn relocate(
        &mut self,
        (number, next): (u64, u64),
        (from, to): (u32, u32),
        bytes: u32,
        live: &mut impl Live,
    ) -> bool {
        let Some(place) = self.place_of(number) else { return false };
        let run = self.0[place];
        let end = self.end(place, next);
        if run.section != from || number >= end {
            return false;
        }
        let left = share(run.bytes, number - run.first, end - run.first);
        let right = share(run.bytes, end - number - 1, end - run.first);
        live.lose(from, run.bytes - left - right);
        live.gain(to, bytes);
        let parts = [
            Run { first: run.first, section: from, bytes: left },
            Run { first: number, section: to, bytes },
            Run { first: number + 1, section: from, bytes: right },
        ];
        let is_there = [number > run.first, true, number + 1 < end];
        let parts = parts.into_iter().zip(is_there).filter(|(_, is_there)| *is_there);
        self.0.remove(place);
        self.0.insert_many(place, parts.map(|(part, _)| part));
        self.join(place + usize::from(is_there[0]));
        true
    }

    /// Joins the run at this place with the one before it, if both are in one section.
    fn join(&mut self, place: usize) {
        let Some(before) = place.checked_sub(1) else { return };
        let (one, other) = (self.0[before], self.0[place]);
        if let Some(bytes) =
            one.bytes.checked_add(other.bytes).filter(|_| one.section == other.section)
        {
            self.0[before].bytes = bytes;
            self.0.remove(place);
            self.shrink();
        }
    }

    /// The section that has a record, and the number at which the run with it ends.
    pub(crate) fn find(&self, number: u64, next: u64) -> Option<(u32, u64)> {
        let place = self.place_of(number)?;
        Some((self.0[place].section, self.end(place, next)))
    }

    /// At most so many runs, of the numbers from `from` on; and where the next one begins.
    pub(crate) fn piece(&self, from: u64, next: u64, count: usize) -> (Vec<Run>, Option<u64>) {
        let at = self.place_of(from).unwrap_or(0);
        let end = (at + count).min(self.0.len());
        let mut runs = self.0[at..end].to_vec();
        if let Some(run) = runs.first_mut().filter(|run| run.first < from) {
            run.bytes -= share(run.bytes, from - run.first, self.end(at, next) - run.first);
            run.first = from;
        }
        (runs, self.0.get(end).map(|run| run.first))
    }

    /// The runs in a section, each from its first number to its end.
    pub(crate) fn in_section(
        &self,
        section: u32,
        next: u64,
    ) -> impl Iterator<Item = std::ops::Range<u64>> + '_ {
        let places = (0..self.0.len()).filter(move |place| self.0[*place].section == section);
        places.map(move |place| self.0[place].first..self.end(place, next))
    }

    /// Where the last run ends that is in a section before this one.
    pub(crate) fn end_before(&self, section: u32, next: u64) -> Option<u64> {
        let place = self.0.iter().rposition(|run| run.section < section)?;
        Some(self.end(place, next))
    }

    fn place_of(&self, number: u64) -> Option<usize> {
        self.0.partition_point(|run| run.first <= number).checked_sub(1)
    }

    fn end(&self, place: usize, next: u64) -> u64 {
        self.0.get(place + 1).map_or(next, |run| run.first)
    }
}

/// The share of `bytes` that `some` of `all` records take.
fn share(bytes: u32, some: u64, all: u64) -> u32 {
    let share = u128::from(bytes) * u128::from(some) / u128::from(all.max(1));
    u32::try_from(share).unwrap_or(bytes).min(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Default, Debug, PartialEq)]
    struct Sum(BTreeMap<u32, i64>);

    impl Live for Sum {
        fn gain(&mut self, section: u32, bytes: u32) {
            *self.0.entry(section).or_default() += i64::from(bytes);
        }
        fn lose(&mut self, section: u32, bytes: u32) {
            *self.0.entry(section).or_default() -= i64::from(bytes);
        }
    }

    /// After every change the runs equal a map of numbers to sections, and the live bytes equal the
    /// sum of the runs.
    #[test]
    fn runs_are_what_a_map_of_numbers_would_be() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let (mut runs, mut live) = (Runs::default(), Sum::default());
            let mut map: BTreeMap<u64, u32> = BTreeMap::new();
            let (mut first, mut next, mut section) = (5_u64, 5_u64, 1_u32);
            for _ in 0..60 {
                match random.u32(..10) {
                    0..4 => {
                        section += u32::from(random.u32(..4) == 0);
                        runs.push(next, section, random.u32(1..100), &mut live);
                        map.insert(next, section);
                        next += 1;
                    }
                    4 => {
                        let to = random.u64(first..=next);
                        runs.truncate_before(to, next, &mut live);
                        map.retain(|number, _| *number >= to);
                        first = to;
                    }
                    5 => {
                        let end = random.u64(first..=next);
                        runs.truncate_from(end, next, &mut live);
                        map.retain(|number, _| *number < end);
                        next = end;
                    }
                    _ if first < next => {
                        let number = random.u64(first..next);
                        let from = random.u32(1..=section);
                        section += u32::from(random.u32(..4) == 0);
                        let is_there = map[&number] == from && from != section;
                        if from != section {
                            let moved =
                                runs.relocate((number, next), (from, section), 9, &mut live);
                            assert_eq!(moved, is_there);
                        }
                        if is_there {
                            map.insert(number, section);
                        }
                    }
                    _ => {}
                }
                for (number, section) in &map {
                    assert_eq!(runs.find(*number, next).unwrap().0, *section);
                }
                let mut sums: BTreeMap<u32, i64> = BTreeMap::new();
                for run in runs.as_slice() {
                    *sums.entry(run.section).or_default() += i64::from(run.bytes);
                }
                live.0.retain(|_, bytes| *bytes != 0);
                sums.retain(|_, bytes| *bytes != 0);
                assert_eq!(live.0, sums);
            }
        }
    }
}
