//! The loops of those who do not wait with a thread: tasks that await their records, and records
//! that call back.
//!
//! *Owns*: the clock, and what runs while it runs, as `threads` does. *May not touch*: what the
//! figures mean.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use inkstone_host::monotonic_ns;
use inkstone_lab::histogram::Recorder;

use crate::engine::{Engine, await_durable, call_when_durable, give_up_old};
use crate::record::Record;
use crate::threads::{TIDY_BYTES, Turn};

/// Tasks record into so many histograms: one for each would be 220 KiB for each.
const RECORDERS: usize = 8;

/// What the tasks share.
struct Ended {
    latencies: Vec<Mutex<Recorder>>,
    /// Each task's record, its commits and its last acknowledgement, or why it failed.
    tasks: Mutex<Vec<(usize, Record, Result<(u64, u64)>)>>,
}

/// One task for each of `records`, on so many threads, until the time is over and all have their
/// last record.
pub fn awaited(
    engine: &dyn Engine,
    records: &mut [Record],
    workers: usize,
    time: Duration,
) -> Result<Turn> {
    let log = engine.log().context("nobody can await it")?;
    let ended = Arc::new(Ended {
        latencies: (0..RECORDERS).map(|_| Mutex::new(Recorder::new())).collect(),
        tasks: Mutex::new(Vec::with_capacity(records.len())),
    });
    let count = records.len();
    let tidy_every = tidy_every(records);
    let taken: Vec<Record> =
        records.iter_mut().map(|record| std::mem::replace(record, Record::new(0, 0))).collect();
    let begin_ns = monotonic_ns();
    let end_ns = begin_ns.saturating_add(time.as_nanos() as u64);
    let tasks = taken.into_iter().enumerate().map(|(task, mut record)| {
        let (log, ended) = (Arc::clone(&log), Arc::clone(&ended));
        async move {
            let mut commits = 0;
            let mut now_ns = monotonic_ns();
            let mut failed = None;
            while now_ns < end_ns {
                if let Err(error) = await_durable(&log, record.advance()).await {
                    failed = Some(error);
                    break;
                }
                let ack_ns = monotonic_ns();
                ended.latencies[task % RECORDERS]
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .record(ack_ns - now_ns);
                commits += 1;
                now_ns = ack_ns;
                if task == 0 && commits % tidy_every == 0 {
                    failed = give_up_old(&log, record.len()).err();
                    now_ns = monotonic_ns();
                    if failed.is_some() {
                        break;
                    }
                }
            }
            let end = failed.map_or(Ok((commits, now_ns)), Err);
            ended.tasks.lock().unwrap_or_else(PoisonError::into_inner).push((task, record, end));
        }
    });
    run(workers, tasks)?;
    let mut turn = Turn { latency: Some(Recorder::new()), ..Turn::default() };
    let mut failed = Ok(());
    for (task, record, end) in ended.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..)
    {
        records[task] = record;
        match end {
            Ok((commits, end_ns)) => {
                turn.commits += commits;
                turn.total_ns = turn.total_ns.max(end_ns.saturating_sub(begin_ns));
            }
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    failed?;
    if let Some(all) = &mut turn.latency {
        ended
            .latencies
            .iter()
            .for_each(|one| all.merge(&one.lock().unwrap_or_else(PoisonError::into_inner)));
    }
    turn.flushes_min = turn.commits / count as u64;
    Ok(turn)
}

/// Runs tasks on so many threads of a runtime, as most programs that await do, until all have
/// ended.
fn run(
    workers: usize,
    tasks: impl Iterator<Item = impl Future<Output = ()> + Send + 'static>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).build()?;
    let all: Vec<_> = tasks.map(|task| runtime.spawn(task)).collect();
    runtime.block_on(async {
        for task in all {
            task.await.context("a task panicked")?;
        }
        Ok(())
    })
}

/// As many records in flight as there are `records`: one thread appends the next one of each whose
/// last one has called back.
pub fn called_back(engine: &dyn Engine, records: &mut [Record], time: Duration) -> Result<Turn> {
    let log = engine.log().context("nobody is called back")?;
    let record_bytes = records.first().map_or(0, Record::len);
    let tidy_every = tidy_every(records) * records.len() as u64;
    let (tell, told) = channel();
    let mut latency = Recorder::new();
    let mut began = vec![0; records.len()];
    let (mut commits, mut in_flight) = (0, 0);
    let begin_ns = monotonic_ns();
    let end_ns = begin_ns.saturating_add(time.as_nanos() as u64);
    let mut last_ns = begin_ns;
    let mut append = |which: usize, began: &mut [u64]| {
        let tell = tell.clone();
        began[which] = monotonic_ns();
        call_when_durable(&log, records[which].advance(), move |outcome| {
            // The receiver has left if an append has failed.
            let _ = tell.send((which, outcome, monotonic_ns()));
        })
    };
    for which in 0..began.len() {
        append(which, &mut began)?;
        in_flight += 1;
    }
    while in_flight > 0 {
        let (which, outcome, ack_ns) = told.recv().context("a callback was not called")?;
        outcome?;
        in_flight -= 1;
        commits += 1;
        last_ns = ack_ns;
        latency.record(ack_ns.saturating_sub(began[which]));
        if commits % tidy_every == 0 {
            give_up_old(&log, record_bytes)?;
        }
        if ack_ns < end_ns {
            append(which, &mut began)?;
            in_flight += 1;
        }
    }
    let flushes_min = commits / began.len() as u64;
    let total_ns = last_ns - begin_ns;
    Ok(Turn { commits, total_ns, latency: Some(latency), flushes_min, ..Turn::default() })
}

fn tidy_every(records: &[Record]) -> u64 {
    let bytes = records.first().map_or(1, Record::len);
    ((TIDY_BYTES / records.len().max(1) / bytes) as u64).max(1)
}
