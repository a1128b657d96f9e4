//! The files that experiments work on: written, synced, with known bytes.
//!
//! *Owns*: creating them. *May not touch*: what is compared.

use inkstone_host::LabFile;
use inkstone_io::{Access, AlignedBuf, Directory, File, OpenFile, SyncKind};

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
