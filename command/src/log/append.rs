//! `inkstone append`.
//!
//! *Owns*: which thread reads, waits and prints. *May not touch*: commits.
//!
//! One thread reads and appends; this one makes what has arrived durable and prints its LSNs. So a
//! fast producer gets one flush for many lines, and a producer that waits for its LSN gets it at
//! once. The reading thread may hang in a read for ever: it only borrows the log, which is taken
//! from it at the end.

use std::io::{BufReader, Read, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::Duration;

use inkstone_io::{Got, Input, InputStop};

use super::arguments::AppendArguments;
use super::input::Records;
use super::sink::Sink;
use super::words::tell_of_place;
use crate::stdout::Stdout;
use crate::threads;

/// How quickly a signal is noticed.
const NOTICE: Duration = Duration::from_millis(20);
const BUFFER_BYTES: usize = 256 << 10;

struct Shared {
    /// `None` once nothing more may be appended.
    sink: RwLock<Option<Sink>>,
    progress: Mutex<Progress>,
    arrived: Condvar,
}

struct Progress {
    /// The number that the next record gets, of those that have arrived.
    next: u64,
    /// How reading ended.
    end: Option<anyhow::Result<()>>,
}

/// Appends stdin to the log, or to a stream of it.
pub(super) fn append(
    arguments: &AppendArguments,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<ExitCode> {
    let sink = Sink::open(arguments)?;
    tell_of_place(&arguments.directory);
    let (next, record_max) = (sink.next()?, sink.record_bytes_max());
    let shared = Arc::new(Shared {
        sink: RwLock::new(Some(sink)),
        progress: Mutex::new(Progress { next, end: None }),
        arrived: Condvar::new(),
    });
    let input = BufReader::with_capacity(BUFFER_BYTES, Waiting(Input::stdin()?));
    let records = Records::new(input, arguments.framing.separator(), record_max);
    let theirs = Arc::clone(&shared);
    threads::start("stdin", move || read(&theirs, records))?;
    let mut printer = Printer { out: Stdout::new(), next, quiet: arguments.quiet };
    let printed = commit_as_it_arrives(&shared, &mut printer, stop);
    let is_all = matches!(printed, Ok(Some(Ok(())))) && !stop.load(Ordering::Relaxed);
    let note = arguments.note.as_deref().filter(|_| is_all);
    // However it ended: makes the appended records durable and closes the log.
    let sink = shared.sink.write().unwrap_or_else(PoisonError::into_inner).take();
    let closed = sink.map_or(Ok(()), |sink| finish(&sink, note, &mut printer));
    let end = printed?;
    closed?;
    end.unwrap_or(Ok(())).map_err(|error| {
        let before = before(printer.next - next);
        anyhow::anyhow!("{error:#}; {before}")
    })?;
    Ok(if stop.load(Ordering::Relaxed) { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// Reads stdin and waits for input, even if another process made the pipe non-blocking (node and
/// ssh do). Nothing stops it: a read may hang for ever.
struct Waiting((Input, InputStop));

impl Read for Waiting {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self.0.0.read(into).map_err(|error| std::io::Error::new(error.kind(), error))? {
            Got::Bytes(count) => Ok(count),
            Got::End | Got::Nothing => Ok(0),
        }
    }
}

/// Appends what arrives, until the input ends or the log is taken away.
fn read(shared: &Shared, mut records: Records<impl std::io::BufRead>) {
    let mut next = None;
    let mut read_once = || -> anyhow::Result<bool> {
        let is_more = records.wait()?;
        let sink = shared.sink.read().unwrap_or_else(PoisonError::into_inner);
        let Some(sink) = &*sink else { return Ok(false) };
        let mut give = |record: &[u8]| {
            next = Some(sink.append(record)?);
            Ok(())
        };
        if is_more {
            records.take(&mut give)?
        } else {
            records.finish(&mut give)?
        }
        if let Some(next) = next {
            shared.lock().next = next;
            shared.arrived.notify_one();
        }
        Ok(is_more)
    };
    let end = loop {
        match read_once() {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let mut progress = shared.lock();
    progress.next = next.unwrap_or(progress.next);
    progress.end = Some(end);
    shared.arrived.notify_one();
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the record `next` has arrived, or reading has ended.
    fn wait(&self, next: u64, stop: &AtomicBool) -> (u64, Option<anyhow::Result<()>>) {
        let mut progress = self.lock();
        while progress.next <= next && progress.end.is_none() && !stop.load(Ordering::Relaxed) {
            (progress, _) =
                self.arrived.wait_timeout(progress, NOTICE).unwrap_or_else(PoisonError::into_inner);
        }
        (progress.next, progress.end.take())
    }
}

/// Returns how reading ended; `None` if a signal ended it.
fn commit_as_it_arrives(
    shared: &Shared,
    printer: &mut Printer,
    stop: &AtomicBool,
) -> anyhow::Result<Option<anyhow::Result<()>>> {
    loop {
        let (next, end) = shared.wait(printer.next, stop);
        if next > printer.next {
            let next = {
                let sink = shared.sink.read().unwrap_or_else(PoisonError::into_inner);
                let Some(sink) = &*sink else { return Ok(end) };
                sink.sync()?
            };
            printer.print_before(next);
        }
        if end.is_some() || stop.load(Ordering::Relaxed) {
            return Ok(end);
        }
    }
}

fn finish(sink: &Sink, note: Option<&str>, printer: &mut Printer) -> anyhow::Result<()> {
    let noted = note.map_or(Ok(()), |note| sink.set_note(note));
    let next = sink.sync()?;
    sink.close()?;
    printer.print_before(next);
    noted
}

/// Says what became of so many records before the one that could not be appended: whoever tries
/// again must not append them twice.
fn before(count: u64) -> String {
    match count {
        0 => "nothing was appended".into(),
        1 => "the record before it is durable".into(),
        _ => format!("the {count} records before it are durable"),
    }
}

struct Printer {
    out: Stdout,
    /// The number that is printed next.
    next: u64,
    quiet: bool,
}

impl Printer {
    /// The reader of the numbers may leave; records are still appended.
    fn print_before(&mut self, next: u64) {
        let from = self.next;
        self.next = from.max(next);
        if self.quiet || !self.out.takes_more() {
            return;
        }
        for number in from..next {
            let _ = writeln!(self.out, "{number}");
        }
        let _ = self.out.flush();
    }
}
