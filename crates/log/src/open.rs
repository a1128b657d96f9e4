//! From what recovery found to a log that can be appended to.
//!
//! *Owns*: the first steps of an opening for writing: a new log's first segment, the epoch group, tidying up.
//! *May not touch*: what recovery decides (`recover.rs`).
//!
//! The first group of an opening says its epoch and what was recovered. It is durable before anything else is written,
//! so that frames which a crash left behind a hole can never come back.

use std::sync::Arc;

use inkstone_format::limits::{BLOCK_BYTES, HEADER_BYTES};
use inkstone_format::{Control, Epoch, LogId, Lsn, Position, Roll, SegmentHeader, Verdict};
use inkstone_io::{Directory, Durability};

use crate::error::{Error, Result};
use crate::filling::{Filling, memory_for};
use crate::mistake::Mistake;
use crate::options::Options;
use crate::pool::{ObtainError, Pool, open_for_groups};
use crate::recover::{Found, Listing, past_the_cache, recover};
use crate::recovery::Recovery;
use crate::segment::{Link, Segment, Segments, identity};
use crate::shared::Shared;
use crate::state::State;
use crate::strategy::tuned::Stored;
use crate::strategy::{Choice, choose};
use crate::sync::lock;
use crate::window::Window;
use crate::writer::Writer;

/// Finds or creates the log, and begins the epoch of this opening.
pub(crate) fn open_shared<D: Directory>(
    directory: Arc<D>,
    options: Options,
) -> Result<(Shared<D>, Recovery, Choice)> {
    let found = directory.capabilities()?;
    let choice = choose(&options, found.as_ref(), Stored::of(&*directory, found.as_ref()))?;
    let options = options.settled(&choice);
    let listing = Listing::of(&*directory)?;
    let found = recover(&*directory, &options, &listing)?;
    if found.is_none() && !options.create {
        return Err(Error::NoLog { path: directory.path().to_path_buf() });
    }
    // Names that a killed writer made are relied on from here on.
    directory.sync()?;
    let live_bytes =
        found.iter().flat_map(|found| &found.links).map(|link| link.segment.header.segment_bytes).sum();
    let pool = Pool::new(Arc::clone(&directory), &listing, live_bytes);
    let previous = found.as_ref().map(|found| found.epoch);
    let (shared, mut recovery) = match found {
        Some(found) => go_on(directory, options, pool, found)?,
        None => begin(directory, options, pool)?,
    };
    let mut state = shared.lock();
    let epoch = Control::Epoch { previous, recovered: state.durable };
    recovery.epoch = Some(state.epoch);
    state.epoch_due = Some(epoch);
    let (state, turn) = shared.take_turn(state)?;
    let is_new = previous != Some(state.epoch);
    let (mut state, result) = if is_new { shared.control(state, &epoch) } else { (state, Ok(())) };
    state.epoch_due = None;
    drop(shared.end_turn(state, turn));
    result?;
    {
        // The names and sizes that the opening synced were asked for with its first group. What comes now goes by the blocks.
        let mut writer = lock(&shared.writer);
        writer.asks = shared.options.asks.groups_in(&*writer.file);
    }
    recovery.leftovers = tidy(&shared, &listing);
    if !shared.prepares_ahead() {
        shared.pool.remove_all();
    }
    Ok((shared, recovery, choice))
}

/// Goes on at the end that was found.
fn go_on<D: Directory>(
    directory: Arc<D>,
    options: Options,
    pool: Pool<D>,
    found: Found<D::File>,
) -> Result<(Shared<D>, Recovery)> {
    let recovery = report(&found);
    let head = found.links.last().ok_or(Error::UsedUp)?.segment.clone();
    let header = head.header;
    let tail = found.tail;
    let raised = if options.makes(Mistake::EpochNotRaised) { Some(found.epoch) } else { found.epoch.next() };
    let epoch = raised.ok_or(Error::UsedUp)?;
    // The block in which the log ends is written again with the next group.
    let mut window =
        Window::new(Arc::new(past_the_cache(&*directory, &options, header.number)?), BLOCK_BYTES);
    window.load(tail.end - tail.end % BLOCK_BYTES as u64, BLOCK_BYTES)?;
    let block = if options.makes(Mistake::TailNotRead) { &[0; BLOCK_BYTES] } else { window.bytes() };
    let memory = memory_for(options.buffer_bytes);
    let coded = identity(&header, &options);
    let filling = Filling::begin(memory, coded, tail.end, epoch, tail.next_lsn, block);
    let how = open_for_groups(&options);
    let how = if options.makes(Mistake::FlagForgotten) { how.durability(Durability::None) } else { how };
    let file = head.file(&*directory, &how)?;
    let writer = Writer::new(&*directory, file, &options)?;
    let segments = Segments { links: found.links, first_live: tail.first_live, obsolete: Vec::new() };
    let state = State::new(filling, recovery.last, epoch, &options);
    Ok((Shared::new(directory, options, state, writer, segments, pool), recovery))
}

/// What recovery found, in the words of the public report.
pub(crate) fn report<F>(found: &Found<F>) -> Recovery {
    let tail = &found.tail;
    Recovery {
        created: false,
        clean: tail.closed && found.verdict == Verdict::End,
        verdict: found.verdict,
        row: found.row,
        end: found.links.last().map(|link| Position { segment: link.segment.header.number, byte: tail.end }),
        first: tail.first_live,
        last: tail.next_lsn.before().unwrap_or(Lsn::ZERO),
        epoch: Some(found.epoch),
        segments: found.links.len(),
        bytes_read: found.bytes_read,
        leftovers: 0,
    }
}

/// Begins a new log: a segment, its header, nothing more.
fn begin<D: Directory>(directory: Arc<D>, options: Options, pool: Pool<D>) -> Result<(Shared<D>, Recovery)> {
    let log = LogId::new(directory.random_bytes()?);
    let first = options.begin_at;
    let last = first.before().unwrap_or(Lsn::ZERO);
    let bytes = options.next_segment_bytes(0, 0);
    let ready = pool.obtain(bytes, &options, false).map_err(ObtainError::into_error)?;
    let (number, file) = (ready.number, ready.file);
    let header = SegmentHeader {
        version: options.version,
        log,
        number,
        segment_bytes: bytes,
        first_lsn: first,
        first_live: first,
        epoch: Epoch::FIRST,
        promise: last,
        predecessor: None,
        roll: Roll::Begin,
    };
    let mut writer = Writer::new(&*directory, Arc::clone(&file), &options)?;
    writer.header(&file, &header)?;
    let segment = Arc::new(Segment::new(header));
    segment.adopt(&file);
    let coded = identity(&header, &options);
    let memory = memory_for(options.buffer_bytes);
    let filling = Filling::begin(memory, coded, HEADER_BYTES as u64, Epoch::FIRST, first, &[]);
    let links = vec![Link { segment, end: None }];
    let segments = Segments { links, first_live: first, obsolete: Vec::new() };
    let state = State::new(filling, last, Epoch::FIRST, &options);
    let recovery = Recovery {
        created: true,
        clean: true,
        verdict: Verdict::End,
        row: "H7",
        end: Some(Position { segment: number, byte: HEADER_BYTES as u64 }),
        first,
        last,
        epoch: Some(Epoch::FIRST),
        segments: 1,
        bytes_read: 0,
        leftovers: 0,
    };
    Ok((Shared::new(directory, options, state, writer, segments, pool), recovery))
}

/// Takes away, or keeps for their blocks, the files that are not part of the log. What cannot be taken away now is found
/// again by the next opening.
fn tidy<D: Directory>(shared: &Shared<D>, listing: &Listing) -> usize {
    let live: Vec<_> = lock(&shared.segments).links.iter().map(|link| link.segment.number()).collect();
    shared.pool.tidy(listing, &live, &shared.options)
}
