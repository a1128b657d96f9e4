//! The loads on a way of writing lines: as fast as possible, and at a pace.
//!
//! *Owns*: the threads' loops, what is counted beside them. *May not touch*: the ways, the rounds.

use std::fs;
use std::path::Path;
use std::time::Duration;

use inkstone_host::{monotonic_ns, process_cpu_ns};
use inkstone_io::Directory as _;

use crate::crowd::together;
use crate::histogram::Recorder;
use crate::result::{Unit, Way, figure};
use crate::rounds::{Sample, TakesTurns, Turn};
use crate::stage::WayError;

use super::ways::{LINE_BYTES, LineWay, Writer};

/// The folder in the working directory with the lines of one turn.
pub(super) const FOLDER: &str = "text";
/// How many different lines there are: few enough to stay in a core's cache, as freshly formatted
/// lines of a service are.
const LINES: usize = 512;
/// Lines of a burst; one burst per millisecond.
const BURST_LINES: u64 = 100;
const BURST_NS: u64 = 1_000_000;
/// After this many lines a thread reads the clock.
const LOOK_LINES: u64 = 64;

/// How lines come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// As fast as possible, with at most this many lines of all threads together.
    Unpaced { lines: u64 },
    /// Bursts by the clock.
    Paced { at_most: Duration },
}

impl Load {
    pub(super) fn name(self, threads: usize) -> String {
        match self {
            Self::Unpaced { .. } => format!("text-{threads}"),
            Self::Paced { .. } => format!("text-paced-{threads}"),
        }
    }
}

/// Different lines, made before anything is timed.
#[derive(Debug)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut all = Vec::with_capacity(LINES * LINE_BYTES);
        for number in 0..LINES {
            let head =
                format!("level=info seq={number:08} took_us={:05} path=/", random.u32(..100_000));
            all.extend_from_slice(head.as_bytes());
            all.resize_with((number + 1) * LINE_BYTES - 1, || random.alphanumeric() as u8);
            all.push(b'\n');
        }
        Self(all)
    }

    #[inline]
    pub(super) fn get(&self, number: u64) -> &[u8] {
        let at = (number as usize % LINES) * LINE_BYTES;
        &self.0[at..at + LINE_BYTES]
    }
}

/// Opens a way in a folder.
type Open<'a> = Box<dyn Fn(&Path) -> Result<Writer, WayError> + 'a>;

/// One way under one load.
pub(super) struct Writers<'a> {
    open: Open<'a>,
    load: Load,
    lines: &'a Lines,
    /// One for each thread, with its own write times in a turn.
    hands: Vec<Recorder>,
    latency: Recorder,
    lost_lines: u64,
}

/// What one thread did.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    lines: u64,
    bursts: u64,
}

impl<'a> Writers<'a> {
    pub(super) fn new(way: LineWay, load: Load, threads: usize, lines: &'a Lines) -> Self {
        Self::opened_by(Box::new(move |folder| Writer::open(way, folder)), load, threads, lines)
    }

    pub(super) fn opened_by(open: Open<'a>, load: Load, threads: usize, lines: &'a Lines) -> Self {
        let hands = (0..threads).map(|_| Recorder::new()).collect();
        Self { open, load, lines, hands, latency: Recorder::new(), lost_lines: 0 }
    }

    fn write(&mut self, turn: &Turn<'_>, writer: &Writer) -> Result<(u64, Vec<Done>), WayError> {
        let (load, lines, threads) = (self.load, self.lines, self.hands.len() as u64);
        let all = together(&mut self.hands, |index, hand| {
            let first = index as u64 * 97;
            match load {
                Load::Unpaced { lines: most } => {
                    unpaced(turn, writer, lines, first, most / threads)
                }
                Load::Paced { at_most } => paced(turn, writer, lines, first, at_most, hand),
            }
        })?;
        Ok((all.begin_ns, all.outcomes))
    }
}

fn unpaced(
    turn: &Turn<'_>,
    writer: &Writer,
    lines: &Lines,
    first: u64,
    most: u64,
) -> Result<Done, WayError> {
    let end_ns = turn.end_ns(monotonic_ns());
    let mut done = Done::default();
    while done.lines < most && monotonic_ns() < end_ns {
        turn.session.check()?;
        for _ in 0..LOOK_LINES.min(most - done.lines) {
            writer.put(lines.get(first + done.lines)).map_err(not_put)?;
            done.lines += 1;
        }
    }
    Ok(done)
}

fn paced(
    turn: &Turn<'_>,
    writer: &Writer,
    lines: &Lines,
    first: u64,
    at_most: Duration,
    hand: &mut Recorder,
) -> Result<Done, WayError> {
    let begin_ns = monotonic_ns();
    let end_ns = turn.end_ns(begin_ns).min(begin_ns + at_most.as_nanos() as u64);
    let mut done = Done::default();
    loop {
        turn.session.check()?;
        let due_ns = begin_ns + done.bursts * BURST_NS;
        std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())));
        if monotonic_ns().max(due_ns) >= end_ns {
            return Ok(done);
        }
        for _ in 0..BURST_LINES {
            let line = lines.get(first + done.lines);
            let since_ns = monotonic_ns();
            writer.put(line).map_err(not_put)?;
            hand.record(monotonic_ns() - since_ns);
            done.lines += 1;
        }
        done.bursts += 1;
    }
}

fn not_put(error: std::io::Error) -> WayError {
    WayError::Invalid(format!("a line was refused: {error}"))
}

impl TakesTurns for Writers<'_> {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError> {
        self.hands.iter_mut().for_each(Recorder::clear);
        let folder = turn.session.directory.path().join(FOLDER);
        new_folder(&folder)?;
        let resident = resident_bytes();
        let writer = (self.open)(&folder)?;
        let cpu_before_ns = process_cpu_ns();
        let (begin_ns, done) = self.write(turn, &writer)?;
        let grown =
            resident_bytes().zip(resident).map(|(after, before)| after.saturating_sub(before));
        let closed =
            writer.close().map_err(|error| WayError::Invalid(format!("closing: {error}")))?;
        let total_ns = monotonic_ns() - begin_ns;
        let cpu_ns = process_cpu_ns() - cpu_before_ns;
        let lines: u64 = done.iter().map(|done| done.lines).sum();
        let bytes = closed.map_or_else(|| bytes_in(&folder), Ok)?;
        self.lost_lines += lost(lines, bytes)?;
        take_away(&folder)?;
        let mut figures =
            vec![figure("CPU time", Unit::NsPerLine, cpu_ns as f64 / lines.max(1) as f64)];
        let sample = match self.load {
            Load::Unpaced { .. } => Sample::of(lines, total_ns),
            Load::Paced { at_most } => {
                let mut all = Recorder::new();
                self.hands.iter().for_each(|hand| all.merge(hand));
                self.latency.merge(&all);
                let found = all.finish();
                let due_ms = turn.time.min(at_most).as_millis().max(1) as f64;
                let due = due_ms * self.hands.len() as f64;
                let bursts: u64 = done.iter().map(|done| done.bursts).sum();
                figures.push(figure("slowest of a round", Unit::Ns, found.max_ns as f64));
                figures.push(figure(
                    "pace kept",
                    Unit::Percent,
                    (100.0 * bursts as f64 / due).min(100.0),
                ));
                Sample::of(1, found.p999_ns)
            }
        };
        figures.extend(grown.map(|bytes| figure("memory", Unit::Bytes, bytes as f64)));
        Ok(sample.with(figures))
    }

    fn finish(&mut self, way: &mut Way, _: &mut Vec<String>) {
        way.latency = (self.latency.count() > 0).then(|| self.latency.finish());
        way.figures.push(figure("lines lost", Unit::Lines, self.lost_lines as f64));
    }
}

/// Lines that are missing in the files although each was accepted.
fn lost(lines: u64, bytes: u64) -> Result<u64, WayError> {
    let missing = (lines * LINE_BYTES as u64).checked_sub(bytes);
    let missing = missing
        .ok_or_else(|| WayError::Invalid("the files have more lines than were put".into()))?;
    Ok(missing.div_ceil(LINE_BYTES as u64))
}

/// An empty folder of this name.
pub(super) fn new_folder(folder: &Path) -> Result<(), WayError> {
    // Removes what an interrupted turn left.
    let _ = fs::remove_dir_all(folder);
    fs::create_dir(folder).map_err(|error| failed("create directory", folder, error))
}

pub(super) fn take_away(folder: &Path) -> Result<(), WayError> {
    fs::remove_dir_all(folder).map_err(|error| failed("remove directory", folder, error))
}

/// The size of all files together.
fn bytes_in(folder: &Path) -> Result<u64, WayError> {
    let entries = fs::read_dir(folder).map_err(|error| failed("list", folder, error))?;
    let len = |entry: std::io::Result<fs::DirEntry>| entry?.metadata().map(|found| found.len());
    entries.map(len).sum::<std::io::Result<u64>>().map_err(|error| failed("look at", folder, error))
}

fn failed(what: &'static str, path: &Path, error: std::io::Error) -> WayError {
    inkstone_io::Error::new(what, path, error).into()
}

/// The process's resident memory, including buffers in shared memory.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::atomic::AtomicBool;

    use inkstone_host::LabDirectory;
    use inkstone_io::NamedChoice as _;

    use crate::stage::Session;

    #[test]
    fn lines_are_of_one_size_and_all_different() {
        let lines = Lines::new(7);
        let all: HashSet<&[u8]> = (0..LINES as u64).map(|number| lines.get(number)).collect();
        assert_eq!(all.len(), LINES);
        assert!(all.iter().all(|line| line.len() == LINE_BYTES && line.ends_with(b"\n")));
        assert!(all.iter().all(|line| line.iter().filter(|byte| **byte == b'\n').count() == 1));
    }

    #[test]
    fn each_way_writes_every_line_by_any_number_of_threads_and_leaves_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = LabDirectory::at(directory.path()).expect("a directory");
        let stop = AtomicBool::new(false);
        let session = Session { directory: &files, stop: &stop, device: None };
        let lines = Lines::new(1);
        let unpaced = Load::Unpaced { lines: 40_000 };
        let paced = Load::Paced { at_most: Duration::from_millis(5) };
        for &way in LineWay::ALL {
            for (load, threads) in [(unpaced, 1), (unpaced, 4), (paced, 2)] {
                let mut writers = Writers::new(way, load, threads, &lines);
                let turn = Turn { session: &session, time: Duration::MAX, seed: 1 };
                let sample = writers
                    .turn(&turn)
                    .unwrap_or_else(|error| panic!("{way} {load:?} {threads}: {error}"));
                if load == unpaced {
                    assert_eq!(sample.amount, 40_000, "{way}");
                } else {
                    let latency = writers.latency.finish();
                    assert!(
                        latency.count > 0 && latency.count.is_multiple_of(BURST_LINES),
                        "{way}"
                    );
                    assert_eq!(sample.total_ns, latency.p999_ns, "{way}");
                }
                assert_eq!(writers.lost_lines, 0, "{way}");
                assert_eq!(files.list().expect("names"), Vec::<String>::new(), "{way}");
            }
        }
    }

    #[test]
    fn what_is_missing_counts_as_lost_and_what_is_too_much_is_an_error() {
        let line = LINE_BYTES as u64;
        assert_eq!(lost(10, 10 * line).expect("all there"), 0);
        assert_eq!(lost(10, 10 * line - 1).expect("one is torn"), 1);
        assert_eq!(lost(10, 0).expect("none there"), 10);
        assert!(lost(10, 10 * line + 1).is_err());
    }
}
