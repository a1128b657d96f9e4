//! The directory in which a command begins: a copy of the user's, on a disk whose free space is
//! full of another's bytes.
//!
//! *Owns*: what may be copied, and that nothing of it is changed. *May not touch*: the command.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use inkstone_io::{Directory as _, OsDirectory};

use super::tree::OTHERS;
use crate::apart::{Apart, Place, Ran};
use crate::medium::RunError;
use crate::process::Program;

/// Where a command works in its mount.
const WORK: &str = "log";
const FILLER: &str = "filler";
/// Apart from the machine the source is read-only: not even a time stamp of it changes.
const COPY: &str = r#"
device=$(find "$1" \( -type b -o -type c \) -print -quit)
[ -z "$device" ] || {
    echo "$device is a device, and its copy would be that device, too: leave it out" >&2
    exit 1
}
bytes=$(du -sB1 "$1" | cut -f1)
[ "$bytes" -le "$3" ] || {
    echo "it has $((bytes >> 20)) MiB, and the disk has room for $(($3 >> 20)) MiB: give a" \
        "smaller directory, or a larger disk by --disk" >&2
    exit 1
}
cp -a "$1/." "$2"
"#;

/// A directory of the user's, what starts the command that copies it, and how long that may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) path: &'a Path,
    pub(crate) inside: &'a Program,
    pub(crate) limit: Duration,
}

/// The directory that is given, by its whole path.
pub(crate) fn whole(path: &Path) -> Result<PathBuf, RunError> {
    let wrong = |why: String| RunError::Command(format!("{}: {why}", path.display()));
    let whole = fs::canonicalize(path).map_err(|error| wrong(error.to_string()))?;
    if whole.is_dir() {
        return Ok(whole);
    }
    Err(wrong("it is no directory: give the directory of the file".into()))
}

/// Fills the free space of a new file system, and puts the copy there. All of it is written when
/// this returns.
pub(crate) fn prepare(
    top: &Path,
    given: Option<&Given<'_>>,
    stop: &AtomicBool,
) -> Result<(), RunError> {
    let failed = |error: std::io::Error| format!("fill the disk: {error}");
    let room = fill(&top.join(FILLER)).map_err(failed)?;
    fs::create_dir(top.join(WORK)).map_err(failed)?;
    if let Some(given) = given {
        copy(given, top, room, stop)?;
    }
    let opened = OsDirectory::open(top).and_then(|top| top.sync_file_system());
    Ok(opened.map_err(|error| error.to_string())?)
}

/// Writes a file until the disk is full, then removes it. Returns its size.
fn fill(path: &Path) -> std::io::Result<u64> {
    let mut file = File::create(path)?;
    let bytes = OTHERS.repeat((1 << 20) / OTHERS.len());
    let mut room = 0;
    loop {
        match file.write(&bytes) {
            Ok(written) => room += written as u64,
            Err(error) if error.kind() == ErrorKind::StorageFull => break,
            Err(error) => return Err(error),
        }
    }
    // On a full disk a sync may fail for lack of room, too: then less of it is full.
    let _ = file.sync_all();
    fs::remove_file(path)?;
    Ok(room)
}

fn copy(given: &Given<'_>, top: &Path, room: u64, stop: &AtomicBool) -> Result<(), RunError> {
    let Given { path: from, inside, limit } = *given;
    let wrong =
        |why: &str| Err(RunError::Command(format!("{} cannot be copied: {why}", from.display())));
    if top.starts_with(from) {
        return wrong("the lab's own disks are in it: put them elsewhere by --directory");
    }
    let mut command = ["sh", "-c", COPY, "sh"].map(OsString::from).to_vec();
    command.extend([from.into(), top.join(WORK).into(), room.to_string().into()]);
    let (directory, open, sealed) = (top.into(), top.into(), Some(from.into()));
    let started = Apart::start(inside, &Place { directory, open, sealed }, &command)?;
    match started.hear(limit, stop, |_| {})? {
        Ran::Ended { status, .. } if status.success() => Ok(()),
        Ran::Ended { complaint, .. } => wrong(&complaint),
        Ran::NotStarted(why) => wrong(&why),
        Ran::TooSlow => wrong(&format!("it takes longer than {limit:?} (--limit)")),
        Ran::Stopped => Err(RunError::Other("stopped".into())),
    }
}
