//! Whether a way is faster because it has its turn first (article 4 suspected the SSD's garbage
//! collection of that), for claims.
//!
//! *Owns*: the rows, which do the same work at another place in the order. *May not touch*: the
//! rounds.

use std::time::Duration;

use inkstone_host::monotonic_ns;
use inkstone_io::{AlignedBuf, Directory, File, OpenFile, SyncKind};

use crate::stage::{CellError, Session, incompressible};

use super::ExperimentResult;
use super::definition::{Experiment, Scene, Size};
use super::rounds::{Arm, Frame, Row, Sample, Turn, measure};

const FILE: &str = "place";
const BLOCK_BYTES: usize = 4096;
/// Commits of a pass: few, so that a slow disk has rounds enough for an answer too.
const COMMITS: u64 = 64;
/// Ways in article 4's order, so as many passes before the last.
const WAYS: usize = 5;
/// The device's rest before the first.
const REST: Duration = Duration::from_millis(100);

/// The same new file, written and synced block by block: first after a rest, and fifth in a row.
#[derive(Debug)]
pub(crate) struct Place;

impl Experiment for Place {
    fn name(&self) -> &'static str {
        "place"
    }

    fn sized(_: Size) -> Self {
        Self
    }

    fn room_needed_bytes(&self) -> u64 {
        COMMITS * BLOCK_BYTES as u64
    }

    fn rows(&self) -> usize {
        2
    }

    fn claims_s(&self) -> f64 {
        10.0
    }

    fn measure(&self, scene: Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> {
        let Scene { site, session, pace, progress } = scene;
        let row = |name: &str, before| {
            let block = incompressible(BLOCK_BYTES, pace.seed);
            Row::new(name, "commits", None, Ok(After { before, block }))
        };
        let rows = vec![row("first, after a rest", 0), row("fifth in a row", WAYS - 1)];
        let frame = Frame {
            name: "place",
            title: "4 KiB commits into a new file, by its place in the order of equal files".into(),
            x_name: None,
            unit: "commits/s",
            baseline: "fifth in a row".into(),
        };
        let found = measure(site, session, pace, &frame, rows, progress);
        session.clear(FILE)?;
        Ok(vec![found])
    }
}

struct After {
    before: usize,
    block: AlignedBuf,
}

impl Arm for After {
    /// Only the last pass is timed. All are whole: a shorter one would be another load.
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, CellError> {
        std::thread::sleep(REST);
        for _ in 0..self.before {
            pass(turn.session, &self.block)?;
        }
        let total_ns = pass(turn.session, &self.block)?;
        Ok(Sample { amount: COMMITS, total_ns, figures: Vec::new() })
    }
}

fn pass(session: &Session<'_>, block: &AlignedBuf) -> Result<u64, CellError> {
    let file = session.new_file(FILE, &OpenFile::new_file())?;
    session.directory.sync()?;
    let begin_ns = monotonic_ns();
    for number in 0..COMMITS {
        session.check()?;
        file.write_at(block, number * BLOCK_BYTES as u64)?;
        file.sync(SyncKind::Data)?;
    }
    Ok(monotonic_ns() - begin_ns)
}
