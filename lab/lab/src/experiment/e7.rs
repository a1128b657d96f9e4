//! E7: a pool of threads that block (article 5): sequential durable writes, then random reads of
//! the same file, each byte checked; and the same load from one thread through io_uring.
//!
//! *Owns*: the two phases. *May not touch*: the loop (`flight`), the rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inkstone_host::{EngineKind, LabFile, process_usage};
use inkstone_io::{Access, File, Persist, SyncKind};

use crate::result::{Unit, figure};
use crate::rounds::{Running, Sample, Trial, Turn, each, usage_figures};
use crate::stage::WayError;

use super::flight::{Flight, Work, flights, fly};

const BLOCK_BYTES: u64 = 4096;
const FILE: &str = "pool";
/// The largest share of a turn's time for the writes; as many reads take little time.
const WRITES_SHARE: f64 = 0.8;

/// The load by pools of so many threads and as many requests in flight, of at most so many writes a
/// turn and as many reads; as published the file grows from nothing in each turn.
pub(super) fn pool(threads: &'static [usize], operations: u64, growing: bool) -> Trial {
    let file_bytes = operations * BLOCK_BYTES;
    let title = "4 KiB writes in sequence, each with its fsync, then as many random reads, every \
                 byte checked";
    Trial::new(("pool", title), Unit::OperationsPerS, (file_bytes, 40.0), move |scene| {
        let file = scene.session.written_file(FILE, file_bytes, Access::Buffered, 1)?;
        let file = Arc::new(file);
        let way = |name, flights: Result<Vec<Flight>, WayError>| {
            let file = Arc::clone(&file);
            let way = flights.map(|mut flights| {
                each(move |turn| write_then_read(turn, &mut flights, &file, operations, growing))
            });
            Running::new(name, way)
        };
        let block = BLOCK_BYTES as usize;
        let pools = threads.iter().map(|&count| {
            let plural = if count == 1 { "" } else { "s" };
            let name = format!("pool, {count} thread{plural}");
            way(name, flights(count, EngineKind::Caller, 1, block))
        });
        let rings = threads.iter().map(|&count| {
            let name = format!("io_uring, {count} in flight");
            way(name, flights(1, EngineKind::UringLinked, count, block))
        });
        Ok(pools.chain(rings).collect())
    })
    .note(
        "pool: threads that block in pwrite and fsync, then in pread; io_uring: one thread, with \
         each fsync linked to its write",
    )
    .note(
        "as published, the rate is writes and reads over the time of both, and the reads come from \
         the page cache; as published (--published) the file is truncated before each turn, and \
         grows; otherwise its blocks are written before",
    )
    .note("io_uring hands each fsync to a kernel thread, which counts as a thread of this process")
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
            let work = Work { offset: number * BLOCK_BYTES, len, write };
            Ok((number < operations).then_some(work))
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
            Ok(more.then_some(Work { offset, len, write: None }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_counts_writes_and_reads() {
        use crate::experiment::testing::check;
        for growing in [false, true] {
            let all = check(&pool(&[2, 8], 32, growing));
            for way in all.ways.iter().filter(|way| way.is_measured()) {
                // As many reads as writes, of the bytes that this very turn wrote.
                assert!(way.rounds.iter().all(|round| round.commits == 64), "{way:?}");
                for name in ["context switches", "durable writes", "reads"] {
                    assert!(way.figure(name).is_some(), "{}: {name}", way.name);
                }
            }
        }
    }
}
