//! The loops between two readings of the clock, and the aging before the first.
//!
//! *Owns*: the clock, and what runs while it runs. *May not touch*: which store it is, what the
//! figures mean.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use inkstone_host::{monotonic_ns, process_usage};
use inkstone_lab::crowd::together;
use inkstone_lab::histogram::Recorder;
use inkstone_lab::stage::WayError;

use crate::record::{Checker, Source};
use crate::store::{Store, Work, Writer};

/// All threads together append so much before each gives up what is old.
const TIDY_BYTES: usize = 4 << 20;
/// Appends between two readings of the clock, where nobody waits.
const BURST: u64 = 64;
/// A leader votes so often, which is far more than a cluster does.
const VOTE: Duration = Duration::from_millis(100);
/// Who reads beside a leader looks so often.
const LOOK: Duration = Duration::from_millis(1);
/// Aging goes in steps, with a rest after each: a store that makes files ready beside its writers
/// is to keep up.
const STEP_BYTES: usize = 8 << 20;
/// Where a load waits for each record, aging syncs this often: a log whose groups are large makes
/// its segments ready in another way, and would come into another state.
const GROUP_BYTES: usize = 64 << 10;

/// A thread of a load: its records, and how long each took in its last turn, if each is waited for.
pub struct Worker {
    pub source: Source,
    pub latency: Recorder,
}

/// What a turn came to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turned {
    /// Records acknowledged.
    pub commits: u64,
    /// From the start until the last acknowledgement.
    pub total_ns: u64,
    pub cpu_ns: u64,
    /// The fewest flushes that can have made them durable.
    pub flushes_min: u64,
}

/// When a thread begins no further record.
#[derive(Clone, Copy)]
struct Limits {
    end_ns: u64,
    commits: u64,
    tidy_every: u64,
}

/// Runs one thread for each worker, all at once, for so long or until there are so many bytes.
pub fn run(
    store: &dyn Store,
    workers: &mut [Worker],
    work: Work,
    time: Duration,
    bytes_max: u64,
) -> Result<Turned> {
    let threads = workers.len();
    let first = workers.first().context("a load has at least one thread")?;
    let (record_bytes, from) = (first.source.record_bytes(), first.source.count());
    let all_bytes = threads * record_bytes;
    let over = AtomicBool::new(false);
    let body = |thread: usize, worker: &mut Worker| {
        let limits = Limits {
            end_ns: monotonic_ns().saturating_add(time.as_nanos() as u64),
            commits: bytes_max / all_bytes as u64,
            tidy_every: (TIDY_BYTES / all_bytes).max(1) as u64,
        };
        let done = store.writer(thread as u32).and_then(|mut writer| match work {
            Work::Waited => waited(&mut *writer, worker, limits),
            Work::InFlight(many) => in_flight(&mut *writer, worker, many, limits),
            _ => unwaited(&mut *writer, worker, limits),
        });
        done.map_err(|error| WayError::Invalid(format!("{error:#}")))
    };
    let before = process_usage();
    let (all, read) = std::thread::scope(|scope| {
        let is_beside = matches!(work, Work::InFlight(_));
        let reading = is_beside.then(|| scope.spawn(|| follow(store, from, record_bytes, &over)));
        let all = together(workers, body);
        over.store(true, Ordering::Release);
        (all, reading.map(|reading| reading.join()))
    });
    let all = all?;
    let used = process_usage().since(&before);
    let mut turned = Turned { cpu_ns: used.user_ns + used.system_ns, ..Turned::default() };
    for (commits, end_ns) in all.outcomes {
        turned.commits += commits;
        turned.total_ns = turned.total_ns.max(end_ns.saturating_sub(all.begin_ns));
    }
    if let Some(read) = read {
        let read = read.map_err(|_| anyhow!("the reader panicked"))??;
        ensure!(read == turned.commits, "{read} records read beside of {}", turned.commits);
    }
    turned.flushes_min = match work {
        Work::Waited => turned.commits / threads as u64,
        Work::InFlight(many) => turned.commits / many,
        _ => 1,
    };
    Ok(turned)
}

/// How many records there were, and when the last was acknowledged.
type End = (u64, u64);

fn waited(writer: &mut dyn Writer, worker: &mut Worker, limits: Limits) -> Result<End> {
    let mut commits = 0;
    let mut now_ns = monotonic_ns();
    while commits < limits.commits && now_ns < limits.end_ns {
        let (lane, record) = worker.source.advance();
        writer.append_durable(lane, record)?;
        let ack_ns = monotonic_ns();
        worker.latency.record(ack_ns - now_ns);
        commits += 1;
        now_ns = ack_ns;
        if commits % limits.tidy_every == 0 {
            writer.tidy(&worker.source.written())?;
            now_ns = monotonic_ns();
        }
    }
    Ok((commits, now_ns))
}

fn unwaited(writer: &mut dyn Writer, worker: &mut Worker, limits: Limits) -> Result<End> {
    let (mut commits, mut untidy) = (0, 0);
    while commits < limits.commits && monotonic_ns() < limits.end_ns {
        writer.append_burst(&mut worker.source, BURST)?;
        commits += BURST;
        untidy += BURST;
        if untidy >= limits.tidy_every {
            untidy = 0;
            writer.tidy(&worker.source.written())?;
        }
    }
    writer.sync()?;
    Ok((commits, monotonic_ns()))
}

/// A leader: so many records in flight, votes, and waiting for the last one.
fn in_flight(
    writer: &mut dyn Writer,
    worker: &mut Worker,
    many: u64,
    limits: Limits,
) -> Result<End> {
    let (tell, told) = channel();
    let (mut begun, mut commits, mut tidied) = (0, 0, 0);
    let (mut now_ns, mut last_ns) = (monotonic_ns(), monotonic_ns());
    let mut vote_ns = now_ns;
    loop {
        let is_over = begun >= limits.commits || now_ns >= limits.end_ns;
        while !is_over && begun - commits < many {
            let (tell, began_ns) = (tell.clone(), monotonic_ns());
            let (lane, record) = worker.source.advance();
            let done = move |outcome| {
                // The receiver has left if the leader has failed.
                let _ = tell.send((began_ns, monotonic_ns(), outcome));
            };
            writer.start(lane, record, Box::new(done))?;
            begun += 1;
        }
        if begun == commits {
            return Ok((commits, last_ns));
        }
        if now_ns - vote_ns >= VOTE.as_nanos() as u64 {
            writer.sync()?;
            vote_ns = monotonic_ns();
        }
        if begun - tidied >= limits.tidy_every {
            tidied = begun;
            writer.tidy(&worker.source.written())?;
        }
        // All that called back meanwhile, and at least one.
        let first = told.recv().context("a callback was not called")?;
        for (began_ns, ack_ns, outcome) in std::iter::once(first).chain(told.try_iter()) {
            outcome?;
            worker.latency.record(ack_ns - began_ns);
            commits += 1;
            last_ns = ack_ns;
        }
        now_ns = monotonic_ns();
    }
}

/// Reads what one thread appends beside it, soon after it can be read, until that is over.
fn follow(store: &dyn Store, from: u64, record_bytes: usize, over: &AtomicBool) -> Result<u64> {
    let mut seen = Checker::of_heads(1, record_bytes);
    loop {
        let is_last = over.load(Ordering::Acquire);
        store.read(0, from + seen.count(), &mut seen)?;
        if is_last {
            return seen.so_far().map(|()| seen.count());
        }
        std::thread::sleep(LOOK);
    }
}

/// Brings a store into the state that is measured, by one thread with the records of all: so many
/// bytes, and what is old is given up.
pub fn age(store: &dyn Store, workers: &mut [Worker], work: Work, bytes: usize) -> Result<()> {
    let first = workers.first().context("a load has at least one thread")?;
    let all_bytes = workers.len() * first.source.record_bytes();
    let is_waited = matches!(work, Work::Waited | Work::InFlight(_));
    let group_bytes = if is_waited { GROUP_BYTES } else { STEP_BYTES };
    let each = (group_bytes / all_bytes).max(1);
    for _ in 0..bytes.div_ceil(STEP_BYTES) {
        let mut writer = store.writer(0)?;
        for _ in 0..STEP_BYTES / (each * all_bytes) {
            for worker in &mut *workers {
                writer.append_burst(&mut worker.source, each as u64)?;
            }
            writer.sync()?;
        }
        let written: Vec<_> =
            workers.iter_mut().flat_map(|worker| worker.source.written()).collect();
        writer.tidy(&written)?;
        drop(writer);
        store.rest();
    }
    Ok(())
}
