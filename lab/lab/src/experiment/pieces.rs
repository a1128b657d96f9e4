//! A file overwritten in pieces of 4,096 bytes, of other sizes, and beside the blocks' bounds, for
//! claims.
//!
//! *Owns*: the pieces. *May not touch*: the rounds, what the figures mean.

use inkstone_host::{LabFile, monotonic_ns};
use inkstone_io::{Access, AlignedBuf, File, SyncKind};

use crate::stage::{CellError, incompressible};

use super::ExperimentResult;
use super::definition::{Experiment, Scene, Size};
use super::rounds::{Arm, Frame, Pace, Row, Sample, Turn, measure};
use super::scratch::written_file;

const FILE: &str = "pieces";
const FILE_BYTES: u64 = 4 << 20;
/// Name, bytes of a piece, and where the first one begins.
const PIECES: [(&str, usize, u64); 6] = [
    ("4,096 B", 4096, 0),
    ("4,096 B, 100 B off", 4096, 100),
    ("4,000 B", 4000, 0),
    ("5,000 B", 5000, 0),
    ("512 B", 512, 0),
    ("16,384 B", 16384, 0),
];
const RESULTS: [(&str, &str, Synced); 2] = [
    ("pieces", "A written file overwritten in pieces, synced once at the end", Synced::AtTheEnd),
    ("pieces-synced", "A written file overwritten in pieces, fdatasync after each", Synced::Each),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Synced {
    AtTheEnd,
    Each,
}

/// Every piece without a sync of its own, and with one.
#[derive(Debug)]
pub(crate) struct Pieces;

impl Experiment for Pieces {
    fn name(&self) -> &'static str {
        "pieces"
    }

    fn sized(_: Size) -> Self {
        Self
    }

    fn room_needed_bytes(&self) -> u64 {
        FILE_BYTES
    }

    fn rows(&self) -> usize {
        RESULTS.len() * PIECES.len()
    }

    fn claims_s(&self) -> f64 {
        6.0
    }

    fn measure(&self, scene: Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> {
        let Scene { site, session, pace, progress } = scene;
        let file = written_file(session, FILE, FILE_BYTES, Access::Buffered, pace.seed)?;
        let budget = pace.budget.map(|budget| budget / RESULTS.len() as u32);
        let pace = Pace { budget, ..*pace };
        let found = RESULTS.map(|(name, title, synced)| {
            let rows = PIECES.map(|(name, len, offset)| {
                let piece = incompressible(len, pace.seed);
                Row::new(name, "pieces", None, Ok(Overwrite { file: &file, piece, offset, synced }))
            });
            let frame = Frame {
                name,
                title: title.into(),
                x_name: None,
                unit: "bytes/s",
                baseline: PIECES[0].0.into(),
            };
            measure(site, session, &pace, &frame, rows.into(), progress)
        });
        session.clear(FILE)?;
        Ok(found.into())
    }
}

struct Overwrite<'a> {
    file: &'a LabFile,
    piece: AlignedBuf,
    offset: u64,
    synced: Synced,
}

impl Arm for Overwrite<'_> {
    /// At most once over the file, so that the last sync has as much to do for every piece.
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, CellError> {
        let len = self.piece.len() as u64;
        let begin_ns = monotonic_ns();
        let mut at = self.offset;
        while at + len <= FILE_BYTES {
            turn.session.check()?;
            self.file.write_at(&self.piece, at)?;
            at += len;
            if self.synced == Synced::Each {
                self.file.sync(SyncKind::Data)?;
                if monotonic_ns() >= turn.end_ns(begin_ns) {
                    break;
                }
            }
        }
        if self.synced == Synced::AtTheEnd {
            self.file.sync(SyncKind::Data)?;
        }
        let total_ns = monotonic_ns() - begin_ns;
        Ok(Sample { amount: at - self.offset, total_ns, figures: Vec::new() })
    }
}
