//! A file that grows by a hole: INSERT_RANGE at its front beside ftruncate at its end, for claims.
//!
//! *Owns*: the rows. *May not touch*: the rounds, what the figures mean.

use inkstone_host::{FallocateMode, monotonic_ns};
use inkstone_io::{File, OpenFile, SyncKind};

use crate::stage::CellError;

use super::ExperimentResult;
use super::definition::{Experiment, Scene, Size};
use super::rounds::{Arm, Frame, Row, Sample, Turn, measure};

const FILE: &str = "growing";
const BLOCK_BYTES: u64 = 4096;
/// Article 3's file: two written blocks.
const WRITTEN: [u8; 8192] = [0xA5; 8192];
/// Calls of a turn.
const CALLS: u64 = 256;

/// Each call makes the file one block longer.
#[derive(Debug)]
pub(crate) struct Growing;

impl Experiment for Growing {
    fn name(&self) -> &'static str {
        "growing"
    }

    fn sized(_: Size) -> Self {
        Self
    }

    fn room_needed_bytes(&self) -> u64 {
        WRITTEN.len() as u64 + CALLS * BLOCK_BYTES
    }

    fn rows(&self) -> usize {
        2
    }

    fn measure(&self, scene: Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> {
        let Scene { site, session, pace, progress } = scene;
        let row = |name: &str, inserts| Row::new(name, "calls", None, Ok(Calls { inserts }));
        let rows = vec![row("INSERT_RANGE", true), row("ftruncate", false)];
        let frame = Frame {
            name: "growing",
            title: "Calls that make a file one block longer, without a sync".into(),
            x_name: None,
            unit: "calls/s",
            baseline: "INSERT_RANGE".into(),
        };
        let found = measure(site, session, pace, &frame, rows, progress);
        session.clear(FILE)?;
        Ok(vec![found])
    }
}

struct Calls {
    inserts: bool,
}

impl Arm for Calls {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, CellError> {
        let file = turn.session.new_file(FILE, &OpenFile::new_file())?;
        file.write_at(&WRITTEN, 0)?;
        file.sync(SyncKind::All)?;
        let begin_ns = monotonic_ns();
        for number in 1..=CALLS {
            if self.inserts {
                FallocateMode::InsertRange.call(file.std_file(), file.path(), 0, BLOCK_BYTES)?;
            } else {
                file.set_len(WRITTEN.len() as u64 + number * BLOCK_BYTES)?;
            }
        }
        let total_ns = monotonic_ns() - begin_ns;
        let len = file.len_bytes()?;
        if len != WRITTEN.len() as u64 + CALLS * BLOCK_BYTES {
            return Err(CellError::Invalid(format!(
                "the file has {len} bytes after {CALLS} calls"
            )));
        }
        Ok(Sample { amount: CALLS, total_ns, figures: Vec::new() })
    }
}
