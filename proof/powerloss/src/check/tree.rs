//! What a directory holds, and what is found of one file of it after a crash.
//!
//! *Owns*: reading a directory without waiting for anything in it, comparing. *May not touch*: why
//! it is compared. Time stamps, and the sizes of directories, are not part of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::fs::{self, Metadata};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use inkstone_host::{attributes, open_plain};

/// What free space is full of before a command runs, and what another program's file holds: a file
/// in which it is found shows the bytes of others.
pub(crate) const OTHERS: &[u8; 16] = b"another's bytes\n";
const SECTOR_BYTES: usize = 512;
/// Nothing but which other names a file has.
pub(crate) const OTHER_NAMES: &str = "its other names differ";
/// No directory that fits onto a disk of the lab has more names.
const NAMES_MAX: usize = 200_000;
/// All files are in memory, three times. One with holes is as long as it says.
const BYTES_MAX: u64 = 1 << 30;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Bytes(Vec<u8>),
    Directory,
    Link(PathBuf),
    Pipe,
    Socket,
    Device(u64),
}

/// What stands under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    kind: Kind,
    mode: u32,
    owner: (u32, u32),
    attributes: Vec<(OsString, Vec<u8>)>,
    /// Of a file with several names: the first of them.
    first: Option<PathBuf>,
}

/// A directory, by names below it.
pub(crate) type Tree = BTreeMap<PathBuf, Node>;

/// Reads a directory. A file that is there and cannot be read is an error: after a crash this is a
/// finding.
pub(crate) fn read(top: &Path) -> Result<Tree, String> {
    let (mut tree, mut inodes) = (Tree::new(), BTreeMap::new());
    let mut bytes = 0_u64;
    let mut left = vec![PathBuf::new()];
    while let Some(below) = left.pop() {
        let place = top.join(&below);
        let failed = |error: std::io::Error| format!("{}: {error}", place.display());
        for entry in fs::read_dir(&place).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = below.join(entry.file_name());
            let metadata = entry.metadata().map_err(failed)?;
            if metadata.is_dir() {
                left.push(name.clone());
            } else if metadata.is_file() {
                bytes = bytes.saturating_add(metadata.len());
            }
            if bytes > BYTES_MAX {
                let (most, top) = (BYTES_MAX >> 20, top.display());
                return Err(format!(
                    "the files in {top} have more than {most} MiB, their holes counted"
                ));
            }
            let node = Node::of(&top.join(&name), &metadata)?;
            if metadata.nlink() > 1 && !metadata.is_dir() {
                inodes.entry(metadata.ino()).or_insert_with(Vec::new).push(name.clone());
            }
            tree.insert(name, node);
            if tree.len() > NAMES_MAX {
                return Err(format!("{} has more than {NAMES_MAX} names", top.display()));
            }
        }
    }
    for mut names in inodes.into_values() {
        names.sort();
        for name in &names {
            tree.entry(name.clone()).and_modify(|node| node.first = Some(names[0].clone()));
        }
    }
    Ok(tree)
}

impl Node {
    fn of(path: &Path, metadata: &Metadata) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let kind = metadata.file_type();
        let kind = if kind.is_file() {
            let mut bytes = Vec::new();
            // As long as it was: one that grows while it is read has an end, too.
            let file = open_plain(path).map_err(failed)?;
            file.take(metadata.len()).read_to_end(&mut bytes).map_err(failed)?;
            Kind::Bytes(bytes)
        } else if kind.is_dir() {
            Kind::Directory
        } else if kind.is_symlink() {
            Kind::Link(fs::read_link(path).map_err(failed)?)
        } else if kind.is_fifo() {
            Kind::Pipe
        } else if kind.is_socket() {
            Kind::Socket
        } else {
            Kind::Device(metadata.rdev())
        };
        let attributes = attributes(path).map_err(|error| error.to_string())?;
        let owner = (metadata.uid(), metadata.gid());
        Ok(Self { kind, mode: metadata.mode(), owner, attributes, first: None })
    }

    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match &self.kind {
            Kind::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// What is found of one name after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Found {
    /// As after the command.
    New,
    /// As before it.
    Old,
    /// A name that the command has taken away is there again, with what it had.
    OldNameBack,
    /// A name that is neither of before nor of after: of a file that the command had for a while.
    LeftOver,
    /// A name that the command has made is not there.
    Missing,
    /// It was there before and is there after, and is not there now.
    Gone,
    Empty,
    /// Neither the old nor the new one.
    Torn,
    /// It holds what never was in it.
    Others,
}

impl Found {
    pub(crate) const ALL: [Self; 9] = [
        Self::New,
        Self::Old,
        Self::OldNameBack,
        Self::LeftOver,
        Self::Missing,
        Self::Gone,
        Self::Empty,
        Self::Torn,
        Self::Others,
    ];

    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Old => "old",
            Self::OldNameBack => "old name back",
            Self::LeftOver => "left over",
            Self::Missing => "missing",
            Self::Gone => "missing, old and new",
            Self::Empty => "empty",
            Self::Torn => "torn",
            Self::Others => "another's bytes",
        }
    }
}

impl Display for Found {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// What is found of several names, with words.
pub(crate) type AllFound = BTreeMap<PathBuf, (Found, String)>;

/// A directory before a command and after it.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    pub(crate) old: Tree,
    pub(crate) new: Tree,
}

impl Pair {
    /// The names that the command has changed.
    pub(crate) fn changed(&self) -> Vec<&PathBuf> {
        let names = self.old.keys().chain(self.new.keys().filter(|it| !self.old.contains_key(*it)));
        names.filter(|name| self.old.get(*name) != self.new.get(*name)).collect()
    }

    /// What a crash has left of each changed name, and every name that differs from both.
    pub(crate) fn compare(&self, now: &Tree) -> AllFound {
        let changed = self.changed().into_iter();
        let other = now.iter().filter(|(name, node)| {
            let sides = (self.old.get(*name), self.new.get(*name));
            sides.0 == sides.1 && sides.1 != Some(*node)
        });
        let gone = self.new.keys().filter(|name| !now.contains_key(*name));
        let names = changed.chain(other.map(|(name, _)| name)).chain(gone);
        names.map(|name| (name.clone(), self.found(name, now.get(name)))).collect()
    }

    /// Whether a name that the command takes away is gone, its bytes are in no other file, and a
    /// name that the command makes is not whole.
    pub(crate) fn is_nowhere(&self, now: &Tree, found: &AllFound) -> bool {
        let is_made = |name| !self.old.contains_key(name) && self.new.contains_key(name);
        let is_unmade = found.iter().any(|(name, (it, _))| is_made(name) && *it != Found::New);
        let mut gone = self
            .old
            .iter()
            .filter(|(name, _)| !self.new.contains_key(*name) && !now.contains_key(*name));
        let is_elsewhere = |node: &Node| {
            node.bytes().is_none() || now.values().any(|other| other.bytes() == node.bytes())
        };
        is_unmade && gone.any(|(_, node)| !is_elsewhere(node))
    }

    fn found(&self, name: &Path, now: Option<&Node>) -> (Found, String) {
        let (old, new) = (self.old.get(name), self.new.get(name));
        let Some(now) = now else {
            return match (old, new) {
                (_, None) => (Found::New, String::new()),
                (None, _) => (Found::Missing, String::new()),
                _ => (Found::Gone, String::new()),
            };
        };
        if Some(now) == new {
            return (Found::New, String::new());
        }
        if Some(now) == old {
            let found = if new.is_none() { Found::OldNameBack } else { Found::Old };
            return (found, String::new());
        }
        let Some(bytes) = now.bytes() else {
            let found = if old.or(new).is_some() { Found::Torn } else { Found::LeftOver };
            return (found, Self::differs(now, new.or(old)));
        };
        if let Some(sector) = bytes.chunks_exact(SECTOR_BYTES).position(is_others) {
            return (Found::Others, format!("from byte {} on", sector * SECTOR_BYTES));
        }
        let other = |tree: &Tree| {
            let same = |node: &Node| !bytes.is_empty() && node.bytes() == Some(bytes);
            tree.iter().find(|(_, node)| same(node)).map(|(path, _)| path.clone())
        };
        match (old.or(new), other(&self.new).or_else(|| other(&self.old))) {
            (None, _) => return (Found::LeftOver, format!("{} bytes", bytes.len())),
            (Some(_), Some(path)) if path != name && !self.begins(name, bytes) => {
                return (Found::Others, format!("those of {}", in_one_line(&path)));
            }
            _ => {}
        }
        let had = |node: Option<&Node>| node.and_then(Node::bytes).is_some_and(<[u8]>::is_empty);
        if bytes.is_empty() && !had(old) && !had(new) {
            return (Found::Empty, String::new());
        }
        (Found::Torn, Self::differs(now, new.or(old)))
    }

    /// Whether what a name had before or after begins with these bytes.
    fn begins(&self, name: &Path, bytes: &[u8]) -> bool {
        let sides = [self.old.get(name), self.new.get(name)];
        sides.into_iter().flatten().filter_map(Node::bytes).any(|own| own.starts_with(bytes))
    }

    /// How what is found differs from what should be there, in words.
    fn differs(now: &Node, wanted: Option<&Node>) -> String {
        let Some(wanted) = wanted else { return String::new() };
        if now.kind == wanted.kind {
            return if now.mode != wanted.mode {
                format!("its mode is {:o}, not {:o}", now.mode & 0o7777, wanted.mode & 0o7777)
            } else if now.owner != wanted.owner {
                "its owner differs".into()
            } else if now.attributes != wanted.attributes {
                "its attributes differ".into()
            } else {
                OTHER_NAMES.into()
            };
        }
        let (Some(there), Some(new)) = (now.bytes(), wanted.bytes()) else {
            return match (&now.kind, &wanted.kind) {
                (Kind::Link(_), Kind::Link(_)) => "it leads elsewhere".into(),
                _ => "it is of another kind".into(),
            };
        };
        let same = there.iter().zip(new).take_while(|(there, new)| there == new).count();
        let zeros = there[same..].iter().filter(|byte| **byte == 0).count();
        format!(
            "{} of {} bytes there, other ones from byte {same} on, {zeros} zeros behind it",
            there.len(),
            new.len()
        )
    }
}

/// A name as a message has it: what would end a line, or move a cursor, is escaped, and what is no
/// text, so that two names look different.
pub(crate) fn in_one_line(name: &Path) -> String {
    match name.to_str() {
        Some(name) if !name.contains(char::is_control) => name.to_owned(),
        Some(name) => name.escape_debug().to_string(),
        None => name.as_os_str().as_bytes().escape_ascii().to_string(),
    }
}

fn is_others(sector: &[u8]) -> bool {
    sector.chunks_exact(OTHERS.len()).all(|piece| piece == OTHERS)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    fn node(bytes: &[u8]) -> Node {
        let kind = Kind::Bytes(bytes.to_vec());
        Node { kind, mode: 0o100_644, owner: (0, 0), attributes: Vec::new(), first: None }
    }

    fn tree(files: &[(&str, &[u8])]) -> Tree {
        files.iter().map(|(name, bytes)| (PathBuf::from(name), node(bytes))).collect()
    }

    #[test]
    fn each_finding_has_a_name_of_its_own() {
        let others = OTHERS.repeat(64);
        let pair = Pair {
            old: tree(&[
                ("same", b"same"),
                ("file", b"old"),
                ("went", b"went"),
                ("none", b""),
                ("half", b"ma"),
            ]),
            new: tree(&[
                ("same", b"same"),
                ("file", b"newer"),
                ("made", b"made"),
                ("none", b"x"),
                ("half", b"mad"),
            ]),
        };
        assert_eq!(pair.changed().len(), 5, "what is the same says nothing");
        let found = |name: &str, now: &[(&str, &[u8])]| {
            pair.compare(&tree(now)).get(Path::new(name)).map(|found| found.0)
        };
        for (name, now, expected) in [
            ("file", &[("file", &b"newer"[..])][..], Some(Found::New)),
            ("file", &[("file", b"old")], Some(Found::Old)),
            ("file", &[("file", b"new")], Some(Found::Torn)),
            ("file", &[("file", b"")], Some(Found::Empty)),
            ("none", &[("none", b"")], Some(Found::Old)),
            ("file", &[], Some(Found::Gone)),
            ("made", &[], Some(Found::Missing)),
            ("went", &[], Some(Found::New)),
            ("went", &[("went", b"went")], Some(Found::OldNameBack)),
            ("tmp", &[("tmp", b"newe")], Some(Found::LeftOver)),
            ("file", &[("file", b"made")], Some(Found::Others)),
            ("made", &[("made", b"ma")], Some(Found::Torn)),
            ("made", &[("made", &others)], Some(Found::Others)),
            ("same", &[("same", b"same")], None),
            ("same", &[("same", b"sam")], Some(Found::Torn)),
            ("same", &[], Some(Found::Gone)),
        ] {
            assert_eq!(found(name, now), expected, "{name} in {now:?}");
        }
        let nowhere =
            |now: &[(&str, &[u8])]| pair.is_nowhere(&tree(now), &pair.compare(&tree(now)));
        assert!(nowhere(&[]) && nowhere(&[("made", b"")]));
        assert!(!nowhere(&[("made", b"made")]) && !nowhere(&[("went", b"went")]));
        assert!(!nowhere(&[("other", b"went")]), "it has another name");
    }

    #[test]
    fn a_name_forges_no_line() {
        assert_eq!(in_one_line(Path::new("a\nkept: b\x1b[2J")), r"a\nkept: b\u{1b}[2J");
        assert_eq!(in_one_line(Path::new("it's größer")), "it's größer");
        let no_text = OsString::from_vec(b"a\xff\n".to_vec());
        assert_eq!(in_one_line(Path::new(&no_text)), r"a\xff\n");
    }

    #[test]
    fn pipes_links_and_second_names_are_read_without_waiting() {
        let made = tempfile::tempdir().expect("a directory");
        let at = |name: &str| made.path().join(name);
        fs::write(at("a"), "text").expect("a file");
        fs::hard_link(at("a"), at("b")).expect("a link");
        std::os::unix::fs::symlink("nowhere", at("link")).expect("a link");
        let pipe = std::process::Command::new("mkfifo").arg(at("pipe")).status();
        assert!(pipe.expect("mkfifo").success());
        let before = read(made.path()).expect("read");
        assert_eq!(before.len(), 4);
        // The same bytes, but no longer one file.
        fs::remove_file(at("b")).expect("removed");
        fs::write(at("b"), "text").expect("a file");
        let after = read(made.path()).expect("read");
        assert!(before[Path::new("b")] != after[Path::new("b")]);
    }
}
