//! The files that experiments work on: written, synced, with known bytes.
//!
//! *Owns*: creating them, and the plainest loops over them. *May not touch*: what is compared.

use inkstone_host::{LabFile, monotonic_ns};
use inkstone_io::{Access, AlignedBuf, Directory, File, OpenFile, SyncKind};

use crate::rounds::{Sample, Turn};
use crate::stage::{Session, WayError};

use super::pattern;

/// Bytes written at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// A new file of this size with the pattern of `seed`, all of it on the medium; reopened with
/// `access`.
///
/// # Errors
/// Errors of the file system, or the user's wish to stop.
pub(crate) fn written_file(
    session: &Session<'_>,
    name: &str,
    len_bytes: u64,
    access: Access,
    seed: u64,
) -> Result<LabFile, WayError> {
    let file = session.new_file(name, &OpenFile::new_file().access(access))?;
    fill(session, &file, len_bytes, seed)?;
    session.directory.sync()?;
    Ok(file)
}

/// Writes the pattern over the first `len_bytes` of a file, and syncs it.
///
/// # Errors
/// As [`written_file`].
pub(crate) fn fill(
    session: &Session<'_>,
    file: &LabFile,
    len_bytes: u64,
    seed: u64,
) -> Result<(), WayError> {
    let mut piece = AlignedBuf::zeroed(PIECE_BYTES.min(len_bytes.max(1)) as usize);
    let mut at = 0;
    while at < len_bytes {
        session.check()?;
        let len = (len_bytes - at).min(piece.len() as u64) as usize;
        pattern::fill(&mut piece[..len], at, seed);
        file.write_at(&piece[..len], at)?;
        at += len as u64;
    }
    Ok(file.sync(SyncKind::All)?)
}

/// Size of the files of [`random_reads`].
pub(crate) const READ_BYTES: u64 = 8 << 20;
const BLOCK_BYTES: usize = 4096;

/// A new file that is opened with O_DIRECT.
///
/// # Errors
/// As [`written_file`].
pub(crate) fn direct_file(session: &Session<'_>, name: &str) -> Result<LabFile, WayError> {
    session.new_file(name, &OpenFile::new_file().access(Access::Direct))
}

/// Random reads of 4 KiB, one after the other.
///
/// # Errors
/// The file is shorter than [`READ_BYTES`].
pub(crate) fn random_reads(turn: &Turn<'_>, file: &LabFile) -> Result<Sample, WayError> {
    let mut random = fastrand::Rng::with_seed(turn.seed);
    let mut buffer = AlignedBuf::zeroed(BLOCK_BYTES);
    one_after_another(turn, |_| {
        let offset = random.u64(..READ_BYTES / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
        match file.read_at(&mut buffer, offset)? {
            BLOCK_BYTES => Ok(()),
            _ => Err(WayError::Invalid(format!("the file ends before byte {}", offset + 4096))),
        }
    })
}

/// One operation after the other until the turn's time is over, at least one; each gets its number.
///
/// # Errors
/// That of an operation; the user's wish to stop.
pub(crate) fn one_after_another(
    turn: &Turn<'_>,
    mut operation: impl FnMut(u64) -> Result<(), WayError>,
) -> Result<Sample, WayError> {
    let begin_ns = monotonic_ns();
    let mut done = 0;
    loop {
        turn.session.check()?;
        let now_ns = monotonic_ns();
        if done > 0 && now_ns >= turn.end_ns(begin_ns) {
            return Ok(Sample::of(done, now_ns - begin_ns));
        }
        operation(done)?;
        done += 1;
    }
}
