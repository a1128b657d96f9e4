//! The process that uses the log: threads that append until they are refused, stopped or killed,
//! and what each call returned.
//!
//! *Owns*: using the log, and saying so. *May not touch*: disks; whether the results are right.
//!
//! It prints a line before each call and one after it, in the order in which they happened: all
//! lines go through one lock. It reads the words `stop`, `fill` and `free` (the file system), and
//! `reopen`. When its input ends, it ends too, whatever hangs. From `fill` until the first refusal
//! nothing is truncated: a log that recycles what it truncates needs no room and would never meet
//! the full file system.

use std::fs::File;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use inkstone::{Append, Error, Log, Lsn};
use inkstone_io::OsDirectory;

use super::lines::{Call, Class, Line, Made, Refusal};
use super::usage::{Id, Usage, writer};
use inkstone_subject::mistake::open_in;

/// Records that a life after `reopen` appends.
const RECORDS_AGAIN: u32 = 8;
/// Calls that a thread makes after the log was poisoned: each must be refused likewise.
const CALLS_AFTER: u32 = 3;
/// How often a call is retried on a full file system.
const TRIES_WHEN_FULL: u32 = 2000;
struct Worker<'a> {
    directory: PathBuf,
    usage: Usage,
    stop: Arc<AtomicBool>,
    only_grows: Arc<AtomicBool>,
    output: Mutex<&'a mut (dyn Write + Send)>,
}

/// Uses a log in `directory` until the input ends.
pub(crate) fn work(
    directory: &Path,
    usage: &Usage,
    input: impl BufRead + Send + 'static,
    output: &mut (dyn Write + Send),
) -> Result<(), String> {
    let (sender, lives) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let only_grows = Arc::new(AtomicBool::new(false));
    let grows = Arc::clone(&only_grows);
    let ballast = directory.with_file_name("ballast");
    // Not joined: a call that hangs in the kernel must not keep this process from ending.
    std::thread::spawn(move || {
        for line in input.lines().map_while(Result::ok) {
            match line.as_str() {
                "stop" => told.store(true, Ordering::Relaxed),
                "fill" => {
                    grows.store(true, Ordering::Relaxed);
                    fill(&ballast);
                }
                "free" => drop(std::fs::remove_file(&ballast)),
                _ if sender.send(()).is_ok() => {}
                _ => break,
            }
        }
        std::process::exit(0);
    });
    let output = Mutex::new(output);
    Worker { directory: directory.to_path_buf(), usage: *usage, stop, only_grows, output }
        .lives(&lives)
}

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

/// What a call returned; the outer error is that nobody reads the output any more.
type Called<T> = Result<Result<T, Refusal>, String>;

impl<'o> Worker<'o> {
    fn say(&self, line: &Line) -> Result<(), String> {
        // One write a line: a kill leaves whole lines.
        let line = line.to_text() + "\n";
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let said = output.write_all(line.as_bytes()).and_then(|()| output.flush());
        said.map_err(|error| format!("the output has no reader: {error}"))
    }

    /// Makes a call, with a line before it and one after it.
    fn call<T>(&self, made: Made, make: impl FnOnce() -> Result<(u64, T), Error>) -> Called<T> {
        self.say(&Line::Begin(made))?;
        match make() {
            Ok((lsn, value)) => {
                self.say(&Line::Done(made, lsn))?;
                Ok(Ok(value))
            }
            Err(error) => {
                let why = Refusal::of(&error);
                self.say(&Line::Failed(made, why.clone()))?;
                Ok(Err(why))
            }
        }
    }

    fn lives(&self, again: &Receiver<()>) -> Result<(), String> {
        for life in self.usage.life.. {
            let of_life = |call| Made {
                writer: writer(life, 0),
                call,
                number: u64::from(life - self.usage.life),
                count: 1,
            };
            let Usage { mistake, .. } = self.usage;
            let opened = self.call(of_life(Call::Open), || {
                let directory = OsDirectory::create(&self.directory)?;
                let log = open_in(directory, self.usage.options(), mistake)?;
                Ok((log.last().get(), log))
            })?;
            if let Ok(log) = opened {
                self.say(&Line::Shown(log.first().get(), log.last().get()))?;
                if life == self.usage.life {
                    self.threads(&log)?;
                } else {
                    let mut thread = self.thread(&log, life, 0);
                    (0..RECORDS_AGAIN).try_for_each(|_| thread.append().map(drop))?;
                }
                self.call(of_life(Call::Read), || read_all(&log))?.ok();
                let is_closed = life % 2 == 0 || self.usage.ends_after.is_some();
                // A drop promises nothing.
                let end = || {
                    let closed = if is_closed { log.close() } else { Ok(()) };
                    closed.map(|()| (u64::from(is_closed), drop(log)))
                };
                self.call(of_life(Call::Close), end)?.ok();
            }
            self.say(&Line::Rests)?;
            if again.recv().is_err() {
                break;
            }
        }
        Ok(())
    }

    fn thread<'a>(&'a self, log: &'a Log, life: u32, thread: u32) -> Thread<'a, 'o> {
        let writer = writer(life, thread);
        let rng = fastrand::Rng::with_seed(self.usage.seed ^ u64::from(writer) << 32);
        Thread { worker: self, log, writer, is_first: thread == 0, rng, next: 0, acknowledged: 0 }
    }

    fn threads(&self, log: &Log) -> Result<(), String> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.usage.threads)
                .map(|number| {
                    let mut thread = self.thread(log, self.usage.life, number);
                    scope.spawn(move || thread.run())
                })
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
            })
        })
    }
}

fn read_all(log: &Log) -> Result<(u64, ()), Error> {
    let durable = log.durable();
    let mut next = log.first();
    while next <= durable {
        let bytes = log.reader().get(next)?;
        if Id::of(&bytes).is_none() {
            let len = bytes.len();
            return Err(Error::Invalid(format!("LSN {next} has {len} bytes that nobody appended")));
        }
        next = Lsn::new(next.get() + 1);
    }
    Ok((durable.get(), ()))
}

struct Thread<'a, 'o> {
    worker: &'a Worker<'o>,
    log: &'a Log,
    writer: u32,
    is_first: bool,
    rng: fastrand::Rng,
    next: u32,
    acknowledged: u32,
}

type Turn = Result<Option<Refusal>, String>;

impl<'a> Thread<'a, '_> {
    fn run(&mut self) -> Result<(), String> {
        let (mut after, mut tries) = (0, 0);
        loop {
            let is_over = self.worker.stop.load(Ordering::Relaxed) || after >= CALLS_AFTER;
            let ends_after = self.worker.usage.ends_after.filter(|_| self.is_first);
            if is_over || ends_after.is_some_and(|count| self.acknowledged >= count) {
                self.worker.stop.store(true, Ordering::Relaxed);
                break;
            }
            let refused = match self.rng.u8(..32) {
                0..=2 => self.sync()?,
                3 if self.is_first => self.truncate()?,
                4..=8 => self.several()?,
                9..=12 => self.gather(1)?.err(),
                13..=17 => self.batch()?,
                _ => self.append()?,
            };
            match refused {
                None => tries = 0,
                Some(why) if why.class == Class::NoRoom && tries < TRIES_WHEN_FULL => {
                    tries += 1;
                    self.worker.only_grows.store(false, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
                Some(_) => after += 1,
            }
        }
        Ok(())
    }

    fn made(&self, call: Call, number: u32, count: u32) -> Made {
        Made { writer: self.writer, call, number: u64::from(number), count }
    }

    fn payload(&self, number: u32) -> Vec<u8> {
        Id { writer: self.writer, number }.payload()
    }

    fn take(&mut self, count: u32) -> (u32, Vec<Vec<u8>>) {
        let first = self.next;
        self.next += count;
        (first, (first..self.next).map(|number| self.payload(number)).collect())
    }

    fn append(&mut self) -> Turn {
        let (number, payloads) = self.take(1);
        let made = self.made(Call::Append, number, 1);
        let append = || self.log.append_durable(&payloads[0]).map(|lsn| (lsn.get(), ()));
        let done = self.worker.call(made, append)?;
        self.acknowledged += u32::from(done.is_ok());
        Ok(done.err())
    }

    /// Appends so many as one batch, and does not wait.
    fn gather(&mut self, count: u32) -> Called<(u32, Append<'a>)> {
        let (number, payloads) = self.take(count);
        let log = self.log;
        let append = || log.append_batch(&payloads).map(|append| (append.lsn().get(), append));
        let done = self.worker.call(self.made(Call::Gather, number, count), append)?;
        Ok(done.map(|append| (number + count - 1, append)))
    }

    fn wait(&mut self, (number, append): (u32, Append<'a>)) -> Turn {
        let wait = || append.wait().map(|lsn| (lsn.get(), ()));
        let done = self.worker.call(self.made(Call::Wait, number, 1), wait)?;
        self.acknowledged += u32::from(done.is_ok());
        Ok(done.err())
    }

    /// Appends several records and waits for them in reverse order.
    fn several(&mut self) -> Turn {
        let mut gathered = Vec::new();
        for _ in 0..self.rng.u32(2..5) {
            match self.gather(1)? {
                Ok(append) => gathered.push(append),
                Err(why) => return Ok(Some(why)),
            }
        }
        let mut refused = None;
        for append in gathered.into_iter().rev() {
            refused = refused.or(self.wait(append)?);
        }
        Ok(refused)
    }

    fn batch(&mut self) -> Turn {
        let count = self.rng.u32(2..6);
        match self.gather(count)? {
            Ok(append) if self.rng.bool() => self.wait(append),
            gathered => Ok(gathered.err()),
        }
    }

    fn sync(&mut self) -> Turn {
        let made = self.made(Call::Sync, self.next, 1);
        let done = self.worker.call(made, || self.log.sync().map(|lsn| (lsn.get(), ())))?;
        self.acknowledged += u32::from(done.is_ok());
        Ok(done.err())
    }

    /// Only one thread truncates, so the log has at most two possible first LSNs.
    fn truncate(&mut self) -> Turn {
        let (first, durable) = (self.log.first().get(), self.log.durable().get());
        if durable < first + 40 || self.worker.only_grows.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let first = self.rng.u64((first + 1).max(durable.saturating_sub(400))..=durable - 20);
        let made =
            Made { writer: self.writer, call: Call::TruncateBefore, number: first, count: 1 };
        let truncate = || self.log.truncate_before(Lsn::new(first)).map(|()| (first, ()));
        Ok(self.worker.call(made, truncate)?.err())
    }
}
