//! The writers that are compared, each behind the same two calls.
//!
//! *Owns*: how each is opened, fed and ended, and that all are given the same room. *May not
//! touch*: clocks, and what is in the files afterwards.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use inkstone_appender::{Compression, Guard, LogWriter, Rotation, Survive};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// All writers with a thread of their own get as much.
const BUFFERS_BYTES: usize = 16 << 20;
pub const LINE_BYTES: usize = 120;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arm {
    /// No writer: one thread that hands whole buffers to the kernel.
    Bare,
    /// No writer: a copy into memory of the thread's own.
    Memory,
    Mutex,
    Tracing,
    TracingLossy,
    Inkstone,
    InkstoneKill,
    InkstoneRotating,
    InkstoneCompressing,
}

impl Arm {
    pub const ALL: [Arm; 9] = [
        Arm::Bare,
        Arm::Memory,
        Arm::Mutex,
        Arm::Tracing,
        Arm::TracingLossy,
        Arm::Inkstone,
        Arm::InkstoneKill,
        Arm::InkstoneRotating,
        Arm::InkstoneCompressing,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Arm::Bare => "write(2) of 256 KiB, one thread",
            Arm::Memory => "a copy into memory",
            Arm::Mutex => "Mutex<BufWriter 64 KiB>",
            Arm::Tracing => "tracing-appender, blocking",
            Arm::TracingLossy => "tracing-appender, lossy",
            Arm::Inkstone => "inkstone",
            Arm::InkstoneKill => "inkstone, Survive::Kill",
            Arm::InkstoneRotating => "inkstone, every 8 MiB",
            Arm::InkstoneCompressing => "inkstone, every 8 MiB, gzip",
        }
    }
}

impl Arm {
    /// No writer, but what none can be faster than.
    pub fn is_floor(self) -> bool {
        matches!(self, Arm::Bare | Arm::Memory)
    }

    /// It drops lines when they come too fast; every other arm has to wait.
    pub fn is_lossy(self) -> bool {
        self == Arm::TracingLossy
    }
}

/// Lines of 120 bytes, of which no two are alike.
pub struct Lines(Vec<String>);

impl Lines {
    pub fn new() -> Self {
        let words = [
            "request",
            "served",
            "cache",
            "miss",
            "user",
            "connection",
            "closed",
            "timeout",
            "retry",
            "ok",
        ];
        let line = |_| {
            let mut line = String::from("2026-11-21T16:05:33.123456Z  INFO service::http: ");
            while line.len() < LINE_BYTES {
                line += words[fastrand::usize(..words.len())];
                line += &format!("={} ", fastrand::u32(..10_000));
            }
            line.truncate(LINE_BYTES - 1);
            line.push('\n');
            line
        };
        Self((0..4096).map(line).collect())
    }

    #[inline]
    pub fn get(&self, number: u64) -> &str {
        &self.0[number as usize % self.0.len()]
    }
}

/// An open writer; each thread has a clone.
#[derive(Clone)]
pub enum Writer {
    Memory(Vec<u8>),
    Mutex(Arc<Mutex<BufWriter<File>>>),
    Tracing(NonBlocking),
    Inkstone(LogWriter),
}

/// What ends it; everything that it took is in the file afterwards, or soon will be.
pub enum End {
    Nothing,
    Mutex(Arc<Mutex<BufWriter<File>>>),
    Tracing(WorkerGuard, ErrorCounter),
    Inkstone(Guard),
}

impl End {
    /// Gives the lines that it says it dropped.
    pub fn close(self) -> u64 {
        match self {
            End::Nothing => {}
            End::Mutex(file) => file.lock().expect("no panic").flush().expect("written"),
            End::Tracing(guard, dropped) => {
                drop(guard);
                return dropped.dropped_lines() as u64;
            }
            End::Inkstone(guard) => guard.close().expect("written"),
        }
        0
    }
}

impl Writer {
    #[inline]
    pub fn put(&mut self, line: &str) {
        match self {
            Writer::Memory(memory) => {
                if memory.len() + line.len() > memory.capacity() {
                    memory.clear();
                }
                memory.extend_from_slice(line.as_bytes());
            }
            Writer::Mutex(file) => {
                file.lock().expect("no panic").write_all(line.as_bytes()).expect("written")
            }
            Writer::Tracing(writer) => writer.write_all(line.as_bytes()).expect("written"),
            Writer::Inkstone(log) => log.write_all(line.as_bytes()).expect("written"),
        }
    }
}

pub fn open(arm: Arm, path: &Path) -> (Writer, End) {
    let rotating = Rotation::new().at_bytes(8 << 20);
    let inkstone = LogWriter::builder(path).buffers_bytes(BUFFERS_BYTES);
    let inkstone = match arm {
        Arm::Bare => unreachable!("it puts no lines"),
        Arm::Memory => return (Writer::Memory(Vec::new()), End::Nothing),
        Arm::Mutex => {
            let file = File::create(path).expect("a file");
            let file = Arc::new(Mutex::new(BufWriter::with_capacity(64 << 10, file)));
            return (Writer::Mutex(Arc::clone(&file)), End::Mutex(file));
        }
        Arm::Tracing | Arm::TracingLossy => {
            let file = File::create(path).expect("a file");
            let builder = NonBlockingBuilder::default().lossy(arm.is_lossy());
            let (writer, guard) =
                builder.buffered_lines_limit(BUFFERS_BYTES / LINE_BYTES).finish(file);
            let dropped = writer.error_counter();
            return (Writer::Tracing(writer), End::Tracing(guard, dropped));
        }
        Arm::Inkstone => inkstone,
        Arm::InkstoneKill => inkstone.survive(Survive::Kill),
        Arm::InkstoneRotating => inkstone.rotate(rotating),
        Arm::InkstoneCompressing => inkstone.rotate(rotating).compress(Compression::Gzip),
    };
    let (log, guard) = inkstone.open().expect("opened");
    (Writer::Inkstone(log), End::Inkstone(guard))
}
