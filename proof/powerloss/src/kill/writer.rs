//! The process that is killed: it appends from several threads, and reports each append before and
//! after.
//!
//! *Owns*: what the writer does. *May not touch*: the judgement (`witness.rs`), its own end.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use inkstone::{Log, Lsn};

use super::plan::{Lie, Round};
use super::record::Id;
use super::told::Told;

/// After how many turns of a thread the writer lies, and after how many it truncates the log.
const LIES_EVERY: u32 = 40;
const GIVES_UP_EVERY: u32 = 24;

/// Appends to the log in `path` until it is killed, or closes it if the round says so. `out` gets a
/// line at a time.
///
/// # Errors
/// An error of the log, or that nobody reads the output any more; `out` got it as well.
pub fn write(
    path: &Path,
    round: &Round,
    lie: Option<Lie>,
    out: impl Write + Send,
) -> Result<(), String> {
    let pipe = Pipe(Mutex::new(out));
    let outcome = write_and_close(path, round, lie, &pipe);
    if let Err(why) = &outcome {
        // It fails if nobody reads, and then nobody needs it.
        let _ = pipe.tell(&Told::Failed(why.clone()));
    }
    outcome
}

fn write_and_close<W: Write + Send>(
    path: &Path,
    round: &Round,
    lie: Option<Lie>,
    pipe: &Pipe<W>,
) -> Result<(), String> {
    let log = Log::open(path, round.options(lie)).map_err(words)?;
    pipe.tell(&Told::Open)?;
    let is_over = AtomicBool::new(false);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..round.threads)
            .map(|thread| {
                let mut writer = Writer::new(&log, pipe, round, thread, lie);
                let is_over = &is_over;
                scope.spawn(move || {
                    let outcome = writer.run(is_over);
                    is_over.store(true, Ordering::Relaxed);
                    outcome
                })
            })
            .collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    for outcome in outcomes {
        outcome.map_err(|_| "a thread of the writer panicked".to_owned())??;
    }
    pipe.tell(&Told::Closing)?;
    log.close().map_err(words)?;
    pipe.tell(&Told::Closed)
}

fn words(error: inkstone::Error) -> String {
    error.to_string()
}

struct Pipe<W>(Mutex<W>);

impl<W: Write> Pipe<W> {
    fn tell(&self, told: &Told) -> Result<(), String> {
        // One write a line: a kill leaves whole lines.
        let line = format!("{told}\n");
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        told.map_err(|error| format!("the output has no reader: {error}"))
    }
}

struct Writer<'a, W> {
    log: &'a Log,
    pipe: &'a Pipe<W>,
    round: &'a Round,
    thread: u8,
    lie: Option<Lie>,
    rng: fastrand::Rng,
    next: u32,
    acknowledged: u32,
}

impl<'a, W: Write> Writer<'a, W> {
    fn new(
        log: &'a Log,
        pipe: &'a Pipe<W>,
        round: &'a Round,
        thread: u8,
        lie: Option<Lie>,
    ) -> Self {
        let rng = fastrand::Rng::with_seed(u64::from(round.number) << 8 | u64::from(thread));
        Self { log, pipe, round, thread, lie, rng, next: 0, acknowledged: 0 }
    }

    fn run(&mut self, is_over: &AtomicBool) -> Result<(), String> {
        for turn in 1.. {
            if turn % LIES_EVERY == 0 {
                self.lie()?;
            }
            match self.rng.u8(..16) {
                0..=6 => self.append_and_wait(1)?,
                7 | 8 => {
                    let count = self.rng.u32(2..6);
                    self.append_and_wait(count)?;
                }
                9..=11 => drop(self.append()?),
                12..=14 => self.batch()?,
                _ => self.sync()?,
            }
            if self.thread == 0 && turn % GIVES_UP_EVERY == 0 {
                self.give_up()?;
            }
            let is_enough = self.thread == 0
                && self
                    .round
                    .closes_after
                    .is_some_and(|acknowledged| self.acknowledged >= acknowledged);
            if is_enough || is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn intend(&mut self, count: u32, is_batch: bool) -> Result<Vec<Vec<u8>>, String> {
        let first = self.next;
        self.pipe.tell(&Told::Intends { thread: self.thread, number: first, count, is_batch })?;
        self.next += count;
        Ok((first..self.next).map(|number| self.payload(number)).collect())
    }

    fn payload(&self, number: u32) -> Vec<u8> {
        Id { round: self.round.number, thread: self.thread, number }.payload()
    }

    fn tell_acknowledged(&mut self, lsn: Lsn) -> Result<(), String> {
        self.acknowledged += 1;
        let number = self.next - 1;
        self.pipe.tell(&Told::Acknowledged { thread: self.thread, number, lsn: lsn.get() })
    }

    fn append(&mut self) -> Result<inkstone::Append<'a>, String> {
        let payload = self.intend(1, false)?;
        self.log.append(&payload[0]).map_err(words)
    }

    /// Appends this many records and waits for the last.
    fn append_and_wait(&mut self, count: u32) -> Result<(), String> {
        for payload in self.intend(count - 1, false)? {
            drop(self.log.append(&payload).map_err(words)?);
        }
        let append = self.append()?;
        self.finish(append)
    }

    fn batch(&mut self) -> Result<(), String> {
        let count = self.rng.u32(2..6);
        let payloads = self.intend(count, true)?;
        let append = self.log.append_batch(&payloads).map_err(words)?;
        if self.rng.bool() {
            return Ok(());
        }
        self.finish(append)
    }

    fn finish(&mut self, append: inkstone::Append<'_>) -> Result<(), String> {
        if self.lie == Some(Lie::Early) {
            self.tell_acknowledged(append.lsn())?;
            return append.wait().map(drop).map_err(words);
        }
        let lsn = append.wait().map_err(words)?;
        self.tell_acknowledged(lsn)
    }

    fn sync(&mut self) -> Result<(), String> {
        let lsn = self.log.sync().map_err(words)?;
        self.acknowledged += 1;
        self.pipe.tell(&Told::Synced { thread: self.thread, next: self.next, lsn: lsn.get() })
    }

    /// Only one thread truncates, so the log has at most two possible first LSNs.
    fn give_up(&mut self) -> Result<(), String> {
        let kept = self.rng.u64(..400);
        let first = self.log.durable().get().saturating_sub(kept).max(self.log.first().get());
        let more = u64::from(self.lie == Some(Lie::TruncatesMore));
        self.pipe.tell(&Told::GivesUp(first))?;
        self.log.truncate_before(Lsn::new(first + more)).map_err(words)?;
        self.pipe.tell(&Told::GaveUp(first))
    }

    fn lie(&mut self) -> Result<(), String> {
        let mut payloads = match self.lie {
            Some(Lie::Twice) => vec![self.intend(1, false)?.remove(0); 2],
            Some(Lie::Unsaid) => vec![self.payload(self.next)],
            Some(Lie::Swapped) => self.intend(2, false)?.into_iter().rev().collect(),
            Some(Lie::Flipped) => self.intend(1, false)?,
            _ => return Ok(()),
        };
        if self.lie == Some(Lie::Flipped) {
            let byte = self.rng.usize(..payloads[0].len());
            payloads[0][byte] ^= 1;
        }
        for payload in payloads {
            self.log.append_durable(&payload).map_err(words)?;
        }
        Ok(())
    }
}
