//! Mounted states: what a power cut left is put on a disk, the kernel mounts it, and the log in it
//! is checked. Some are cut again while they are mounted and opened.
//!
//! *Owns*: the order of these steps. *May not touch*: which states (`states.rs`), what is allowed
//! (`chronicle.rs`).

use std::collections::BTreeMap;
use std::path::Path;

use inkstone_host::ExtentMap;
use inkstone_io::OsDirectory;

use super::disk::Disk;
use super::image::Image;
use super::machine::Machine;
use super::may::{Looked, May};
use super::recording::Recording;
use super::spec::Spec;
use super::states::{Player, choose};

/// In a second life: the log is open and has shown what it holds.
const SHOWN: &str = "shown";
/// One more record was appended.
const PROBED: &str = "probed";

/// A file of the log as the mounted file system shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Where they are.
    pub extents: ExtentMap,
}

/// The log's directory as the mounted file system shows it.
pub type FoundFiles = BTreeMap<String, FoundFile>;

/// Which second cuts are made: none, or this many, from a seed.
#[derive(Debug, Clone, Copy)]
pub struct Again {
    /// How many states of the second life are checked.
    pub states: usize,
    /// From which they are chosen.
    pub seed: u64,
}

/// What was seen of a state.
#[derive(Debug, Default)]
pub struct Seen {
    /// The files before the log was opened, if the caller wanted them.
    pub files: FoundFiles,
    /// What the mount itself wrote: the journal's recovery, fsck.
    pub mount: Recording,
    /// States of the second life that were checked too.
    pub again: u64,
}

/// Reads every file of the log, with its extents.
///
/// # Errors
/// Errors of the operating system.
pub fn read_files(directory: &Path) -> Result<FoundFiles, String> {
    let fail = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut files = FoundFiles::new();
    if !directory.exists() {
        return Ok(files);
    }
    for entry in std::fs::read_dir(directory).map_err(|error| fail(directory, &error))? {
        let path = entry.map_err(|error| fail(directory, &error))?.path();
        let bytes = std::fs::read(&path).map_err(|error| fail(&path, &error))?;
        let file = std::fs::File::open(&path).map_err(|error| fail(&path, &error))?;
        let extents = ExtentMap::of(&file, &path).map_err(|error| error.to_string())?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.insert(name, FoundFile { bytes, extents });
    }
    Ok(files)
}

/// Mounts a state and checks the log in it.
///
/// # Errors
/// Which promise is broken, or that the file system does not mount.
pub fn look(
    machine: &Machine,
    spec: &Spec,
    state: Image,
    allowed: &May,
    wants_files: bool,
    again: Option<Again>,
) -> Result<Seen, String> {
    let disk = Disk::new("state", state.clone());
    disk.record();
    let running = machine.boot(&disk, spec.kind)?;
    let path = machine.target().join("log");
    let mut seen = Seen::default();
    if wants_files {
        seen.files = read_files(&path)?;
        seen.mount = disk.recorded();
    }
    let directory = OsDirectory::create(&path).map_err(|error| error.to_string())?;
    let Looked { shown, again: allowed } =
        allowed.check(directory, spec, || disk.mark(SHOWN), || disk.mark(PROBED))?;
    let second = disk.take_recording();
    running.shut_down()?;
    if let Some(again) = again {
        seen.again = second_life(machine, spec, state, &second, &allowed, again)
            .map_err(|why| format!("it showed {shown}; after a second cut: {why}"))?;
    }
    Ok(seen)
}

/// Cuts the power while the state was mounted, opened and read, and while one more record was
/// appended.
fn second_life(
    machine: &Machine,
    spec: &Spec,
    base: Image,
    recording: &Recording,
    allowed: &[May; 3],
    again: Again,
) -> Result<u64, String> {
    let mut rng = fastrand::Rng::with_seed(again.seed);
    let mut cuts: Vec<_> =
        (0..again.states).map(|_| rng.usize(..=recording.entries.len())).collect();
    cuts.sort_unstable();
    let mut player = Player::new(recording, base);
    for &at in &cuts {
        player.play(at);
        let cut = player.cut();
        let marks = recording.entries[..at].iter().filter(|entry| entry.is_mark()).count();
        for (subset, kept) in choose(&cut.units, 1, rng.u64(..)) {
            look(machine, spec, cut.state(&kept), &allowed[marks.min(2)], false, None).map_err(
                |why| {
                    let place =
                        ["before it was shown", "after it was shown", "after one more append"]
                            [marks.min(2)];
                    format!("{place}, at entry {at}, {subset}: {why}")
                },
            )?;
        }
    }
    Ok(cuts.len() as u64)
}

/// The command that shows a state of a recording again.
pub fn command(recording: &str, entry: usize, subset: &str) -> String {
    format!("inkstone powerloss replay {recording} --entry {entry} --subset {subset}")
}
