//! E9: a text log written by many threads (article 1, after muduo): the text log writer compared
//! with the standard library and with the article's practice; what buffers and pieces of a page
//! save.
//!
//! *Owns*: the ways, their load. *May not touch*: the appender's own crate, the rounds.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use inkstone_appender::{Guard, LogWriter};
use inkstone_host::monotonic_ns;
use inkstone_io::{Access, Directory as _, SyncKind};

use crate::crowd::together;
use crate::histogram::Recorder;
use crate::result::{Unit, figure};
use crate::rounds::{Running, Sample, Trial, Turn, each, timed};
use crate::stage::{WayError, incompressible};

use super::practice::{AS_THE_TEXT_LOG, FILE_BYTES, Memory, Practice};

/// Bytes of a line with its newline.
const LINE_BYTES: usize = 120;
/// How many different lines there are: few enough to stay in a core's cache, as freshly formatted
/// lines of a service are.
const LINES: usize = 512;
/// Lines of a burst; one burst per millisecond.
const BURST_LINES: u64 = 100;
const BURST_NS: u64 = 1_000_000;
/// After this many lines a thread reads the clock.
const LOOK_LINES: u64 = 64;
/// The folder in the working directory with the lines of one turn.
const FOLDER: &str = "text";

/// A name, and how it is opened in a folder.
type LineWay = (&'static str, fn(&Path) -> Result<Writer, WayError>);

/// The ways of writing lines. A copy under a lock, where the thread that finds the buffer full
/// writes it; the text log; multiples of 4,096 bytes over
/// written files, the oldest first.
const LINE_WAYS: [LineWay; 3] = [
    ("Mutex<BufWriter>", |folder| Ok(Writer::Buffered(Mutex::new(BufWriter::new(made(folder)?))))),
    ("LogWriter", |folder| {
        let (log, guard) = LogWriter::builder(folder.join(FILE)).open()?;
        Ok(Writer::Log(log, guard))
    }),
    ("as article 1 practises it", |folder| Writer::practice(folder, AS_THE_TEXT_LOG)),
];
const FILE: &str = "lines.log";

fn made(folder: &Path) -> Result<File, WayError> {
    let path = folder.join(FILE);
    File::create_new(&path).map_err(|error| failed("create", &path, error))
}

/// An open way, shared by all threads. Lines of different threads never mix.
enum Writer {
    Buffered(Mutex<BufWriter<File>>),
    Log(LogWriter, Guard),
    Practice(Practice),
}

impl Writer {
    /// Article 1's way.
    fn practice(folder: &Path, memory: Memory) -> Result<Self, WayError> {
        let opened = Practice::open(folder, memory);
        opened.map(Self::Practice).map_err(|error| failed("make files ready in", folder, error))
    }

    #[inline]
    fn put(&self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Buffered(file) => {
                file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line)
            }
            Self::Log(log, _) => {
                let mut log = log;
                log.write_all(line)
            }
            Self::Practice(log) => log.put(line),
        }
    }

    /// Closes; every line is in the files afterwards. Returns the bytes of lines if the files no
    /// longer have all of them.
    fn close(self) -> io::Result<Option<u64>> {
        match self {
            Self::Buffered(file) => {
                file.into_inner().unwrap_or_else(PoisonError::into_inner).flush().map(|()| None)
            }
            Self::Log(_, guard) => guard.close().map(|()| None),
            Self::Practice(log) => log.close().map(Some),
        }
    }
}

/// How lines come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// As fast as possible, with at most this many lines of all threads together.
    Unpaced { lines: u64 },
    /// Bursts by the clock, for at most `PACED_MAX`.
    Paced,
}

/// Different lines, made before anything is timed.
fn lines() -> Arc<[[u8; LINE_BYTES]]> {
    let mut random = fastrand::Rng::new();
    let line = |_| {
        let mut line = [b'\n'; LINE_BYTES];
        line[..LINE_BYTES - 1].fill_with(|| random.alphanumeric() as u8);
        line
    };
    (0..LINES).map(line).collect()
}

/// A turn of a way: its files are made, threads write, and every line is in the files. Returns how
/// many lines there were, and their time. `hands`: one for each thread, with its own times.
fn write(
    turn: &Turn<'_>,
    open: &dyn Fn(&Path) -> Result<Writer, WayError>,
    load: Load,
    lines: &[[u8; LINE_BYTES]],
    hands: &mut [Recorder],
) -> Result<(u64, u64), WayError> {
    let folder = turn.session.directory.path().join(FOLDER);
    // Removes what an interrupted turn left.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).map_err(|error| failed("create directory", &folder, error))?;
    let (writer, threads) = (open(&folder)?, hands.len() as u64);
    let all = together(hands, |index, hand| {
        let put = |number: u64| {
            let put = writer.put(&lines[(index as u64 * 97 + number) as usize % LINES]);
            put.map_err(|error| WayError::Invalid(format!("a line was refused: {error}")))
        };
        match load {
            Load::Unpaced { lines: most } => {
                let looks = most / threads / LOOK_LINES;
                let put =
                    |look: u64| (0..LOOK_LINES).try_for_each(|at| put(look * LOOK_LINES + at));
                Ok(turn.repeat(looks, hand, put)?.0 * LOOK_LINES)
            }
            Load::Paced => paced(turn, hand, put),
        }
    })?;
    let closed = writer.close().map_err(|error| failed("close", &folder, error))?;
    let total_ns = monotonic_ns() - all.begin_ns;
    let lines: u64 = all.outcomes.iter().sum();
    let bytes = closed.map_or_else(|| bytes_in(&folder), Ok)?;
    if bytes != lines * LINE_BYTES as u64 {
        let why = format!("{lines} lines were accepted, and the files have {bytes} bytes");
        return Err(WayError::Invalid(why));
    }
    fs::remove_dir_all(&folder).map_err(|error| failed("remove directory", &folder, error))?;
    Ok((lines, total_ns))
}

fn paced(
    turn: &Turn<'_>,
    hand: &mut Recorder,
    put: impl Fn(u64) -> Result<(), WayError>,
) -> Result<u64, WayError> {
    let begin_ns = monotonic_ns();
    let end_ns = turn.end_ns(begin_ns).min(begin_ns + PACED_MAX.as_nanos() as u64);
    let mut done = 0;
    loop {
        turn.session.check()?;
        let due_ns = begin_ns + done / BURST_LINES * BURST_NS;
        std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())));
        if monotonic_ns().max(due_ns) >= end_ns {
            return Ok(done);
        }
        for _ in 0..BURST_LINES {
            let since_ns = monotonic_ns();
            put(done)?;
            hand.record(monotonic_ns() - since_ns);
            done += 1;
        }
    }
}

/// The size of all files together.
fn bytes_in(folder: &Path) -> Result<u64, WayError> {
    let len = |entry: io::Result<fs::DirEntry>| entry?.metadata().map(|found| found.len());
    let all = fs::read_dir(folder).and_then(|entries| entries.map(len).sum());
    all.map_err(|error| failed("look at", folder, error))
}

fn failed(what: &'static str, path: &Path, error: io::Error) -> WayError {
    inkstone_io::Error::new(what, path, error).into()
}

const THREADS: usize = 4;

/// At most so many lines in a turn.
pub(super) fn text(most: u64) -> Trial {
    let title = format!(
        "Text lines of {LINE_BYTES} B by {THREADS} threads, as fast as they go, until all are in \
         the file"
    );
    // Room for the lines of one turn, and for files that are kept.
    let needs = (most * LINE_BYTES as u64 + 4 * FILE_BYTES, 4.0);
    Trial::new(("text", title), Unit::LinesPerS, needs, move |_| {
        let lines = lines();
        let way = |(name, open): LineWay| {
            let (lines, load) = (Arc::clone(&lines), Load::Unpaced { lines: most });
            let mut hands = vec![Recorder::new(); THREADS];
            let turn = each(move |turn| {
                let (done, total_ns) = write(turn, &open, load, &lines, &mut hands)?;
                Ok(Sample::of(done, total_ns))
            });
            Running::of(name, turn)
        };
        Ok(LINE_WAYS.map(way).into())
    })
    .note(
        "a turn ends when every line is in the file and it is closed; \"article 1\": its last four \
         files are kept, and a line may begin in one and end in the next",
    )
}

/// A buffer is full after 547 lines, so that the 99.9th percentile of a write is one that hands a
/// buffer over.
const BUFFER_BYTES: usize = 64 << 10;
/// The longest turn with a pace.
const PACED_MAX: Duration = Duration::from_secs(1);
/// Name, buffers, and whether their memory is taken when it is needed.
const BUFFERS: [(&str, usize, bool); 3] = [
    ("two buffers, taken beforehand", 2, false),
    ("two buffers, taken when needed", 2, true),
    ("one buffer, taken beforehand", 1, false),
];

/// One thread at 100,000 lines a second, by the number of buffers and when their memory is taken.
pub(super) fn buffers() -> Trial {
    let title = "Text lines by 1 thread, 100,000 a second, gathered in buffers of 64 KiB: how long \
                 one write takes";
    Trial::new(("buffers", title), Unit::TailNs, (8 * FILE_BYTES, 8.0), |_| {
        let lines = lines();
        let ways = BUFFERS.map(|(name, buffers, when_needed)| {
            let memory = Memory { buffer_bytes: BUFFER_BYTES, buffers, when_needed };
            let (lines, mut hand) = (Arc::clone(&lines), Recorder::new());
            let turn = timed(move |turn, latency| {
                hand.clear();
                let open = |folder: &Path| Writer::practice(folder, memory);
                let hands = std::slice::from_mut(&mut hand);
                let (done, _) = write(turn, &open, Load::Paced, &lines, hands)?;
                latency.merge(&hand);
                let due = turn.time.min(PACED_MAX).as_millis().max(1) as f64;
                let kept = (100.0 * (done / BURST_LINES) as f64 / due).min(100.0);
                let figures = vec![figure("pace kept", Unit::Percent, kept)];
                Ok(Sample::of(1, hand.finish().p999_ns).with(figures))
            });
            Running::of(name, turn)
        });
        Ok(ways.into())
    })
    .note(
        "a burst of 100 lines every millisecond, and each write is timed; a round's value is its \
         99.9th percentile, and the latencies are of all rounds; pace kept: the share of bursts \
         that came in time",
    )
}

const PIECES_FILE_BYTES: u64 = 4 << 20;
/// Name, bytes of a piece, and where the first one begins.
const PIECES: [(&str, usize, u64); 3] =
    [("4,096 B", 4096, 0), ("4,096 B, 100 B off", 4096, 100), ("5,000 B", 5000, 0)];

/// A file overwritten in pieces of 4,096 bytes, of other sizes, and beside the blocks' bounds, each
/// without a sync of its own or with one.
pub(super) fn pieces(synced: bool) -> Trial {
    let (name, title) = match synced {
        false => ("pieces", "A written file overwritten in pieces, synced once at the end"),
        true => ("pieces-synced", "A written file overwritten in pieces, fdatasync after each"),
    };
    Trial::new((name, title), Unit::BytesPerS, (PIECES_FILE_BYTES, 3.0), move |scene| {
        let file = scene.session.written_file(name, PIECES_FILE_BYTES, Access::Buffered, 1)?;
        let file = Arc::new(file);
        let ways = PIECES.map(|(name, len, offset)| {
            let (file, piece) = (Arc::clone(&file), incompressible(len));
            // At most once over the file, so that the last sync has as much to do for each.
            let overwrite = each(move |turn| {
                let begin_ns = monotonic_ns();
                let mut at = offset;
                while at + len as u64 <= PIECES_FILE_BYTES {
                    turn.session.check()?;
                    file.write_at(&piece, at)?;
                    at += len as u64;
                    if synced {
                        file.sync(SyncKind::Data)?;
                        if monotonic_ns() >= turn.end_ns(begin_ns) {
                            break;
                        }
                    }
                }
                if !synced {
                    file.sync(SyncKind::Data)?;
                }
                Ok(Sample::of(at - offset, monotonic_ns() - begin_ns))
            });
            Running::of(name, overwrite)
        });
        Ok(ways.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_arrives_by_each_way() {
        use crate::experiment::testing::check;
        // A way of which a line is missing has its reason in place of figures.
        let text = check(&text(5000));
        assert!(text.ways.iter().all(crate::result::Way::is_measured), "{text:?}");
        let buffers = check(&buffers());
        assert!(buffers.ways.iter().all(|way| way.latency.is_some()), "{buffers:?}");
    }
}
