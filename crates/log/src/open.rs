//! Opens a log for writing, from what recovery found.
//!
//! *Owns*: the first steps of an opening for writing: the first segment of a new log, the epoch
//! group, tidying up. *May not touch*: what recovery decides (`recovery/recover.rs`).
//!
//! The first group of an opening holds its epoch and the recovered end. It is durable before
//! any other group is written, so frames that a crash left after a hole can never come back.

use std::sync::Arc;

use inkstone_format::limits::{BLOCK_BYTES, HEADER_BYTES};
use inkstone_format::{
    Control, Epoch, LogId, LogKind, Lsn, NewPlaces, Position, Roll, SegmentHeader, SegmentNumber,
    Verdict,
};
use inkstone_io::{Access, AlignedBuf, AnyDirectory, Durability, File, Preparation};

use crate::choice::Choice;
use crate::commit::open_group::{OpenGroup, memory_for};
use crate::commit::room::refused;
use crate::commit::shared::Shared;
use crate::commit::state::State;
use crate::commit::writer::Writer;
use crate::error::{Error, Result, is_full};
use crate::event::Event;
use crate::names;
use crate::options::Options;
use crate::recovery::headers::past_the_cache;
use crate::recovery::recover::{Recovered, recover, report};
use crate::report::Recovery;
use crate::segment::listing::Listing;
use crate::segment::pool::{ObtainError, Pool, check_limit, open_for_groups};
use crate::segment::{Link, Segment, Segments};
use crate::strategy::choose;
use crate::sync::lock;
use crate::walk::window::Window;

/// Finds or creates the log, and begins the epoch of this opening.
pub(crate) fn open_shared(
    directory: AnyDirectory,
    options: Options,
) -> Result<(Shared, Recovery, Choice)> {
    let options = options.kind_by_rule(LogKind::PLAIN);
    let capabilities = directory.capabilities()?;
    let mut choice = choose(&options, capabilities.as_ref())?;
    let mut options = options.settled(&choice);
    options.keeps_room = directory.overwrites_need_room(capabilities.as_ref());
    let listing =
        if options.is_a_copy { Listing::of_any(&directory)? } else { Listing::of(&directory)? };
    let found = recover(&directory, &options, &listing)?;
    if found.is_none() && !options.create {
        return Err(Error::NoLog { path: directory.path().to_path_buf(), missing: None });
    }
    // From here on the log relies on names that a killed writer may have made.
    directory.sync()?;
    let (shared, mut recovery) = match found {
        Some(found) => go_on(directory, options, &mut choice, &listing, found)?,
        None => create(directory, options, &mut choice, &listing)?,
    };
    let mut has_begun = begin(&shared, &listing, &mut choice)?;
    let live = lock(&shared.segments).numbers();
    recovery.leftovers = shared.pool.tidy(&listing, &live, &shared.options);
    // What was left over may have taken the room.
    while !has_begun && shared.give_up_some() {
        has_begun = begin(&shared, &listing, &mut choice)?;
    }
    // Then the epoch group is held back. All that is shown was on the medium before
    // (`commit/room.rs`).
    recovery.waits_for_room = !has_begun;
    if has_begun {
        {
            // The first group has asked about the names and sizes that the opening synced. From now
            // on the blocks decide.
            let mut writer = lock(&shared.writer);
            writer.asks = shared.options.asks.groups_in(&*writer.file);
            writer.is_careful = shared.options.keeps_room;
        }
        if !shared.prepares_ahead() {
            shared.pool.remove_all().map_err(ObtainError::into_error)?;
        }
        shared.keep_room()?;
    }
    Ok((shared, recovery, choice))
}

/// Makes the epoch group durable, after the marks of the last cut if a crash has left them out;
/// false if there is no room for it. What these first writes have shown about the way of writing is
/// said with the choice.
fn begin(shared: &Shared, listing: &Listing, choice: &mut Choice) -> Result<bool> {
    let began = shared.in_turn(shared.lock(), |turn| {
        let began = turn.leave_missing_marks(listing).and_then(|()| turn.begin_epoch());
        for event in std::mem::take(&mut turn.events) {
            match event {
                // There is no log yet that could be poisoned: the opening has an error.
                _ if began.is_err() => {}
                Event::Fallback { what } => choice.warnings.push(what),
                event => turn.events.push(event),
            }
        }
        began
    });
    match began {
        Err(Error::NoRoom { .. }) => Ok(false),
        began => began.map(|_| true),
    }
}

/// Opens the head as groups are written into it. Whether O_DIRECT works is shown by its use alone:
/// by a read of the header's block, since a write may find no room. Where it is refused, the log
/// writes through the page cache.
fn open_head(
    directory: &AnyDirectory,
    number: SegmentNumber,
    options: &mut Options,
    choice: &mut Choice,
) -> Result<Arc<dyn File>> {
    let name = names::segment(number);
    let file = directory.open(&name, &open_for_groups(options));
    if options.access_chosen() != Access::Direct {
        return Ok(file?);
    }
    let mut block = AlignedBuf::zeroed(HEADER_BYTES);
    match file.and_then(|file| file.read_at(&mut block, 0).map(|_| file)) {
        Err(error) if error.is_not_here() => {
            without_direct(choice, &error);
            *options = options.clone().settled(choice);
            Ok(directory.open(&name, &open_for_groups(options))?)
        }
        file => Ok(file?),
    }
}

/// The same way through the page cache.
fn without_direct(choice: &mut Choice, error: &inkstone_io::Error) {
    choice.warnings.push(format!(
        "O_DIRECT is refused here, so the log writes through the page cache ({error})"
    ));
    let strategy = &mut choice.strategy;
    strategy.access = Access::Buffered;
    if strategy.durability == Durability::RwfDsync {
        strategy.durability = Durability::Fdatasync;
    }
    choice.trial = None;
}

/// Continues at the recovered end.
fn go_on(
    directory: AnyDirectory,
    mut options: Options,
    choice: &mut Choice,
    listing: &Listing,
    found: Recovered,
) -> Result<(Shared, Recovery)> {
    let mut recovery = report(&found);
    let live_bytes = found.links.iter().map(|link| link.segment.header.segment_bytes).sum();
    let pool = Pool::new(directory.clone(), listing, live_bytes);
    let head = found.links.last().ok_or(Error::UsedUp)?.segment.clone();
    let header = head.header;
    let tail = found.tail;
    let epoch = found.epoch.next().ok_or(Error::UsedUp)?;
    check_limit(&directory, header.segment_bytes)?;
    // The next group rewrites the block in which the log ends.
    let mut window = Window::new(past_the_cache(&directory, header.number)?, BLOCK_BYTES);
    window.load(tail.end - tail.end % BLOCK_BYTES as u64, BLOCK_BYTES)?;
    let memory = memory_for(options.buffer_bytes);
    let open_group = OpenGroup::begin(
        memory,
        header,
        tail.end,
        epoch,
        tail.next_lsn,
        window.bytes(),
        head.new_places(),
    );
    let file = open_head(&directory, header.number, &mut options, choice)?;
    head.adopt(&file);
    let notice = fill_holes(&*file, header.segment_bytes)?;
    let mut writer = Writer::new(&directory, file, &options);
    writer.notice = notice;
    let (links, cuts) = (found.links, found.cuts);
    let mut state = State::new(open_group, &cuts, recovery.last, epoch, &options);
    if epoch != found.epoch {
        let previous = Some(found.epoch);
        state.set_epoch_due(Some(Control::Epoch { previous, recovered: recovery.last }));
    }
    recovery.epoch = Some(epoch);
    let segments = Segments { links, cuts, first_live: tail.first_live, obsolete: Vec::new() };
    Ok((Shared::new(directory, options, state, writer, segments, pool), recovery))
}

/// Reserves the blocks that a sparse copy left out, while there is room: a control group that finds
/// none on a full disk could not be written. Returns why that was not possible.
fn fill_holes(file: &dyn File, bytes: u64) -> Result<Option<String>> {
    if !file.facts()?.has_holes {
        return Ok(None);
    }
    match file.prepare(Preparation::Fallocate, bytes) {
        Ok(()) => Ok(None),
        Err(error) if is_full(&error) || error.is_not_here() => Ok(Some(format!(
            "the newest segment has holes, as a sparse copy leaves them, and they could not be \
             filled ({}): when the disk is full, the log may not be truncated",
            error.without_advice()
        ))),
        Err(error) => Err(error.into()),
    }
}

/// Begins a new log: a segment and its header.
fn create(
    directory: AnyDirectory,
    mut options: Options,
    choice: &mut Choice,
    listing: &Listing,
) -> Result<(Shared, Recovery)> {
    let pool = Pool::new(directory.clone(), listing, 0);
    let log = LogId::new(directory.random_bytes()?);
    let first = options.begin_at;
    // Each cut has begun an epoch.
    let epoch = Epoch::new(options.cuts.count() + 1).ok_or(Error::UsedUp)?;
    let last = first.before().unwrap_or(Lsn::ZERO);
    let bytes = options.next_segment_bytes(0, 0);
    let ready = pool.fitted(bytes, 0, &options, |bytes| pool.obtain(bytes, &options, false));
    let ready = ready.map_err(ObtainError::into_error)?;
    let (bytes, number) = (ready.bytes(), ready.number);
    let file = open_head(&directory, number, &mut options, choice)?;
    let header = SegmentHeader {
        log,
        number,
        segment_bytes: bytes,
        first_lsn: first,
        first_live: first,
        epoch,
        promise: last,
        predecessor: None,
        roll: Roll::Begin,
        kind: options.kind.unwrap_or(LogKind::PLAIN),
        owner: options.owner,
        cuts: options.cuts.count(),
        lost_to: options.lost_to,
    };
    let mut writer = Writer::new(&directory, Arc::clone(&file), &options);
    writer.header(&file, &header, &options.cuts).result.map_err(|failed| {
        match failed.into_error() {
            error if error.is_for_room() => refused(HEADER_BYTES as u64, error),
            error => error,
        }
    })?;
    let segment = Arc::new(Segment::new(header));
    segment.adopt(&file);
    let memory = memory_for(options.buffer_bytes);
    let open_group = OpenGroup::begin(
        memory,
        header,
        HEADER_BYTES as u64,
        epoch,
        first,
        &[],
        NewPlaces::default(),
    );
    let links = vec![Link { segment, end: None }];
    let mut state = State::new(open_group, &options.cuts, last, epoch, &options);
    state.set_epoch_due(Some(Control::Epoch { previous: None, recovered: last }));
    let segments = Segments { links, cuts: options.cuts, first_live: first, obsolete: Vec::new() };
    let recovery = Recovery {
        created: true,
        clean: true,
        verdict: Verdict::End,
        row: "H7",
        end: Some(Position { segment: number, byte: HEADER_BYTES as u64 }),
        first,
        last,
        epoch: Some(epoch),
        segments: 1,
        bytes_read: 0,
        leftovers: 0,
        waits_for_room: false,
        lost_to: None,
        doubts: Vec::new(),
    };
    Ok((Shared::new(directory, options, state, writer, segments, pool), recovery))
}
