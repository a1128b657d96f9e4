//! The process that uses the log: threads that append until they are refused or stopped, and what
//! each call returned.
//!
//! *Owns*: using the log, and printing so. *May not touch*: disks; whether the results are right.
//!
//! It prints a line before each call and one after it, in the order in which they happened: all
//! lines go through one lock. It reads the words `stop`, `fill` and `free` (the file system),
//! `reopen`. When its input ends, it ends too, whatever hangs.

use std::fs::File;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use inkstone::{Error, Log, Lsn, Options, Preparation};

use super::words::{Call, Class, Line, Refusal};
use crate::kernel::spec::Way;
use crate::mistake::{Mistake, build_in};
use crate::sim::variant::small;

/// The thread number of the first life after `reopen`; later lives count up from it.
pub const AGAIN: u32 = 100;
/// Records that a life after `reopen` appends.
const RECORDS_AGAIN: u32 = 8;
/// Calls that a thread makes after the log was poisoned: each must be refused likewise.
const CALLS_AFTER: u32 = 3;
/// How often a call is retried on a full file system.
const TRIES_WHEN_FULL: u32 = 2000;

/// How the log is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// How it writes.
    pub way: Way,
    /// Threads that append.
    pub threads: u32,
    /// Decides everything else.
    pub seed: u64,
    /// A mistake in the log, to see that it is found.
    pub mistake: Option<Mistake>,
}

impl Use {
    /// The options of the log.
    pub fn options(&self) -> Options {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ 0x6661_756C_7473_2121);
        let options = small()
            .access(self.way.access())
            .durability(self.way.durability())
            .preparation(if rng.bool() { Preparation::Zeros } else { Preparation::Fallocate })
            .pad_groups(rng.bool())
            .free_segments_max(rng.usize(..3))
            .idle(Duration::from_millis(20))
            .own_thread(rng.u8(..4) > 0);
        build_in(options, self.mistake)
    }
}

/// The payload of a record: its thread, its number, and bytes that follow from these.
pub fn payload(thread: u32, number: u32) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(u64::from(thread) << 32 | u64::from(number));
    let most = if rng.u8(..16) == 0 { 16_000 } else { 2000 };
    let rest = rng.usize(..most);
    let mut bytes = Vec::with_capacity(8 + rest);
    bytes.extend_from_slice(&thread.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend(std::iter::repeat_with(|| rng.u8(..)).take(rest));
    bytes
}

/// The thread and number of a record; `None`: none of ours.
pub fn author(bytes: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (thread, number) = (number(0)?, number(4)?);
    (payload(thread, number) == bytes).then_some((thread, number))
}

struct Worker<'a> {
    directory: PathBuf,
    usage: &'a Use,
    output: Mutex<&'a mut (dyn Write + Send)>,
}

/// Uses a log in `directory` until the input ends.
///
/// # Errors
/// Nobody reads its output any more.
pub fn work(
    directory: &Path,
    usage: &Use,
    input: impl BufRead + Send + 'static,
    output: &mut (dyn Write + Send),
) -> Result<(), String> {
    let worker = Worker { directory: directory.to_path_buf(), usage, output: Mutex::new(output) };
    let (sender, lives) = channel();
    let stopper = std::sync::Arc::new(AtomicBool::new(false));
    let told = std::sync::Arc::clone(&stopper);
    let ballast = directory.with_file_name("ballast");
    // Not joined: a call that hangs in the kernel must not keep this process from ending.
    std::thread::spawn(move || {
        for line in input.lines().map_while(Result::ok) {
            match line.as_str() {
                "stop" => told.store(true, Ordering::Relaxed),
                "fill" => fill(&ballast),
                "free" => drop(std::fs::remove_file(&ballast)),
                _ if sender.send(()).is_ok() => {}
                _ => break,
            }
        }
        std::process::exit(0);
    });
    worker.lives(&lives, &stopper)
}

/// Fills the file system.
fn fill(path: &Path) {
    let Ok(mut file) = File::create(path) else { return };
    let mut piece = 1 << 20;
    while piece >= 512 {
        match file.write(&vec![1; piece]).and_then(|written| file.sync_data().map(|()| written)) {
            Ok(written) if written > 0 => {}
            _ => piece /= 2,
        }
    }
}

impl Worker<'_> {
    fn say(&self, line: &Line) -> Result<(), String> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let said = writeln!(output, "{line}").and_then(|()| output.flush());
        said.map_err(|error| format!("the output has no reader: {error}"))
    }

    /// Makes a call, with a line before it and one after it.
    fn call<T>(
        &self,
        thread: u32,
        call: Call,
        number: u32,
        make: impl FnOnce() -> Result<(u64, T), Error>,
    ) -> Result<Result<T, Refusal>, String> {
        self.say(&Line::Begin(thread, call, number))?;
        match make() {
            Ok((lsn, value)) => {
                self.say(&Line::Done(thread, call, number, lsn))?;
                Ok(Ok(value))
            }
            Err(error) => {
                let why = Refusal::of(&error);
                self.say(&Line::Failed(thread, call, number, why.clone()))?;
                Ok(Err(why))
            }
        }
    }

    fn lives(&self, again: &Receiver<()>, told: &AtomicBool) -> Result<(), String> {
        let mut life = 0;
        loop {
            let opened = self.call(0, Call::Open, life, || {
                Log::open(&self.directory, self.usage.options()).map(|log| (log.last().get(), log))
            })?;
            if let Ok(log) = opened {
                self.say(&Line::Shown(log.first().get(), log.last().get()))?;
                if life == 0 {
                    self.threads(&log, told)?;
                } else {
                    self.some(&log, AGAIN + life)?;
                }
                self.read_all(&log, life)?;
                self.end(log, life)?;
            }
            self.say(&Line::Rests)?;
            life += 1;
            if again.recv().is_err() {
                return Ok(());
            }
        }
    }

    fn threads(&self, log: &Log, told: &AtomicBool) -> Result<(), String> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.usage.threads)
                .map(|thread| scope.spawn(move || self.appends(log, thread, told)))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
            })
        })
    }

    fn appends(&self, log: &Log, thread: u32, told: &AtomicBool) -> Result<(), String> {
        let mut rng = fastrand::Rng::with_seed(self.usage.seed ^ u64::from(thread) << 40);
        let mut number = 0;
        let mut after = 0;
        let mut tries = 0;
        while !told.load(Ordering::Relaxed) && after < CALLS_AFTER {
            let refused = match rng.u8(..32) {
                0..=2 => self
                    .call(thread, Call::Sync, 0, || log.sync().map(|lsn| (lsn.get(), ())))?
                    .err(),
                3 if thread == 0 => self.truncate(log, &mut rng)?,
                4..=10 => self.pair(log, thread, &mut number)?,
                _ => self.append(log, thread, &mut number)?,
            };
            match refused {
                None => tries = 0,
                Some(why) if why.class == Class::NoRoom && tries < TRIES_WHEN_FULL => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Some(_) => after += 1,
            }
        }
        Ok(())
    }

    fn append(&self, log: &Log, thread: u32, number: &mut u32) -> Result<Option<Refusal>, String> {
        let payload = payload(thread, *number);
        let mine = *number;
        *number += 1;
        let append = || log.append_durable(&payload).map(|lsn| (lsn.get(), ()));
        Ok(self.call(thread, Call::Append, mine, append)?.err())
    }

    /// Appends two records and waits for them in reverse order.
    fn pair(&self, log: &Log, thread: u32, number: &mut u32) -> Result<Option<Refusal>, String> {
        let mut handles = Vec::new();
        for _ in 0..2 {
            let mine = *number;
            *number += 1;
            let gather =
                || log.append(&payload(thread, mine)).map(|append| (append.lsn().get(), append));
            match self.call(thread, Call::Gather, mine, gather)? {
                Ok(append) => handles.push((mine, append)),
                Err(why) => return Ok(Some(why)),
            }
        }
        let mut refused = None;
        for (mine, append) in handles.into_iter().rev() {
            let waited =
                self.call(thread, Call::Wait, mine, || append.wait().map(|lsn| (lsn.get(), ())))?;
            refused = refused.or(waited.err());
        }
        Ok(refused)
    }

    fn truncate(&self, log: &Log, rng: &mut fastrand::Rng) -> Result<Option<Refusal>, String> {
        let (first, durable) = (log.first().get(), log.durable().get());
        if durable < first + 40 {
            return Ok(None);
        }
        let first = rng.u64(first + 1..=durable - 20);
        let truncate = || log.truncate_before(Lsn::new(first)).map(|()| (first, ()));
        Ok(self.call(0, Call::TruncateBefore, first as u32, truncate)?.err())
    }

    fn some(&self, log: &Log, thread: u32) -> Result<(), String> {
        let mut number = 0;
        for _ in 0..RECORDS_AGAIN {
            self.append(log, thread, &mut number)?;
        }
        Ok(())
    }

    fn read_all(&self, log: &Log, life: u32) -> Result<(), String> {
        let read = || {
            let durable = log.durable();
            let mut next = log.first();
            while next <= durable {
                let bytes = log.reader().get(next)?;
                if author(&bytes).is_none() {
                    return Err(Error::Invalid(format!(
                        "LSN {next} has {} bytes that nobody appended",
                        bytes.len()
                    )));
                }
                next = Lsn::new(next.get() + 1);
            }
            Ok((durable.get(), ()))
        };
        self.call(0, Call::Read, life, read).map(drop)
    }

    fn end(&self, log: Log, life: u32) -> Result<(), String> {
        let is_closed = (self.usage.seed + u64::from(life)).is_multiple_of(2);
        let end = || {
            if is_closed {
                log.close()?;
            } else {
                drop(log);
            }
            Ok((0, ()))
        };
        self.call(0, Call::Close, life, end).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_say_whose_they_are() {
        for (thread, number) in [(0, 0), (3, 17), (AGAIN, 4)] {
            let mut bytes = payload(thread, number);
            assert_eq!(author(&bytes), Some((thread, number)));
            bytes.push(0);
            assert_eq!(author(&bytes), None);
        }
        assert_eq!(author(&[1, 2, 3]), None);
    }
}
