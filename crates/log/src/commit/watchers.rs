//! Tasks that await the watermark, by the LSN that each waits for.
//!
//! *Owns*: their wakers, each found again by its seat. *May not touch*: what the watermark is;
//! running the wakers (`waking.rs`).
//!
//! Registering a waker is quick, however many there are: an LSN that is not below the others goes
//! to the end of the order, and a task that registers again replaces the waker in its seat. Only
//! tasks whose LSN is reached are woken.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::task::Waker;

use inkstone_format::Lsn;

/// A task that has left stays in the order until its LSN is reached, or until the order is much
/// longer than the number of tasks.
const GONE_MAX: usize = 64;

/// Where a task has left its waker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seat {
    /// Never given twice.
    number: u64,
    place: usize,
}

/// Tasks that await the watermark.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// The lowest LSN is first to be taken.
    order: BinaryHeap<Reverse<(Lsn, Seat)>>,
    seats: Vec<Option<(Seat, Waker)>>,
    /// Places without a waker.
    free: Vec<usize>,
    last: u64,
}

impl Watchers {
    /// Leaves the waker of a task that waits for `lsn`. Returns the one that it replaces, which
    /// must be dropped without the lock.
    pub(crate) fn leave(
        &mut self,
        lsn: Lsn,
        seat: &mut Option<Seat>,
        waker: Waker,
    ) -> Option<Waker> {
        if let Some(seat) = seat
            && let Some(Some((there, old))) = self.seats.get_mut(seat.place)
            && there == seat
        {
            return Some(std::mem::replace(old, waker));
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.seats.push(None);
            self.seats.len() - 1
        });
        self.last += 1;
        let taken = Seat { number: self.last, place };
        self.seats[place] = Some((taken, waker));
        self.order.push(Reverse((lsn, taken)));
        *seat = Some(taken);
        None
    }

    /// Frees the seat of a task that waits no more. Returns its waker, which must be dropped
    /// without the lock; `None` if it was taken to be woken.
    pub(crate) fn forget(&mut self, seat: Seat) -> Option<Waker> {
        let waker = self.take(seat)?;
        let there = self.seats.len() - self.free.len();
        if self.order.len() > 2 * there + GONE_MAX {
            let seats = &self.seats;
            self.order.retain(|Reverse((_, seat))| {
                seats[seat.place].as_ref().is_some_and(|(there, _)| there == seat)
            });
        }
        Some(waker)
    }

    fn take(&mut self, seat: Seat) -> Option<Waker> {
        let there = self.seats.get_mut(seat.place)?.take_if(|(there, _)| *there == seat);
        let (_, waker) = there?;
        self.free.push(seat.place);
        Some(waker)
    }

    /// Moves those who wait for an LSN up to this one to a list, which keeps none of them waiting.
    pub(crate) fn reach(&mut self, lsn: Lsn, woken: &mut Vec<Waker>) {
        while let Some(Reverse((wanted, seat))) = self.order.peek().copied()
            && wanted <= lsn
        {
            self.order.pop();
            woken.extend(self.take(seat));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(watchers: &mut Watchers, lsn: u64) -> Seat {
        let mut seat = None;
        assert!(watchers.leave(Lsn::new(lsn), &mut seat, Waker::noop().clone()).is_none());
        seat.expect("it has one")
    }

    fn reached(watchers: &mut Watchers, lsn: u64) -> usize {
        let mut woken = Vec::new();
        watchers.reach(Lsn::new(lsn), &mut woken);
        woken.len()
    }

    #[test]
    fn those_whose_lsn_is_reached_are_woken_once_and_no_others() {
        let mut watchers = Watchers::default();
        [9, 3, 5, 3, 7, 5].into_iter().for_each(|lsn| _ = waits(&mut watchers, lsn));
        let woken = [2, 3, 3, 6, 8, 100].map(|lsn| reached(&mut watchers, lsn));
        assert_eq!(woken, [0, 2, 0, 2, 1, 1]);
        assert_eq!(watchers.seats.len(), watchers.free.len());
    }

    #[test]
    fn a_task_has_one_seat_however_often_it_is_polled() {
        let mut watchers = Watchers::default();
        let seat = waits(&mut watchers, 5);
        for _ in 0..100 {
            assert!(watchers.leave(Lsn::new(5), &mut Some(seat), Waker::noop().clone()).is_some());
        }
        assert_eq!((watchers.order.len(), watchers.seats.len()), (1, 1));
        assert_eq!(reached(&mut watchers, 5), 1);
        // Its place is another's now.
        let other = waits(&mut watchers, 6);
        assert_eq!(seat.place, other.place);
        assert!(watchers.forget(seat).is_none());
        let mut again = Some(seat);
        assert!(watchers.leave(Lsn::new(5), &mut again, Waker::noop().clone()).is_none());
        assert_eq!(reached(&mut watchers, 6), 2);
    }

    #[test]
    fn those_who_leave_take_no_memory() {
        let mut watchers = Watchers::default();
        let stay: Vec<_> = (0..100).map(|lsn| waits(&mut watchers, 1000 + lsn)).collect();
        for lsn in 0..10_000 {
            let seat = waits(&mut watchers, lsn);
            assert!(watchers.forget(seat).is_some());
        }
        assert_eq!(watchers.seats.len(), stay.len() + 1);
        assert!(watchers.order.len() <= 2 * stay.len() + GONE_MAX + 1, "{}", watchers.order.len());
        assert_eq!(reached(&mut watchers, 10_000), stay.len());
    }
}
