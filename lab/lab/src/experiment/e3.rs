//! What a commit writes after unrelated files were made.
//!
//! *Owns*: that work: counted, not timed. *May not touch*: how requests are counted
//! (`crate::bill`).

use inkstone_host::{DeviceNumber, block_stat};
use inkstone_io::{Access, AlignedBuf, Directory, File, OpenFile, SyncKind};

use crate::result::Unit;
use crate::rounds::{Frame, Running, Sample, Trial, Turn, each};
use crate::stage::WayError;

use super::scratch::written_file;

const FILE: &str = "neighbours";
const BLOCK_BYTES: usize = 4096;
const SECTOR_BYTES: u64 = 512;
/// Commits of a turn.
const COMMITS: u64 = 32;

/// Appends and overwrites with fdatasync, alone and each after an unrelated file was made: counted,
/// not timed. It compares the device's counters, so nobody else may write to it.
pub(super) fn neighbours() -> Trial {
    Trial::new("neighbours", (4, COMMITS * BLOCK_BYTES as u64, 4.0), |scene| {
        let device = || {
            let device = scene.site.capabilities.device.as_ref().filter(|_| scene.site.private);
            let shared = || WayError::Invalid("other processes write to the device too".into());
            device.map(|device| device.number).ok_or_else(shared)
        };
        let way = |name: &str, append, beside| {
            let way = device();
            let way = way.map(|device| each(move |turn| commits(turn, device, append, beside)));
            Running::new(name, "commits", None, way)
        };
        let ways = vec![
            way("append, alone", true, false),
            way("append, beside new files", true, true),
            way("overwrite, alone", false, false),
            way("overwrite, beside new files", false, true),
        ];
        let frame = Frame::of(
            "neighbours",
            "4 KiB commits with fdatasync, alone and each after an unrelated empty file was made",
            Unit::CommitsPerMb,
            "append, alone",
        );
        Ok(vec![scene.measure(frame, ways)])
    })
}

/// Returns bytes in place of a time: a way's figure is commits per megabyte.
fn commits(
    turn: &Turn<'_>,
    device: DeviceNumber,
    append: bool,
    beside: bool,
) -> Result<Sample, WayError> {
    const PER_MEGABYTE: u64 = 1_000;
    let session = turn.session;
    let file = if append {
        session.new_file(FILE, &OpenFile::new_file())?
    } else {
        written_file(session, FILE, COMMITS * BLOCK_BYTES as u64, Access::Buffered, turn.seed)?
    };
    // Makes the new file durable, so that nothing of its creation is left for a commit.
    file.sync(SyncKind::All)?;
    session.directory.sync()?;
    let block = AlignedBuf::zeroed(BLOCK_BYTES);
    let before = written_bytes(device)?;
    for number in 0..COMMITS {
        session.check()?;
        if beside {
            drop(session.directory.open(&neighbour(number), &OpenFile::new_file())?);
        }
        file.write_at(&block, number * BLOCK_BYTES as u64)?;
        file.sync(SyncKind::Data)?;
    }
    let written = written_bytes(device)? - before;
    if beside {
        (0..COMMITS).try_for_each(|number| session.directory.remove(&neighbour(number)))?;
    }
    session.remove(FILE)?;
    Ok(Sample::of(COMMITS, written * PER_MEGABYTE))
}

fn written_bytes(device: DeviceNumber) -> Result<u64, WayError> {
    Ok(block_stat(device)?.write_sectors * SECTOR_BYTES)
}

fn neighbour(number: u64) -> String {
    format!("unrelated-{number}")
}
