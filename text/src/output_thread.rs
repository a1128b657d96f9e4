//! The output thread: writes full buffers, and those that are old enough, to the file.
//!
//! *Owns*: when a buffer is written, retries, notices, syncs, the end. *May not touch*: the lock
//! during I/O.

use std::any::Any;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use inkstone_io::{Error, NoSizeSignal, Result};

use crate::buffer::{Buffer, Count};
use crate::event::{Event, Events};
use crate::notice::{Dropped, notice};
use crate::output::Output;
use crate::passage::Passage;
use crate::shared::{Shared, not_durable};
use crate::stage::Stage;
use crate::state::{Activity, Life, State, Turn};
use crate::time::later;

/// How soon a failed write is retried, at first and later: well within the second after which lines
/// must flow again.
const RETRY_FIRST_AFTER: Duration = Duration::from_millis(10);
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// How often the janitor makes room on a full disk.
const ASK_FOR_ROOM_EVERY: Duration = Duration::from_secs(5);
/// How soon it notices a removed stage while no lines come.
const LOOK_AROUND: Duration = Duration::from_secs(1);

pub(crate) struct OutputThread {
    pub(crate) shared: Arc<Shared>,
    output: Output,
    writing: Option<Writing>,
    /// Keeps the buffers if this process is killed.
    pub(crate) stage: Option<Stage>,
    is_stage_gone: bool,
    /// When the stage was last checked.
    looked_around: Instant,
    /// An interval has passed without a line: nothing is due until the next one.
    may_idle: bool,
    timing: Timing,
    last_sync: Instant,
    events: Events,
    tick: Instant,
    /// Since when writing fails, and with which error.
    failing: Option<(Instant, ErrorKind)>,
    closed_at: Option<Instant>,
    asked_for_room: Instant,
}

/// The buffer that is being written, and how much of it is in which file. Both stay here if writing
/// panics.
struct Writing {
    buffer: Buffer,
    passage: Passage,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) flush_every: Duration,
    /// `Survive::PowerLoss`.
    pub(crate) sync_every: Option<Duration>,
    /// How long closing retries a failing disk.
    pub(crate) drain_timeout: Duration,
}

/// The end of the output thread.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Why some lines are not written or not durable.
    pub(crate) result: Result<()>,
    /// The stage has the lines that are not written.
    pub(crate) is_kept: bool,
    pub(crate) lost: Lost,
}

/// Lines that are not in the file, nor certainly counted by a notice in it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Lost {
    pub(crate) unwritten_lines: u64,
    pub(crate) untold: Dropped,
}

/// Removes the stage, unless it holds lines; whether it does. A failed sync is no reason to keep
/// it.
fn end_stage(stage: Option<Stage>, lost: Lost, result: Result<()>) -> (Result<()>, bool) {
    match stage {
        Some(stage) if lost.unwritten_lines > 0 => (result, !stage.is_gone()),
        Some(stage) => (result.and(stage.remove()), false),
        None => (result, false),
    }
}

/// The next thing to do, found under the lock.
enum Work {
    Write,
    /// Something other than a line is due.
    Maintain,
    Close,
}

impl OutputThread {
    pub(crate) fn new(
        shared: Arc<Shared>,
        output: Output,
        stage: Option<Stage>,
        timing: Timing,
    ) -> Self {
        let now = Instant::now();
        Self {
            shared,
            events: output.events.clone(),
            output,
            writing: None,
            stage,
            is_stage_gone: false,
            looked_around: now,
            may_idle: false,
            timing,
            last_sync: now,
            tick: later(now, timing.flush_every),
            failing: None,
            closed_at: None,
            asked_for_room: now,
        }
    }

    /// Runs until the log is closed. Whatever panics, no thread waits for this one for ever: the
    /// disk and the clock may be the caller's own code.
    pub(crate) fn run(mut self) -> Ended {
        let _no_signal = NoSizeSignal::here();
        let ended = catch_unwind(AssertUnwindSafe(|| self.until_closed()));
        let result = ended.unwrap_or_else(|panic| Err(self.died(&*panic)));
        let stage = self.stage.take();
        let state = self.shared.lock();
        let lost = Lost { unwritten_lines: state.stats().unwritten_lines, untold: state.untold() };
        drop(state);
        let (result, is_kept) = end_stage(stage, lost, result);
        Ended { result, is_kept, lost }
    }

    /// Ends the log behind a panic. Its lines stay for the next start.
    fn died(&mut self, panic: &dyn Any) -> Error {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        let why = std::io::Error::other(format!("its output thread panicked: {text}"));
        let error = Error::new("write log", self.output.path(), why);
        self.shared.died(error.clone(), self.in_file());
        self.events.tell(&Event::WriteFailed(&error));
        // Otherwise its thread would wait for an order for ever.
        self.output.janitor.stop();
        error
    }

    /// What the files have of the buffer that is being written, and of all before it.
    fn in_file(&self) -> Option<Count> {
        self.writing.as_ref().map(|Writing { buffer, passage }| buffer.count(passage.done))
    }

    fn until_closed(&mut self) -> Result<()> {
        self.shared.be_own_thread();
        let mut result = Ok(());
        loop {
            self.look_at_stage();
            match self.next_work() {
                Work::Write => {
                    result = self.write();
                    if result.is_err() {
                        let in_file = self.in_file();
                        self.shared.lock().abandon(in_file);
                        break;
                    }
                }
                Work::Maintain => {}
                Work::Close => {
                    self.end_file_if_due();
                    break;
                }
            }
            self.maintain();
        }
        let _ = self.sync();
        let mut state = self.shared.lock();
        // Any failed sync: some lines may not be durable, whatever later syncs returned.
        let synced = state.sync_failure.clone().map_or(Ok(()), |error| Err(not_durable(error)));
        state.life = Life::Over;
        state.stats.rotations = self.output.rotations;
        self.shared.tell_progress(state);
        // Only now: a hook in the janitor's thread may be waiting for it.
        self.output.janitor.stop();
        result.and(synced)
    }

    /// Checks the stage with one system call for each buffer. Makes it again if it was removed.
    fn look_at_stage(&mut self) {
        if let Some(error) = self.shared.lock().no_memory.take() {
            let advice =
                "the log goes on with the buffers that it has; make room, and open it again";
            self.events.tell(&Event::HousekeepingFailed(&error.advise(advice)));
        }
        let Some(stage) = &mut self.stage else { return };
        // Making one costs more than checking.
        if self.is_stage_gone && self.looked_around.elapsed() < LOOK_AROUND {
            return;
        }
        self.looked_around = Instant::now();
        if !stage.is_gone() {
            return;
        }
        // No thread puts a line meanwhile.
        let state = self.shared.lock();
        // Its memory changes: if a stream reads into it, this is done the next time.
        let Some(inbox) = self.shared.idle_inbox() else { return };
        let renewed = stage.renew();
        drop((inbox, state));
        let was_gone = std::mem::replace(&mut self.is_stage_gone, renewed.is_err());
        match renewed {
            Ok(()) => self.events.tell(&Event::StageRenewed),
            Err(error) if !was_gone => self.events.tell(&Event::StageFailed(&error)),
            Err(_) => {}
        }
    }

    fn next_work(&mut self) -> Work {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        loop {
            if let Some(buffer) = state.take_next() {
                self.may_idle = false;
                shared.is_writing.store(true, Ordering::Relaxed);
                self.writing = Some(Writing { buffer, passage: Passage::default() });
                return Work::Write;
            }
            let now = Instant::now();
            let is_time = now >= self.tick;
            if !state.current.is_empty()
                && (is_time
                    || state.life == Life::Closed
                    || state.flush_to >= state.current.number())
                // All other buffers are free: the queue is empty, and nothing is being written.
                && state.hand_over()
            {
                self.tick = later(now, self.timing.flush_every);
                continue;
            }
            if is_time {
                self.tick = later(now, self.timing.flush_every);
                self.may_idle = state.current.is_empty();
            }
            let is_empty = state.current.is_empty();
            if state.life == Life::Closed && is_empty && state.turn == Turn::Free {
                // The last notice is a line to write, too.
                return if state.untold().lines == 0 { Work::Close } else { Work::Maintain };
            }
            let is_idle = self.may_idle && is_empty;
            let Some(left) = self.rest(&state, now, is_idle) else {
                return Work::Maintain;
            };
            shared.is_writing.store(false, Ordering::Relaxed);
            state.activity = if is_idle { Activity::Idle } else { Activity::Asleep };
            state = shared.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            let is_woken = !state.wake();
            if is_idle && is_woken {
                // The first line after a rest: it is written an interval from now.
                self.tick = later(Instant::now(), self.timing.flush_every);
                self.may_idle = false;
            }
        }
    }

    /// How long to sleep; `None` if something is due now.
    fn rest(&self, state: &State, now: Instant, is_idle: bool) -> Option<Duration> {
        let sync_every = self.timing.sync_every.filter(|_| self.output.is_dirty);
        let sync_in =
            sync_every.map(|every| later(self.last_sync, every).saturating_duration_since(now));
        let is_flush_waiting =
            self.timing.sync_every.is_some() && state.flush_to > state.durable_to;
        // A file ends only at the end of a line; the thread that ends the line wakes this one.
        let may_end_file = !state.is_within_line();
        let has_wish = may_end_file && self.shared.reopen.load(Ordering::Acquire);
        let has_notice = state.untold().lines > 0 && !state.free.is_empty();
        let has_notice = has_notice && state.turn == Turn::Free;
        let looks = later(self.looked_around, LOOK_AROUND).saturating_duration_since(now);
        let ticks = self.tick.saturating_duration_since(now).max(Duration::from_millis(1));
        let next = [
            (!is_idle).then_some(ticks),
            self.stage.as_ref().map(|_| looks),
            self.output.due_in().filter(|_| may_end_file),
            sync_in,
        ];
        let next = next.into_iter().flatten().min().unwrap_or(Duration::from_secs(3600));
        let is_due = is_flush_waiting || has_wish || has_notice || next.is_zero();
        (!is_due).then_some(next)
    }

    fn take_wish_to_reopen(&self) -> bool {
        self.shared.reopen.swap(false, Ordering::AcqRel)
    }

    /// Reopens the file if that is due; within a line it waits for the line's end.
    fn end_file_if_due(&mut self) {
        if self.shared.lock().is_within_line() {
            return;
        }
        if self.take_wish_to_reopen() {
            self.output.reopen();
            // At once, so that whoever asked finds the file; if it cannot be opened, the next line
            // tries again.
            let _ = self.output.ready();
        }
        self.output.rotate_by_time();
    }

    /// Does what is due between two buffers.
    fn maintain(&mut self) {
        self.end_file_if_due();
        self.shared.lock().stats.rotations = self.output.rotations;
        self.tell_dropped();
        let Some(every) = self.timing.sync_every else { return };
        let state = self.shared.lock();
        let is_waited_for = state.flush_to > state.durable_to && state.oldest() > state.flush_to;
        drop(state);
        if is_waited_for || self.output.is_dirty && self.last_sync.elapsed() >= every {
            let _ = self.sync();
        }
    }

    /// Puts a notice among the lines, as soon as there is room besides the last free buffer.
    fn tell_dropped(&mut self) {
        let state = self.shared.lock();
        let untold = state.untold();
        if untold.lines == 0 || state.free.is_empty() {
            return;
        }
        drop(state);
        // The log's own clock, as in its file names.
        let now = self.output.clock.now();
        let notice = notice(now, untold);
        // If the room is gone by now, it tries again later.
        self.shared.lock().put_notice(notice.as_bytes(), untold);
    }

    /// Makes what was written durable, and notifies threads that flush.
    fn sync(&mut self) -> Result<()> {
        if self.timing.sync_every.is_none() {
            return Ok(());
        }
        let written_to = self.shared.lock().oldest() - 1;
        let synced = self.output.sync();
        let synced = self.output.failed_sync.take().map_or(synced, Err);
        self.last_sync = Instant::now();
        let mut state = self.shared.lock();
        if let Err(error) = &synced {
            state.not_durable(error);
        }
        // After a failure too: no thread may wait for a sync that is not retried.
        state.durable_to = state.durable_to.max(written_to);
        self.shared.tell_progress(state);
        if let Err(error) = &synced {
            self.events.tell(&Event::SyncFailed(error));
        }
        synced
    }

    /// Writes a whole buffer, with as many attempts as it takes; an error if the log was closed and
    /// the disk still fails.
    fn write(&mut self) -> Result<()> {
        let begins = self.writing.as_ref().is_some_and(|writing| writing.buffer.begins());
        // Lines that were put after the wish may be in this buffer.
        if begins && self.take_wish_to_reopen() {
            self.output.reopen();
        }
        while let Err(error) = self.attempt() {
            self.failed(&error);
            if !self.pause() {
                return Err(error);
            }
            self.look_at_stage();
            // The request may follow a file moved away to make room. Done within a line too: the
            // line cannot end here.
            if self.take_wish_to_reopen() {
                self.output.reopen();
            }
        }
        if let Some((since, _)) = self.failing.take() {
            self.events.tell(&Event::Resumed { after: since.elapsed() });
        }
        let mut state = self.shared.lock();
        if let Some(Writing { buffer, .. }) = self.writing.take() {
            state.written(buffer);
        }
        state.stats.rotations = self.output.rotations;
        state.trouble = None;
        self.shared.tell_progress(state);
        Ok(())
    }

    fn attempt(&mut self) -> Result<()> {
        let facts = self.output.ready()?;
        let Some(Writing { buffer, passage }) = &mut self.writing else { return Ok(()) };
        passage.write(&mut self.output, facts, buffer, &self.shared.reopen)
    }

    fn failed(&mut self, error: &Error) {
        let mut state = self.shared.lock();
        state.stats.write_errors += 1;
        state.trouble = Some(error.clone());
        drop(state);
        let is_news = self.failing.is_none_or(|(_, kind)| kind != error.kind());
        let since = self.failing.map_or_else(Instant::now, |(since, _)| since);
        self.failing = Some((since, error.kind()));
        if is_news {
            self.events.tell(&Event::WriteFailed(error));
        }
        // Files may be too old by now, or compression may make room.
        if error.is_full() && (is_news || self.asked_for_room.elapsed() >= ASK_FOR_ROOM_EVERY) {
            self.asked_for_room = Instant::now();
            self.output.janitor.rotated();
        }
    }

    /// Waits until the next attempt is due; false if closing has retried for long enough.
    fn pause(&mut self) -> bool {
        // Soon at first: freed room becomes usable with the file system's next commit.
        let failing_for = self.failing.map_or(Duration::ZERO, |(since, _)| since.elapsed());
        let until = Instant::now() + failing_for.clamp(RETRY_FIRST_AFTER, RETRY_AFTER);
        let mut state = self.shared.lock();
        loop {
            let now = Instant::now();
            if state.life == Life::Closed {
                let closed_for = now.duration_since(*self.closed_at.get_or_insert(now));
                if closed_for >= state.drain_timeout.unwrap_or(self.timing.drain_timeout) {
                    return false;
                }
            }
            if now >= until {
                return true;
            }
            let waited = self.shared.work.wait_timeout(state, until - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
