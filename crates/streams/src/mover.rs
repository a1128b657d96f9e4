//! Moves the live records of the oldest section to the end of the log, so that an idle stream keeps
//! no old segments on the disk.
//!
//! *Owns*: the steps of a move, and freeing the front of the log. *May not touch*: when that is due
//! (`due.rs`), how a record is appended (`writer.rs`).
//!
//! A moved record is appended like any other. The index names its new place at once, and readers
//! use the old place until the new one is durable. The front of the log is freed only once every
//! record that makes it dead is durable.

use std::collections::HashMap;

use inkstone::Lsn;

use crate::due::Work;
use crate::error::{Error, Result};
use crate::page::Page;
use crate::record::Change;
use crate::replay::Of;
use crate::source::read_page;
use crate::state::{State, cost};
use crate::sync::wait;
use crate::writer::{Order, Shared, find_record};

/// About how many bytes one append moves. Other waiters of the same flush wait for these bytes,
/// too.
const MOVE_BYTES: usize = 32 << 10;

/// The thread of the mover.
pub(crate) fn run(shared: &Shared) {
    loop {
        let mut order = shared.order_here();
        loop {
            if order.is_closing {
                return;
            }
            let durable = shared.log.durable();
            let order_now = &mut *order;
            order_now.keeper.settle(&mut order_now.state, durable);
            if order.work(&shared.options).is_some() {
                break;
            }
            order = wait(&shared.bell, order);
        }
        drop(order);
        if move_some(shared).is_err() {
            // The next change rings again, for another try.
            let order = shared.order_here();
            if order.is_closing || shared.reader.end_of_log().is_some() {
                return;
            }
            drop(wait(&shared.bell, order));
        }
    }
}

/// One step: frees the front of the log, or empties the oldest section. False if there is nothing
/// to do. [`Stats`](crate::Stats) has the error of the last step.
pub(crate) fn move_some(shared: &Shared) -> Result<bool> {
    let moved = step(shared);
    shared.order()?.not_moved = moved.as_ref().err().cloned();
    moved
}

fn step(shared: &Shared) -> Result<bool> {
    let work = {
        let mut order = shared.order()?;
        let order = &mut *order;
        order.keeper.settle(&mut order.state, shared.log.durable());
        order.work(&shared.options)
    };
    match work {
        None => return Ok(false),
        Some(Work::GiveBack(front)) => free(shared, front)?,
        Some(Work::Empty(section)) => match empty(shared, section) {
            // Another thread has emptied it and freed it meanwhile.
            Err(Error::Log(inkstone::Error::TruncatedBefore { .. })) => {}
            other => other?,
        },
    }
    Ok(true)
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
    let work = {
        let mut order = shared.order()?;
        let order = &mut *order;
        order.keeper.settle(&mut order.state, shared.log.durable());
        order.work(&shared.options)
    };
    match work {
        Some(Work::GiveBack(front)) => free(shared, front),
        Some(Work::Empty(_)) | None => Ok(()),
    }
}

/// Moves all live records of a section.
fn empty(shared: &Shared, section: u32) -> Result<()> {
    let (first, written) = {
        let order = shared.order_here();
        let Some(found) = order.state.sections.get(section) else { return Ok(()) };
        (found.first, found.directory.written())
    };
    for page in &written.pages {
        let page = read_page(&shared.reader, Of(&shared.path), page.lsn, section)?;
        let mut places = living(shared, section, first, &page);
        while !places.is_empty() {
            let rest = move_records(shared, section, &places)?;
            places.drain(..places.len() - rest);
            if shared.order_here().is_closing {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The live records that a page names, in the order of the log.
fn living(shared: &Shared, section: u32, first: Lsn, page: &Page) -> Vec<(Lsn, u64, u64)> {
    let mut places = Vec::new();
    for (stream, number, offsets) in page.rows() {
        let order = shared.order_here();
        // The other way round, a number is taken behind the last one.
        for (offset, number) in offsets.iter().zip(number..) {
            if order.state.lives_in(section, stream, number)
                && let Some(lsn) = first.plus(u64::from(*offset))
            {
                places.push((lsn, stream, number));
            }
        }
    }
    places.sort_unstable();
    places
}

/// Moves the first few of these records; returns how many are left.
fn move_records(shared: &Shared, section: u32, places: &[(Lsn, u64, u64)]) -> Result<usize> {
    let of = Of(&shared.path);
    let mut records: Vec<(Lsn, u64, u64, Vec<u8>)> = Vec::new();
    let (mut bytes, mut read): (usize, Option<(Lsn, Vec<u8>)>) = (0, None);
    for (lsn, stream, number) in places.iter().copied() {
        if bytes >= MOVE_BYTES {
            break;
        }
        if read.as_ref().is_none_or(|(at, _)| *at != lsn) {
            read = Some((lsn, shared.reader.get(lsn)?));
        }
        let Some((_, record)) = &read else { break };
        let range = find_record(record, lsn, stream, number)
            .map_err(|flaw| of.flaw(lsn, flaw))?
            .ok_or_else(|| {
                of.contradiction(lsn, format!("record {number} of stream {stream} is not there"))
            })?;
        let size = range.len() + 64;
        let limit_bytes = shared.options.log.largest_record_bytes();
        if !records.is_empty() && bytes + size + crate::record::RESERVE_BYTES > limit_bytes {
            break;
        }
        bytes += size;
        records.push((lsn, stream, number, record[range].to_vec()));
    }
    append_moved(shared, section, &records)?;
    Ok(places.len() - records.len())
}

/// Appends the records that are still live in the section, and waits until they are durable.
fn append_moved(shared: &Shared, section: u32, records: &[(Lsn, u64, u64, Vec<u8>)]) -> Result<()> {
    let encode = |state: &State, out: &mut Vec<u8>| {
        let mut from = HashMap::new();
        let mut moved_bytes = 0;
        for (lsn, stream, number, bytes) in records {
            let (stream, number) = (*stream, *number);
            if state.lives_in(section, stream, number) {
                Change::Moved { stream, number, source: section, bytes }.put(out);
                from.insert((stream, number), *lsn);
                moved_bytes += u64::from(cost(bytes.len()));
            }
        }
        if from.is_empty() { Err(Error::Empty) } else { Ok((from, moved_bytes)) }
    };
    let then = |order: &mut Order, to: Lsn, (from, bytes): &mut (HashMap<_, _>, u64)| {
        order.moved_records += from.len() as u64;
        order.moved_bytes += *bytes;
        order.moving.to.insert(to, std::mem::take(from));
    };
    let appended = match shared.append(encode, then) {
        Err(Error::Empty) => return Ok(()),
        other => other?,
    };
    let to = appended.append.lsn();
    appended.append.wait()?;
    shared.order_here().moving.to.remove(&to);
    Ok(())
}
