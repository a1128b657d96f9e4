//! The order of an opening.
//!
//! *Owns*: what comes before what, and what an opening that fails takes back. *May not touch*: the options' meaning (`builder.rs`), how a
//! step is done.
//!
//! First nobody else may have the log. Then it is looked at as it was left: whose it is, how old, and whether a new file is due; after
//! that it has been changed. Then files above the limits go, as what comes next may need their room. Then what a killed process left is
//! appended to the file that it was put for, and only then a new one is begun. The janitor starts when all that is done: it would
//! compress and remove what recovery still looks at.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use inkstone_io::{
    Directory as _, Error, ForkMark, NoSizeSignal, OsDirectory, Result, StageBuffer, buffers_in_memory,
};

use crate::back::{Back, Ended};
use crate::buffer::Buffer;
use crate::builder::Builder;
use crate::disk::Disk;
use crate::event::Event;
use crate::folder::Folder;
use crate::janitor::{Chores, Janitor};
use crate::options::Survive;
use crate::output::{Output, newest};
use crate::recover::Recovered;
use crate::retention::Retention;
use crate::shared::Shared;
use crate::stage::Stage;
use crate::state::State;
use crate::time::later;
use crate::writer::{Guard, LogWriter};

/// How often a full disk is tried again for what a killed process left.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Opens the log.
pub(crate) fn open(builder: Builder, disk: Box<dyn Disk>) -> Result<(LogWriter, Guard)> {
    // This thread is the caller's, and writes for us.
    let _no_signal = NoSizeSignal::here();
    let (folder, name) = builder.place()?;
    let output = output(&builder, folder, name, disk);
    let directory = output.folder.get();
    let mut stage = None;
    if builder.survive != Survive::Nothing {
        let (found, news) =
            Stage::find(&builder.stage_directory, builder.layout(), output.target(&directory))?;
        news.tell(&builder.events);
        stage = Some(found);
    }
    let opened = open_output(builder, output, &mut stage);
    if let (Err(_), Some(stage)) = (&opened, stage) {
        stage.let_go();
    }
    opened
}

fn output(builder: &Builder, folder: Arc<Folder>, name: String, disk: Box<dyn Disk>) -> Output {
    let (keep, clock, forms) = (builder.keep, builder.clock.clone(), Mutex::default());
    let retention = Arc::new(Retention { name: name.clone(), keep, clock, forms });
    Output {
        disk,
        last: newest(&folder.get(), &name),
        folder,
        name,
        rotation: builder.rotation,
        is_durable: matches!(builder.survive, Survive::PowerLoss(_)),
        events: builder.events.clone(),
        janitor: Janitor::default(),
        retention,
        clock: builder.clock.clone(),
        file: None,
        boundary: None,
        not_before: None,
        rotations: 0,
        owner: None,
        is_link_told: false,
        is_owner_told: false,
        last_written: None,
        is_dirty: false,
        failed_sync: None,
    }
}

/// Takes the stage when the log is open; else it is to be let go.
fn open_output(
    builder: Builder,
    mut output: Output,
    stage: &mut Option<Stage>,
) -> Result<(LogWriter, Guard)> {
    let fork = ForkMark::new()?;
    let flag = builder.reopen_flag()?;
    let (buffers, Recovered { recovery, failed_sync }) = bring_back(&builder, &mut output, stage)?;
    let mut state = State::new(buffers.into_iter().map(Buffer::new).collect());
    if let Some(error) = failed_sync.or_else(|| output.failed_sync.take()) {
        state.not_durable(&error);
        builder.events.tell(&Event::SyncFailed(&error));
    }
    let is_durable = output.is_durable;
    let shared = Arc::new(Shared::new(fork, builder.when_full, is_durable, builder.events.panics(), state));
    let chores = Chores {
        folder: Arc::clone(&output.folder),
        name: output.name.clone(),
        retention: Arc::clone(&output.retention),
        compression: builder.compression,
        ahead_bytes: builder.rotation.ahead_bytes(),
        events: builder.events.clone(),
    };
    let log = output.path();
    output.janitor = Janitor::start(chores, Arc::clone(&shared))
        .map_err(|error| Error::new("start the janitor of", &log, error))?;
    let sync_every = match builder.survive {
        Survive::PowerLoss(every) => Some(every),
        _ => None,
    };
    let has_hook = builder.events.has_hook();
    let now = Instant::now();
    let back = Back {
        shared: Arc::clone(&shared),
        output,
        stage: stage.take(),
        looked_around: now,
        is_stage_gone: false,
        may_idle: false,
        flush_every: builder.flush_every,
        sync_every,
        last_sync: now,
        notice: builder.notice,
        events: builder.events,
        flag,
        drain_timeout: builder.drain_timeout,
        tick: later(now, builder.flush_every),
        scratch: Vec::with_capacity(256),
        failing: None,
        closed_at: None,
        asked_for_room: now,
    };
    let thread = spawn(builder.thread_name, back, stage);
    let thread = thread.map_err(|error| Error::new("start the back thread of", &log, error))?;
    let writer = LogWriter { shared: Arc::clone(&shared) };
    Ok((writer, Guard { shared, thread: Some(thread), recovery, has_hook }))
}

/// All that is done with the file before it is written to.
fn bring_back(
    builder: &Builder,
    output: &mut Output,
    stage: &mut Option<Stage>,
) -> Result<(Vec<StageBuffer>, Recovered)> {
    let directory = output.folder.get();
    let seen = directory.look(&output.name)?.filter(|named| !named.is_link).map(|named| named.facts);
    let is_old = seen.is_some_and(|facts| output.is_of_earlier(facts.modified));
    if seen.is_none() {
        output.owner = output.newest_owner(&directory);
    }
    let is_due = is_old || builder.rotation.at_start;
    let arriving = seen.map(|facts| facts.len_bytes).filter(|len_bytes| is_due && *len_bytes > 0);
    output.make_room(&directory, arriving);
    // A killed process's lines are worth some waiting: room that was just given back is there after the file system's next commit.
    let has_lines = stage.as_ref().is_some_and(Stage::has_lines);
    let until = later(Instant::now(), if has_lines { builder.drain_timeout } else { Duration::ZERO });
    let is_room_awaited = |output: &Output, error: &Error| {
        let is_awaited = error.is_full() && Instant::now() < until;
        if is_awaited {
            thread::sleep(TRY_AGAIN_AFTER);
            output.make_room(&directory, arriving);
        }
        is_awaited
    };
    while let Err(error) = output.ready() {
        if !is_room_awaited(output, &error) {
            return Err(error);
        }
    }
    if let Some(link) = &builder.latest {
        point(&directory, link, &output.name)?;
    }
    let (buffers, recovered) = match stage {
        None => (buffers_in_memory(builder.layout())?, Recovered::default()),
        Some(stage) => {
            let mut may_try_again = |error: &Error| is_room_awaited(output, error);
            stage.bring_back(output.target(&directory), &mut may_try_again)?
        }
    };
    if let Some(recovery) = &recovered.recovery {
        builder.events.tell(&Event::Recovered(recovery));
    }
    let facts = output.ready()?;
    // A process that was killed may have written to it since its last sync.
    output.is_dirty = facts.len_bytes > 0;
    output.begin(facts, is_old);
    output.ready()?;
    // Synced, or it failed: neither is done again.
    output.is_dirty = false;
    if builder.rotation.ahead_bytes().is_none() {
        output.remove_next(&directory);
    }
    Ok((buffers, recovered))
}

/// The back thread. If there can be none, the stage comes back.
fn spawn(name: String, back: Back, stage: &mut Option<Stage>) -> std::io::Result<thread::JoinHandle<Ended>> {
    let place = Arc::new(Mutex::new(Some(back)));
    let theirs = Arc::clone(&place);
    let take = |place: &Mutex<Option<Back>>| place.lock().unwrap_or_else(PoisonError::into_inner).take();
    let run = move || take(&theirs).expect("it is there until this thread takes it").run();
    let spawned = thread::Builder::new().name(name).spawn(run);
    if spawned.is_err() {
        *stage = take(&place).and_then(|back| back.stage);
    }
    spawned
}

/// Makes the link anew, at once; a file of that name that is no link is left alone.
fn point(directory: &OsDirectory, link: &str, name: &str) -> Result<()> {
    if directory.look(link)?.is_some_and(|named| !named.is_link) {
        let path = directory.path().join(link);
        return Err(Error::invalid("symlink", path, "there is a file of that name that is no link"));
    }
    let new = format!(".{link}.inkstone-new");
    let _ = directory.remove(&new);
    directory.make_link(&new, name)?;
    directory.rename(&new, link)
}
