//! What is in a stage: whose it is, and the buffers of a killed process that count.
//!
//! *Owns*: the head of the stage file, and which buffers count. *May not touch*: files.
//!
//! A buffer counts if it has a number and bytes. A piece of a long line counts only if the previous
//! piece does, or is in the log already: the first piece is published last.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use inkstone_io::{
    Directory as _, DirectoryIdentity, OsDirectory, Result, STAGE_WORDS, StageLayout,
};

use crate::buffer::{CONTINUES, DEVICE, ELSEWHERE, First, INODE, NUMBER, OFFSET, PLACED};
use crate::disk::Place;
use crate::event::WaitingLines;

pub(crate) const HEAD_BYTES: usize = 8192;
const MAGIC: &[u8; 16] = b"inkstone stage 3";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The id of this boot of the machine; empty if the kernel does not give it.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// The identity of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) directory: DirectoryIdentity,
    pub(crate) name: String,
    /// Its path.
    pub(crate) path: PathBuf,
}

impl Identity {
    pub(crate) fn of(directory: &OsDirectory, name: &str) -> Result<Self> {
        let (name, path) = (name.to_owned(), directory.path().join(name));
        Ok(Self { directory: directory.identity()?, name, path })
    }

    /// Whether it is the same log, which is there now. The number of a file system is not asked:
    /// the same one gets another at each mount (btrfs, overlays, NFS, loop devices, USB), and
    /// another one gets the same. A directory keeps its own number and its time of birth; two that
    /// were made in one instant have different numbers. Of the file system's lasting number and the
    /// path, one must be the same: XFS makes the first from the device, a directory may be renamed,
    /// and a snapshot at another path has neither.
    pub(crate) fn is(&self, now: &Self) -> bool {
        let (there, here) = (self.directory, now.directory);
        let is_directory = (there.inode, there.born_nanos) == (here.inode, here.born_nanos);
        let is_system = there.system == here.system;
        let is_path = self.path == now.path;
        let is_same = match (there.born_nanos, there.system) {
            (0, 0) => is_system && is_path,
            (0, _) => is_system,
            (_, 0) => is_path,
            _ => is_system || is_path,
        };
        self.name == now.name && is_directory && is_same
    }
}

/// The head of a stage.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) layout: StageLayout,
    pub(crate) process: u32,
    pub(crate) boot: String,
    pub(crate) log: Identity,
}

impl Head {
    /// That of a stage of this process.
    pub(crate) fn own(log: &Identity, layout: StageLayout) -> Self {
        Self { layout, process: std::process::id(), boot: boot_id(), log: log.clone() }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let Self { layout, process, boot, log } = self;
        let DirectoryIdentity { device, inode, born_nanos, system } = log.directory;
        let (bytes, buffers) = (layout.buffer_bytes as u64, layout.buffers as u64);
        let mut head = MAGIC.to_vec();
        for number in [bytes, buffers, u64::from(*process), device, inode, born_nanos, system] {
            head.extend(number.to_le_bytes());
        }
        for text in [boot.as_bytes(), log.name.as_bytes(), log.path.as_os_str().as_bytes()] {
            head.extend((text.len() as u64).to_le_bytes());
            head.extend(text);
        }
        head
    }

    /// The head of a stage that begins with these bytes and has this length; `None` if there is
    /// none or it is invalid.
    fn parse(stage: &[u8], len: u64) -> Option<Self> {
        let mut rest = stage.strip_prefix(MAGIC)?;
        let number = |rest: &mut &[u8]| -> Option<u64> {
            let (number, behind) = rest.split_first_chunk::<8>()?;
            *rest = behind;
            Some(u64::from_le_bytes(*number))
        };
        let size = |rest: &mut &[u8]| usize::try_from(number(rest)?).ok();
        let text = |rest: &mut &[u8]| -> Option<Vec<u8>> {
            let len = size(rest)?;
            let (text, behind) = rest.split_at_checked(len)?;
            *rest = behind;
            Some(text.to_vec())
        };
        let (buffer_bytes, buffers) = (size(&mut rest)?, size(&mut rest)?);
        let layout = StageLayout { head_bytes: HEAD_BYTES, buffer_bytes, buffers };
        let process = u32::try_from(number(&mut rest)?).ok()?;
        let directory = DirectoryIdentity {
            device: number(&mut rest)?,
            inode: number(&mut rest)?,
            born_nanos: number(&mut rest)?,
            system: number(&mut rest)?,
        };
        let boot = String::from_utf8(text(&mut rest)?).ok()?;
        let name = String::from_utf8(text(&mut rest)?).ok()?;
        let path = PathBuf::from(OsStr::from_bytes(&text(&mut rest)?));
        let is_whole = layout.is_sound() && layout.len_bytes() as u64 == len;
        is_whole.then_some(Self { layout, process, boot, log: Identity { directory, name, path } })
    }
}

/// Whose a stage is, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// This log's.
    Ours,
    /// That of another log, which had the path of this one.
    SamePath,
    /// It has no head: its maker was killed before it wrote one.
    Nobodys,
    Others,
}

impl Whose {
    /// Of a stage that begins with these bytes and has this length.
    pub(crate) fn of(bytes: &[u8], len: u64, log: &Identity) -> Self {
        match Head::parse(bytes, len) {
            Some(head) if head.log.is(log) => Whose::Ours,
            Some(head) if head.log.path == log.path => Whose::SamePath,
            None if bytes.iter().all(|byte| *byte == 0) => Whose::Nobodys,
            _ => Whose::Others,
        }
    }
}

/// A buffer that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pending {
    number: u64,
    /// Where its words are in the stage.
    pub(crate) words_at: usize,
    /// Where its bytes are.
    pub(crate) bytes: Range<usize>,
    pub(crate) place: Option<Place>,
    /// This many of its bytes are elsewhere: the place is for the rest.
    pub(crate) elsewhere: usize,
    /// What its first bytes are.
    first: u64,
}

impl Pending {
    /// Whether its first bytes begin a line.
    pub(crate) fn begins(&self) -> bool {
        self.first == First::Line as u64
    }

    /// `None` for a free one.
    fn of(stage: &[u8], layout: StageLayout, buffer: usize) -> Option<Self> {
        let (words_at, at) = (layout.words_at(buffer), layout.buffer_at(buffer));
        let words: [u64; STAGE_WORDS] = std::array::from_fn(|word| {
            let bytes = stage[words_at + word * 8..].first_chunk::<8>();
            u64::from_ne_bytes(*bytes.expect("the layout fits"))
        });
        // What is longer than the buffer is invalid.
        let within = |bytes: u64, most: usize| {
            usize::try_from(bytes).ok().filter(|bytes| *bytes <= most).unwrap_or(0)
        };
        let used = within(words[0], layout.buffer_bytes);
        let place = Place { device: words[DEVICE], inode: words[INODE], offset: words[OFFSET] };
        let place = (words[PLACED] == 1).then_some(place);
        let elsewhere = place.map_or(0, |_| within(words[ELSEWHERE], used));
        let (number, first, bytes) = (words[NUMBER], words[CONTINUES], at..at + used);
        (number != 0).then_some(Self { number, words_at, bytes, place, elsewhere, first })
    }
}

/// What a killed process left in a stage.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) head: Head,
    /// The buffers that count, in order.
    pub(crate) pending: Vec<Pending>,
}

impl Left {
    /// `None` if the stage has no head, or no lines.
    pub(crate) fn parse(stage: &[u8]) -> Option<Self> {
        let head = Head::parse(stage, stage.len() as u64)?;
        let found = (0..head.layout.buffers).filter_map(|at| Pending::of(stage, head.layout, at));
        let mut found: Vec<Pending> = found.collect();
        found.sort_by_key(|pending| pending.number);
        let mut unpublished = None;
        found.retain(|pending| {
            let is_piece = pending.first == First::Piece as u64;
            let is_cut = is_piece && unpublished.is_some_and(|at| at + 1 == pending.number);
            let counts = !pending.bytes.is_empty() && !is_cut;
            if !counts {
                unpublished = Some(pending.number);
            }
            counts
        });
        (!found.is_empty()).then_some(Self { head, pending: found })
    }

    /// As it is said to people.
    pub(crate) fn waiting(&self, path: &Path, stage: &[u8]) -> WaitingLines {
        let texts = || self.pending.iter().map(|one| &stage[one.bytes.clone()]);
        WaitingLines {
            stage: path.to_path_buf(),
            log: self.head.log.path.clone(),
            process: self.head.process,
            lines: texts().flatten().filter(|byte| **byte == b'\n').count() as u64,
            bytes: texts().map(|text| text.len() as u64).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: StageLayout =
        StageLayout { head_bytes: HEAD_BYTES, buffer_bytes: 4096, buffers: 4 };

    fn log() -> Identity {
        let directory = DirectoryIdentity { device: 7, inode: 8, born_nanos: 9, system: 10 };
        Identity { directory, name: "log".to_owned(), path: "/log".into() }
    }

    /// A stage of this log with these words for its buffers.
    fn stage_of(log: &Identity, words: &[[u64; 4]]) -> Vec<u8> {
        let mut stage = Head::own(log, LAYOUT).write();
        stage.resize(LAYOUT.len_bytes(), 0);
        for (buffer, words) in words.iter().enumerate() {
            for (word, value) in words.iter().enumerate() {
                let at = LAYOUT.words_at(buffer) + word * 8;
                stage[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            }
        }
        stage
    }

    fn numbers(words: &[[u64; 4]]) -> Vec<u64> {
        let left = Left::parse(&stage_of(&log(), words));
        left.iter().flat_map(|left| &left.pending).map(|pending| pending.number).collect()
    }

    #[test]
    fn buffers_count_in_order_and_free_or_empty_ones_do_not() {
        assert_eq!(numbers(&[[10, 7, 0, 0], [5, 0, 0, 0], [4096, 6, 0, 1], [0, 8, 0, 0]]), [6, 7]);
    }

    #[test]
    fn pieces_of_a_line_count_only_when_its_first_is_published() {
        assert_eq!(numbers(&[[0, 4, 0, 0], [4096, 5, 1, 0], [9, 6, 1, 0], [3, 3, 0, 0]]), [3]);
        assert_eq!(numbers(&[[4096, 4, 0, 0], [4096, 5, 1, 0], [9, 6, 1, 0]]), [4, 5, 6]);
        // The first one is in the log already.
        assert_eq!(numbers(&[[0, 0, 0, 0], [4096, 5, 1, 0], [9, 6, 1, 0]]), [5, 6]);
    }

    #[test]
    fn a_stage_is_of_the_directory_that_was_mounted_again_and_of_no_other() {
        let there = log().directory;
        // A network file system says neither when a directory was made nor which number it has.
        let net = DirectoryIdentity { born_nanos: 0, system: 0, ..there };
        let mounted = |directory| DirectoryIdentity { device: 1, ..directory };
        let moved = |directory| DirectoryIdentity { inode: 1, ..directory };
        let elsewhere = DirectoryIdentity { system: 1, ..mounted(there) };
        for (what, there, here, path, expected) in [
            ("as it was", there, there, "/log", Whose::Ours),
            ("another number of the file system", there, mounted(there), "/log", Whose::Ours),
            ("the same, elsewhere", there, mounted(there), "/other/log", Whose::Ours),
            ("XFS on another device", there, elsewhere, "/log", Whose::Ours),
            ("another one, made in the same instant", there, moved(there), "/log", Whose::SamePath),
            (
                "made anew, with its numbers",
                there,
                DirectoryIdentity { born_nanos: 1, ..there },
                "/log",
                Whose::SamePath,
            ),
            ("a snapshot", there, elsewhere, "/other/log", Whose::Others),
            ("a copy on the same disk", there, moved(there), "/other/log", Whose::Others),
            (
                "no time of birth now",
                there,
                DirectoryIdentity { born_nanos: 0, ..there },
                "/log",
                Whose::SamePath,
            ),
            ("NFS, mounted again", net, mounted(net), "/log", Whose::Ours),
            ("NFS, elsewhere", net, mounted(net), "/other/log", Whose::Others),
            ("NFS, another directory", net, moved(net), "/log", Whose::SamePath),
        ] {
            let stage = stage_of(&Identity { directory: there, ..log() }, &[]);
            let now = Identity { directory: here, path: path.into(), ..log() };
            assert_eq!(Whose::of(&stage, stage.len() as u64, &now), expected, "{what}");
        }
        let stage = stage_of(&log(), &[]);
        let other = Identity { name: "another".to_owned(), path: "/another".into(), ..log() };
        assert_eq!(Whose::of(&stage, stage.len() as u64, &other), Whose::Others);
        assert_eq!(Whose::of(&[0; 100], 100, &other), Whose::Nobodys);
    }

    #[test]
    fn what_makes_no_sense_is_not_believed() {
        assert_eq!(numbers(&[[4097, 4, 0, 0], [u64::MAX, 5, 0, 0]]), [] as [u64; 0]);
        let good = stage_of(&log(), &[[10, 7, 0, 0]]);
        let len = good.len() as u64;
        let head = Head::parse(&good, len).expect("a head");
        assert_eq!((head.layout, head.process), (LAYOUT, std::process::id()));
        assert!(Head::parse(&good, len - 1).is_none() && Head::parse(&[], 0).is_none());
        for at in 0..90 {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            // Whatever it holds: no panic, and buffers within the bytes.
            if let Some(left) = Left::parse(&bad) {
                assert!(left.pending.iter().all(|one| one.bytes.end <= bad.len()));
            }
        }
    }
}
