//! Brings a way's file into the state that the way claims, and checks it by its extents before
//! anything is measured.
//!
//! *Owns*: creating, preparing, reusing and removing the files of ways. *May not touch*: the
//! measured pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use inkstone_host::{DeviceNumber, ExtentMap, LabDirectory, LabFile, block_stat, monotonic_ns};
use inkstone_io::{
    Access, AlignedBuf, Directory, Durability, File, OpenFile, Preparation, Reuse, SyncKind,
};

use crate::pattern;
use crate::writing::{Cache, Writing};

/// Why a way could not be measured. It becomes a way with this reason; the run continues.
#[derive(Debug, thiserror::Error)]
pub enum WayError {
    /// The combination, the file system or the file's state makes the way meaningless.
    #[error("{0}")]
    Invalid(String),
    /// The operating system refused something.
    #[error(transparent)]
    Io(#[from] inkstone_io::Error),
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
}

impl WayError {
    /// The reason, for a way.
    pub(crate) fn reason(&self) -> String {
        without_number(self.to_string())
    }
}

/// Without Rust's ` (os error 95)`: the words before it say the same.
fn without_number(said: String) -> String {
    let Some((before, (_, after))) = said
        .split_once(" (os error ")
        .and_then(|(before, rest)| Some((before, rest.split_once(')')?)))
    else {
        return said;
    };
    format!("{before}{after}")
}

/// What happens to files between rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftover {
    /// Each way's file stays until the way's next turn: the disk is as full as with a running
    /// service.
    Kept,
    /// Each way's file is removed after its turn: there is at most one.
    Removed,
}

/// The working directory of a run and the flag that ends it.
pub struct Session<'a> {
    /// Where the files are.
    pub directory: &'a LabDirectory,
    /// Set by Ctrl-C.
    pub stop: &'a AtomicBool,
    /// The disk under it, if there is a single one.
    pub device: Option<DeviceNumber>,
}

/// Bytes written at a time into a file that is to be there before.
const PIECE_BYTES: u64 = 1 << 20;
/// How long a device must have been quiet to count as settled.
const QUIET: Duration = Duration::from_millis(3);
/// The longest wait for this: a disk that others use may never be quiet.
const SETTLE_MAX: Duration = Duration::from_millis(60);

impl Session<'_> {
    /// # Errors
    /// [`WayError::Interrupted`] once the user wants to stop.
    pub fn check(&self) -> Result<(), WayError> {
        if self.stop.load(Ordering::Relaxed) { Err(WayError::Interrupted) } else { Ok(()) }
    }

    /// Removes a file durably; returns whether it was there.
    pub(crate) fn remove(&self, name: &str) -> Result<bool, WayError> {
        match self.directory.remove(name) {
            Ok(()) => {
                self.directory.sync()?;
                Ok(true)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// A new file of this name; one that is there is removed durably before.
    pub(crate) fn new_file(&self, name: &str, how: &OpenFile) -> Result<LabFile, WayError> {
        self.remove(name)?;
        Ok(self.directory.open(name, how)?)
    }

    /// A new file of this size with the pattern of `seed`, all of it and its name on the medium.
    ///
    /// # Errors
    /// Errors of the file system, or the user's wish to stop.
    pub(crate) fn written_file(
        &self,
        name: &str,
        len_bytes: u64,
        access: Access,
        seed: u64,
    ) -> Result<LabFile, WayError> {
        let file = self.new_file(name, &OpenFile::new_file().access(access))?;
        let mut piece = AlignedBuf::zeroed(PIECE_BYTES.min(len_bytes.max(1)) as usize);
        let mut at = 0;
        while at < len_bytes {
            self.check()?;
            let len = (len_bytes - at).min(piece.len() as u64) as usize;
            pattern::fill(&mut piece[..len], at, seed);
            file.write_at(&piece[..len], at)?;
            at += len as u64;
        }
        file.sync(SyncKind::All)?;
        self.directory.sync()?;
        Ok(file)
    }

    /// Removes a file if it is there, and waits until its blocks are free.
    pub(crate) fn clear(&self, name: &str) -> Result<(), WayError> {
        if self.remove(name)? {
            self.settle();
        }
        Ok(())
    }

    /// Waits until the device is quiet. A file system frees the blocks of a removed file later, in
    /// another thread (ext4 mounted with discard: a kernel thread, command by command), which must
    /// not disturb a measured pass.
    pub fn settle(&self) {
        let begin = Instant::now();
        let counters = || block_stat(self.device?).ok();
        let mut last = counters();
        while last.is_some() && begin.elapsed() < SETTLE_MAX {
            std::thread::sleep(QUIET);
            let now = counters();
            if now == last && now.is_some_and(|now| now.in_flight == 0) {
                return;
            }
            last = now;
        }
    }

    fn exists(&self, name: &str, len_bytes: u64) -> bool {
        let path = self.directory.path().join(name);
        std::fs::metadata(path).is_ok_and(|metadata| metadata.len() == len_bytes)
    }
}

/// A file in its claimed state.
#[derive(Debug)]
pub struct Staged {
    /// The file, opened as the way needs it.
    pub file: Arc<LabFile>,
    /// The time of the preparation.
    pub preparation_ns: u64,
    /// Why the state could not be checked, if so.
    pub unchecked: Option<String>,
}

/// Brings the file of `writing` into its claimed state.
///
/// # Errors
/// When the operating system refuses something, or the file is not in the state that the way
/// claims.
pub fn stage(session: &Session<'_>, writing: &Writing, name: &str) -> Result<Staged, WayError> {
    let Writing { strategy, file_bytes, .. } = *writing;
    match strategy.reuse {
        Reuse::New => {
            session.clear(name)?;
            drop(session.directory.open(name, &OpenFile::new_file())?);
        }
        Reuse::Reuse if session.exists(name, file_bytes) => {}
        Reuse::Reuse => {
            // With the way's own access, as for zeros: otherwise the pages would be cached for a
            // direct way, or missing for another.
            let is_direct = strategy.access == Access::Direct;
            let access = if is_direct { Access::Direct } else { Access::Buffered };
            drop(session.written_file(name, file_bytes, access, fastrand::u64(..))?);
        }
    }
    // The name is made durable here, so that the first commit pays only for its own write, not for
    // the creation.
    session.directory.sync()?;
    session.check()?;
    let how = OpenFile::existing().access(strategy.access).durability(strategy.durability);
    let file = Arc::new(session.directory.open(name, &how)?);
    let before_ns = monotonic_ns();
    file.prepare(strategy.preparation, file_bytes)?;
    let preparation_ns = monotonic_ns() - before_ns;
    if strategy.access == Access::Mmap {
        if file.len_bytes()? < file_bytes {
            file.set_len(file_bytes)?;
        }
        file.map(file_bytes)?;
    }
    let unchecked = check_state(&file, writing)?;
    Ok(Staged { file, preparation_ns, unchecked })
}

/// Drops the pages before the measured pass, for [`Cache::Cold`].
pub(crate) fn cool(file: &LabFile, writing: &Writing) -> Result<(), WayError> {
    if writing.cache == Cache::Cold {
        file.sync(SyncKind::All)?;
        file.forget_cached()?;
    }
    Ok(())
}

/// Compares the file's extents with what the way claims. `Ok(Some(..))` if the file system does
/// not report them.
fn check_state(file: &LabFile, writing: &Writing) -> Result<Option<String>, WayError> {
    let map = match ExtentMap::of(file.std_file(), file.path()) {
        Ok(map) => map,
        Err(error) if error.is_unsupported() => {
            return Ok(Some(
                "this file system does not report where a file's blocks are (FIEMAP)".into(),
            ));
        }
        Err(error) => return Err(error.into()),
    };
    let coverage = map.coverage(0..writing.file_bytes);
    let claim = claim_of(writing);
    let bytes = writing.file_bytes;
    let holds = match claim {
        Claim::Empty => coverage.hole_bytes == bytes,
        Claim::Unwritten => coverage.unwritten_bytes == bytes,
        Claim::Written => coverage.written_bytes == bytes && coverage.shared_bytes == 0,
    };
    if holds {
        return Ok(None);
    }
    let found = format!(
        "{} written, {} unwritten, {} in holes, {} delayed or encoded, {} shared",
        coverage.written_bytes,
        coverage.unwritten_bytes,
        coverage.hole_bytes,
        coverage.other_bytes,
        coverage.shared_bytes
    );
    Err(WayError::Invalid(format!(
        "its {bytes} bytes should be {}, but are: {found} (bytes, by FIEMAP)",
        claim.words()
    )))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    Empty,
    Unwritten,
    Written,
}

impl Claim {
    fn words(self) -> &'static str {
        match self {
            Self::Empty => "a hole",
            Self::Unwritten => "reserved and unwritten",
            Self::Written => "written and owned by the file",
        }
    }
}

fn claim_of(writing: &Writing) -> Claim {
    match (writing.strategy.reuse, writing.strategy.preparation) {
        (_, Preparation::Zeros | Preparation::WriteZeroes) => Claim::Written,
        (_, Preparation::ZeroRange) => Claim::Unwritten,
        (Reuse::Reuse, _) => Claim::Written,
        (
            Reuse::New,
            Preparation::None
            | Preparation::Sparse
            | Preparation::FallocateSteps
            | Preparation::KeepSizeSteps,
        ) => Claim::Empty,
        (
            Reuse::New,
            Preparation::Fallocate | Preparation::KeepSize | Preparation::PosixFallocate,
        ) => Claim::Unwritten,
    }
}

/// Bytes that no device can compress or deduplicate.
pub fn incompressible(len_bytes: usize) -> AlignedBuf {
    let mut buffer = AlignedBuf::zeroed(len_bytes);
    fastrand::fill(&mut buffer);
    buffer
}

/// The closing sync that a pass needs: none if each write was durable by itself.
pub(crate) fn closing_sync(durability: Durability) -> Option<SyncKind> {
    (durability == Durability::None).then_some(SyncKind::All)
}
