//! E7: a pool of threads that block (article 5): sequential durable writes, then random reads of
//! the same file, each byte checked; and the same load from one thread through io_uring.
//!
//! *Owns*: the two phases, reads beside writes. *May not touch*: the loop (`flight`), the rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inkstone_host::{EngineKind, LabFile, monotonic_ns, process_usage};
use inkstone_io::{Access, File, OpenFile, Persist, SyncKind};

use crate::result::{Unit, figure};
use crate::rounds::{Frame, Running, Sample, Trial, Turn, each, timed, usage_figures};
use crate::stage::{WayError, incompressible};
use crate::writing::Cache;

use super::flight::{Flight, Work, flights, fly};
use super::reading::{bring, can_direct};
use super::scratch::written_file;

const BLOCK_BYTES: u64 = 4096;
const FILE: &str = "pool";
/// The largest share of a turn's time for the writes; as many reads take little time.
const WRITES_SHARE: f64 = 0.8;

/// The load by pools of so many threads and as many requests in flight, of at most so many writes a
/// turn and as many reads; as published the file grows from nothing in each turn.
pub(super) fn pool(threads: &'static [usize], operations: u64, growing: bool) -> Trial {
    let file_bytes = operations * BLOCK_BYTES;
    Trial::new("pool", (file_bytes, 40.0), move |scene| {
        let session = scene.session;
        let file = written_file(session, FILE, file_bytes, Access::Buffered, 1)?;
        let file = Arc::new(file);
        let mut ways = Vec::new();
        let mut add = |name, count: usize, kind| {
            let flights = if kind == EngineKind::Caller {
                flights(count, kind, 1, BLOCK_BYTES as usize)
            } else {
                flights(1, kind, count, BLOCK_BYTES as usize)
            };
            let file = Arc::clone(&file);
            let way = flights.map(|mut flights| {
                each(move |turn| write_then_read(turn, &mut flights, &file, operations, growing))
            });
            ways.push(Running::new(name, way));
        };
        for &count in threads {
            add(pool_name(count), count, EngineKind::Caller);
        }
        for &count in threads {
            add(format!("io_uring, {count} in flight"), count, EngineKind::UringLinked);
        }
        let frame = Frame::of(
            "pool",
            "4 KiB writes in sequence, each with its fsync, then as many random reads, every byte \
             checked",
            Unit::OperationsPerS,
            threads.first().map(|&count| pool_name(count)).unwrap_or_default(),
        );
        let mut found = scene.measure(frame, ways);
        found.notes = vec![
            "pool: threads that block in pwrite and fsync, then in pread; io_uring: one thread, \
             with each fsync linked to its write"
                .into(),
            "as published, the rate is writes and reads over the time of both, and the reads come \
             from the page cache; as published (--published) the file is truncated before each \
             turn, and grows; otherwise its blocks are written before"
                .into(),
            "io_uring hands each fsync to a kernel thread, which counts as a thread of this \
             process"
                .into(),
        ];
        session.clear(FILE)?;
        Ok(vec![found])
    })
}

fn pool_name(count: usize) -> String {
    format!("pool, {count} thread{}", if count == 1 { "" } else { "s" })
}

/// Flights that write together, then read together. `growing`: the file grows from nothing, so each
/// durable write changes metadata.
fn write_then_read(
    turn: &Turn<'_>,
    flights: &mut [Flight],
    file: &Arc<LabFile>,
    operations: u64,
    growing: bool,
) -> Result<Sample, WayError> {
    if growing {
        file.set_len(0)?;
        file.sync(SyncKind::All)?;
    }
    // Of the bytes of this very turn.
    let seed = fastrand::u64(..);
    let before = process_usage();
    let (next, taken, len) = (&AtomicU64::new(0), &AtomicU64::new(0), BLOCK_BYTES as usize);
    // The blocks of the file in order, shared by all flights.
    let in_order = |_| {
        move || {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let write = Some(Persist::Sync(SyncKind::All));
            (number < operations).then_some(Work { offset: number * BLOCK_BYTES, len, write })
        }
    };
    let time = if turn.time == Duration::MAX { turn.time } else { turn.time.mul_f64(WRITES_SHARE) };
    let (writes, writes_ns) = fly(flights, &Turn { time, ..*turn }, file, seed, in_order)?;
    // Every block that was taken was written: a flight ends with nothing in flight.
    let written = writes.max(1);
    let at_random = |_| {
        let mut random = fastrand::Rng::new();
        move || {
            let more = taken.fetch_add(1, Ordering::Relaxed) < written;
            let offset = random.u64(..written) * BLOCK_BYTES;
            more.then_some(Work { offset, len, write: None })
        }
    };
    let (reads, reads_ns) = fly(flights, turn, file, seed, at_random)?;
    let used = process_usage().since(&before);
    let per_s = |operations: u64, ns: u64| operations as f64 * 1e9 / ns.max(1) as f64;
    let mut figures = usage_figures(&used, writes + reads);
    figures.push(figure("durable writes", Unit::PerSecond, per_s(writes, writes_ns)));
    figures.push(figure("reads", Unit::PerSecond, per_s(reads, reads_ns)));
    Ok(Sample::of(writes + reads, writes_ns + reads_ns).with(figures))
}

const READ: &str = "read";
/// The size of its file.
const READ_BYTES: u64 = 8 << 20;
const WRITES: &str = "write and fsync";
/// Name, how the file is opened, whether the blocks come at random, whether they are written.
const READS: [(&str, Access, bool, bool); 4] = [
    (WRITES, Access::Buffered, false, true),
    ("read, in memory", Access::Buffered, true, false),
    ("read, from the device", Access::Direct, true, false),
    ("read in sequence, from the device", Access::Direct, false, false),
];

/// 4 KiB at a time: written and synced by fsync, front to back; and read, from memory and directly.
pub(super) fn reads_and_writes() -> Trial {
    Trial::new("reads-and-writes", (READ_BYTES, 4.0), |scene| {
        let session = scene.session;
        drop(written_file(session, READ, READ_BYTES, Access::Buffered, 1)?);
        let way = |(name, access, is_random, is_write)| {
            let is_direct = access == Access::Direct;
            let can = if is_direct { can_direct(scene.site) } else { Ok(()) };
            // A turn continues where the last one ended.
            let mut next = 0;
            let work = timed(move |turn, latency| {
                if is_random && !is_direct {
                    bring(turn.session, READ, Cache::Warm)?;
                }
                let how = OpenFile::existing().access(access);
                let file = turn.session.directory.open(READ, &how)?;
                let mut block = incompressible(BLOCK_BYTES as usize);
                let begin_ns = monotonic_ns();
                let (done, end_ns) = turn.repeat(u64::MAX, latency, |_| {
                    let blocks = READ_BYTES / BLOCK_BYTES;
                    next = if is_random { fastrand::u64(..blocks) } else { (next + 1) % blocks };
                    if is_write {
                        file.write_at(&block, next * BLOCK_BYTES)?;
                        file.sync(SyncKind::All)?;
                    } else if file.read_at(&mut block, next * BLOCK_BYTES)? != block.len() {
                        return Err(WayError::Invalid(format!("block {next} is short")));
                    }
                    Ok(())
                })?;
                Ok(Sample::of(done, end_ns - begin_ns))
            });
            Running::new(name, can.map(|()| work))
        };
        let title = "4 KiB at a time: written and synced in sequence, and read at random";
        let frame = Frame::of("reads-and-writes", title, Unit::OperationsPerS, WRITES);
        let found = scene.measure(frame, READS.map(way).into());
        session.clear(READ)?;
        Ok(vec![found])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_counts_writes_and_reads() {
        use crate::experiment::testing::check;
        for growing in [false, true] {
            let all = check(&pool(&[2, 8], 32, growing), &["pool"]);
            for way in all[0].ways.iter().filter(|way| way.is_measured()) {
                // As many reads as writes, of the bytes that this very turn wrote.
                assert!(way.rounds.iter().all(|round| round.commits == 64), "{way:?}");
                for name in ["context switches", "durable writes", "reads"] {
                    assert!(way.figure(name).is_some(), "{}: {name}", way.name);
                }
            }
        }
    }
}
