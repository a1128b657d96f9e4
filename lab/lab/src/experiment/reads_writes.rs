//! Sequential durable writes compared with random reads, one at a time: which of them a disk does
//! faster, for claims.
//!
//! *Owns*: the rows. *May not touch*: the rounds, what the figures mean.

use inkstone_host::{LabFile, monotonic_ns};
use inkstone_io::{Access, AlignedBuf, DioAlignment, File, OpenFile, SyncKind};

use crate::stage::CellError;

use super::ExperimentResult;
use super::definition::{Experiment, Scene, Size};
use super::reserved::{READ_BYTES, Reads, direct};
use super::rounds::{Arm, Frame, Row, Sample, Turn, measure};
use super::scratch::{fill, written_file};

const BLOCK_BYTES: usize = 4096;
const WRITTEN: &str = "written";
const READ: &str = "read";

/// 4 KiB written and synced by fsync, front to back; and the same read at random, from memory and
/// directly.
#[derive(Debug)]
pub(crate) struct ReadsAndWrites;

impl Experiment for ReadsAndWrites {
    fn name(&self) -> &'static str {
        "reads-and-writes"
    }

    fn sized(_: Size) -> Self {
        Self
    }

    fn room_needed_bytes(&self) -> u64 {
        3 * READ_BYTES
    }

    fn rows(&self) -> usize {
        3
    }

    fn measure(&self, scene: Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> {
        let Scene { site, session, pace, progress } = scene;
        let written = written_file(session, WRITTEN, READ_BYTES, Access::Buffered, pace.seed);
        let writes = written.map(|file| Writes { file, next: 0 });
        let cached = written_file(session, READ, READ_BYTES, Access::Buffered, pace.seed);
        let cached = cached.map(|file| Cached { reads: Reads { file } });
        let past = match site.capabilities.direct {
            DioAlignment::Refused => Err(CellError::Invalid("there is no O_DIRECT here".into())),
            DioAlignment::Bytes { .. } | DioAlignment::NotTold => direct(session, "read-direct")
                .and_then(|file| {
                    fill(session, &file, READ_BYTES, pace.seed).map(|()| Reads { file })
                }),
        };
        let rows = vec![
            Row::new("write and fsync", "writes", None, writes),
            Row::new("read, in memory", "reads", None, cached),
            Row::new("read, from the device", "reads", None, past),
        ];
        let frame = Frame {
            name: "reads-and-writes",
            title: "4 KiB at a time: written and synced in sequence, and read at random".into(),
            x_name: None,
            unit: "operations/s",
            baseline: "write and fsync".into(),
        };
        let found = measure(site, session, pace, &frame, rows, progress);
        for name in [WRITTEN, READ, "read-direct"] {
            session.clear(name)?;
        }
        Ok(vec![found])
    }
}

struct Writes {
    file: LabFile,
    /// The next block: a turn continues where the last one ended.
    next: u64,
}

impl Arm for Writes {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, CellError> {
        let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
        fastrand::Rng::with_seed(turn.seed).fill(&mut block);
        let begin_ns = monotonic_ns();
        let mut writes = 0;
        loop {
            turn.session.check()?;
            let now_ns = monotonic_ns();
            if writes > 0 && now_ns >= turn.end_ns(begin_ns) {
                return Ok(Sample {
                    amount: writes,
                    total_ns: now_ns - begin_ns,
                    figures: Vec::new(),
                });
            }
            let offset = self.next % (READ_BYTES / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
            self.file.write_at(&block, offset)?;
            self.file.sync(SyncKind::All)?;
            (writes, self.next) = (writes + 1, self.next + 1);
        }
    }
}

/// Reads whose pages are in memory when the turn begins.
struct Cached {
    reads: Reads,
}

impl Arm for Cached {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, CellError> {
        let file = turn.session.directory.open(READ, &OpenFile::existing())?;
        let mut buffer = AlignedBuf::zeroed(1 << 20);
        let mut at = 0;
        while let read @ 1.. = file.read_at(&mut buffer, at)? {
            at += read as u64;
        }
        let found = file.residency()?;
        if found.resident_pages < found.pages {
            return Err(CellError::Invalid(format!(
                "all its pages should be in memory, but {} of {} are, by {}",
                found.resident_pages, found.pages, found.told_by
            )));
        }
        self.reads.turn(turn)
    }
}
