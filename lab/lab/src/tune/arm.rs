//! One candidate while it is tuned: its file, its position in it, and the times of its passes.
//!
//! *Owns*: that file, and short passes over it. *May not touch*: the order of passes, and what they
//! mean (`super`).

use std::sync::Arc;
use std::time::Duration;

use inkstone_host::{LabEngine, LabFile, monotonic_ns};
use inkstone_io::{AlignedBuf, Preparation, Reuse, Strategy};

use crate::cell::Cell;
use crate::pass::Writer;
use crate::result::Round;
use crate::site::Site;
use crate::stage::{CellError, Session, stage};

/// Size of a written file, which is overwritten again and again.
const WRITTEN_BYTES: u64 = 1 << 20;
/// Size of a reserved file. Its blocks are used up, since each commit must be the first to its
/// blocks.
const RESERVED_BYTES: u64 = 8 << 20;

/// A candidate with its file.
#[derive(Debug)]
pub(super) struct Arm {
    cell: Cell,
    ready: Option<(Arc<LabFile>, Writer<LabEngine>)>,
    next: u64,
    /// Why it cannot be measured here.
    pub(super) failed: Option<String>,
    pub(super) rounds: Vec<Round>,
}

impl Arm {
    /// Bytes of disk that the arm of this strategy needs.
    pub(super) fn room_bytes(strategy: &Strategy) -> u64 {
        cell(strategy).file_bytes
    }

    /// Bytes written so far, preparation included.
    pub(super) fn written_bytes(&self) -> u64 {
        let zeros = if self.cell.strategy.preparation == Preparation::Zeros {
            self.cell.file_bytes
        } else {
            0
        };
        zeros + self.next * self.cell.write_bytes
    }

    /// Prepares the file. A failure stays within this arm.
    pub(super) fn new(
        number: usize,
        strategy: &Strategy,
        site: &Site,
        session: &Session<'_>,
        payload: &AlignedBuf,
    ) -> Result<Self, CellError> {
        let cell = cell(strategy);
        let mut arm = Self { cell, ready: None, next: 0, failed: None, rounds: Vec::new() };
        let made = site.can(&cell).map_err(CellError::Invalid).and_then(|()| {
            let writer = Writer::for_cell(&cell, payload)?;
            Ok((stage(session, &cell, &format!("tune-{number}"), payload)?.file, writer))
        });
        match made {
            Ok(ready) => arm.ready = Some(ready),
            Err(CellError::Interrupted) => return Err(CellError::Interrupted),
            Err(error) => arm.failed = Some(error.to_string()),
        }
        Ok(arm)
    }

    /// How many more commits it has blocks for.
    pub(super) fn commits_left(&self) -> u64 {
        match self.cell.strategy.preparation {
            Preparation::Zeros => u64::MAX,
            _ => self.cell.commits() - self.next,
        }
    }

    /// Makes this many commits, timed together. `None`: it has failed, now or before.
    pub(super) fn pass(&mut self, commits: u64) -> Option<Duration> {
        let (file, writer) = self.ready.as_mut()?;
        let begin_ns = monotonic_ns();
        for _ in 0..commits {
            let number = self.next % self.cell.commits();
            if let Err(error) = writer.commit(&self.cell, file, number) {
                self.failed = Some(error.to_string());
                self.ready = None;
                return None;
            }
            self.next += 1;
        }
        Some(Duration::from_nanos(monotonic_ns() - begin_ns))
    }

    /// Makes a pass that counts.
    pub(super) fn round(&mut self, number: u32, turn: u32, commits: u64) {
        if let Some(took) = self.pass(commits) {
            let total_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.rounds.push(Round { number, turn, commits, total_ns, ..Round::default() });
        }
    }
}

/// The cell of a strategy. Recycled blocks and zeros are both written blocks, and new zeros are
/// quicker to prepare.
fn cell(strategy: &Strategy) -> Cell {
    let file_bytes =
        if strategy.preparation == Preparation::Zeros { WRITTEN_BYTES } else { RESERVED_BYTES };
    Cell { file_bytes, ..Cell::of(Strategy { reuse: Reuse::New, ..*strategy }) }
}
