//! The futures and callbacks of records whose outcome is open.
//!
//! *Owns*: their lists: one waker for each future, found again by its ticket. *May not touch*: when
//! they are decided (`state.rs`); running them (`waking.rs`, `callbacks.rs`).
//!
//! One group is in flight at a time. So a record that is not decided is in that group or in the
//! gathering, and a list for each of these two is enough. Registering a waker is one step, however
//! many there are, and a whole list is taken at once.

use std::task::Waker;

use inkstone_format::Lsn;

use crate::commit::callbacks::Function;

/// Where a future has left its waker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    round: u64,
    place: usize,
}

/// Wakers of futures that wait for the same thing, one for each.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    /// How often they were woken. A ticket of an earlier round has no place any more.
    round: u64,
    /// In a place whose future was dropped is a waker that does nothing: so the whole list can be
    /// taken as it is.
    list: Vec<Waker>,
    /// Such places.
    free: Vec<usize>,
}

impl Wakers {
    /// Leaves the waker of a future. Returns the one that it replaces, which must be dropped
    /// without the lock.
    pub(crate) fn leave(&mut self, ticket: &mut Option<Ticket>, waker: Waker) -> Option<Waker> {
        if let Some(Ticket { round, place }) = *ticket
            && round == self.round
            && let Some(there) = self.list.get_mut(place)
        {
            return Some(std::mem::replace(there, waker));
        }
        let place = match self.free.pop() {
            Some(place) => {
                self.list[place] = waker;
                place
            }
            None => {
                self.list.push(waker);
                self.list.len() - 1
            }
        };
        *ticket = Some(Ticket { round: self.round, place });
        None
    }

    /// Frees the place of a future that is dropped. Returns its waker, which must be dropped
    /// without the lock; `None` if it was taken to be woken.
    pub(crate) fn forget(&mut self, ticket: Ticket) -> Option<Waker> {
        let there = self.list.get_mut(ticket.place).filter(|_| ticket.round == self.round)?;
        self.free.push(ticket.place);
        Some(std::mem::replace(there, Waker::noop().clone()))
    }

    /// Moves all of them to another list, which keeps none of them waiting.
    pub(crate) fn move_to(&mut self, others: &mut Vec<Waker>) {
        self.round += 1;
        self.free.clear();
        join(others, &mut self.list);
    }
}

/// Moves the wakers of `from` to `list`, without copying them if that is empty.
pub(crate) fn join(list: &mut Vec<Waker>, from: &mut Vec<Waker>) {
    if list.is_empty() {
        std::mem::swap(list, from);
    } else {
        list.append(from);
    }
}

/// A callback whose record is not decided.
pub(crate) struct Callback {
    pub(crate) lsn: Lsn,
    /// The number of cuts before the record was appended.
    pub(crate) cuts: usize,
    pub(crate) function: Function,
}

/// What waits for the records of one group.
#[derive(Default)]
pub(crate) struct Waiting {
    pub(crate) futures: Wakers,
    pub(crate) callbacks: Vec<Callback>,
}

/// What has waited for the records of groups that were written.
#[derive(Default)]
pub(crate) struct WrittenWaiters {
    pub(crate) futures: Vec<Waker>,
    /// In the order of their LSNs.
    pub(crate) callbacks: Vec<Callback>,
}

impl WrittenWaiters {
    pub(crate) fn has_callbacks(&self) -> bool {
        !self.callbacks.is_empty()
    }

    pub(crate) fn push(&mut self, callback: Callback) {
        self.callbacks.push(callback);
    }

    /// Takes over what has waited for one more group.
    pub(crate) fn add(&mut self, waiting: &mut Waiting) {
        waiting.futures.move_to(&mut self.futures);
        if !waiting.callbacks.is_empty() {
            waiting.callbacks.sort_by_key(|callback| callback.lsn);
            self.callbacks.append(&mut waiting.callbacks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_has_one_waker_however_often_it_is_polled() {
        let mut wakers = Wakers::default();
        let (mut one, mut other) = (None, None);
        assert!(wakers.leave(&mut one, Waker::noop().clone()).is_none());
        assert!(wakers.leave(&mut other, Waker::noop().clone()).is_none());
        for _ in 0..10 {
            assert!(wakers.leave(&mut one, Waker::noop().clone()).is_some());
        }
        assert_eq!(wakers.list.len(), 2);
        let mut woken = Vec::new();
        wakers.move_to(&mut woken);
        assert_eq!((woken.len(), wakers.list.len()), (2, 0));
        // Its place is another's now.
        let mut third = None;
        assert!(wakers.leave(&mut third, Waker::noop().clone()).is_none());
        assert!(wakers.leave(&mut one, Waker::noop().clone()).is_none());
        assert_eq!(wakers.list.len(), 2);
    }

    #[test]
    fn the_place_of_a_dropped_future_is_used_again() {
        let mut wakers = Wakers::default();
        let mut kept = None;
        wakers.leave(&mut kept, Waker::noop().clone());
        for _ in 0..100 {
            let mut dropped = None;
            assert!(wakers.leave(&mut dropped, Waker::noop().clone()).is_none());
            assert!(dropped.and_then(|ticket| wakers.forget(ticket)).is_some());
        }
        assert_eq!(wakers.list.len(), 2);
        // A ticket of the round before is worth nothing, also where its place is another's.
        let mut late = None;
        wakers.leave(&mut late, Waker::noop().clone());
        wakers.move_to(&mut Vec::new());
        let mut next = [None, None];
        next.iter_mut().for_each(|next| _ = wakers.leave(next, Waker::noop().clone()));
        assert!(late.and_then(|ticket| wakers.forget(ticket)).is_none());
        assert!(wakers.free.is_empty());
    }
}
