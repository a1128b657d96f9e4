//! The order of an opening.
//!
//! *Owns*: the order of the steps, and what a failed opening undoes. *May not touch*: the options'
//! meaning ([`builder`](crate::builder)), how a step is done.
//!
//! 1. Make sure that no other writer has the log: open its file and lock it, and its stage. Waits
//!    for another one to end.
//! 2. Examine the file as it was left: its owner, its age, whether a new file is due. Later steps
//!    change it.
//! 3. Append what a killed process left to the file that it was for, and rotate that as it grows. Up
//!    to here the opening may be refused, and then it has changed nothing else. Only on a full disk,
//!    and for a rotation, are files above the limits removed, since their room is needed.
//! 4. Start a new file if one is due. From here on failures are events, and lines are written.
//! 5. Start the janitor. Earlier it would compress and remove files that recovery still reads.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use inkstone_io::{
    Error, ForkMark, Named, NoSizeSignal, OsDirectory, Result, StageBuffer, buffers_in_memory,
    start_thread,
};

use crate::buffer::Buffer;
use crate::builder::Builder;
use crate::disk::{Disk, OsDisk};
use crate::event::{Event, Events, Recovery};
use crate::folder::is_others;
use crate::inbox::Inbox;
use crate::janitor::{Chores, Janitor};
use crate::options::Survive;
use crate::output::Output;
use crate::output_thread::{OutputThread, Timing};
use crate::recover::Patience;
use crate::rotated::{Retention, newest};
use crate::shared::Shared;
use crate::stage::{Stage, no_identity, waiting_in};
use crate::stage_contents::Identity;
use crate::state::State;
use crate::time::later;
use crate::writer::{Guard, LogWriter};

/// How long an opening waits for another writer to end, beyond the drain timeout that the other one
/// may have.
const OTHERS_END: Duration = Duration::from_secs(2);
/// How often an opening looks whether the other writer has ended.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Tries again while another writer has the log.
struct Turn {
    until: Instant,
    is_told: bool,
}

impl Turn {
    fn wait_for<T>(
        &mut self,
        events: &Events,
        mut attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        loop {
            match attempt() {
                Err(error) if is_others(&error) && Instant::now() < self.until => {
                    if !std::mem::replace(&mut self.is_told, true) {
                        events.tell(&Event::OtherWriter(&error));
                    }
                    thread::sleep(ASK_AGAIN_AFTER);
                }
                answer => return answer,
            }
        }
    }
}

impl LogWriter {
    /// Options for a log at this path, which is not opened yet. The opening makes its directory if
    /// that is missing, but none above it, where a disk may not be mounted.
    pub fn builder(path: impl Into<PathBuf>) -> Builder {
        Builder::new(path.into())
    }
}

impl Builder {
    /// Opens the log: creates the directory and the file if they are missing, and appends the lines
    /// that a killed process left.
    ///
    /// # Errors
    /// The directory or the file cannot be opened or created; another writer, in this process or
    /// another one, has the log and does not end within the time that [`Builder::drain_timeout`]
    /// says (the kind is `ResourceBusy`); there is no memory for the buffers; the lines of a killed
    /// process cannot be written (they are kept). If a new file is due and cannot be created,
    /// that is an event and not an error: lines go to the old file.
    pub fn open(self) -> Result<(LogWriter, Guard)> {
        self.open_on(OsDisk)
    }

    /// As [`Builder::open`], with log files of another kind.
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open_on(self, disk: impl Disk) -> Result<(LogWriter, Guard)> {
        open(self, Box::new(disk))
    }
}

fn open(builder: Builder, disk: Box<dyn Disk>) -> Result<(LogWriter, Guard)> {
    // The caller's thread writes for us here.
    let _no_signal = NoSizeSignal::here();
    let folder = builder.folder()?;
    let Builder { keep, ref clock, ref events, rotation, .. } = builder;
    let retention = Retention::new(folder.log(), keep, clock.clone(), events.clone());
    let is_durable = matches!(builder.survive, Survive::PowerLoss(_));
    let options = (rotation, is_durable, clock.clone(), events.clone());
    let mut output = Output::new(disk, folder, Arc::new(retention), options);
    let directory = output.folder.get();
    let until = later(Instant::now(), builder.drain_timeout.saturating_add(OTHERS_END));
    let mut turn = Turn { until, is_told: false };
    let seen = turn.wait_for(&builder.events, || {
        let seen = output.look_before(&directory)?;
        match output.ready() {
            Err(error) if is_others(&error) => Err(error),
            // Any other failure comes again below, where it is known what it may cost.
            _ => Ok(seen),
        }
    })?;
    // What another writer has rotated until now counts.
    output.last = newest(&output.retention.files(&directory).unwrap_or_default());
    let mut stage = find_stage(&builder, &directory, &output, &mut turn)?;
    let opened = open_output(builder, output, seen, &mut stage);
    if let (Err(_), Some(stage)) = (&opened, stage) {
        stage.let_go();
    }
    opened
}

/// Finds what a killed process left; `None` where lines survive no kill.
fn find_stage(
    builder: &Builder,
    directory: &Arc<OsDirectory>,
    output: &Output,
    turn: &mut Turn,
) -> Result<Option<Stage>> {
    let log = output.path();
    let goes_without = |error: Error| {
        if builder.must_survive {
            return Err(error);
        }
        builder.events.tell(&Event::StageFailed(&error));
        Ok(None)
    };
    if builder.survive == Survive::Nothing {
        let identity = Identity::of(directory, &output.name).ok().flatten();
        let stage = identity.map(|identity| identity.stage_in(&builder.stage_directory));
        // An earlier process may have had it otherwise.
        if let Some(waiting) = stage.and_then(|stage| waiting_in(&stage)) {
            builder.events.tell(&Event::LinesWait(&waiting));
        }
        return Ok(None);
    }
    let Some(identity) = Identity::of(directory, &output.name)? else {
        return goes_without(no_identity(&log));
    };
    let found = turn.wait_for(&builder.events, || {
        let (parent, layout) = (&builder.stage_directory, builder.layout());
        Stage::find(parent, layout, identity.clone(), &log)
    });
    match found {
        Ok(stage) => Ok(Some(stage)),
        Err(error) if is_others(&error) => Err(error),
        // Any user may put something there: that keeps no service from its log.
        Err(error) => goes_without(error),
    }
}

/// Takes the stage once the log is open; otherwise the caller releases it.
fn open_output(
    builder: Builder,
    mut output: Output,
    seen: Option<Named>,
    stage: &mut Option<Stage>,
) -> Result<(LogWriter, Guard)> {
    let fork = ForkMark::new()?;
    let is_kept = stage.is_some();
    let (mut buffers, recovery) = bring_back(&builder, &mut output, seen, stage)?;
    let inbox = buffers.pop().expect("a layout has three or more");
    let inbox = Inbox::new(inbox, is_kept);
    let buffers = buffers.into_iter().map(|memory| Buffer::new(memory, is_kept));
    let mut state = State::new(buffers.collect());
    if let Some(error) = output.failed_sync.take() {
        state.not_durable(&error);
        builder.events.tell(&Event::SyncFailed(&error));
    }
    let shared = Shared::new(fork, builder.when_full, output.is_durable, is_kept, (state, inbox));
    let shared = Arc::new(shared);
    let chores = Chores {
        folder: Arc::clone(&output.folder),
        retention: Arc::clone(&output.retention),
        compression: builder.compression,
        events: builder.events.clone(),
    };
    let log = output.path();
    output.janitor = Janitor::start(chores, Arc::clone(&shared))
        .map_err(|error| Error::new("start the janitor of", &log, error))?;
    let timing = Timing {
        flush_every: builder.flush_every,
        sync_every: match builder.survive {
            Survive::PowerLoss(every) => Some(every),
            _ => None,
        },
        drain_timeout: builder.drain_timeout,
    };
    // Started with nothing: if it cannot start, the caller keeps the stage.
    let (give, given) = channel::<OutputThread>();
    let run = move || given.recv().expect("it is given just below").run();
    let thread = start_thread("log writer", run);
    let thread = thread.map_err(|error| Error::new("start the output thread of", &log, error))?;
    let taken = OutputThread::new(Arc::clone(&shared), output, stage.take(), timing);
    let _ = give.send(taken);
    let writer = LogWriter { shared: Arc::clone(&shared) };
    Ok((writer, Guard { shared, thread: Some(thread), recovery }))
}

/// Does everything with the file that comes before the first write.
fn bring_back(
    builder: &Builder,
    output: &mut Output,
    seen: Option<Named>,
    stage: &mut Option<Stage>,
) -> Result<(Vec<StageBuffer>, Option<Recovery>)> {
    let memory = if stage.is_some() { None } else { Some(buffers_in_memory(builder.layout())?) };
    let directory = output.folder.get();
    let is_old = seen.is_some_and(|named| output.is_of_earlier(named.facts.modified));
    let is_arriving = is_old && seen.is_some_and(|named| named.facts.len_bytes > 0);
    // The lines of a killed process are worth some waiting.
    let has_lines = stage.as_ref().is_some_and(Stage::has_lines);
    let at_most = if has_lines { builder.drain_timeout } else { Duration::ZERO };
    let mut patience = Patience::new(at_most, is_arriving);
    let facts = loop {
        match output.ready() {
            Ok(facts) => break facts,
            Err(error) if patience.awaits_room(output, &error) => {}
            Err(error) => return Err(error),
        }
    };
    // A killed process may have written to it since its last sync.
    output.is_dirty = facts.len_bytes > 0;
    let (buffers, recovery) = match stage {
        None => (memory.unwrap_or_default(), None),
        Some(stage) => stage.bring_back(output, &mut patience)?,
    };
    if let Some(recovery) = &recovery {
        builder.events.tell(&Event::Recovered(recovery));
    }
    let facts = output.ready()?;
    output.begin(facts, is_old);
    // It is synced, or its sync failed: neither is repeated.
    output.is_dirty = false;
    output.remove_next(&directory);
    Ok((buffers, recovery))
}
