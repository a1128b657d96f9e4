//! E7: a pool of threads that block (article 5): sequential durable writes, then random reads of
//! the same file, each byte checked; and the same load from one thread through io_uring.
//!
//! *Owns*: the two phases, reads beside writes, the statements. *May not touch*: the loop
//! (`flight`), the rounds, where the curve bends (`rounds`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use inkstone_host::{LabFile, monotonic_ns};
use inkstone_io::{
    Access, AlignedBuf, DioAlignment, EngineKind, File, OpenFile, Persist, SyncKind,
};

use crate::finding::place_words;
use crate::result::{Finding, Table, Unit, Way, figure};
use crate::rounds::{Frame, Running, Sample, TakesTurns, Trial, Turn, usage_figures};
use crate::stage::WayError;
use crate::table::numbers::sig3;

use super::flight::{Flight, Source, Work, fly, one_thread, threads};
use super::part::{Part, Size};
use super::pattern;
use super::scratch::{READ_BYTES, RandomReads, direct_file, fill, written_file};
use super::statement::{By, FASTER, Source as From, Statement};
use super::words::{also, best, compared};

/// What of the load may be smaller.
#[derive(Debug, Clone)]
struct Plan {
    /// Threads, and for io_uring requests in flight.
    threads: Vec<usize>,
    /// The most writes of a turn, and as many reads.
    operations: u64,
    /// Whether the pool also writes files that grow from nothing, as published: then each durable
    /// write changes metadata.
    growing: bool,
}

const BLOCK_BYTES: u64 = 4096;
const FILE: &str = "pool";
const GROWING: &str = "pool-growing";
/// The largest share of a turn's time for the writes; as many reads take little time.
const WRITES_SHARE: f64 = 0.8;

pub(super) fn parts(size: Size) -> Vec<Part> {
    // Published are 500,000 writes and as many reads, into files that grow from nothing.
    let plan = match size {
        Size::Small => {
            Plan { threads: vec![2, 8, 64, 128, 256, 512], operations: 16_384, growing: false }
        }
        Size::Published => {
            Plan { threads: vec![1, 2, 8, 64, 128, 256, 512], operations: 500_000, growing: true }
        }
    };
    vec![Part::Trial(pool(plan, 40.0))]
}

/// As little of it as its statement needs.
fn small_pool() -> Trial {
    pool(Plan { threads: vec![64, 512], operations: 4096, growing: false }, 5.0)
}

fn pool(plan: Plan, seconds: f64) -> Trial {
    let file_bytes = plan.operations * BLOCK_BYTES;
    let room_bytes = file_bytes * if plan.growing { 2 } else { 1 };
    let count = plan.threads.len() * if plan.growing { 3 } else { 2 };
    Trial::new("pool", (count, room_bytes, seconds), move |scene| {
        let session = scene.session;
        let file = written_file(session, FILE, file_bytes, Access::Buffered, scene.pace.seed)?;
        let file = Arc::new(file);
        let way = |flights: Result<Vec<Flight>, WayError>, file: &Arc<LabFile>, growing| {
            let operations = plan.operations;
            flights.map(|flights| Mixed { flights, file: Arc::clone(file), operations, growing })
        };
        let mut ways = Vec::new();
        if plan.growing {
            let grown = Arc::new(session.directory.open(GROWING, &OpenFile::new_file())?);
            for &count in &plan.threads {
                let way = way(threads(count, BLOCK_BYTES as usize, &[0]), &grown, true);
                let name = format!("growing, {}", pool_name(count));
                ways.push(Running::new(name, "pool, growing", Some(count as f64), way));
            }
        }
        for &count in &plan.threads {
            let way = way(threads(count, BLOCK_BYTES as usize, &[0]), &file, false);
            ways.push(Running::new(pool_name(count), "pool", Some(count as f64), way));
        }
        for &count in &plan.threads {
            let flights = one_thread(EngineKind::UringLinked, count, BLOCK_BYTES as usize, &[0]);
            let name = format!("io_uring, {count} in flight");
            ways.push(Running::new(
                name,
                "io_uring",
                Some(count as f64),
                way(flights, &file, false),
            ));
        }
        let frame = Frame {
            name: "pool",
            title:
                "4 KiB writes in sequence, each with its fsync, then as many random reads, every byte checked"
                    .into(),
            x_name: Some("threads, or requests in flight"),
            unit: Unit::OperationsPerS,
            baseline: plan.threads.first().map(|&count| pool_name(count)).unwrap_or_default(),
        };
        let mut found = scene.measure(frame, ways);
        found.notes = vec![
            "pool: threads that block in pwrite and fsync, then in pread; io_uring: one thread, with each fsync linked to its \
             write"
                .into(),
            "as published, the rate is writes and reads over the time of both, and the reads come from the page cache; the file's \
             blocks are written before, so no way grows the file, except those named growing: their file is truncated before each \
             turn (O_TRUNC), as published"
                .into(),
            "io_uring hands each fsync to a kernel thread, which counts as a thread of this process".into(),
        ];
        found.finding = finding(&found);
        session.clear(FILE)?;
        session.clear(GROWING)?;
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
    growing: bool,
}

impl TakesTurns for Mixed {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError> {
        if self.growing {
            self.file.set_len(0)?;
            self.file.sync(SyncKind::All)?;
        }
        let next = AtomicU64::new(0);
        let writing = Turn { time: turn.time.mul_f64_or_max(WRITES_SHARE), ..*turn };
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

/// A part of a time that may be endless.
trait OrMax {
    fn mul_f64_or_max(self, share: f64) -> Self;
}

impl OrMax for std::time::Duration {
    fn mul_f64_or_max(self, share: f64) -> Self {
        if self == Self::MAX { self } else { self.mul_f64(share) }
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

fn finding(found: &Table) -> Option<Finding> {
    let base = found.baseline.as_deref()?;
    let best = best(found, Some("pool"))?;
    let last = found.ways.iter().rev().find(|way| way.series == "pool" && way.is_measured())?;
    let knee = found.knees.iter().find(|(series, _)| series == "pool");
    let bend = match knee {
        Some((_, knee)) => format!("its knee is at {knee:.0} threads"),
        None => "it has no knee".into(),
    };
    let switches = |way: &Way| way.figure("context switches").map_or_else(|| "?".into(), sig3);
    let ring = super::words::best(found, Some("io_uring"));
    let ring = ring.and_then(|ring| Some((ring, found.median(ring)?)));
    let ring = ring.map_or_else(String::new, |(ring, rate)| {
        format!(" One thread with `{}` does {}.", ring.name, sig3(rate))
    });
    // The largest number of threads may be the best.
    let beside = match last.name == best.name {
        true => String::new(),
        false => format!(
            " `{}` does {}, with {} context switches per operation instead of {}.",
            last.name,
            sig3(found.median(last)?),
            switches(last),
            switches(best)
        ),
    };
    let also = also(found, best, Some("pool"));
    let sentence = format!(
        "On {} the pool is fastest with `{}`{also}: {} operations a second ({}); {bend}.{beside}{ring}",
        place_words(&found.place),
        best.name,
        sig3(found.median(best)?),
        compared(best.relative.as_ref(), base),
    );
    let best = also.is_empty().then(|| best.name.clone());
    Some(Finding { sentence, best, naive: Some(base.into()), ..Finding::default() })
}

const WRITTEN: &str = "written";
const READ: &str = "read";
const READ_DIRECT: &str = "read-direct";
const WRITES: &str = "write and fsync";

/// 4 KiB at a time: written and synced by fsync, front to back; and read at random, from memory and
/// directly.
fn reads_and_writes() -> Trial {
    Trial::new("reads-and-writes", (3, 3 * READ_BYTES, 2.0), |scene| {
        let (session, seed) = (scene.session, scene.pace.seed);
        let written = written_file(session, WRITTEN, READ_BYTES, Access::Buffered, seed);
        let writes = written.map(|file| SyncedWrites { file, next: 0 });
        let cached = written_file(session, READ, READ_BYTES, Access::Buffered, seed);
        let cached = cached.map(|file| Cached { reads: RandomReads { file } });
        let past = match scene.site.capabilities.direct {
            DioAlignment::Refused => Err(WayError::Invalid("there is no O_DIRECT here".into())),
            DioAlignment::Bytes { .. } | DioAlignment::NotTold => direct_file(session, READ_DIRECT)
                .and_then(|file| {
                    fill(session, &file, READ_BYTES, seed).map(|()| RandomReads { file })
                }),
        };
        let ways = vec![
            Running::new(WRITES, "writes", None, writes),
            Running::new("read, in memory", "reads", None, cached),
            Running::new("read, from the device", "reads", None, past),
        ];
        let frame = Frame::of(
            "reads-and-writes",
            "4 KiB at a time: written and synced in sequence, and read at random",
            Unit::OperationsPerS,
            WRITES,
        );
        let found = scene.measure(frame, ways);
        for name in [WRITTEN, READ, READ_DIRECT] {
            session.clear(name)?;
        }
        Ok(vec![found])
    })
}

struct SyncedWrites {
    file: LabFile,
    /// The next block: a turn continues where the last one ended.
    next: u64,
}

impl TakesTurns for SyncedWrites {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError> {
        let mut block = AlignedBuf::zeroed(BLOCK_BYTES as usize);
        fastrand::Rng::with_seed(turn.seed).fill(&mut block);
        let begin_ns = monotonic_ns();
        let mut writes = 0;
        loop {
            turn.session.check()?;
            let now_ns = monotonic_ns();
            if writes > 0 && now_ns >= turn.end_ns(begin_ns) {
                return Ok(Sample::of(writes, now_ns - begin_ns));
            }
            let offset = self.next % (READ_BYTES / BLOCK_BYTES) * BLOCK_BYTES;
            self.file.write_at(&block, offset)?;
            self.file.sync(SyncKind::All)?;
            (writes, self.next) = (writes + 1, self.next + 1);
        }
    }
}

/// Reads whose pages are in memory when the turn begins.
struct Cached {
    reads: RandomReads,
}

impl TakesTurns for Cached {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError> {
        let file = turn.session.directory.open(READ, &OpenFile::existing())?;
        let mut buffer = AlignedBuf::zeroed(1 << 20);
        let mut at = 0;
        while let read @ 1.. = file.read_at(&mut buffer, at)? {
            at += read as u64;
        }
        let found = file.residency()?;
        if found.resident_pages < found.pages {
            return Err(WayError::Invalid(format!(
                "all its pages should be in memory, but {} of {} are, by {}",
                found.resident_pages, found.pages, found.told_by
            )));
        }
        self.reads.turn(turn)
    }
}

pub(super) const STATEMENTS: &[Statement] = &[
    Statement {
        id: "reads-beat-writes",
        says: "Reads of 4 KiB at random are faster than synced writes in sequence (reads from the page cache).",
        source: From::Article(5, "whose pool reads what it has written"),
        by: By::Rate {
            run: reads_and_writes,
            result: "reads-and-writes",
            slow: WRITES,
            fast: "read, in memory",
        },
        band: FASTER,
    },
    Statement {
        id: "device-reads-beat-writes",
        says: "Random reads from the device (O_DIRECT) are faster too.",
        source: From::Article(5, "whose reads do not come from there"),
        by: By::Rate {
            run: reads_and_writes,
            result: "reads-and-writes",
            slow: WRITES,
            fast: "read, from the device",
        },
        band: FASTER,
    },
    Statement {
        id: "pool-knee",
        says: "A pool of blocking threads has a knee: 512 threads do less than 64.",
        source: From::Article(5, ""),
        by: By::Rate {
            run: small_pool,
            result: "pool",
            slow: "pool, 512 threads",
            fast: "pool, 64 threads",
        },
        band: FASTER,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Round;
    use crate::stage::Session;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

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
            let flights = threads(4, BLOCK_BYTES as usize, &[0]).expect("threads");
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
    fn the_best_is_not_compared_with_itself() {
        let way = |threads: usize, per_s: f64| {
            let of = |number| Round {
                number,
                commits: (per_s * 1000.0) as u64,
                total_ns: 1_000_000_000,
                ..Round::default()
            };
            Way {
                name: pool_name(threads),
                series: "pool".into(),
                x: Some(threads as f64),
                rounds: (0..5).map(of).collect(),
                figures: vec![figure("context switches", Unit::PerOp, 3.18)],
                ..Way::default()
            }
        };
        let of = |rates: [f64; 2]| {
            let ways = vec![way(2, rates[0]), way(8, rates[1])];
            let baseline = Some(pool_name(2));
            let unit = Unit::OperationsPerS;
            let found = Table { baseline, unit, ways, ..Table::default() };
            finding(&found).expect("a finding").sentence
        };
        assert!(!of([10.0, 20.0]).contains("instead of"), "{}", of([10.0, 20.0]));
        assert!(of([20.0, 10.0]).contains("3.18 context switches per operation instead of 3.18"));
    }

    #[test]
    fn a_reader_rejects_what_an_earlier_turn_left() {
        let taken = AtomicU64::new(0);
        let random = fastrand::Rng::with_seed(1);
        let mut reads = Reads { taken: &taken, written: 1, random, seed: 2 };
        let mut old = vec![0; BLOCK_BYTES as usize];
        pattern::fill(&mut old, 0, 1);
        let work = reads.next(&mut []).expect("one");
        assert!(reads.done(&work, &old).is_err() && reads.next(&mut []).is_none());
    }

    #[test]
    fn a_pool_counts_writes_and_reads() {
        use crate::experiment::testing::check;
        let plan = Plan { threads: vec![2, 8], operations: 32, growing: false };
        let all = check(&pool(plan, 1.0), &["pool"]);
        for way in all[0].ways.iter().filter(|way| way.is_measured()) {
            for name in ["context switches", "durable writes", "reads"] {
                assert!(way.figure(name).is_some(), "{}: {name}", way.name);
            }
        }
    }
}
