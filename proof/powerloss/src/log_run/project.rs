//! Projected states: where a state differs from a mounted one only in sectors that are files'
//! contents, the kernel need not mount it. The files' bytes are assembled in memory, and the log is
//! opened on a simulated disk that holds them.
//!
//! *Owns*: which sectors are files' contents, assembling files, and comparing with what the kernel
//! shows. *May not touch*: which mounted states there are.
//!
//! Why this is valid: a mount reads no file's data. Of a mounted state *S* we have each file's
//! extents. A sector *v* that was in flight at the cut and lies in a written extent of the log's
//! files is shown as the disk has it, unless the mount itself wrote it (the journal's recovery,
//! fsck); such sectors are left out. So every state that differs from *S* only in sectors like *v*
//! mounts to the same files with these sectors' bytes. A sample of them is mounted all the same,
//! and compared byte by byte.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use inkstone_host::{ExtentMap, ExtentState};
use inkstone_io::{
    Access, AlignedBuf, AnyDirectory, BLOCK_BYTES, Directory, File, OpenFile, SyncKind,
};
use inkstone_sim::{DiskOptions, Fate, ItemKind, PowerCut, SimDisk};

use super::spec::Spec;
use crate::kernel::disk::Disk;
use crate::kernel::image::SECTOR_BYTES;
use crate::kernel::machine::{FsKind, Machine};
use crate::kernel::recording::{Entry, Recording};
use crate::kernel::states::{Cut, Kept, Subset, Unit, choose};
use crate::result::RunResult;
use inkstone_subject::log::past::Past;
use inkstone_subject::log::{LogSubject, open_and_check, probe};
use inkstone_subject::{End, Subject as _};

/// One projected family in this many has one of its states mounted too.
const COMPARE_EVERY: u64 = 4;
/// A family shows at most this many times the share of one mounted state.
const SHARES_MAX: u64 = 64;
const SECTOR: u64 = SECTOR_BYTES as u64;
const PATH: &str = "/log";

/// A file of the log as the mounted file system shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundFile {
    pub(crate) bytes: Vec<u8>,
    pub(crate) extents: ExtentMap,
}

/// The log's directory as the mounted file system shows it.
pub(crate) type FoundFiles = BTreeMap<String, FoundFile>;

/// What a mount shows and does, before the log is opened.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) files: FoundFiles,
    /// What the mount itself wrote: the journal's recovery, fsck.
    pub(crate) mount: Recording,
}

pub(crate) fn read_files(directory: &Path) -> Result<FoundFiles, String> {
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

#[derive(Debug, Default)]
pub(crate) struct Projection {
    /// States that were opened, read and compared.
    pub(crate) states: u64,
    /// Families: mounted states with sectors that can differ.
    pub(crate) families: u64,
    /// States that were mounted as well, and whose files were compared byte by byte.
    pub(crate) compared: u64,
    /// States that a small family could not show; the next families show them.
    owed: u64,
}

/// Why nothing can be projected on a kind of file system. On btrfs every write goes to a new place,
/// so no mounted state refers to a block in flight; with data=journal contents go through the
/// journal first, and to their own place only later.
fn never(kind: FsKind) -> Option<&'static str> {
    match kind {
        FsKind::Btrfs | FsKind::Ext4DataJournal => Some("no contents are in flight to their place"),
        FsKind::Ext4 | FsKind::Ext4NoJournal | FsKind::Xfs => None,
    }
}

impl Projection {
    /// Adds the counts to a result.
    pub(crate) fn describe(&self, result: &mut RunResult, kind: FsKind, wanted: u64) {
        if wanted == 0 {
            return;
        }
        if let Some(why) = never(kind) {
            result.notes.push(format!("no state is projected: {why}"));
            return;
        }
        result.count("projected", self.states);
        result.count("compared", self.compared);
        if self.states < wanted {
            result.notes.push("too few states have file contents in flight to project all".into());
        }
    }
}

/// A broken promise, and which units of the cut its state keeps.
type Broken = (String, Kept);

/// A sector in flight that belongs to a file's content.
struct Place {
    /// Its index in the cut's units.
    unit: usize,
    file: String,
    offset: u64,
}

/// One mounted state, from which others are projected.
pub(crate) struct Projector<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) spec: &'a Spec,
    pub(crate) cut: &'a Cut,
    pub(crate) kept: &'a [bool],
    pub(crate) seen: &'a Seen,
    pub(crate) past: &'a Past,
}

impl Projector<'_> {
    /// Checks up to `quota` states, and those that earlier families owe.
    pub(crate) fn project(
        &mut self,
        total: &mut Projection,
        quota: u64,
        seed: u64,
    ) -> Result<(), Broken> {
        total.owed += quota;
        let places = self.places();
        if places.is_empty() {
            return Ok(());
        }
        total.families += 1;
        let units: Vec<Unit> =
            places.iter().map(|place| self.cut.units[place.unit].clone()).collect();
        // Only a share of the owed states: a later family may have more to show.
        let most = total.owed.min(quota.saturating_mul(SHARES_MAX)).max(1);
        let chosen = choose(&units, usize::try_from(most).unwrap_or(usize::MAX), seed);
        let disk = self.disk(&places).map_err(|why| (why, self.kept.to_vec()))?;
        if total.families.is_multiple_of(COMPARE_EVERY) || total.families == 1 {
            let (subset, kept) = &chosen[fastrand::Rng::with_seed(seed).usize(..chosen.len())];
            self.compare(&places, &disk, kept)
                .map_err(|why| self.broken(&places, subset, kept, &why))?;
            total.compared += 1;
        }
        let subject = LogSubject::new(self.spec.options(false), None);
        for (subset, kept) in chosen {
            total.states += 1;
            total.owed = total.owed.saturating_sub(1);
            let found = AnyDirectory::new(state(&disk, &kept).directory(PATH));
            let mut past = self.past.clone();
            open_and_check(&subject, found, &mut past)
                .and_then(|log| {
                    probe(&subject, &log, &mut past)?;
                    subject.end(log, End::Kill);
                    Ok(())
                })
                .map_err(|why| self.broken(&places, &subset, &kept, &why.what))?;
        }
        Ok(())
    }

    fn broken(&self, places: &[Place], subset: &Subset, kept: &[bool], why: &str) -> Broken {
        let why = format!("projected, file contents kept: {subset}: {why}");
        (why, self.whole(places, kept))
    }

    /// The sectors in flight that are files' contents, and that the mount did not write.
    fn places(&self) -> Vec<Place> {
        let mut written = BTreeSet::new();
        for entry in &self.seen.mount.entries {
            match entry {
                Entry::Write { sector, bytes } => {
                    written.extend(*sector..sector + bytes.len() as u64 / SECTOR)
                }
                Entry::Discard { sector, sectors } => written.extend(*sector..sector + sectors),
                Entry::Flush | Entry::Mark(_) => {}
            }
        }
        let mut places = Vec::new();
        // Besides, btrfs has its extents in addresses of its own.
        if never(self.spec.kind).is_some() {
            return places;
        }
        for (index, unit) in self.cut.units.iter().enumerate() {
            if unit.bytes().is_none() || written.contains(&unit.sector) {
                continue;
            }
            if let Some((file, offset)) = self.content_at(unit.sector * SECTOR) {
                places.push(Place { unit: index, file, offset });
            }
        }
        // Either all versions of a sector are free to differ, or none: a discard among them is not
        // free.
        let fixed = |sector: u64| {
            self.cut.units.iter().any(|unit| {
                unit.bytes().is_none()
                    && (unit.sector..unit.sector + unit.sectors).contains(&sector)
            })
        };
        places.retain(|place| !fixed(self.cut.units[place.unit].sector));
        places
    }

    fn content_at(&self, at: u64) -> Option<(String, u64)> {
        for (name, file) in &self.seen.files {
            for extent in &file.extents.extents {
                let is_here = (extent.physical..extent.physical + extent.len_bytes).contains(&at);
                if is_here && extent.state == ExtentState::Written && !extent.shared {
                    let offset = extent.logical + (at - extent.physical);
                    // Past the end of the file nobody sees it.
                    let is_whole = offset + SECTOR <= file.bytes.len() as u64;
                    return is_whole.then(|| (name.clone(), offset));
                }
            }
        }
        None
    }

    /// A simulated disk with the files without any of `places`, and `places` as unflushed writes.
    fn disk(&self, places: &[Place]) -> Result<PowerCut, String> {
        let options = DiskOptions { writeback_ppm: 0, ..DiskOptions::default() };
        let disk = SimDisk::new(1, options);
        let directory = disk.directory(PATH);
        let fail = |error: inkstone_io::Error| error.to_string();
        let mut without = self.seen.files.clone();
        for place in places {
            if let Some(file) = without.get_mut(&place.file) {
                let range = place.offset as usize..place.offset as usize + SECTOR_BYTES;
                self.cut
                    .durable
                    .read(self.cut.units[place.unit].sector * SECTOR, &mut file.bytes[range]);
            }
        }
        for (name, file) in &without {
            let made = directory.open(name, &OpenFile::new_file()).map_err(fail)?;
            made.write_at(&file.bytes, 0).map_err(fail)?;
            made.sync(SyncKind::All).map_err(fail)?;
        }
        directory.sync().map_err(fail)?;
        for place in places {
            let file = directory
                .open(&place.file, &OpenFile::existing().access(Access::Direct))
                .map_err(fail)?;
            // Direct writes need aligned memory; and without the page cache each version of a
            // sector is an item of its own.
            let mut buffer = AlignedBuf::zeroed(BLOCK_BYTES);
            let bytes = self.cut.units[place.unit].bytes().unwrap_or_default();
            buffer[..bytes.len()].copy_from_slice(bytes);
            file.write_at(&buffer[..bytes.len()], place.offset).map_err(fail)?;
        }
        let cut = disk.power_cut();
        let sectors =
            cut.items().iter().filter(|item| matches!(item.what, ItemKind::Sector { .. })).count();
        if sectors != places.len() || sectors != cut.items().len() {
            return Err(format!(
                "{} sectors in flight became {} items",
                places.len(),
                cut.items().len()
            ));
        }
        Ok(cut)
    }

    /// Which of the cut's units are kept when these of `places` are.
    fn whole(&self, places: &[Place], kept: &[bool]) -> Vec<bool> {
        let mut whole = self.kept.to_vec();
        places.iter().zip(kept).for_each(|(place, kept)| whole[place.unit] = *kept);
        whole
    }

    /// Mounts one of the projected states too; every file must be the same, byte by byte.
    fn compare(&self, places: &[Place], disk: &PowerCut, kept: &[bool]) -> Result<(), String> {
        let mounted = Disk::new("compare", self.cut.state(&self.whole(places, kept)));
        let running = self.machine.boot(&mounted, self.spec.kind)?;
        let files = read_files(&self.machine.target().join("log"))?;
        running.shut_down()?;
        let image = state(disk, kept).image();
        same(&files, &image)
    }
}

fn same(files: &FoundFiles, image: &[(std::path::PathBuf, Vec<u8>)]) -> Result<(), String> {
    let projected: Vec<_> = image.iter().map(|(path, bytes)| (path.file_name(), bytes)).collect();
    if files.len() != projected.len() {
        return Err(format!(
            "the mount has {} files, the projection {}",
            files.len(),
            projected.len()
        ));
    }
    for ((name, file), (other, bytes)) in files.iter().zip(projected) {
        if Some(std::ffi::OsStr::new(name)) != other || file.bytes.len() != bytes.len() {
            return Err(format!(
                "the mount has {name} of {} bytes, the projection {other:?} of {}",
                file.bytes.len(),
                bytes.len()
            ));
        }
        if let Some(at) = file.bytes.iter().zip(bytes).position(|(one, other)| one != other) {
            return Err(format!("{name} differs at byte {at} between mounted and projected"));
        }
    }
    Ok(())
}

fn state(cut: &PowerCut, kept: &[bool]) -> SimDisk {
    cut.state(|index, _| if kept[index] { Fate::Kept } else { Fate::Dropped })
}
