//! The loops between two readings of the clock: threads that wait for each record, or append and
//! sync at the end.
//!
//! *Owns*: the clock, and what runs while it runs. *May not touch*: which engine it is, what the
//! figures mean.

use std::sync::Barrier;
use std::time::Duration;

use anyhow::{Result, anyhow};
use inkstone_host::monotonic_ns;
use inkstone_lab::histogram::Recorder;

use crate::engine::{Engine, Writer};
use crate::record::Record;

/// All threads together append so much before each gives up what is old.
pub const TIDY_BYTES: usize = 4 << 20;
/// Appends between two readings of the clock, where nobody waits.
pub const BURST: u64 = 64;

/// What is done to an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Each append is waited for.
    Closed,
    /// No append is waited for; one sync at the end, inside the clock. It ends early after so many
    /// bytes of records.
    Open { bytes_max: u64 },
    /// One sync for so many records: the way into a state, measured by nobody.
    Grouped { bytes_max: u64, records: u64 },
}

/// What one turn came to.
#[derive(Debug, Default)]
pub struct Turn {
    /// Records acknowledged.
    pub commits: u64,
    /// From the start until the last acknowledgement.
    pub total_ns: u64,
    /// From before each append to its acknowledgement, where each is waited for.
    pub latency: Option<Recorder>,
    /// The fewest flushes that can have made them durable: one covers a record of each thread, if
    /// all wait.
    pub flushes_min: u64,
    /// Groups that the engine wrote meanwhile, if it tells.
    pub groups: Option<u64>,
}

impl Turn {
    /// One figure, in nanoseconds or in bytes, of which less is better.
    pub fn figure(value: u64) -> Self {
        Self { commits: 1, total_ns: value, ..Self::default() }
    }
}

/// Runs one thread for each of `records`, all at once.
pub fn run(
    engine: &dyn Engine,
    records: &mut [Record],
    manner: Manner,
    time: Duration,
) -> Result<Turn> {
    let threads = records.len();
    let start = Barrier::new(threads + 1);
    let mut begin_ns = 0;
    let ends = std::thread::scope(|scope| {
        let running: Vec<_> = records
            .iter_mut()
            .enumerate()
            .map(|(thread, record)| {
                let start = &start;
                scope.spawn(move || {
                    let writer = engine.writer(thread as u32);
                    start.wait();
                    let end_ns = monotonic_ns().saturating_add(time.as_nanos() as u64);
                    let all_bytes = threads * record.len();
                    let share = (TIDY_BYTES / all_bytes).max(1) as u64;
                    let most = |bytes_max: u64| bytes_max / all_bytes as u64;
                    match manner {
                        Manner::Closed => closed(&mut *writer?, record, end_ns, share),
                        Manner::Open { bytes_max } => {
                            open(&mut *writer?, record, end_ns, share, most(bytes_max))
                        }
                        Manner::Grouped { bytes_max, records } => {
                            grouped(&mut *writer?, record, end_ns, records, most(bytes_max))
                        }
                    }
                })
            })
            .collect();
        start.wait();
        begin_ns = monotonic_ns();
        running.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    let mut turn = Turn::default();
    for end in ends {
        let (one, end_ns) = end.map_err(|_| anyhow!("a thread of the load panicked"))??;
        turn.commits += one.commits;
        turn.total_ns = turn.total_ns.max(end_ns.saturating_sub(begin_ns));
        match (&mut turn.latency, one.latency) {
            (Some(all), Some(one)) => all.merge(&one),
            (none, one) => *none = one,
        }
    }
    turn.flushes_min = match manner {
        Manner::Closed => turn.commits / threads as u64,
        _ => 1,
    };
    Ok(turn)
}

fn closed(
    writer: &mut dyn Writer,
    record: &mut Record,
    end_ns: u64,
    tidy_every: u64,
) -> Result<(Turn, u64)> {
    let mut latency = Recorder::new();
    let mut commits = 0;
    let mut now_ns = monotonic_ns();
    while now_ns < end_ns {
        writer.append_durable(record.advance())?;
        let ack_ns = monotonic_ns();
        latency.record(ack_ns - now_ns);
        commits += 1;
        now_ns = ack_ns;
        if commits % tidy_every == 0 {
            writer.tidy()?;
            now_ns = monotonic_ns();
        }
    }
    Ok((Turn { commits, latency: Some(latency), ..Turn::default() }, now_ns))
}

fn open(
    writer: &mut dyn Writer,
    record: &mut Record,
    end_ns: u64,
    tidy_every: u64,
    most: u64,
) -> Result<(Turn, u64)> {
    let (mut commits, mut untidy) = (0, 0);
    let mut now_ns = monotonic_ns();
    while commits < most && now_ns < end_ns {
        writer.append_burst(record, BURST)?;
        now_ns = monotonic_ns();
        commits += BURST;
        untidy += BURST;
        if untidy >= tidy_every {
            untidy = 0;
            writer.tidy()?;
        }
    }
    writer.sync()?;
    Ok((Turn { commits, ..Turn::default() }, monotonic_ns()))
}

fn grouped(
    writer: &mut dyn Writer,
    record: &mut Record,
    end_ns: u64,
    records: u64,
    most: u64,
) -> Result<(Turn, u64)> {
    let mut commits = 0;
    while commits < most && monotonic_ns() < end_ns {
        writer.append_burst(record, records)?;
        writer.sync()?;
        commits += records;
    }
    writer.tidy()?;
    Ok((Turn { commits, ..Turn::default() }, monotonic_ns()))
}
