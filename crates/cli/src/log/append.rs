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

use inkstone::{Log, Lsn, Options};
use inkstone_io::{Got, Input, InputStop};

use super::input::Records;
use super::{AppendArguments, said};
use crate::stdout::Stdout;
use crate::threads;

/// How quickly a signal is noticed.
const NOTICE: Duration = Duration::from_millis(20);
const BUFFER_BYTES: usize = 256 << 10;
const RECORD_BYTES_MAX: u64 = 16 << 20;

struct Shared {
    /// `None` once nothing more may be appended.
    log: RwLock<Option<Log>>,
    progress: Mutex<Progress>,
    arrived: Condvar,
}

struct Progress {
    appended: Lsn,
    /// How reading ended.
    end: Option<anyhow::Result<()>>,
}

/// Appends stdin to the log.
pub(super) fn append(
    arguments: &AppendArguments,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<ExitCode> {
    let record_max =
        arguments.record_max.unwrap_or(RECORD_BYTES_MAX.min(arguments.segment_size / 2));
    let record_max = usize::try_from(record_max)?;
    let mut options =
        Options::new().segment_bytes(arguments.segment_size).record_bytes_max(record_max);
    if let Some(durability) = arguments.durability {
        options = options.durability(durability);
    }
    if let Some(access) = arguments.access {
        options = options.access(access);
    }
    let log = Log::open(&arguments.directory, options).map_err(said)?;
    let last = log.last();
    let shared = Arc::new(Shared {
        log: RwLock::new(Some(log)),
        progress: Mutex::new(Progress { appended: last, end: None }),
        arrived: Condvar::new(),
    });
    let input = BufReader::with_capacity(BUFFER_BYTES, Waiting(Input::stdin()?));
    let records = Records::new(input, arguments.framing.separator(), record_max);
    let theirs = Arc::clone(&shared);
    threads::start("stdin", move || read(&theirs, records))?;
    let mut printer = Printer { out: Stdout::new(), printed: last, quiet: arguments.quiet };
    let printed = commit_as_it_arrives(&shared, &mut printer, stop);
    // However it ended: makes the appended records durable and closes the log.
    let log = shared.log.write().unwrap_or_else(PoisonError::into_inner).take();
    let closed = log.map_or(Ok(()), |log| finish(log, &mut printer));
    let end = printed?;
    closed?;
    end.unwrap_or(Ok(()))?;
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
    let mut last = None;
    let mut read_once = || -> anyhow::Result<bool> {
        let is_more = records.wait()?;
        let log = shared.log.read().unwrap_or_else(PoisonError::into_inner);
        let Some(log) = &*log else { return Ok(false) };
        let mut give = |record: &[u8]| {
            // Nothing waits for this handle: the printing thread syncs everything that has arrived.
            last = Some(log.append(record).map_err(said)?.lsn());
            Ok(())
        };
        if is_more {
            records.take(&mut give)?
        } else {
            records.finish(&mut give)?
        }
        if let Some(last) = last {
            shared.lock().appended = last;
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
    progress.appended = last.unwrap_or(progress.appended);
    progress.end = Some(end);
    shared.arrived.notify_one();
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until more than `printed` has arrived, or reading has ended.
    fn wait(&self, printed: Lsn, stop: &AtomicBool) -> (Lsn, Option<anyhow::Result<()>>) {
        let mut progress = self.lock();
        while progress.appended <= printed
            && progress.end.is_none()
            && !stop.load(Ordering::Relaxed)
        {
            (progress, _) =
                self.arrived.wait_timeout(progress, NOTICE).unwrap_or_else(PoisonError::into_inner);
        }
        (progress.appended, progress.end.take())
    }
}

/// Returns how reading ended; `None` if a signal ended it.
fn commit_as_it_arrives(
    shared: &Shared,
    printer: &mut Printer,
    stop: &AtomicBool,
) -> anyhow::Result<Option<anyhow::Result<()>>> {
    loop {
        let (appended, end) = shared.wait(printer.printed, stop);
        if appended > printer.printed {
            let durable = {
                let log = shared.log.read().unwrap_or_else(PoisonError::into_inner);
                let Some(log) = &*log else { return Ok(end) };
                log.sync().map_err(said)?
            };
            printer.print_to(durable);
        }
        if end.is_some() || stop.load(Ordering::Relaxed) {
            return Ok(end);
        }
    }
}

fn finish(log: Log, printer: &mut Printer) -> anyhow::Result<()> {
    let durable = log.sync().map_err(said)?;
    log.close().map_err(said)?;
    printer.print_to(durable);
    Ok(())
}

struct Printer {
    out: Stdout,
    printed: Lsn,
    quiet: bool,
}

impl Printer {
    /// The reader of the LSNs may leave; records are still appended.
    fn print_to(&mut self, durable: Lsn) {
        let from = self.printed.get() + 1;
        self.printed = self.printed.max(durable);
        if self.quiet || !self.out.takes_more() {
            return;
        }
        for lsn in from..=durable.get() {
            let _ = writeln!(self.out, "{lsn}");
        }
        let _ = self.out.flush();
    }
}
