//! Moves the live records of the oldest section to the end of the log, so that an idle stream keeps
//! no old segments on the disk.
//!
//! *Owns*: the steps of a move, and freeing the front of the log. *May not touch*: when that is due
//! (`house/due.rs`), which records live in a section (`mover/pass.rs`), how one is appended
//! (`writer.rs`).
//!
//! A moved record is appended like any other. The index names its new place at once, and readers
//! use the old place until the new one is durable. The front of the log is freed only once every
//! record that makes it dead is durable.

mod pass;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use inkstone::{Append, Lsn};

use crate::error::{Error, Result};
use crate::house::due::{Whose, Work};
use crate::house::kept::{Effect, kept_bytes};
use crate::mover::pass::{Pass, Read};
use crate::record::{Change, RESERVE_BYTES};
use crate::state::replay::Of;
use crate::state::{FRAME_BYTES, State, cost};
use crate::sync::{Mutex, Ordering, lock, wait};
use crate::writer::{Order, Shared};

/// About how many bytes one append moves. Other waiters of the same flush wait for these bytes,
/// too.
const MOVE_BYTES: usize = 32 << 10;

/// Moves records of one log. One thread at a time reads them.
pub(crate) struct Mover {
    shared: Arc<Shared>,
    /// Taken before the lock of the order. Nothing waits for the log under it.
    pass: Mutex<Pass>,
}

/// Frees the front of the log up to this record, before which nothing lives.
pub(crate) fn free(shared: &Shared, front: Lsn) -> Result<()> {
    // The log first makes earlier appends durable: those that make the front dead, and those that
    // say where an opening begins.
    shared.log.truncate_before(front)?;
    shared.order_here().state.sections.forget_before(front);
    Ok(())
}

/// Frees the front of the log as far as nothing there lives, and moves nothing.
pub(crate) fn give_back(shared: &Shared) -> Result<()> {
    let work = shared.work(&mut *shared.order()?, Whose::Mover);
    match work {
        Some(Work::GiveBack(front)) => free(shared, front),
        Some(Work::Empty(_)) | None => Ok(()),
    }
}

/// What one call has moved.
enum Moved<'log> {
    Appended(Append<'log>),
    /// The log has no room for a record of so many bytes now.
    LacksRoom(usize),
    /// Nothing lives in the section any more.
    All,
}

impl Mover {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), pass: Mutex::default() }
    }

    /// The thread of the mover. Its end, if nobody asked for that, is an error of the next change.
    pub(crate) fn run(&self) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run_to_end())) else { return };
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let why = text.unwrap_or("a panic").to_owned();
        let path = self.shared.path.clone();
        self.shared.order_here().mover_ended = Some(Error::MoverEnded { path, why });
        // What it carries is the user's: to drop it may panic again.
        std::mem::forget(panic);
    }

    fn run_to_end(&self) {
        let shared = &*self.shared;
        loop {
            let mut order = shared.order_here();
            loop {
                if order.is_closing {
                    return;
                }
                if shared.work(&mut order, Whose::Mover).is_some() {
                    break;
                }
                order = wait(&shared.bell, order);
            }
            drop(order);
            if self.move_some().is_err() {
                // The next change rings again, for another try.
                let order = shared.order_here();
                if order.is_closing || shared.reader.end_of_log().is_some() {
                    return;
                }
                drop(wait(&shared.bell, order));
            }
        }
    }

    /// One step: frees the front of the log, or moves some records. False if there is nothing to
    /// do. [`Stats`](crate::Stats) has the error of the last step.
    pub(crate) fn move_some(&self) -> Result<bool> {
        let moved = self.step();
        self.shared.order()?.moved.not_moved = moved.as_ref().err().cloned();
        moved
    }

    fn step(&self) -> Result<bool> {
        let work = self.shared.work(&mut *self.shared.order()?, Whose::Mover);
        let Some(work) = work else { return Ok(false) };
        if let Some(append) = self.do_some(work, Whose::Mover)? {
            append.wait()?;
        }
        Ok(true)
    }

    /// Frees the front of the log, or moves a few records, whose append this returns. On a full
    /// disk the mover's use what is kept, if all of their section leave as much there as they take.
    fn do_some(&self, work: Work, whose: Whose) -> Result<Option<Append<'_>>> {
        let section = match work {
            Work::GiveBack(front) => return free(&self.shared, front).map(|()| None),
            Work::Empty(section) => section,
        };
        let mut effect = Effect::Any;
        loop {
            match self.move_few(section, effect) {
                Ok(Moved::Appended(append)) => return Ok(Some(append)),
                Ok(Moved::All) => return Ok(None),
                Ok(Moved::LacksRoom(bytes)) => {
                    let may_go = || whose == Whose::Mover && self.fits_at_the_end(section);
                    match self.shared.make_room(bytes, |_| effect) {
                        Err(error) if error.is_no_room() && effect == Effect::Any && may_go() => {
                            effect = Effect::Empties(0);
                        }
                        made => made?,
                    }
                }
                // Another thread has emptied it and freed it meanwhile.
                Err(Error::Log(inkstone::Error::TruncatedBefore { .. })) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// For a change that found no room: moves records until the front of the log is freed; false if
    /// nothing can be, or another does that.
    pub(crate) fn frees(&self) -> bool {
        if self.shared.options.is_alone {
            return false;
        }
        let first = self.shared.log.first();
        while self.shared.log.first() == first {
            if !matches!(self.move_some(), Ok(true)) && !self.shared.keep_house_at_the_end() {
                return false;
            }
        }
        true
    }

    /// Before an append to a log near its bound: moves what is owed for those before it. The caller
    /// holds no lock. If this fails, [`Stats`](crate::Stats) has the error.
    #[inline]
    pub(crate) fn pay(&self) {
        if self.shared.owes.load(Ordering::Relaxed)
            && let Err(error) = self.pay_all()
            && let Ok(mut order) = self.shared.order()
        {
            (order.moved.not_moved, order.owed_bytes) = (Some(error), 0);
        }
    }

    fn pay_all(&self) -> Result<()> {
        let shared = &*self.shared;
        loop {
            let work = {
                let mut order = shared.order()?;
                let work = shared.work(&mut order, Whose::Appender);
                if work.is_none() {
                    order.owed_bytes = 0;
                }
                shared.owes.store(order.owed_bytes > 0, Ordering::Relaxed);
                work.filter(|_| order.owed_bytes > 0)
            };
            match work {
                None => return Ok(()),
                Some(work) => drop(self.do_some(work, Whose::Appender)?),
            }
        }
    }

    fn fits_at_the_end(&self, section: u32) -> bool {
        let (live_bytes, kept_bytes) = {
            let Order { state, .. } = &*self.shared.order_here();
            let live_bytes = state.sections.get(section).map_or(0, |section| section.live_bytes);
            (live_bytes, kept_bytes(state, &self.shared.options, Effect::Empties(0)))
        };
        2 * (live_bytes + FRAME_BYTES) + kept_bytes <= self.shared.log.bytes_to_the_end()
    }

    /// Moves the next few records of a section. Waits for no record to be durable.
    fn move_few(&self, section: u32, effect: Effect) -> Result<Moved<'_>> {
        let shared = &*self.shared;
        let mut pass = lock(&self.pass);
        loop {
            let few = match pass.next_few(shared, section, MOVE_BYTES) {
                Ok(few) => few,
                Err(error) => {
                    *pass = Pass::default();
                    return Err(error);
                }
            };
            if few.is_empty() {
                return is_empty(shared, section).map(|()| Moved::All);
            }
            let (count, bytes) = (few.len(), few.iter().map(Read::moved_bytes).sum::<usize>());
            match append_moved(shared, section, few, effect) {
                Err(Error::Log(inkstone::Error::Busy | inkstone::Error::NoRoom { .. })) => {
                    return Ok(Moved::LacksRoom(bytes + RESERVE_BYTES));
                }
                appended => {
                    let appended = appended?;
                    pass.moved(count);
                    if let Some(append) = appended {
                        return Ok(Moved::Appended(append));
                    }
                }
            }
        }
    }
}

/// Nothing of a section may live once all that its directory names was moved.
fn is_empty(shared: &Shared, section: u32) -> Result<()> {
    let order = shared.order_here();
    let Some(found) = order.state.sections.get(section) else { return Ok(()) };
    if found.live_bytes == 0 {
        return Ok(());
    }
    let why = format!("the directory of section {section} lacks records that live");
    Err(Of(&shared.path).contradiction(found.first, why))
}

/// Appends those of the records that still live in the section; `None` if none does.
fn append_moved<'log>(
    shared: &'log Shared,
    section: u32,
    records: &[Read],
    effect: Effect,
) -> Result<Option<Append<'log>>> {
    let durable = shared.log.durable();
    let encode = |state: &State, out: &mut Vec<u8>| {
        let (mut from, mut moved_bytes, mut lost) = (HashMap::new(), 0, 0);
        for Read { lsn, stream, number, bytes } in records {
            let (stream, number) = (*stream, *number);
            if !state.lives_in(section, stream, number) {
                continue;
            }
            match bytes {
                Some(bytes) => {
                    Change::Moved { stream, number, source: section, bytes }.put(out);
                    from.insert((stream, number), *lsn);
                    moved_bytes += u64::from(cost(bytes.len()));
                }
                None => {
                    Change::Lost { stream, number, source: section }.put(out);
                    lost += 1;
                }
            }
        }
        if out.is_empty() { Err(Error::Empty) } else { Ok((from, moved_bytes, lost)) }
    };
    let then = |order: &mut Order, to: Lsn, (from, bytes, lost): &mut (HashMap<_, _>, u64, u64)| {
        order.moved.moved_records += from.len() as u64;
        order.moved.moved_bytes += *bytes;
        order.moved.lost_records += *lost;
        order.owed_bytes = order.owed_bytes.saturating_sub(*bytes);
        order.moving.forget(durable);
        order.moving.to.insert(to, std::mem::take(from));
    };
    match shared.try_append(Whose::Mover, |_| effect, encode, then) {
        Err(Error::Empty) => Ok(None),
        appended => appended.map(|(append, _)| Some(append)),
    }
}
