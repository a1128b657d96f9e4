//! What a mounted state holds, and how the names of two states differ.
//!
//! *Owns*: telling a file from another one, whose bytes of the disk are known, the words for a name
//! that differs. *May not touch*: which states are compared, and why they differ.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use inkstone_host::{ExtentMap, btrfs_devices, open_plain};

use crate::check::tree::{self, Found, Pair, Tree, in_one_line};
use crate::kernel::machine::FsKind;

/// A file, also when its number is used again: with the time at which it was made.
pub(crate) type Inode = (u64, Option<SystemTime>);

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
            inodes.insert(name.to_path_buf(), (metadata.ino(), metadata.created().ok()));
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
    fn name_beside(&self, other: &Self, inode: Inode) -> Option<&PathBuf> {
        let named = self.inodes.iter().filter(|(_, of)| **of == inode);
        named.map(|(name, _)| name).find(|name| other.inodes.get(*name) != Some(&inode))
    }
}

fn quoted(name: &Path) -> String {
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

/// How the names of a broken state differ from those of a sound one.
pub(crate) fn differences(broken: &View, sound: &View, with: &str) -> Vec<Difference> {
    let pair = Pair { old: Tree::new(), new: sound.tree.clone() };
    let mut found = pair.compare(&broken.tree);
    found.retain(|_, (found, _)| *found != Found::New);
    let (mut all, mut old_names) = (Vec::new(), Vec::new());
    for (name, (found, words)) in &found {
        let inode = sound.inodes.get(name).copied();
        let old_name = inode.and_then(|inode| broken.name_beside(sound, inode));
        let bytes = |tree: &Tree| tree.get(name).and_then(|node| Some(node.bytes()?.to_vec()));
        let is_other = broken.inodes.get(name).copied() != inode;
        let it = quoted(name);
        let (is_name, words) = match (found, old_name) {
            (_, Some(old)) if is_other => {
                old_names.push(old.clone());
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
                _ => (false, format!("{it} is {found} after the cut: {words}")),
            },
        };
        let (subject, inode) = if is_name {
            let parent = name.parent().unwrap_or(Path::new(""));
            (directory(parent), sound.inodes.get(parent).copied())
        } else {
            (it, inode)
        };
        all.push((name, Difference { words, subject, inode }));
    }
    all.retain(|(name, _)| !old_names.contains(name));
    all.into_iter().map(|(_, difference)| difference).collect()
}
