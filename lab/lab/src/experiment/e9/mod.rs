//! E9: a text log written by many threads (article 1, after muduo): the text log writer compared
//! with the standard library and with the article's practice.
//!
//! *Owns*: the list of ways, how the time is shared out, what buffers and pieces of a page save,
//! and the statements. *May not touch*: how a line is written (`ways`, and the appender's own
//! crate), the rounds.

mod load;
mod practice;
mod ways;

use std::path::Path;
use std::time::{Duration, Instant};

use inkstone_host::{LabFile, monotonic_ns};
use inkstone_io::{Access, AlignedBuf, File, NamedChoice as _, SyncKind};

use crate::finding::place_words;
use crate::result::{Finding, Relative, Table, Unit, Verdict};
use crate::rounds::{Frame, Pace, Running, Sample, Scene, TakesTurns, Trial, Turn};
use crate::stage::{WayError, incompressible};
use crate::table::numbers::{sig3, time};

use super::part::{Part, Size};
use super::scratch::written_file;
use super::statement::{By, FASTER, Source, Statement};
use super::words::compared;
use load::{Lines, Load, Writers};
use practice::{FILE_BYTES, Memory};
use ways::{LINE_BYTES, LineWay, Writer};

/// What of the load may be smaller.
#[derive(Debug, Clone)]
struct Plan {
    /// The most lines of a turn without a pace, of all threads together.
    lines: u64,
    /// The longest turn with a pace.
    paced: Duration,
    /// Numbers of threads; each has a table of its own, without a pace and with one.
    threads: Vec<usize>,
}

impl Plan {
    /// Published are 10,000,000 lines per turn.
    fn of(size: Size) -> Self {
        let lines = if size == Size::Published { 10_000_000 } else { 1_000_000 };
        Self { lines, paced: Duration::from_secs(1), threads: vec![1, 4] }
    }
}

pub(super) fn parts(size: Size) -> Vec<Part> {
    vec![Part::Trial(text(Plan::of(size)))]
}

fn text(plan: Plan) -> Trial {
    // Room for the lines of one turn, and for files that are kept.
    let room_bytes = plan.lines * LINE_BYTES as u64 + 4 * FILE_BYTES;
    let count = 2 * plan.threads.len() * LineWay::ALL.len();
    Trial::new("text", (count, room_bytes, 18.0), move |scene| measure(scene, &plan))
}

fn measure(scene: &mut Scene<'_>, plan: &Plan) -> Result<Vec<Table>, WayError> {
    let whole = scene.pace;
    let lines = Lines::new(whole.seed);
    let mut rest = plan.threads.len() as f64 * (UNPACED_WEIGHT + PACED_WEIGHT);
    let begin = Instant::now();
    let mut part = |weight: f64| {
        let share = weight / rest;
        rest -= weight;
        let left = whole.budget.map(|budget| budget.saturating_sub(begin.elapsed()));
        Pace { budget: left, ..whole }.part(share)
    };
    let mut found = Vec::new();
    for &threads in &plan.threads {
        let load = Load::Unpaced { lines: plan.lines };
        found.push(one(scene, &lines, load, threads, &part(UNPACED_WEIGHT)));
    }
    for &threads in &plan.threads {
        let load = Load::Paced { at_most: plan.paced };
        let pace = part(PACED_WEIGHT).part(PACED_MEASURED);
        found.push(one(scene, &lines, load, threads, &pace));
    }
    // Ctrl-C leaves what was measured until then.
    found.retain(Table::has_content);
    Ok(found)
}

/// Shares of the budget for each number of threads, without a pace and with one. Tails need more
/// lines than rates. Time that a part does not use goes to the later parts, and time beyond its
/// share is taken from them.
const UNPACED_WEIGHT: f64 = 0.16;
const PACED_WEIGHT: f64 = 0.27;
/// A turn with a pace needs hardly any preparation, so it gets more measured time than the rounds
/// would plan.
const PACED_MEASURED: f64 = 1.2;
const BASELINE: LineWay = LineWay::Buffered;

fn one(scene: &mut Scene<'_>, lines: &Lines, load: Load, threads: usize, pace: &Pace) -> Table {
    let ways = LineWay::ALL.iter().map(|&way| {
        let writers = Writers::new(way, load, threads, lines);
        Running::new(way.name(), way.series(), None, Ok(writers))
    });
    let by = if threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
    let frame = Frame::of(
        "text",
        match load {
            Load::Unpaced { .. } => {
                format!(
                    "Text lines of {LINE_BYTES} B by {by}, as fast as they go, until all are in the file"
                )
            }
            Load::Paced { .. } => {
                format!(
                    "Text lines of {LINE_BYTES} B by {by}, 100,000 a second each: how long one write takes"
                )
            }
        },
        match load {
            Load::Unpaced { .. } => Unit::LinesPerS,
            Load::Paced { .. } => Unit::TailNs,
        },
        BASELINE.name(),
    );
    let mut found = scene.measure_at(pace, frame, ways.collect());
    found.name = load.name(threads);
    found.notes = notes(load);
    found.finding = finding(&found, load, &by);
    found
}

fn notes(load: Load) -> Vec<String> {
    let memory = "memory: how much the process had grown by the last line; \"in files of\": the file is rotated at that size; \"article 1\": its last four files are \
     kept, and a line may begin in one and end in the next";
    let load = match load {
        Load::Unpaced { .. } => {
            "a turn ends when every line is in the file and it is closed; the CPU time is that of the whole process until then"
        }
        Load::Paced { .. } => {
            "each thread writes a burst of 100 lines every millisecond, and each write is timed; a round's value is its 99.9th \
             percentile, and the latencies are of all rounds; pace kept: the share of bursts that came in time"
        }
    };
    vec![load.into(), memory.into()]
}

fn finding(found: &Table, load: Load, by: &str) -> Option<Finding> {
    let ours = found.way(LineWay::Log.name())?;
    let value = found.median(ours)?;
    let lost: f64 = found.ways.iter().filter_map(|way| way.figure("lines lost")).sum();
    let lost = if lost > 0.0 { format!("; {} lines were lost", sig3(lost)) } else { String::new() };
    let sentence = match load {
        Load::Unpaced { .. } => format!(
            "With {by}, the text log takes {} M lines a second on {}, until all are in the file: {}{lost}.",
            sig3(value / 1e6),
            place_words(&found.place),
            compared(ours.relative.as_ref(), BASELINE.name()),
        ),
        Load::Paced { .. } => format!(
            "With {by} at 100,000 lines a second each, 999 of 1,000 writes to the text log take at most {} here: {}{lost}.",
            time(value),
            tail_words(ours.relative.as_ref()),
        ),
    };
    Some(Finding { sentence, naive: Some(BASELINE.name().into()), ..Finding::default() })
}

fn tail_words(relative: Option<&Relative>) -> String {
    let base = BASELINE.name();
    let said = |relative: &Relative, how: &str| {
        let (speedup, interval) = (sig3(relative.speedup), relative.interval_words());
        format!("{speedup} times as {how} as with `{base}` ({interval})")
    };
    match relative {
        Some(shorter) if shorter.verdict == Verdict::Faster => said(shorter, "short"),
        Some(longer) if longer.verdict == Verdict::Slower => said(&longer.turned(), "long"),
        Some(few) if few.verdict == Verdict::Unknown => said(few, "short"),
        Some(same) if same.verdict == Verdict::Tie => {
            format!("a tie with `{base}` in these rounds")
        }
        _ => format!("not told from `{base}` in these rounds"),
    }
}

/// A buffer is full after 547 lines, so that the 99.9th percentile of a write is one that hands a
/// buffer over.
const BUFFER_BYTES: usize = 64 << 10;
const PACED: Load = Load::Paced { at_most: Duration::from_secs(1) };
const TWO: &str = "two buffers, taken beforehand";
const TWO_WHEN_NEEDED: &str = "two buffers, taken when needed";
const ONE: &str = "one buffer, taken beforehand";
const BUFFERS: [(&str, usize, bool); 4] = [
    (TWO, 2, false),
    (TWO_WHEN_NEEDED, 2, true),
    (ONE, 1, false),
    ("one buffer, taken when needed", 1, true),
];

/// One thread at 100,000 lines a second, by the number of buffers and when their memory is taken.
fn buffers() -> Trial {
    Trial::new("buffers", (BUFFERS.len(), 8 * FILE_BYTES, 8.0), |scene| {
        let lines = Lines::new(scene.pace.seed);
        let ways = BUFFERS.map(|(name, buffers, when_needed)| {
            let memory = Memory { buffer_bytes: BUFFER_BYTES, buffers, when_needed };
            let open = Box::new(move |folder: &Path| Writer::practice(folder, memory));
            Running::new(name, "buffers", None, Ok(Writers::opened_by(open, PACED, 1, &lines)))
        });
        let frame = Frame::of(
            "buffers",
            "Text lines by 1 thread, 100,000 a second, gathered in buffers of 64 KiB: how long \
             one write takes",
            Unit::TailNs,
            TWO,
        );
        Ok(vec![scene.measure(frame, ways.into())])
    })
}

const PIECES_FILE: &str = "pieces";
const PIECES_FILE_BYTES: u64 = 4 << 20;
/// Name, bytes of a piece, and where the first one begins.
const PIECES: [(&str, usize, u64); 6] = [
    ("4,096 B", 4096, 0),
    ("4,096 B, 100 B off", 4096, 100),
    ("4,000 B", 4000, 0),
    ("5,000 B", 5000, 0),
    ("512 B", 512, 0),
    ("16,384 B", 16384, 0),
];
const PIECES_RESULTS: [(&str, &str, bool); 2] = [
    ("pieces", "A written file overwritten in pieces, synced once at the end", false),
    ("pieces-synced", "A written file overwritten in pieces, fdatasync after each", true),
];

/// A file overwritten in pieces of 4,096 bytes, of other sizes, and beside the blocks' bounds, each
/// without a sync of its own and with one.
fn pieces() -> Trial {
    let count = PIECES_RESULTS.len() * PIECES.len();
    Trial::new("pieces", (count, PIECES_FILE_BYTES, 6.0), |scene| {
        let seed = scene.pace.seed;
        let file =
            written_file(scene.session, PIECES_FILE, PIECES_FILE_BYTES, Access::Buffered, seed)?;
        let pace = scene.pace.part(1.0 / PIECES_RESULTS.len() as f64);
        let found = PIECES_RESULTS.map(|(name, title, synced)| {
            let ways = PIECES.map(|(name, len, offset)| {
                let piece = incompressible(len, seed);
                Running::new(
                    name,
                    "pieces",
                    None,
                    Ok(Overwrite { file: &file, piece, offset, synced }),
                )
            });
            let frame = Frame {
                name,
                title: title.into(),
                x_name: None,
                unit: Unit::BytesPerS,
                baseline: PIECES[0].0.into(),
            };
            scene.measure_at(&pace, frame, ways.into())
        });
        scene.session.clear(PIECES_FILE)?;
        Ok(found.into())
    })
}

struct Overwrite<'a> {
    file: &'a LabFile,
    piece: AlignedBuf,
    offset: u64,
    synced: bool,
}

impl TakesTurns for Overwrite<'_> {
    /// At most once over the file, so that the last sync has as much to do for every piece.
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError> {
        let len = self.piece.len() as u64;
        let begin_ns = monotonic_ns();
        let mut at = self.offset;
        while at + len <= PIECES_FILE_BYTES {
            turn.session.check()?;
            self.file.write_at(&self.piece, at)?;
            at += len;
            if self.synced {
                self.file.sync(SyncKind::Data)?;
                if monotonic_ns() >= turn.end_ns(begin_ns) {
                    break;
                }
            }
        }
        if !self.synced {
            self.file.sync(SyncKind::Data)?;
        }
        let total_ns = monotonic_ns() - begin_ns;
        Ok(Sample::of(at - self.offset, total_ns))
    }
}

pub(super) const STATEMENTS: &[Statement] = &[
    Statement {
        id: "two-buffers",
        says: "With two buffers a thread that logs waits less for the disk than with one (p99.9 of a line).",
        source: Source::Article(1, ""),
        by: By::Rate { run: buffers, result: "buffers", slow: ONE, fast: TWO },
        band: FASTER,
    },
    Statement {
        id: "memory-beforehand",
        says: "Memory that is taken beforehand saves a thread that logs a wait (p99.9 of a line).",
        source: Source::Article(1, ""),
        by: By::Rate { run: buffers, result: "buffers", slow: TWO_WHEN_NEEDED, fast: TWO },
        band: FASTER,
    },
    Statement {
        id: "pieces-of-a-page",
        says: "Pieces of 4,096 bytes are written faster than as large ones beside the pages' bounds.",
        source: Source::Article(
            1,
            "which writes multiples of 4,096 bytes; here in memory, synced once",
        ),
        by: By::Rate { run: pieces, result: "pieces", slow: "4,096 B, 100 B off", fast: "4,096 B" },
        band: FASTER,
    },
    Statement {
        id: "pieces-of-a-page-synced",
        says: "So they are if each is made durable (fdatasync).",
        source: Source::Article(1, "which writes multiples of 4,096 bytes"),
        by: By::Rate {
            run: pieces,
            result: "pieces-synced",
            slow: "4,096 B, 100 B off",
            fast: "4,096 B",
        },
        band: FASTER,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_arrives_by_each_way() {
        use crate::experiment::testing::check;
        let plan = Plan { lines: 5000, paced: Duration::from_millis(3), threads: vec![1, 4] };
        for one in check(&text(plan), &["text-1", "text-4", "text-paced-1", "text-paced-4"]) {
            let name = &one.name;
            assert!(one.finding.is_some(), "{name}");
            let is_paced = name.contains("paced");
            for way in one.ways.iter().filter(|way| way.is_measured()) {
                assert_eq!(way.figure("lines lost"), Some(0.0), "{name}: {}", way.name);
                assert_eq!(way.latency.is_some(), is_paced, "{name}: {}", way.name);
                // A shorter tail is a lower value and a ratio above 1.
                let (Some(relative), true) = (&way.relative, is_paced) else { continue };
                let pairs = one.ways[1].rounds.iter().zip(&way.rounds);
                let each: Vec<f64> =
                    pairs.map(|(base, own)| base.per_commit_ns() / own.per_commit_ns()).collect();
                let low = each.iter().copied().fold(f64::MAX, f64::min);
                let high = each.iter().copied().fold(0.0, f64::max);
                assert!((low..=high).contains(&relative.speedup), "{}: {each:?}", way.name);
            }
        }
    }
}
