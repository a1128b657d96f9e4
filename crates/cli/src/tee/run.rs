//! How `tee` runs and ends.
//!
//! *Owns*: its threads, what a signal does, how long the end may take, what it reports at the end. *May not touch*: lines.
//!
//! This thread waits for events and never for the disk, the input or the echo, each of which has a thread of its own: whatever
//! hangs, a signal is heard, and what was read and not written is known.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use inkstone_appender::{Guard, LogWriter};
use inkstone_io::{Input, InputStop};
use signal_hook::consts::SIGHUP;

use super::echo::{Echo, Missing};
use super::pid_file::{self, PidFile};
use super::read::{Count, Reader};
use super::told::{self, LAST_WORDS, say};
use super::{Survives, TeeArguments};
use crate::signals::{self, ENDED};
use crate::words;

/// Some send a signal twice, to a process and to its group: within this it is the same.
const SAME_SIGNAL: Duration = Duration::from_secs(1);
/// What was in the input when reading was stopped is waited for so long; a disk that hangs may hold it up.
const LAST_READ: Duration = Duration::from_secs(1);
/// One read of a full pipe.
const READ_BYTES: usize = 256 << 10;
/// One page of a pipe: a kill loses no more than that beside the pipe.
const READ_BYTES_KEPT: usize = 4096;

enum Event {
    Opened(anyhow::Result<(LogWriter, Guard)>),
    Signal(i32),
    InputEnded(anyhow::Result<()>),
    Closed(io::Result<()>),
    Told,
    Died(&'static str),
}

struct Run {
    tell: Sender<Event>,
    events: Receiver<Event>,
    /// Signals to end so far, and the last.
    signals: u32,
    last: Option<(i32, Instant)>,
    /// The input had the time that a signal leaves it, and went on.
    is_late: bool,
    /// How reading ended, once it has.
    input: Option<anyhow::Result<()>>,
}

/// Writes stdin into the log until it ends or a signal comes.
pub(super) fn run(arguments: TeeArguments) -> anyhow::Result<ExitCode> {
    let mut run = Run::start(arguments.pid_file.is_some())?;
    let code = run.work(arguments).unwrap_or_else(|error| {
        say(words(&error));
        ExitCode::FAILURE
    });
    run.end_words();
    Ok(code)
}

impl Run {
    /// From the first byte to the report at the end.
    fn work(&mut self, arguments: TeeArguments) -> anyhow::Result<ExitCode> {
        if let Some(path) = &arguments.pid_file {
            pid_file::check_is_not(&arguments.file, path)?;
        }
        let (input, stop) = Input::stdin()?;
        let arguments = Arc::new(arguments);
        let Some((log, guard)) = self.open(&arguments)? else { return Ok(ExitCode::from(ENDED)) };
        if let Some(recovery) = guard.recovery() {
            say(recovery);
        }
        let write = |path| PidFile::write(path, &arguments.file);
        let _pid_file = arguments.pid_file.as_deref().map(write).transpose()?;
        let echo = if arguments.echo { Some(Echo::start()?) } else { None };
        let count = Count::default();
        // Only who writes into a pipe loses something when it is not read: a file stays, and a terminal has somebody before it.
        let grace = if input.is_stream() { arguments.grace } else { Duration::ZERO };
        let is_kept = !matches!(arguments.survive, Survives::Nothing);
        let reader = Reader {
            input,
            log: log.clone(),
            echo: echo.clone(),
            count: count.clone(),
            read_bytes: if is_kept { READ_BYTES_KEPT } else { READ_BYTES },
            piece_bytes: usize::try_from(arguments.buffers).unwrap_or(usize::MAX),
        };
        self.spawn("stdin", move || Event::InputEnded(reader.run()))?;
        self.wait_for_input(&log, stop, grace)?;
        let closed = self.close(guard)?;
        let missing = echo.and_then(|echo| self.end_echo(&echo, arguments.grace));
        let signal = self.last.map(|(signal, _)| signal);
        let end = End { arguments: &arguments, log: &log, count: &count, closed, missing };
        Ok(end.tell(self.input.take(), signal, self.is_late))
    }

    fn start(hangup_is_meant: bool) -> anyhow::Result<Self> {
        let (tell, events) = channel();
        let theirs = tell.clone();
        // Nobody listens any more only when the process ends.
        signals::listen(hangup_is_meant, move |signal| drop(theirs.send(Event::Signal(signal))))?;
        Ok(Self { tell, events, signals: 0, last: None, is_late: false, input: None })
    }

    /// Starts a thread that ends with an event, whatever happens in it.
    fn spawn(&self, name: &'static str, work: impl FnOnce() -> Event + Send + 'static) -> anyhow::Result<()> {
        let tell = self.tell.clone();
        let work = move || {
            let event = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Event::Died(name));
            let _ = tell.send(event);
        };
        std::thread::Builder::new().name(name.into()).spawn(work)?;
        Ok(())
    }

    /// The next event; `None`: it is time.
    fn next(&self, until: Option<Instant>) -> anyhow::Result<Option<Event>> {
        let event = match until {
            None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => self.events.recv_timeout(until.saturating_duration_since(Instant::now())),
        };
        match event {
            Ok(Event::Died(thread)) => {
                anyhow::bail!("the thread {thread} panicked, which is a mistake of inkstone")
            }
            Ok(event) => Ok(Some(event)),
            // This holds a sender itself, so that nothing else can be.
            Err(_) => Ok(None),
        }
    }

    /// Counts a wish to end; false for a hangup, and for one that is the same as the last.
    fn is_wish(&mut self, signal: i32) -> bool {
        let is_same = self.last.is_some_and(|(_, at)| at.elapsed() < SAME_SIGNAL);
        if signal == SIGHUP || is_same {
            return false;
        }
        self.signals += 1;
        self.last = Some((signal, Instant::now()));
        true
    }

    /// Opens the log, which takes a while when a killed process has left much; `None` when a second signal came first.
    fn open(&mut self, arguments: &Arc<TeeArguments>) -> anyhow::Result<Option<(LogWriter, Guard)>> {
        let theirs = Arc::clone(arguments);
        self.spawn("open", move || Event::Opened(theirs.open()))?;
        loop {
            match self.next(None)? {
                Some(Event::Opened(opened)) => return opened.map(Some),
                Some(Event::Signal(signal)) if self.is_wish(signal) && self.signals > 1 => return Ok(None),
                _ => {}
            }
        }
    }

    /// Until the input has ended. After the first signal it is read on for a while, after the second not at all.
    fn wait_for_input(&mut self, log: &LogWriter, stop: InputStop, grace: Duration) -> anyhow::Result<()> {
        let (mut stop, mut until) = (Some(stop), None);
        if let Some((_, at)) = self.last {
            until = at.checked_add(grace);
        }
        loop {
            match self.next(until)? {
                Some(Event::InputEnded(ended)) => {
                    self.input = Some(ended);
                    return Ok(());
                }
                Some(Event::Signal(SIGHUP)) => log.reopen(),
                Some(Event::Signal(signal)) if self.is_wish(signal) => {
                    // More than there is of time: until the end of the input.
                    let patience = if self.signals == 1 { grace } else { Duration::ZERO };
                    until = Instant::now().checked_add(patience);
                }
                None if stop.take().is_some() => {
                    self.is_late = self.signals == 1 && grace > Duration::ZERO;
                    until = Some(Instant::now() + LAST_READ);
                }
                None => return Ok(()),
                Some(_) => {}
            }
        }
    }

    /// Closes the log; `None`: a signal more than was needed has ended the waiting.
    fn close(&mut self, guard: Guard) -> anyhow::Result<Option<io::Result<()>>> {
        self.spawn("close", move || Event::Closed(guard.close()))?;
        let mut closed = None;
        let mut until = None;
        while closed.is_none() || self.input.is_none() {
            match self.next(until)? {
                Some(Event::Closed(result)) => {
                    closed = Some(result);
                    // It takes no more lines, so the reader ends, unless it hangs in a read of what another has taken away.
                    until = Some(Instant::now() + LAST_READ);
                }
                Some(Event::InputEnded(ended)) => self.input = Some(ended),
                Some(Event::Signal(signal)) if self.is_wish(signal) && self.signals > 1 => break,
                None => break,
                Some(_) => {}
            }
        }
        Ok(closed)
    }

    fn end_echo(&mut self, echo: &Echo, grace: Duration) -> Option<Missing> {
        // Without a signal nobody waits for this process but its reader.
        let until = (self.signals > 0).then(|| Instant::now().checked_add(grace.max(LAST_READ))).flatten();
        echo.finish(until, || match self.events.try_recv() {
            Ok(Event::Signal(signal)) => self.is_wish(signal) && self.signals > 1,
            _ => false,
        })
    }

    /// Waits until stderr has taken what was said, for a second at most; a signal that comes meanwhile ends that.
    fn end_words(&mut self) {
        let until = Instant::now() + LAST_WORDS;
        let told = || {
            told::finish();
            Event::Told
        };
        if self.spawn("last words", told).is_err() {
            return;
        }
        loop {
            match self.next(Some(until)) {
                Ok(Some(Event::Signal(signal))) if self.is_wish(signal) => return,
                Ok(Some(Event::Told) | None) | Err(_) => return,
                Ok(Some(_)) => {}
            }
        }
    }
}

/// What the report at the end is made from.
struct End<'a> {
    arguments: &'a TeeArguments,
    log: &'a LogWriter,
    count: &'a Count,
    closed: Option<io::Result<()>>,
    missing: Option<Missing>,
}

impl End<'_> {
    fn tell(self, input: Option<anyhow::Result<()>>, signal: Option<i32>, is_late: bool) -> ExitCode {
        let read = self.count.read();
        if let Some(signal) = signal
            && is_late
            && !read.is_all
        {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            say(format_args!("{name}, and stdin did not end in time: it was read no further"));
        }
        let stats = self.log.stats();
        if stats.dropped_lines > 0 {
            let (lines, bytes) = (stats.dropped_lines, stats.dropped_bytes);
            say(format_args!("{lines} lines were dropped ({bytes} bytes), as --when-full says"));
        }
        let mut is_good = self.tell_unwritten(read, stats);
        if let Some(Err(error)) = &input {
            is_good = false;
            say(words(error));
        }
        if let Some(Missing { amount, why }) = &self.missing {
            let (lines, bytes) = (amount.lines, amount.bytes);
            say(format_args!("{lines} lines were not echoed to stdout ({bytes} bytes): {why}"));
        }
        match signal {
            _ if !is_good || self.missing.is_some() => ExitCode::FAILURE,
            Some(_) => ExitCode::from(ENDED),
            None => ExitCode::SUCCESS,
        }
    }

    /// What was read and is neither written nor dropped. A line of which a part is missing is one of them.
    fn tell_unwritten(&self, read: super::read::Read, stats: inkstone_appender::Stats) -> bool {
        let bytes = read.bytes.saturating_sub(stats.written_bytes + stats.dropped_bytes);
        let lines = read.lines.saturating_sub(stats.written_lines + stats.dropped_lines);
        let lines = lines.max(stats.unwritten_lines).max(u64::from(bytes > 0));
        let why = match &self.closed {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(error.to_string()),
            None => Some("a signal came before the log was closed".to_owned()),
        };
        if lines > 0 {
            let why = why.unwrap_or_else(|| "the log was closed".to_owned());
            let is_kept = !matches!(self.arguments.survive, Survives::Nothing);
            let kept = if is_kept { "; the next start writes those that the log has taken" } else { "" };
            say(format_args!(
                "of {} lines that were read, {lines} were not written ({bytes} bytes): {why}{kept}",
                read.lines
            ));
            return false;
        }
        if let Some(why) = &why {
            say(why);
        }
        matches!(self.closed, Some(Ok(())))
    }
}
