//! The one writer: the order of changes, and the rest of each record of the log.
//!
//! *Owns*: the lock under which a change is checked, appended and made in memory, in one order.
//! *May not touch*: what changes mean (`state.rs`), how callers wait (`streams.rs`), moving
//! (`mover.rs`).
//!
//! Under the lock nothing waits for the log, and no code of the user's runs: an append that finds
//! no room is tried again once the log has made some.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use inkstone::{Append, DurableAt, Log, Lsn, Reader};

use crate::error::{Error, Result};
use crate::following::{Mark, Marks};
use crate::house::due::{Whose, Work, due};
use crate::house::keeper::Keeper;
use crate::house::kept::{Effect, kept_bytes};
use crate::house::out::{Out, Pen};
use crate::options::Options;
use crate::record::page::Cache;
use crate::record::{RESERVE_BYTES, changes};
use crate::state::replay::Replayed;
use crate::state::{FRAME_BYTES, Located, State};
use crate::stats::Stats;
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, lock};
use crate::words::NOTE_BYTES_MAX;

/// Where the log is near its bound, about so many bytes are moved for each that was appended.
const PAID_TIMES: u64 = 8;
/// A buffer that a large batch has made larger gives the rest back.
const BODY_BYTES_KEPT: usize = 64 << 10;

/// What the parts of an open log with streams share.
pub(crate) struct Shared {
    pub(crate) log: Log,
    pub(crate) reader: Reader,
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    pub(crate) cache: Mutex<Cache>,
    order: Mutex<Order>,
    /// Whether something is owed, for a look without the lock.
    pub(crate) owes: AtomicBool,
    /// Rung when the mover has work, or must end.
    pub(crate) bell: Condvar,
}

/// What changes with each record.
pub(crate) struct Order {
    pub(crate) state: State,
    pub(crate) keeper: Keeper,
    pub(crate) moving: Moving,
    pub(crate) marks: Marks,
    pub(crate) is_closing: bool,
    /// Why the mover has ended, if nobody asked for that.
    pub(crate) mover_ended: Option<Error>,
    /// What the mover has done, and why its last step failed. What the streams are now is added
    /// when somebody asks.
    pub(crate) moved: Stats,
    /// Why the last step of housekeeping failed; a lack of buffer space is no failure.
    pub(crate) not_kept: Option<Error>,
    /// How many bytes are to be moved by those who append.
    pub(crate) owed_bytes: u64,
    pen: Pen,
    body: Vec<u8>,
}

/// Moved records that are not durable at their new place: until they are, readers use the old one.
#[derive(Debug, Default)]
pub(crate) struct Moving {
    /// By the record that has them now.
    pub(crate) to: BTreeMap<Lsn, HashMap<(u64, u64), Lsn>>,
}

impl Moving {
    /// Forgets those whose new place is durable.
    pub(crate) fn forget(&mut self, durable: Lsn) {
        while self.to.first_entry().is_some_and(|first| *first.key() <= durable) {
            self.to.pop_first();
        }
    }

    /// Where to read a record that lies at `at`.
    pub(crate) fn source(&self, stream: u64, number: u64, at: Lsn) -> Lsn {
        let moved = self.to.get(&at).and_then(|from| from.get(&(stream, number)));
        moved.copied().unwrap_or(at)
    }
}

impl Shared {
    pub(crate) fn new(log: Log, path: PathBuf, options: Options, made: Replayed) -> Self {
        let keeper = Keeper::new(&made, &options);
        let order = Order {
            state: made.state,
            keeper,
            moving: Moving::default(),
            marks: Marks::default(),
            is_closing: false,
            mover_ended: None,
            moved: Stats::default(),
            not_kept: None,
            owed_bytes: 0,
            pen: Pen::new(&log, options.section_bytes),
            body: Vec::new(),
        };
        let cache = Mutex::new(Cache::new(options.cache_bytes));
        let (reader, order) = (log.reader(), Mutex::new(order));
        let (owes, bell) = (AtomicBool::new(false), Condvar::new());
        Self { log, reader, path, options, cache, order, owes, bell }
    }

    /// The lock of the writer, for a call of the user. Refused in a forked child, since a thread of
    /// the parent may have held the lock.
    pub(crate) fn order(&self) -> Result<MutexGuard<'_, Order>> {
        self.reader.check_process()?;
        Ok(self.order_here())
    }

    /// The same for an append.
    fn order_to_append(&self) -> Result<MutexGuard<'_, Order>> {
        let order = self.order()?;
        match &order.mover_ended {
            Some(ended) => Err(ended.clone()),
            None => Ok(order),
        }
    }

    /// As [`Shared::order`] where this is known to be the process that opened the streams.
    pub(crate) fn order_here(&self) -> MutexGuard<'_, Order> {
        lock(&self.order)
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.reader.check_process().is_err()
    }

    /// Appends a record of the changes that `encode` writes, if the log has room for it now;
    /// otherwise returns [`inkstone::Error::Busy`]. `then` runs under the same lock, with what
    /// `encode` returned.
    pub(crate) fn try_append<T>(
        &self,
        whose: Whose,
        effect: impl FnOnce(&State) -> Effect,
        encode: impl FnOnce(&State, &mut Vec<u8>) -> Result<T>,
        then: impl FnOnce(&mut Order, Lsn, &mut T),
    ) -> Result<(Append<'_>, T)> {
        let mut guard = self.order_to_append()?;
        let order = &mut *guard;
        let Order { state, keeper, pen, body, .. } = order;
        let kept_bytes = kept_bytes(state, &self.options, effect(state));
        body.clear();
        let mut what = encode(state, body)?;
        let replay_from = keeper.replay_from(state);
        let mut out = Out { log: &self.log, kept_bytes, pen };
        let (append, bytes) = out.write(state, body, replay_from)?;
        let woken = order.make(append.lsn());
        then(order, append.lsn(), &mut what);
        self.keep_house_after(order, bytes, whose);
        drop(guard);
        woken.into_iter().for_each(Waker::wake);
        Ok((append, what))
    }

    /// What follows each append: steps of housekeeping that are due, and work for the mover. Who
    /// moves owes nothing.
    fn keep_house_after(&self, order: &mut Order, bytes: u64, whose: Whose) {
        for _ in 0..order.keeper.steps_due(bytes + FRAME_BYTES) {
            let kept_bytes = kept_bytes(&order.state, &self.options, Effect::Any);
            let kept = self.keep_house(order, kept_bytes);
            let is_over = kept.is_err();
            if !matches!(kept, Err(inkstone::Error::Busy)) {
                order.not_kept = kept.err().map(Error::from);
            }
            if is_over {
                break;
            }
        }
        if self.options.is_alone {
            return;
        }
        if self.options.own_mover && order.work(&self.options, Whose::Mover).is_some() {
            self.bell.notify_one();
        }
        if order.work(&self.options, Whose::Appender).is_some() {
            if whose == Whose::Appender {
                order.owed_bytes += (bytes + FRAME_BYTES) * PAID_TIMES;
            }
            self.owes.store(order.owed_bytes > 0, Ordering::Relaxed);
        }
    }

    /// The work that is due now, with what is durable by now.
    pub(crate) fn work(&self, order: &mut Order, whose: Whose) -> Option<Work> {
        order.keeper.settle(&mut order.state, self.log.durable());
        order.work(&self.options, whose)
    }

    /// Makes all steps that are owed, and makes them durable. Stops where not even empty buffers
    /// have room for one.
    ///
    /// # Errors
    /// Those of the log; what is still owed comes with the next appends.
    pub(crate) fn keep_house_now(&self) -> Result<()> {
        let room_bytes = self.options.page_bytes() + NOTE_BYTES_MAX + RESERVE_BYTES;
        let mut busy_at = None;
        loop {
            let (next, kept_bytes, kept) = {
                let mut order = self.order()?;
                if order.keeper.steps_owed() == 0 {
                    break;
                }
                let kept_bytes = kept_bytes(&order.state, &self.options, Effect::Any);
                let kept = self.keep_house(&mut order, kept_bytes);
                (order.pen.next, kept_bytes, kept)
            };
            match kept {
                Err(inkstone::Error::Busy) if busy_at == Some(next) => break,
                Err(inkstone::Error::Busy) => {
                    busy_at = Some(next);
                    let bytes = room_bytes.min(self.options.log.largest_record_bytes());
                    self.log.make_room(bytes, kept_bytes)?;
                }
                kept => kept?,
            }
        }
        self.log.sync()?;
        Ok(())
    }

    /// On a full disk: a step of housekeeping, which uses what is kept if it frees the front.
    /// Whether it wrote.
    pub(crate) fn keep_house_at_the_end(&self) -> bool {
        let wrote = {
            let Ok(mut guard) = self.order() else { return false };
            let order = &mut *guard;
            if order.state.sections.front().is_none_or(|front| front.live_bytes > 0) {
                return false;
            }
            let before = order.pen.next;
            let _ = self.keep_house(order, 0);
            order.pen.next != before
        };
        wrote && self.log.sync().is_ok()
    }

    /// A step of housekeeping. If the log has no room for its record now, a later append makes the
    /// step. Any other error is kept for [`Stats`](crate::Stats).
    fn keep_house(&self, order: &mut Order, kept_bytes: u64) -> inkstone::Result<()> {
        let Order { state, keeper, pen, .. } = order;
        keeper.step(state, &mut Out { log: &self.log, kept_bytes, pen })
    }

    /// Waits until a record of so many bytes would find room beside what it leaves.
    ///
    /// # Errors
    /// Those of [`Log::append`].
    pub(crate) fn make_room(
        &self,
        bytes: usize,
        effect: impl FnOnce(&State) -> Effect,
    ) -> Result<()> {
        let kept_bytes = {
            let state = &self.order()?.state;
            kept_bytes(state, &self.options, effect(state))
        };
        Ok(self.log.make_room(bytes, kept_bytes)?)
    }

    /// Waits for a record that is not appended yet: ready when it may be there, when this cursor's
    /// mark has a cut, or when no more records will come.
    pub(crate) fn follow<'a>(&'a self, stream: u64, number: u64, mark: &'a Mark) -> Following<'a> {
        // No record gets this LSN, so this is ready only when the log ends.
        let end = self.log.durable_at(Lsn::new(u64::MAX));
        Following { shared: self, stream, number, mark, end }
    }

    /// Where to read a record: at its place, or the page of a directory that has its place.
    pub(crate) fn locate(&self, stream: u64, number: u64) -> Result<Located> {
        let order = self.order()?;
        Ok(match order.state.locate(stream, number)? {
            // Asks the log, since another thread may have freed the old place by now.
            Located::Record(lsn) if lsn > self.log.durable() => {
                Located::Record(order.moving.source(stream, number, lsn))
            }
            Located::Record(lsn) => Located::Record(lsn),
            page @ Located::Page { .. } => page,
        })
    }
}

impl Order {
    /// The work that is due.
    fn work(&self, options: &Options, whose: Whose) -> Option<Work> {
        let replay_from = self.keeper.replay_from(&self.state);
        let table_bytes = self.keeper.table_bytes(&self.state);
        due(&self.state, (replay_from, table_bytes), options, whose)
    }

    /// Makes the changes of a record that was appended; returns the wakers of its followers.
    fn make(&mut self, lsn: Lsn) -> Vec<Waker> {
        let Self { state, marks, body, .. } = self;
        let mut woken = Vec::new();
        for change in changes(body) {
            let change = change.expect("it was just encoded");
            state.apply(&change, lsn).expect("it was checked before it was appended");
            marks.note(&change, state, lsn, &mut woken);
        }
        body.shrink_to(BODY_BYTES_KEPT);
        woken
    }
}

/// A future that waits for the next record of a stream. Dropping it removes its waker.
pub(crate) struct Following<'a> {
    shared: &'a Shared,
    stream: u64,
    number: u64,
    mark: &'a Mark,
    end: DurableAt,
}

impl Future for Following<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { shared, stream, number, mark, end } = &mut *self;
        // Polled before the look at the stream, so that every record before the end is returned.
        let end = Pin::new(end).poll(context);
        // Cloning a waker and dropping the clone run user code: both happen without the lock.
        let waker = context.waker().clone();
        let order = shared.order()?;
        let is_there = order.state.bounds(*stream).map(|bounds| *number < bounds.next);
        if mark.is_cut() || is_there? {
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(ended) = end {
            return Poll::Ready(ended.map_err(Error::from));
        }
        let replaced = mark.replace_waker(Some(waker));
        drop(order);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Following<'_> {
    fn drop(&mut self) {
        // In a forked child a thread of the parent may have had the lock.
        if !self.shared.is_forked() {
            drop(self.mark.replace_waker(None));
        }
    }
}
