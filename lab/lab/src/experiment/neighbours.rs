//! What a commit writes after unrelated files were created on the same file system: counted, not
//! timed.
//!
//! *Owns*: the rows. *May not touch*: the rounds. It needs a device that nobody else writes to,
//! since it compares its counters.

use inkstone_host::{DeviceNumber, block_stat};
use inkstone_io::{Access, AlignedBuf, Directory, File, OpenFile, SyncKind};

use crate::stage::CellError;

use super::ExperimentResult;
use super::definition::{Experiment, Scene, Size};
use super::rounds::{Arm, Frame, Row, Sample, Turn, measure};
use super::scratch::written_file;

const FILE: &str = "neighbours";
const BLOCK_BYTES: usize = 4096;
const SECTOR_BYTES: u64 = 512;
/// Commits of a turn.
const COMMITS: u64 = 32;

/// Appends and overwrites with fdatasync, alone and each after an unrelated file was created.
#[derive(Debug)]
pub(crate) struct Neighbours;

impl Experiment for Neighbours {
    fn name(&self) -> &'static str {
        "neighbours"
    }

    fn sized(_: Size) -> Self {
        Self
    }

    fn room_needed_bytes(&self) -> u64 {
        COMMITS * BLOCK_BYTES as u64
    }

    fn rows(&self) -> usize {
        4
    }

    fn claims_s(&self) -> f64 {
        4.0
    }

    fn is_counted(&self) -> bool {
        true
    }

    fn measure(&self, scene: Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> {
        let Scene { site, session, pace, progress } = scene;
        let device = || {
            let device = site.capabilities.device.as_ref().filter(|_| site.private);
            let device = device.ok_or_else(|| {
                CellError::Invalid("other processes write to the device too".into())
            })?;
            Ok(device.number)
        };
        let row = |name: &str, append, beside| {
            Row::new(
                name,
                "commits",
                None,
                device().map(|device| Commits { device, append, beside }),
            )
        };
        let rows = vec![
            row("append, alone", true, false),
            row("append, beside new files", true, true),
            row("overwrite, alone", false, false),
            row("overwrite, beside new files", false, true),
        ];
        let frame = Frame {
            name: "neighbours",
            title: "4 KiB commits with fdatasync, alone and each after an unrelated empty file was made"
                .into(),
            x_name: None,
            unit: "commits/MB written",
            baseline: "append, alone".into(),
        };
        Ok(vec![measure(site, session, pace, &frame, rows, progress)])
    }
}

struct Commits {
    device: DeviceNumber,
    append: bool,
    beside: bool,
}

impl Commits {
    fn written_bytes(&self) -> Result<u64, CellError> {
        Ok(block_stat(self.device)?.write_sectors * SECTOR_BYTES)
    }
}

impl Arm for Commits {
    /// Returns bytes in place of a time: a row's figure is commits per megabyte.
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, CellError> {
        const PER_MEGABYTE: u64 = 1_000;
        let session = turn.session;
        let file = if self.append {
            session.new_file(FILE, &OpenFile::new_file())?
        } else {
            written_file(session, FILE, COMMITS * BLOCK_BYTES as u64, Access::Buffered, turn.seed)?
        };
        // Makes the new file durable, so that nothing of its creation is left for a commit.
        file.sync(SyncKind::All)?;
        session.directory.sync()?;
        let block = AlignedBuf::zeroed(BLOCK_BYTES);
        let before = self.written_bytes()?;
        for number in 0..COMMITS {
            session.check()?;
            if self.beside {
                drop(session.directory.open(&neighbour(number), &OpenFile::new_file())?);
            }
            file.write_at(&block, number * BLOCK_BYTES as u64)?;
            file.sync(SyncKind::Data)?;
        }
        let written = self.written_bytes()? - before;
        if self.beside {
            (0..COMMITS).try_for_each(|number| session.directory.remove(&neighbour(number)))?;
        }
        session.remove(FILE)?;
        Ok(Sample { amount: COMMITS, total_ns: written * PER_MEGABYTE, figures: Vec::new() })
    }
}

fn neighbour(number: u64) -> String {
    format!("unrelated-{number}")
}
