//! fallocate where its modes matter (article 3): a full disk, a file that grows by a hole.
//!
//! *Owns*: that work. *May not touch*: the calls of each mode (`crate::atlas`), the rounds.

use inkstone_host::{FallocateMode, LabFile, monotonic_ns};
use inkstone_io::{AlignedBuf, Directory, File, OpenFile, Preparation, SyncKind};

use crate::result::{Unit, figure};
use crate::rounds::{Facts, Running, Sample, Trial, each};
use crate::stage::{Session, WayError};

const BLOCK_BYTES: usize = 4096;

const FULL: &str = "full-disk";
const FILLER: &str = "filler";
const WRITES: u64 = 64;
/// The first piece that is asked for to fill the disk; half as much follows each refusal.
const FILL_BYTES: u64 = 64 << 20;

/// Writes on a full disk into a file that grows, and into blocks reserved with mode 0 or with
/// KEEP_SIZE. It fills the file system, so it needs one of its own.
pub(super) fn full_disk() -> Trial {
    const ROWS: [(&str, Option<Preparation>); 3] = [
        ("grows", None),
        ("reserved, mode 0", Some(Preparation::Fallocate)),
        ("reserved, KEEP_SIZE", Some(Preparation::KeepSize)),
    ];
    let title = "64 writes of 4 KiB with fdatasync on a disk without a free block";
    let needs = (WRITES * BLOCK_BYTES as u64, 0.5);
    Trial::new((FULL, title), Unit::Facts, needs, |scene| {
        let (session, is_own) = (scene.session, scene.site.private);
        let found = |reserved| {
            if !is_own {
                return Err(WayError::Invalid("the disk is not the lab's own to fill".into()));
            }
            let refused = refused(session, reserved)?;
            Ok(Facts {
                figures: vec![figure("writes refused", Unit::Calls, refused as f64)],
                words: vec![("writes refused".into(), format!("{refused} of {WRITES}"))],
            })
        };
        let rows = ROWS.map(|(name, reserved)| Running::facts(name, found(reserved)));
        let rows = rows.into_iter().collect();
        clear(session)?;
        rows
    })
}

fn clear(session: &Session<'_>) -> Result<(), WayError> {
    session.remove(FULL)?;
    session.clear(FILLER)
}

fn refused(session: &Session<'_>, reserved: Option<Preparation>) -> Result<u64, WayError> {
    clear(session)?;
    let file = session.directory.open(FULL, &OpenFile::new_file())?;
    if let Some(how) = reserved {
        file.prepare(how, WRITES * BLOCK_BYTES as u64)?;
    }
    file.sync(SyncKind::All)?;
    session.directory.sync()?;
    let filler = session.directory.open(FILLER, &OpenFile::new_file())?;
    fill(session, &filler)?;
    let block = AlignedBuf::zeroed(BLOCK_BYTES);
    if filler
        .write_at(&block, filler.len_bytes()?)
        .and_then(|()| filler.sync(SyncKind::Data))
        .is_ok()
    {
        let why = "the disk could not be filled: a file still grew on it";
        return Err(WayError::Invalid(why.into()));
    }
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
    Ok(refused)
}

/// Takes every free block, in ever smaller pieces.
fn fill(session: &Session<'_>, filler: &LabFile) -> Result<(), WayError> {
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

const GROWING: &str = "growing";
/// Article 3's file: two written blocks.
const WRITTEN: [u8; 8192] = [0xA5; 8192];
/// Calls of a turn; each makes the file one block longer.
const CALLS: u64 = 256;

/// A file that grows by a hole: INSERT_RANGE at its front beside ftruncate at its end.
pub(super) fn growing() -> Trial {
    let title = "Calls that make a file one block longer, without a sync";
    let needs = (WRITTEN.len() as u64 + CALLS * BLOCK_BYTES as u64, 2.0);
    Trial::new(("growing", title), Unit::CallsPerS, needs, |_| {
        let way =
            |(name, inserts)| Running::of(name, each(move |turn| grow(turn.session, inserts)));
        Ok([("INSERT_RANGE", true), ("ftruncate", false)].map(way).into())
    })
}

fn grow(session: &Session<'_>, inserts: bool) -> Result<Sample, WayError> {
    let file = session.new_file(GROWING, &OpenFile::new_file())?;
    file.write_at(&WRITTEN, 0)?;
    file.sync(SyncKind::All)?;
    let begin_ns = monotonic_ns();
    for number in 1..=CALLS {
        if inserts {
            FallocateMode::InsertRange.call(file.std_file(), file.path(), 0, BLOCK_BYTES as u64)?;
        } else {
            file.set_len(WRITTEN.len() as u64 + number * BLOCK_BYTES as u64)?;
        }
    }
    let total_ns = monotonic_ns() - begin_ns;
    let len = file.len_bytes()?;
    if len != WRITTEN.len() as u64 + CALLS * BLOCK_BYTES as u64 {
        return Err(WayError::Invalid(format!("the file has {len} bytes after {CALLS} calls")));
    }
    Ok(Sample::of(CALLS, total_ns))
}
