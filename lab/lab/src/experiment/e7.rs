//! E7: a pool of threads that block (article 5): sequential durable writes, then random reads of
//! the same file, each byte checked; and the same load from one thread through io_uring.
//!
//! *Owns*: the two phases, reads beside writes. *May not touch*: the loop (`flight`), the rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inkstone_host::{LabFile, monotonic_ns};
use inkstone_io::{Access, EngineKind, File, OpenFile, Persist, SyncKind};

use crate::result::{Unit, figure};
use crate::rounds::{Frame, Running, Sample, TakesTurns, Trial, Turn, each, usage_figures};
use crate::stage::{WayError, incompressible};
use crate::writing::Cache;

use super::flight::{Flight, Source, Work, flights, fly};
use super::pattern;
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
    Trial::new("pool", (2 * threads.len(), file_bytes, 40.0), move |scene| {
        let session = scene.session;
        let file = written_file(session, FILE, file_bytes, Access::Buffered, scene.pace.seed)?;
        let file = Arc::new(file);
        let mut ways = Vec::new();
        let mut add = |name, count: usize, kind| {
            let flights = if kind == EngineKind::Caller {
                flights(count, kind, 1, BLOCK_BYTES as usize)
            } else {
                flights(1, kind, count, BLOCK_BYTES as usize)
            };
            let file = Arc::clone(&file);
            let way = flights.map(|flights| Mixed { flights, file, operations, growing });
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

/// Flights that write together, then read together.
struct Mixed {
    flights: Vec<Flight>,
    file: Arc<LabFile>,
    operations: u64,
    /// Whether the file grows from nothing: then each durable write changes metadata.
    growing: bool,
}

impl TakesTurns for Mixed {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError> {
        if self.growing {
            self.file.set_len(0)?;
            self.file.sync(SyncKind::All)?;
        }
        let next = AtomicU64::new(0);
        let time = turn.time;
        let time = if time == Duration::MAX { time } else { time.mul_f64(WRITES_SHARE) };
        let writing = Turn { time, ..*turn };
        let writes = fly(&mut self.flights, &writing, &self.file, |_| Writes {
            next: &next,
            operations: self.operations,
            seed: turn.seed,
        })?;
        // Every block that was taken was written: a flight ends with nothing in flight.
        let written = writes.operations.max(1);
        let taken = AtomicU64::new(0);
        let reads = fly(&mut self.flights, turn, &self.file, |index| Reads {
            taken: &taken,
            written,
            random: fastrand::Rng::with_seed(turn.seed ^ (index as u64 + 1)),
            seed: turn.seed,
        })?;
        let amount = writes.operations + reads.operations;
        let mut usage = writes.usage;
        usage.voluntary_switches += reads.usage.voluntary_switches;
        usage.involuntary_switches += reads.usage.involuntary_switches;
        usage.system_ns += reads.usage.system_ns;
        usage.user_ns += reads.usage.user_ns;
        let per_s = |operations: u64, ns: u64| operations as f64 * 1e9 / ns.max(1) as f64;
        let mut figures = usage_figures(&usage, amount, Unit::PerOp, Unit::NsPerOp);
        figures.push(figure(
            "durable writes",
            Unit::PerSecond,
            per_s(writes.operations, writes.total_ns),
        ));
        figures.push(figure("reads", Unit::PerSecond, per_s(reads.operations, reads.total_ns)));
        Ok(Sample::of(amount, writes.total_ns + reads.total_ns).with(figures))
    }
}

/// The blocks of a file in order, shared by all flights.
struct Writes<'a> {
    next: &'a AtomicU64,
    operations: u64,
    seed: u64,
}

impl Source for Writes<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Option<Work> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.operations {
            return None;
        }
        let offset = number * BLOCK_BYTES;
        pattern::fill(&mut buffer[..BLOCK_BYTES as usize], offset, self.seed);
        Some(Work { offset, len: BLOCK_BYTES as usize, write: Some(Persist::Sync(SyncKind::All)) })
    }

    fn done(&mut self, _: &Work, _: &[u8]) -> Result<(), WayError> {
        Ok(())
    }
}

/// Random blocks of those that were written in this turn.
struct Reads<'a> {
    taken: &'a AtomicU64,
    written: u64,
    random: fastrand::Rng,
    seed: u64,
}

impl Source for Reads<'_> {
    fn next(&mut self, _: &mut [u8]) -> Option<Work> {
        let more = self.taken.fetch_add(1, Ordering::Relaxed) < self.written;
        let offset = self.random.u64(..self.written) * BLOCK_BYTES;
        more.then_some(Work { offset, len: BLOCK_BYTES as usize, write: None })
    }

    fn done(&mut self, work: &Work, buffer: &[u8]) -> Result<(), WayError> {
        pattern::check(buffer, work.offset, self.seed).map_err(WayError::Invalid)
    }
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
    Trial::new("reads-and-writes", (READS.len(), READ_BYTES, 4.0), |scene| {
        let (session, seed) = (scene.session, scene.pace.seed);
        drop(written_file(session, READ, READ_BYTES, Access::Buffered, seed)?);
        let way = |(name, access, is_random, is_write)| {
            let is_direct = access == Access::Direct;
            let can = if is_direct { can_direct(scene.site) } else { Ok(()) };
            // A turn continues where the last one ended.
            let mut next = 0;
            let work = each(move |turn| {
                if is_random && !is_direct {
                    bring(turn.session, READ, Cache::Warm)?;
                }
                let how = OpenFile::existing().access(access);
                let file = turn.session.directory.open(READ, &how)?;
                let mut block = incompressible(BLOCK_BYTES as usize, turn.seed);
                let mut random = fastrand::Rng::with_seed(turn.seed);
                one_after_another(turn, || {
                    let blocks = READ_BYTES / BLOCK_BYTES;
                    next = if is_random { random.u64(..blocks) } else { (next + 1) % blocks };
                    if is_write {
                        file.write_at(&block, next * BLOCK_BYTES)?;
                        file.sync(SyncKind::All)?;
                    } else if file.read_at(&mut block, next * BLOCK_BYTES)? != block.len() {
                        return Err(WayError::Invalid(format!("block {next} is short")));
                    }
                    Ok(())
                })
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

/// One operation after the other until the turn's time is over, at least one.
fn one_after_another(
    turn: &Turn<'_>,
    mut operation: impl FnMut() -> Result<(), WayError>,
) -> Result<Sample, WayError> {
    let begin_ns = monotonic_ns();
    let (mut done, mut now_ns) = (0, begin_ns);
    while done == 0 || now_ns < turn.end_ns(begin_ns) {
        turn.session.check()?;
        operation()?;
        (done, now_ns) = (done + 1, monotonic_ns());
    }
    Ok(Sample::of(done, now_ns - begin_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::Session;
    use std::sync::atomic::AtomicBool;

    use inkstone_host::LabDirectory;

    #[test]
    fn each_turn_writes_each_block_once_and_reads_as_often_what_it_wrote() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = LabDirectory::at(directory.path()).expect("a directory");
        let stop = AtomicBool::new(false);
        let session = Session { directory: &files, stop: &stop, device: None };
        let file_bytes = 64 * BLOCK_BYTES;
        let file = written_file(&session, FILE, file_bytes, Access::Buffered, 1).expect("written");
        let file = Arc::new(file);
        for (seed, growing) in [(2, false), (3, false), (4, true), (5, true)] {
            let flights = flights(4, EngineKind::Caller, 1, 4096).expect("threads");
            let mut way = Mixed { flights, file: Arc::clone(&file), operations: 64, growing };
            let turn = Turn { session: &session, time: Duration::MAX, seed };
            assert_eq!(way.turn(&turn).expect("a turn").amount, 128);
            assert_eq!(file.len_bytes().expect("its size"), file_bytes);
            let mut bytes = vec![0; file_bytes as usize];
            file.read_at(&mut bytes, 0).expect("read");
            assert_eq!(pattern::check(&bytes, 0, seed), Ok(()), "the whole file is of this turn");
        }
    }

    #[test]
    fn a_pool_counts_writes_and_reads() {
        use crate::experiment::testing::check;
        let all = check(&pool(&[2, 8], 32, false), &["pool"]);
        for way in all[0].ways.iter().filter(|way| way.is_measured()) {
            for name in ["context switches", "durable writes", "reads"] {
                assert!(way.figure(name).is_some(), "{}: {name}", way.name);
            }
        }
    }
}
