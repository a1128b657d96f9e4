//! Writes on a full disk into blocks that were reserved before, and into a file that grows:
//! counted, not timed, for claims.
//!
//! *Owns*: the rows. *May not touch*: the rounds. It fills the file system, so it needs one that
//! the lab has made.

use inkstone_host::{FallocateMode, LabFile};
use inkstone_io::{AlignedBuf, Directory, File, OpenFile, Preparation, SyncKind};

use crate::stage::{CellError, Session};

use super::ExperimentResult;
use super::definition::{Experiment, Scene, Size};
use super::rounds::{Arm, Frame, Row, Sample, Turn, counted, measure};

const FILE: &str = "full-disk";
const FILLER: &str = "filler";
const BLOCK_BYTES: usize = 4096;
const WRITES: u64 = 64;
/// The first piece that is asked for to fill the disk; half as much follows each refusal.
const FILL_BYTES: u64 = 64 << 20;
const GROWS: &str = "grows";

/// A file that grows, and one whose blocks are reserved with mode 0 or with KEEP_SIZE.
#[derive(Debug)]
pub(crate) struct FullDisk;

impl Experiment for FullDisk {
    fn name(&self) -> &'static str {
        "full-disk"
    }

    fn sized(_: Size) -> Self {
        Self
    }

    fn room_needed_bytes(&self) -> u64 {
        WRITES * BLOCK_BYTES as u64
    }

    fn rows(&self) -> usize {
        3
    }

    fn is_counted(&self) -> bool {
        true
    }

    fn measure(&self, scene: Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> {
        let Scene { site, session, pace, progress } = scene;
        let row = |name: &str, reserved| {
            let shared = || CellError::Invalid("the disk is not the lab's own to fill".into());
            let arm = if site.private { Ok(Writes { reserved }) } else { Err(shared()) };
            Row::new(name, "writes", None, arm)
        };
        let rows = vec![
            row(GROWS, None),
            row("reserved, mode 0", Some(Preparation::Fallocate)),
            row("reserved, KEEP_SIZE", Some(Preparation::KeepSize)),
        ];
        let frame = Frame {
            name: "full-disk",
            title: "64 writes of 4 KiB with fdatasync on a disk without a free block".into(),
            x_name: None,
            unit: "writes refused",
            baseline: String::new(),
        };
        let mut found = measure(site, session, &pace.for_counts(), &frame, rows, progress);
        clear(session)?;
        // Where nothing was refused to the file that grows, the disk was not full.
        if found.rows.iter().any(|row| row.name == GROWS && row.samples.contains(&0.0)) {
            for row in &mut found.rows {
                row.samples.clear();
                row.invalid = Some("the disk could not be filled: a file still grew on it".into());
            }
        }
        Ok(vec![found])
    }
}

fn clear(session: &Session<'_>) -> Result<(), CellError> {
    session.remove(FILE)?;
    session.clear(FILLER)
}

struct Writes {
    reserved: Option<Preparation>,
}

impl Arm for Writes {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, CellError> {
        let session = turn.session;
        clear(session)?;
        let file = session.directory.open(FILE, &OpenFile::new_file())?;
        if let Some(how) = self.reserved {
            file.prepare(how, WRITES * BLOCK_BYTES as u64)?;
        }
        file.sync(SyncKind::All)?;
        session.directory.sync()?;
        let filler = session.directory.open(FILLER, &OpenFile::new_file())?;
        fill(session, &filler)?;
        let block = AlignedBuf::zeroed(BLOCK_BYTES);
        let mut refused = 0;
        for number in 0..WRITES {
            session.check()?;
            let written = file.write_at(&block, number * BLOCK_BYTES as u64);
            match written.and_then(|()| file.sync(SyncKind::Data)) {
                Ok(()) => {}
                Err(error) if error.is_full() => refused += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(counted(refused))
    }
}

/// Takes every free block, in ever smaller pieces.
fn fill(session: &Session<'_>, filler: &LabFile) -> Result<(), CellError> {
    let (mut at, mut len) = (0, FILL_BYTES);
    while len >= BLOCK_BYTES as u64 {
        session.check()?;
        match FallocateMode::Plain.call(filler.std_file(), filler.path(), at, len) {
            Ok(()) => at += len,
            Err(error) if error.is_full() => len /= 2,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filler.sync(SyncKind::All)?)
}
