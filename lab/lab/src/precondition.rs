//! What is done to a device before a round: its free space is filled, or discarded. Article 4
//! suspected that the device's garbage collection favours whichever way runs first.
//!
//! *Owns*: bringing the device into that state, and refusing if it would not stay. *May not touch*:
//! what is measured then.

use inkstone_host::trim_free_space;
use inkstone_io::{
    Access, AlignedBuf, DioAlignment, Directory, File, OpenFile, SyncKind, named_choice,
};
use serde::{Deserialize, Serialize};

use crate::site::Site;
use crate::stage::{CellError, Session};

named_choice! {
    /// What is done to the device before each round.
    Precondition, "precondition" {
        None = "none", "nothing: the device as it is";
        Fill = "fill", "free space filled with random bytes and freed without a discard, so that the device sees no free block";
        Trim = "trim", "free space discarded (FITRIM; root), so that the device sees every free block";
    }
}

/// A state of the device, and what was done for it before each round.
#[derive(Debug, Clone)]
pub struct Condition {
    /// Which precondition.
    pub kind: Precondition,
    /// For fill: bytes; `None` = all free space except what the cells and others need.
    pub fill_bytes: Option<u64>,
    /// What the cells need besides.
    pub room_bytes: u64,
    bytes: Vec<u64>,
}

/// What was done to the device before the rounds of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preconditioned {
    /// `none`, `fill` or `trim`.
    pub kind: String,
    /// Bytes written, or discarded by the kernel's own count, before each round.
    pub bytes: Vec<u64>,
}

const FILE: &str = "fill";
/// Bytes written at a time.
const PIECE_BYTES: u64 = 4 << 20;
/// The least that is left free for others.
const LEFT_BYTES: u64 = 64 << 20;
/// This fraction of the free space is left free for others, if that is more.
const LEFT_PART: u64 = 20;

impl Condition {
    /// A condition before the first round.
    pub fn new(kind: Precondition, fill_bytes: Option<u64>, room_bytes: u64) -> Self {
        Self { kind, fill_bytes, room_bytes, bytes: Vec::new() }
    }

    /// Brings the device into this state.
    ///
    /// # Errors
    /// When the state is not possible, or would not stay; the user's wish to stop.
    pub(crate) fn bring(&mut self, site: &Site, session: &Session<'_>) -> Result<(), CellError> {
        let bytes = match self.kind {
            Precondition::None => return session.check(),
            Precondition::Fill => self.fill(site, session)?,
            Precondition::Trim => trim(site, session)?,
        };
        session.settle();
        self.bytes.push(bytes);
        Ok(())
    }

    /// For the result.
    pub(crate) fn done(self) -> Preconditioned {
        Preconditioned { kind: self.kind.to_string(), bytes: self.bytes }
    }

    fn fill(&self, site: &Site, session: &Session<'_>) -> Result<u64, CellError> {
        if let Some(memory) = &site.memory {
            return Err(CellError::Invalid(format!(
                "{memory} is memory: there is no device to fill"
            )));
        }
        let options = site.capabilities.mount.options.as_deref();
        if let Some(option) = discards(options) {
            return Err(CellError::Invalid(format!(
                "the mount discards blocks as soon as they are free ({option}), which undoes the fill: remount it \
                 with nodiscard"
            )));
        }
        let free_bytes = session.directory.free_bytes()?;
        let bytes =
            fill_bytes(free_bytes, self.room_bytes, self.fill_bytes).map_err(CellError::Invalid)?;
        session.remove(FILE)?;
        let written = write(site, session, bytes);
        // Also after a fill that failed: others need the room.
        let removed = session.remove(FILE);
        written.and(removed)?;
        Ok(bytes)
    }
}

/// How much to write into this much free space.
fn fill_bytes(free_bytes: u64, room_bytes: u64, asked_bytes: Option<u64>) -> Result<u64, String> {
    let left_bytes = (free_bytes / LEFT_PART).max(LEFT_BYTES).saturating_add(room_bytes);
    let most_bytes = free_bytes.saturating_sub(left_bytes) / PIECE_BYTES * PIECE_BYTES;
    match asked_bytes {
        None if most_bytes > 0 => Ok(most_bytes),
        Some(bytes) if bytes <= most_bytes => {
            Ok(bytes.next_multiple_of(PIECE_BYTES).min(most_bytes))
        }
        _ => Err(format!(
            "there is no room to fill: {free_bytes} bytes are free, and {left_bytes} of them are kept for the cells and for others"
        )),
    }
}

/// The mount option by which free blocks are discarded at once, if there is one.
pub fn discards(options: Option<&str>) -> Option<&str> {
    let is_one = |option: &&str| *option == "discard" || option.starts_with("discard=");
    options.unwrap_or_default().split(',').find(is_one)
}

/// Writes random bytes, never the same twice: no device can compress them.
fn write(site: &Site, session: &Session<'_>, bytes: u64) -> Result<(), CellError> {
    let access = match site.capabilities.direct {
        DioAlignment::Refused => Access::Buffered,
        DioAlignment::Bytes { .. } | DioAlignment::NotTold => Access::Direct,
    };
    let file = session.directory.open(FILE, &OpenFile::new_file().access(access))?;
    let mut random = fastrand::Rng::new();
    let mut piece = AlignedBuf::zeroed(PIECE_BYTES as usize);
    for number in 0..bytes / PIECE_BYTES {
        session.check()?;
        random.fill(&mut piece);
        file.write_at(&piece, number * PIECE_BYTES)?;
    }
    Ok(file.sync(SyncKind::All)?)
}

fn trim(site: &Site, session: &Session<'_>) -> Result<u64, CellError> {
    session.check()?;
    let told = |error: inkstone_io::Error| {
        let why = if error.is_unsupported() || error.raw_os_error() == Some(NOTTY) {
            "the file system or the device has no discard"
        } else if error.kind() == std::io::ErrorKind::PermissionDenied {
            "discarding free space needs root"
        } else {
            return CellError::Io(error);
        };
        CellError::Invalid(format!("{why}: {error}"))
    };
    trim_free_space(site.directory.path()).map_err(told)
}

/// The error of a file system that has no such request.
const NOTTY: i32 = 25;

impl Preconditioned {
    /// For people: `precondition fill: before each round up to 1.2 GiB of free space were filled
    /// and freed`.
    pub fn words(&self) -> String {
        let most =
            crate::table::numbers::bytes(self.bytes.iter().copied().max().unwrap_or(0) as f64);
        match self.kind.as_str() {
            "fill" => format!(
                "precondition fill: before each round up to {most} bytes of free space were filled and freed"
            ),
            "trim" => format!(
                "precondition trim: before each round free space was discarded, up to {most} bytes by the kernel's count"
            ),
            other => format!("precondition {other}: nothing was done to the device"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_leaves_room_for_cells_and_others() {
        const GIB: u64 = 1 << 30;
        assert_eq!(fill_bytes(100 * GIB, GIB, None), Ok(94 * GIB));
        assert_eq!(fill_bytes(100 * GIB, GIB, Some(GIB + 1)), Ok(GIB + PIECE_BYTES));
        for (free, room, asked) in
            [(10 * GIB, GIB, Some(10 * GIB)), (60 << 20, 0, None), (GIB, GIB, None)]
        {
            assert!(
                fill_bytes(free, room, asked).is_err_and(|why| why.contains("no room")),
                "{free}"
            );
        }
        for (free, room) in [(GIB, 300 << 20), (7 * GIB, 5 * GIB), (250 * GIB, 0)] {
            let bytes = fill_bytes(free, room, None).expect("room");
            assert!(
                free - bytes >= room + LEFT_BYTES && bytes.is_multiple_of(PIECE_BYTES),
                "{free}"
            );
        }
    }

    #[test]
    fn a_mount_that_discards_is_known() {
        assert_eq!(discards(Some("rw,relatime,discard,resuid=1")), Some("discard"));
        assert_eq!(discards(Some("rw,ssd,discard=async,space_cache=v2")), Some("discard=async"));
        assert_eq!(discards(Some("rw,nodiscard")), None);
        assert_eq!(discards(None), None);
    }
}
