//! How `tee` runs and ends.
//!
//! *Owns*: its threads, what a signal does, how long the end may take, the final report. *May not
//! touch*: lines.
//!
//! This thread waits only for events, never for the disk, the input or the echo. Each of those has
//! its own thread, started early: whatever hangs, signals are handled and unwritten lines are
//! counted, even if no more threads can be started.
//!
//! The first signal to end sets one deadline: for reading on, for retrying a failing disk and for
//! the echo. [`OVERTIME`] after it everything has ended, the final messages too, unless a slow disk
//! still takes something.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use inkstone_appender::{Guard, LogWriter, Stats, Survive};
use inkstone_io::{Input, InputStop};
use signal_hook::consts::{SIGHUP, SIGINT};

use super::arguments::{TeeArguments, refuse_own_input};
use super::echo::Echo;
use super::pid_file::PidFile;
use super::read::{Count, Reader};
use super::words::say;
use crate::code_of;
use crate::signals::{self, ENDED};
use crate::threads;

/// Some supervisors send a signal twice, to a process and to its group: within this time it counts
/// once.
const SAME_SIGNAL: Duration = Duration::from_secs(1);
/// Time after the deadline, in all: for the rest of the input when reading stops, a disk that does
/// not answer, the rest of the echo, the final messages.
const OVERTIME: Duration = Duration::from_secs(1);
/// The part of it for the log and the echo; the rest is for the final messages.
const LATE: Duration = Duration::from_millis(750);
/// The rest of the input is waited for while some of it arrives, or reaches the disk, within this
/// time.
const READ_STILL: Duration = Duration::from_millis(500);
/// After that the disk is waited for while it takes anything within this time.
const DISK_STILL: Duration = Duration::from_millis(250);

enum Event {
    Opened(anyhow::Result<(LogWriter, Guard)>),
    Signal(i32),
    InputEnded(anyhow::Result<()>),
    Closed(io::Result<()>),
    Died(&'static str),
}

/// What the closing thread gets.
struct Closing {
    guard: Guard,
    /// Time that the deadline leaves for a failing disk.
    at_most: Option<Duration>,
}

/// How a wait ended.
#[derive(Debug, PartialEq, Eq)]
enum Waited {
    /// What was waited for is there.
    Done,
    /// The time is over.
    Late,
    /// Another signal to end came than the first one.
    Asked,
}

struct Run {
    /// `--grace`.
    grace: Duration,
    tell: Sender<Event>,
    events: Receiver<Event>,
    /// Signals to end so far, with the times of the first and the last.
    signals: u32,
    first: Option<Instant>,
    last: Option<(i32, Instant)>,
    /// A SIGHUP came before there was a log to reopen: the file may have been opened before it was
    /// moved.
    is_hangup_due: bool,
    /// After the first signal the input is read on.
    reads_on: bool,
    /// The input did not end in the time that a signal leaves it.
    is_late: bool,
    /// The log, once it is open.
    log: Option<LogWriter>,
    guard: Option<Guard>,
    /// How reading ended, once it has ended.
    input: Option<anyhow::Result<()>>,
    /// How closing ended, once it has ended.
    closed: Option<io::Result<()>>,
}

/// Writes stdin into the log until it ends or a signal comes.
pub(super) fn run(arguments: TeeArguments) -> anyhow::Result<ExitCode> {
    // First, while there is one thread: so no signal is lost.
    let mut run = Run::start(arguments.pid_file.is_some(), arguments.grace)?;
    Ok(run.work(arguments).unwrap_or_else(|error| {
        say(format_args!("{error:#}"));
        code_of(&error)
    }))
}

impl Run {
    /// Everything from the first byte to the final report.
    fn work(&mut self, arguments: TeeArguments) -> anyhow::Result<ExitCode> {
        refuse_own_input(arguments.file())?;
        let (input, stop) = Input::stdin()?;
        let arguments = Arc::new(arguments);
        let closer = self.closer()?;
        let theirs = Arc::clone(&arguments);
        let Some((log, guard)) = self.open(move || theirs.open())? else {
            return Ok(ExitCode::from(ENDED));
        };
        if let Some(recovery) = guard.recovery() {
            say(recovery);
        }
        let write = |path| PidFile::write(path, arguments.file());
        let _pid_file = arguments.pid_file.as_deref().map(write).transpose()?;
        let echo = if arguments.echo { Some(Echo::start()?) } else { None };
        let count = Count::default();
        // Only the writer of a pipe or socket loses something that is not read: a file stays, and a
        // person sits at a terminal.
        self.reads_on = input.is_stream() && !self.grace.is_zero();
        let reader = Reader {
            input,
            log: log.clone(),
            echo: echo.clone(),
            count: count.clone(),
            stamps: arguments.stamp,
        };
        self.spawn("stdin", move || Event::InputEnded(reader.run()))?;
        self.wait_for_input(&log, &count, stop)?;
        self.close(&closer, guard, &log)?;
        let missing = echo.and_then(|echo| self.end_echo(&echo));
        let signal = self.last.map(|(signal, _)| signal);
        let closed = self.closed.take();
        let end = End { arguments: &arguments, log: &log, count: &count, closed, missing };
        Ok(end.tell(self.input.take(), signal, self.is_late))
    }

    fn start(hangup_is_meant: bool, grace: Duration) -> anyhow::Result<Self> {
        let (tell, events) = channel();
        let theirs = tell.clone();
        // The receiver is gone only when the process ends.
        signals::listen(hangup_is_meant, move |signal| drop(theirs.send(Event::Signal(signal))))?;
        Ok(Self::hearing(tell, events, grace))
    }

    fn hearing(tell: Sender<Event>, events: Receiver<Event>, grace: Duration) -> Self {
        Self {
            grace,
            tell,
            events,
            signals: 0,
            first: None,
            last: None,
            is_hangup_due: false,
            reads_on: false,
            is_late: false,
            log: None,
            guard: None,
            input: None,
            closed: None,
        }
    }

    /// Starts a thread that always sends an event at its end, even after a panic.
    fn spawn(
        &self,
        name: &'static str,
        work: impl FnOnce() -> Event + Send + 'static,
    ) -> anyhow::Result<()> {
        let tell = self.tell.clone();
        let work = move || {
            let event = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Event::Died(name));
            let _ = tell.send(event);
        };
        Ok(threads::start(name, work)?)
    }

    /// The next event; `None` at the time `until`.
    fn next(&self, until: Option<Instant>) -> anyhow::Result<Option<Event>> {
        let event = match until {
            None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => {
                self.events.recv_timeout(until.saturating_duration_since(Instant::now()))
            }
        };
        match event {
            Ok(Event::Died(thread)) => {
                anyhow::bail!("the thread {thread} panicked: this is a bug in inkstone")
            }
            Ok(event) => Ok(Some(event)),
            // This struct holds a sender, so the channel cannot be closed.
            Err(_) => Ok(None),
        }
    }

    /// Counts a signal to end; false for a SIGHUP, and for a repetition of the last signal.
    fn is_wish(&mut self, signal: i32) -> bool {
        let is_same = self.last.is_some_and(|(_, at)| at.elapsed() < SAME_SIGNAL);
        if signal == SIGHUP || is_same {
            return false;
        }
        let now = Instant::now();
        self.signals += 1;
        self.first.get_or_insert(now);
        self.last = Some((signal, now));
        true
    }

    /// The deadline; `None` without a signal, and if it is too far away for an `Instant`.
    fn deadline(&self) -> Option<Instant> {
        self.first.and_then(|first| first.checked_add(self.grace))
    }

    /// This long after the deadline.
    fn behind_deadline(&self, by: Duration) -> Option<Instant> {
        self.deadline().and_then(|until| until.checked_add(by))
    }

    /// Starts the thread that will close the log: at the end there may be no thread left to start.
    fn closer(&self) -> anyhow::Result<Sender<Closing>> {
        let (give, given) = channel::<Closing>();
        self.spawn("close", move || {
            // The sender is gone: no log was opened, and nothing waits for an answer.
            Event::Closed(given.recv().map_or(Ok(()), |Closing { guard, at_most }| match at_most {
                Some(at_most) => guard.close_within(at_most),
                None => guard.close(),
            }))
        })?;
        Ok(give)
    }

    /// Takes events, as long as `until` gives, until what is waited for is there.
    fn wait(
        &mut self,
        until: impl Fn(&Self) -> Option<Instant>,
        is_done: impl Fn(&Self) -> bool,
    ) -> anyhow::Result<Waited> {
        while !is_done(self) {
            match self.next(until(self))? {
                None => return Ok(Waited::Late),
                Some(Event::Opened(opened)) => {
                    let (log, guard) = opened?;
                    if self.is_hangup_due {
                        log.reopen();
                    }
                    (self.log, self.guard) = (Some(log), Some(guard));
                }
                Some(Event::InputEnded(ended)) => self.input = Some(ended),
                Some(Event::Closed(result)) => self.closed = Some(result),
                Some(Event::Signal(SIGHUP)) => match &self.log {
                    Some(log) => log.reopen(),
                    None => self.is_hangup_due = true,
                },
                Some(Event::Signal(signal)) if self.is_wish(signal) => {
                    if self.signals > 1 {
                        return Ok(Waited::Asked);
                    }
                    // A person waits for the end.
                    if signal == SIGINT && self.reads_on && self.input.is_none() {
                        let at_most = self.grace;
                        say(format_args!(
                            "SIGINT: stdin is read to its end, for at most {at_most:?}; a second \
                             Ctrl-C ends reading"
                        ));
                    }
                }
                Some(_) => {}
            }
        }
        Ok(Waited::Done)
    }

    /// Opens the log, which takes a while if a killed process has left much; `None` if a second
    /// signal came first. An error if the deadline of the first signal passes.
    fn open(
        &mut self,
        open: impl FnOnce() -> anyhow::Result<(LogWriter, Guard)> + Send + 'static,
    ) -> anyhow::Result<Option<(LogWriter, Guard)>> {
        self.spawn("open", move || Event::Opened(open()))?;
        match self.wait(|run| run.behind_deadline(LATE), |run| run.guard.is_some())? {
            Waited::Done => Ok(self.log.clone().zip(self.guard.take())),
            Waited::Asked => Ok(None),
            Waited::Late => anyhow::bail!("a signal came, and the log could not be opened in time"),
        }
    }

    /// Waits until the input has ended. After the first signal it is read until the deadline, after
    /// the second no further.
    fn wait_for_input(
        &mut self,
        log: &LogWriter,
        count: &Count,
        stop: InputStop,
    ) -> anyhow::Result<()> {
        let is_read_on = self.reads_on;
        let until = |run: &Self| if is_read_on { run.deadline() } else { run.first };
        let has_ended = |run: &Self| run.input.is_some();
        let waited = self.wait(until, has_ended)?;
        drop(stop);
        if waited == Waited::Done {
            return Ok(());
        }
        self.is_late = waited == Waited::Late && is_read_on;
        // The last read, as long as anything moves.
        let moved = || (count.read().bytes, log.stats().written_bytes);
        loop {
            let (seen, still) = (moved(), Instant::now() + READ_STILL);
            match self.wait(|_| Some(still), has_ended)? {
                Waited::Done => return Ok(()),
                // Not even the rest of the input could be read.
                Waited::Late if moved() == seen => {
                    self.is_late = true;
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// Closes the log. Stops waiting because of another signal, or because the deadline is over and
    /// nothing more reaches the log.
    fn close(
        &mut self,
        closer: &Sender<Closing>,
        guard: Guard,
        log: &LogWriter,
    ) -> anyhow::Result<()> {
        let at_most = self.deadline().map(|until| until.saturating_duration_since(Instant::now()));
        // The thread waits for this, unless it has died, which is the next event.
        let _ = closer.send(Closing { guard, at_most });
        loop {
            // A slow disk is waited for while it takes anything.
            let (seen, still) = (log.stats().written_bytes, Instant::now() + DISK_STILL);
            let until = |run: &Self| {
                let late = run.behind_deadline(LATE).map(|end| end.max(still));
                // The log takes no more lines, so the reader ends, unless it hangs in a read
                // because another process took the input.
                late.or_else(|| run.closed.as_ref().map(|_| Instant::now() + OVERTIME))
            };
            let waited = self.wait(until, |run| run.closed.is_some() && run.input.is_some())?;
            let goes_on = self.closed.is_none() && log.stats().written_bytes != seen;
            if waited != Waited::Late || !goes_on {
                return Ok(());
            }
        }
    }

    fn end_echo(&mut self, echo: &Echo) -> Option<String> {
        let called_at = Instant::now();
        // Without a signal only the echo's reader waits for this process.
        echo.finish(|| {
            if let Ok(Event::Signal(signal)) = self.events.try_recv()
                && self.is_wish(signal)
                && self.signals > 1
            {
                return Some(called_at);
            }
            self.behind_deadline(LATE)
        })
    }
}

/// The data of the final report.
struct End<'a> {
    arguments: &'a TeeArguments,
    log: &'a LogWriter,
    count: &'a Count,
    closed: Option<io::Result<()>>,
    /// Why something was not echoed.
    missing: Option<String>,
}

impl End<'_> {
    fn tell(
        self,
        input: Option<anyhow::Result<()>>,
        signal: Option<i32>,
        is_late: bool,
    ) -> ExitCode {
        let read = self.count.read();
        if let Some(signal) = signal
            && is_late
            && !read.is_all
        {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            say(format_args!("{name}: stdin did not end in time, and its rest was not read"));
        }
        let stats = self.log.stats();
        if stats.dropped_lines > 0 {
            let (lines, bytes) = (stats.dropped_lines, stats.dropped_bytes);
            say(format_args!("{lines} lines were dropped ({bytes} bytes), as --drop-after says"));
        }
        let mut is_good = self.tell_unwritten(read, stats);
        if let Some(Err(error)) = &input {
            is_good = false;
            say(format_args!("{error:#}"));
        }
        if let Some(why) = &self.missing {
            say(format_args!("some lines were not echoed to stdout: {why}"));
        }
        match signal {
            _ if !is_good || self.missing.is_some() => ExitCode::FAILURE,
            Some(_) => ExitCode::from(ENDED),
            None => ExitCode::SUCCESS,
        }
    }

    /// Reports the lines that were read but neither written nor dropped. A line with a part missing
    /// is one of them.
    fn tell_unwritten(&self, read: super::read::Read, stats: Stats) -> bool {
        let bytes = read.bytes.saturating_sub(stats.written_bytes + stats.dropped_bytes);
        let lines = read.lines.saturating_sub(stats.written_lines + stats.dropped_lines);
        let lines = lines.max(stats.unwritten_lines).max(u64::from(bytes > 0));
        let why = match &self.closed {
            Some(Ok(())) => None,
            // Not the error of closing where there is a cause: that error counts the lines too.
            Some(Err(error)) => Some(
                self.log.trouble().map_or_else(|| error.to_string(), |cause| cause.to_string()),
            ),
            None => Some("no time was left to close the log".to_owned()),
        };
        if lines > 0 {
            let why = why.unwrap_or_else(|| "the log was closed".to_owned());
            let is_kept = self.arguments.survive() != Survive::Nothing;
            let kept =
                if is_kept { "; the next start writes those that the log has taken" } else { "" };
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

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        let (tell, events) = channel();
        Run::hearing(tell, events, Duration::from_secs(8))
    }

    #[test]
    fn a_hangup_while_the_log_is_being_opened_opens_it_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, moved) = (directory.path().join("s.log"), directory.path().join("s.log.1"));
        let mut run = run();
        let (tell, at, to) = (run.tell.clone(), file.clone(), moved.clone());
        let opened = run.open(move || {
            let opened = LogWriter::builder(&at).open()?;
            // logrotate renames it at this moment.
            std::fs::rename(&at, &to)?;
            tell.send(Event::Signal(SIGHUP))?;
            Ok(opened)
        });
        let (mut log, guard) = opened.expect("opened").expect("not ended");
        let since = Instant::now();
        while !file.exists() {
            assert!(since.elapsed() < Duration::from_secs(120), "it is not opened again");
            std::thread::yield_now();
        }
        io::Write::write_all(&mut log, b"behind it\n").expect("taken");
        guard.close().expect("written");
        assert_eq!(std::fs::read_to_string(&file).expect("made anew"), "behind it\n");
        assert_eq!(std::fs::read_to_string(&moved).expect("moved"), "");
    }

    #[test]
    fn there_is_one_deadline_and_the_first_signal_sets_it() {
        let mut run = run();
        assert_eq!(run.deadline(), None);
        assert!(!run.is_wish(SIGHUP) && run.is_wish(15));
        let until = run.deadline().expect("set");
        run.last = run.last.map(|(signal, at)| (signal, at - SAME_SIGNAL));
        assert!(run.is_wish(2) && run.signals == 2);
        assert_eq!(run.deadline(), Some(until));
        run.grace = Duration::MAX;
        assert_eq!(run.deadline(), None, "more than there is of time");
    }
}
