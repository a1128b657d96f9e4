//! Blocks that are only reserved: how fast reads are, and how long it takes to reserve them. Two
//! small experiments for claims.
//!
//! *Owns*: both. *May not touch*: the rounds, what the figures mean.

use inkstone_host::{LabFile, monotonic_ns};
use inkstone_io::{
    Access, AlignedBuf, DioAlignment, Durability, File, OpenFile, Preparation, SyncKind,
};

use crate::stage::{CellError, Session};

use super::ExperimentResult;
use super::definition::{Experiment, Scene, Size};
use super::rounds::{Arm, Frame, Row, Sample, Turn, measure};
use super::scratch::fill;

const BLOCK_BYTES: usize = 4096;
/// Size of the files that are read.
pub(super) const READ_BYTES: u64 = 8 << 20;
/// Size of the reserved file, as in the mailing list thread of the claim.
const RESERVE_BYTES: u64 = 8 << 20;

/// Random 4 KiB reads with O_DIRECT, of a written file and of one that was only reserved.
#[derive(Debug)]
pub(crate) struct UnwrittenReads;

impl Experiment for UnwrittenReads {
    fn name(&self) -> &'static str {
        "unwritten-reads"
    }

    fn sized(_: Size) -> Self {
        Self
    }

    fn room_needed_bytes(&self) -> u64 {
        2 * READ_BYTES
    }

    fn rows(&self) -> usize {
        2
    }

    fn measure(&self, scene: Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> {
        let Scene { site, session, pace, progress } = scene;
        let can = || match site.capabilities.direct {
            DioAlignment::Refused => Err(CellError::Invalid("there is no O_DIRECT here".into())),
            DioAlignment::Bytes { .. } | DioAlignment::NotTold => Ok(()),
        };
        let written = can().and_then(|()| {
            let file = direct(session, "written")?;
            fill(session, &file, READ_BYTES, pace.seed)?;
            Ok(Reads { file })
        });
        let reserved = can().and_then(|()| {
            let file = direct(session, "reserved")?;
            file.prepare(Preparation::Fallocate, READ_BYTES)?;
            file.sync(SyncKind::All)?;
            Ok(Reads { file })
        });
        let rows = vec![
            Row::new("written", "reads", None, written),
            Row::new("reserved", "reads", None, reserved),
        ];
        let frame = Frame {
            name: "unwritten-reads",
            title: "4 KiB reads at random with O_DIRECT, one at a time, of written and of reserved blocks"
                .into(),
            x_name: None,
            unit: "operations/s",
            baseline: "written".into(),
        };
        let found = measure(site, session, pace, &frame, rows, progress);
        session.clear("written")?;
        session.clear("reserved")?;
        Ok(vec![found])
    }
}

pub(super) fn direct(session: &Session<'_>, name: &str) -> Result<LabFile, CellError> {
    session.new_file(name, &OpenFile::new_file().access(Access::Direct))
}

/// Random reads of 4 KiB, one after the other.
pub(super) struct Reads {
    pub(super) file: LabFile,
}

impl Arm for Reads {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, CellError> {
        let mut random = fastrand::Rng::with_seed(turn.seed);
        let mut buffer = AlignedBuf::zeroed(BLOCK_BYTES);
        let begin_ns = monotonic_ns();
        let mut reads = 0;
        loop {
            turn.session.check()?;
            let now_ns = monotonic_ns();
            if reads > 0 && now_ns >= turn.end_ns(begin_ns) {
                return Ok(Sample {
                    amount: reads,
                    total_ns: now_ns - begin_ns,
                    figures: Vec::new(),
                });
            }
            let offset = random.u64(..READ_BYTES / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
            if self.file.read_at(&mut buffer, offset)? != BLOCK_BYTES {
                return Err(CellError::Invalid(format!(
                    "the file ends before byte {}",
                    offset + 4096
                )));
            }
            reads += 1;
        }
    }
}

/// How long an empty file takes to get 8 MiB of blocks: reserved through a descriptor with O_DSYNC,
/// or zeros written and synced.
#[derive(Debug)]
pub(crate) struct Reserving;

impl Experiment for Reserving {
    fn name(&self) -> &'static str {
        "reserving"
    }

    fn sized(_: Size) -> Self {
        Self
    }

    fn room_needed_bytes(&self) -> u64 {
        RESERVE_BYTES
    }

    fn rows(&self) -> usize {
        2
    }

    fn measure(&self, scene: Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> {
        let Scene { site, session, pace, progress } = scene;
        const POSIX: &str = "posix_fallocate, O_DSYNC";
        let row = |name: &str, durability, preparation| {
            Row::new(name, "files", None, Ok(Reserved { durability, preparation }))
        };
        let rows = vec![
            row(POSIX, Durability::ODsync, Preparation::PosixFallocate),
            row("zeros written, synced once", Durability::Fsync, Preparation::Zeros),
        ];
        let frame = Frame {
            name: "reserving",
            title: "Growing an empty file to 8 MiB with blocks of its own".into(),
            x_name: None,
            unit: "files/s",
            baseline: POSIX.into(),
        };
        let found = measure(site, session, pace, &frame, rows, progress);
        session.clear("reserving")?;
        Ok(vec![found])
    }
}

struct Reserved {
    durability: Durability,
    preparation: Preparation,
}

impl Arm for Reserved {
    /// Creates one file; its removal is not part of the time.
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, CellError> {
        let session = turn.session;
        let file =
            session.new_file("reserving", &OpenFile::new_file().durability(self.durability))?;
        let begin_ns = monotonic_ns();
        file.prepare(self.preparation, RESERVE_BYTES)?;
        Ok(Sample { amount: 1, total_ns: monotonic_ns() - begin_ns, figures: Vec::new() })
    }
}
