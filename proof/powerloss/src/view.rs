//! What a mounted state holds, and how the names of two states differ.
//!
//! *Owns*: telling a file from another one, whose bytes of the disk are known, the words for a name
//! that differs. *May not touch*: which states are compared, and why they differ.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use inkstone_host::{ExtentMap, btrfs_devices, file_handle, open_plain};

use crate::check::tree::{self, Found, OTHER_NAMES, Pair, Tree, in_one_line};
use crate::kernel::machine::FsKind;

/// A file, also when its number is used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inode {
    /// As the kernel's events have it.
    pub(crate) number: u64,
    /// Has the number's generation, too.
    handle: Vec<u8>,
}

/// What a mounted state holds.
pub(crate) struct View {
    tree: Tree,
    /// Of each name, and of the directory itself.
    inodes: BTreeMap<PathBuf, Inode>,
    /// Whose bytes of the disk are known.
    pub(crate) places: Vec<(Range<u64>, String)>,
}

impl View {
    pub(crate) fn of(top: &Path, kind: FsKind) -> Result<Self, String> {
        let tree = tree::read(top)?;
        let (mut inodes, mut places) = (BTreeMap::new(), Vec::new());
        if kind == FsKind::Btrfs {
            // It counts in addresses of its own.
            let devices = btrfs_devices(top).unwrap_or_default();
            let data = devices.into_iter().flat_map(|device| device.data);
            places.extend(data.map(|range| (range, "of a file's data".to_owned())));
        }
        for name in tree.keys().map(PathBuf::as_path).chain([Path::new("")]) {
            let path = top.join(name);
            let metadata = fs::symlink_metadata(&path);
            let metadata = metadata.map_err(|error| format!("{}: {error}", path.display()))?;
            let handle = file_handle(&path).map_err(|error| error.to_string())?;
            inodes.insert(name.to_path_buf(), Inode { number: metadata.ino(), handle });
            let (opened, owner) = match kind {
                FsKind::Btrfs => continue,
                _ if metadata.is_dir() => (File::open(&path), format!("of {}", directory(name))),
                _ => (open_plain(&path), format!("of the data of {}", quoted(name))),
            };
            let extents = opened.ok().and_then(|file| ExtentMap::of(&file, &path).ok());
            for extent in extents.iter().flat_map(ExtentMap::placed) {
                let range = extent.physical..extent.physical + extent.len_bytes;
                places.push((range, owner.clone()));
            }
        }
        Ok(Self { tree, inodes, places })
    }

    /// A name of this inode that names another one in `other`, or none.
    fn name_beside(&self, other: &Self, inode: &Inode) -> Option<&PathBuf> {
        let named = self.inodes.iter().filter(|(_, of)| *of == inode);
        named.map(|(name, _)| name).find(|name| other.inodes.get(*name) != Some(inode))
    }
}

/// A file of a broken state that had other bytes later.
pub(crate) struct Rewritten {
    pub(crate) name: PathBuf,
    pub(crate) inode: Inode,
    /// So many bytes are there.
    pub(crate) len: usize,
    pub(crate) later: Vec<u8>,
}

/// Those files, the shortest first.
pub(crate) fn rewritten(broken: &View, later: &View) -> Vec<Rewritten> {
    let bytes = |view: &View, name: &Path| Some(view.tree.get(name)?.bytes()?.to_vec());
    let each = broken.inodes.iter().filter(|(name, inode)| later.inodes.get(*name) == Some(inode));
    let each = each.filter_map(|(name, inode)| {
        let (is, later) = (bytes(broken, name)?, bytes(later, name)?);
        let (name, inode, len) = (name.clone(), inode.clone(), is.len());
        (is != later).then_some(Rewritten { name, inode, len, later })
    });
    let mut all: Vec<_> = each.collect();
    all.sort_by_key(|file| file.len);
    all
}

pub(crate) fn quoted(name: &Path) -> String {
    format!("`{}`", in_one_line(name))
}

fn directory(name: &Path) -> String {
    if name.as_os_str().is_empty() {
        "the directory".into()
    } else {
        format!("the directory {}", quoted(name))
    }
}

/// How a name differs, and what had to be synced for it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) words: String,
    pub(crate) subject: String,
    pub(crate) inode: Option<Inode>,
}

/// How the names of a broken state differ from those of a sound one; first the name that is asked
/// about.
pub(crate) fn differences(
    broken: &View,
    sound: &View,
    with: &str,
    about: Option<&Path>,
) -> Vec<Difference> {
    let pair = Pair { old: Tree::new(), new: sound.tree.clone() };
    let mut found = pair.compare(&broken.tree);
    found.retain(|_, (found, _)| *found != Found::New);
    let mut all = Vec::new();
    for (name, (found, words)) in &found {
        let inode = sound.inodes.get(name);
        let old_name = inode.and_then(|inode| broken.name_beside(sound, inode));
        let bytes = |tree: &Tree| tree.get(name).and_then(|node| Some(node.bytes()?.to_vec()));
        let is_other = broken.inodes.get(name) != inode;
        let (it, old_name) = (quoted(name), old_name.filter(|_| is_other));
        let (is_name, words) = match (found, old_name) {
            (_, Some(old)) => {
                let old = quoted(old);
                (true, format!("{it} is called {old} after the cut; {with} it is {it}"))
            }
            (Found::Missing, _) => (true, format!("{it} is there {with}, and not after the cut")),
            (Found::LeftOver, _) => (true, format!("{it} is there after the cut, and not {with}")),
            _ if is_other => (true, format!("{it} is another file after the cut than {with}")),
            _ => match (bytes(&broken.tree), bytes(&pair.new)) {
                (Some(is), Some(was)) if is != was => {
                    let same = is.iter().zip(&was).take_while(|(is, was)| is == was).count();
                    let (less, more) = (is.len(), was.len());
                    let mut words = match less == more {
                        true => format!("{it} is not as it is {with}"),
                        false => format!("{it} has {less} bytes after the cut, and {more} {with}"),
                    };
                    if same < less.min(more) {
                        words += &format!(", from byte {same} on");
                    }
                    (false, words)
                }
                _ if words.is_empty() => (false, format!("{it} is {found} after the cut")),
                _ => (false, format!("{it} is not as it is {with}: {words}")),
            },
        };
        let (subject, inode) = if words.ends_with(OTHER_NAMES) {
            // What had to be synced is said of the other names.
            (it, None)
        } else if is_name {
            let parent = name.parent().unwrap_or(Path::new(""));
            (directory(parent), sound.inodes.get(parent))
        } else {
            (it, inode)
        };
        all.push((name, old_name, Difference { words, subject, inode: inode.cloned() }));
    }
    let old_names: Vec<_> = all.iter().filter_map(|(_, old, _)| *old).collect();
    all.retain(|(name, ..)| !old_names.contains(name));
    all.sort_by_key(|(name, old, _)| {
        let is_asked = |name: &Path| Some(name) == about;
        !(is_asked(name) || old.is_some_and(|old| is_asked(old)))
    });
    all.into_iter().map(|(.., difference)| difference).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use inkstone_host::{not_run, run_on_device};

    use super::*;
    use crate::kernel::disk::Disk;
    use crate::kernel::machine::{Machine, missing};

    /// The number of the only file, and what the directory holds, when all have the same time of
    /// birth.
    fn with_one(
        machine: &Machine,
        disk: &Disk,
        name: &str,
        change: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> (u64, View) {
        let kind = FsKind::Ext4;
        let top = machine.target().join("files");
        let running = machine.boot(disk, kind).expect("it mounts");
        change(&top).expect("it is changed");
        running.shut_down().expect("it is unmounted");
        let device = machine.attach(disk).expect("attached");
        let set = |field: &str| format!("set_inode_field /files/{name} {field}\n");
        let asked = tempfile::NamedTempFile::new().expect("a file");
        fs::write(asked.path(), set("crtime_extra 0") + &set("crtime @1000")).expect("written");
        let file = asked.path().to_str().expect("a name");
        run_on_device("debugfs", &["-w", "-f", file], device.path(), |code| code == 0)
            .expect("it is set");
        // The tool writes through the page cache, which a device that is taken away forgets.
        File::open(device.path()).and_then(|file| file.sync_all()).expect("written back");
        device.detach().expect("detached");
        let running = machine.boot(disk, kind).expect("it mounts");
        let metadata = fs::metadata(top.join(name)).expect("it is there");
        let born = metadata.created().expect("a time");
        assert_eq!(born, UNIX_EPOCH + Duration::from_secs(1000));
        let view = View::of(&top, kind).expect("it is read");
        running.shut_down().expect("it is unmounted");
        (metadata.ino(), view)
    }

    #[test]
    #[ignore = "needs root, mkfs.ext4 and debugfs"]
    fn a_number_that_is_used_again_is_another_file() {
        if let Some(why) = missing().or_else(|| FsKind::Ext4.missing()) {
            return not_run("a_number_that_is_used_again_is_another_file", why);
        }
        let parent = tempfile::tempdir().expect("a directory");
        let machine = Machine::new(parent.path()).expect("a machine");
        let disk = machine.new_disk(FsKind::Ext4).expect("a disk");
        let (first, before) = with_one(&machine, &disk, "old", |top| {
            fs::create_dir(top)?;
            fs::write(top.join("old"), "text")
        });
        let (second, after) = with_one(&machine, &disk, "new", |top| {
            fs::remove_file(top.join("old"))?;
            fs::write(top.join("new"), "text")
        });
        machine.remove().expect("removed");
        assert_eq!(first, second, "ext4 takes the lowest number that is free");
        let found = differences(&before, &after, "now", None);
        let words: Vec<_> = found.into_iter().map(|difference| difference.words).collect();
        let expected = [
            "`new` is there now, and not after the cut",
            "`old` is there after the cut, and not now",
        ];
        assert_eq!(words, expected, "by number and time it was renamed");
    }
}
