//! What is in a stage: whose it is, and the buffers of a killed process that count.
//!
//! *Owns*: the head of the stage file, and which buffers count. *May not touch*: the log's files.
//!
//! A buffer counts if it has a number and bytes. A piece of a long line counts only if the previous
//! piece does, or is in the log already: the first piece is published last.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use inkstone_io::{
    Directory as _, DirectoryIdentity, OsDirectory, Result, StageBuffer, StageFile, StageLayout,
};

use crate::buffer::Buffer;
use crate::event::WaitingLines;

pub(crate) const HEAD_BYTES: usize = 8192;
const MAGIC: &[u8; 16] = b"inkstone stage 4";
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

/// Those of these buffers that count, in order.
fn counting(buffers: Vec<StageBuffer>) -> Vec<Buffer> {
    let mut found: Vec<Buffer> = buffers.into_iter().filter_map(Buffer::found).collect();
    found.sort_by_key(Buffer::number);
    let mut unpublished = None;
    found.retain(|buffer| {
        let is_cut = buffer.is_piece() && unpublished.is_some_and(|at| at + 1 == buffer.number());
        let counts = !buffer.is_empty() && !is_cut;
        if !counts {
            unpublished = Some(buffer.number());
        }
        counts
    });
    found
}

/// What a killed process left in a stage.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) head: Head,
    /// The buffers that count, in order; empty ones are in the log.
    pub(crate) buffers: Vec<Buffer>,
}

impl Left {
    /// `None` if the stage has no head, or no lines.
    pub(crate) fn of(file: &StageFile) -> Result<Option<Self>> {
        let (bytes, len) = StageFile::read_head(file.path(), HEAD_BYTES)?;
        let Some(head) = Head::parse(&bytes, len) else { return Ok(None) };
        let left = Self { buffers: counting(file.map(head.layout)?), head };
        Ok(Some(left).filter(Self::has_lines))
    }

    /// Whether any of its lines is not in the log yet.
    pub(crate) fn has_lines(&self) -> bool {
        self.buffers.iter().any(|buffer| !buffer.is_empty())
    }

    /// As it is said to people.
    pub(crate) fn waiting(&self, path: &Path) -> WaitingLines {
        let texts = || self.buffers.iter().map(Buffer::bytes);
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
    use crate::buffer::{CONTINUES, NUMBER};
    use inkstone_io::buffers_in_memory;

    const LAYOUT: StageLayout =
        StageLayout { head_bytes: HEAD_BYTES, buffer_bytes: 4096, buffers: 4 };

    fn log() -> Identity {
        let directory = DirectoryIdentity { device: 7, inode: 8, born_nanos: 9, system: 10 };
        Identity { directory, name: "log".to_owned(), path: "/log".into() }
    }

    fn stage_of(log: &Identity) -> Vec<u8> {
        let mut stage = Head::own(log, LAYOUT).write();
        stage.resize(LAYOUT.len_bytes(), 0);
        stage
    }

    /// The numbers of the buffers that count, of those with so many bytes, their numbers and 1 for
    /// a piece.
    fn numbers(buffers: &[[u64; 3]]) -> Vec<u64> {
        let mut memory = buffers_in_memory(LAYOUT).expect("memory");
        for (memory, [bytes, number, is_piece]) in memory.iter_mut().zip(buffers) {
            memory.push(&vec![b'x'; usize::try_from(*bytes).expect("small")]);
            memory.set_word(NUMBER, *number);
            memory.set_word(CONTINUES, *is_piece);
        }
        counting(memory).iter().map(Buffer::number).collect()
    }

    #[test]
    fn buffers_count_in_order_and_free_or_empty_ones_do_not() {
        assert_eq!(numbers(&[[10, 7, 0], [5, 0, 0], [4096, 6, 0], [0, 8, 0]]), [6, 7]);
    }

    #[test]
    fn pieces_of_a_line_count_only_when_its_first_is_published() {
        assert_eq!(numbers(&[[0, 4, 0], [4096, 5, 1], [9, 6, 1], [3, 3, 0]]), [3]);
        assert_eq!(numbers(&[[4096, 4, 0], [4096, 5, 1], [9, 6, 1]]), [4, 5, 6]);
        // The first one is in the log already.
        assert_eq!(numbers(&[[0, 0, 0], [4096, 5, 1], [9, 6, 1]]), [5, 6]);
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
            let stage = stage_of(&Identity { directory: there, ..log() });
            let now = Identity { directory: here, path: path.into(), ..log() };
            assert_eq!(Whose::of(&stage, stage.len() as u64, &now), expected, "{what}");
        }
        let stage = stage_of(&log());
        let other = Identity { name: "another".to_owned(), path: "/another".into(), ..log() };
        assert_eq!(Whose::of(&stage, stage.len() as u64, &other), Whose::Others);
        assert_eq!(Whose::of(&[0; 100], 100, &other), Whose::Nobodys);
    }

    #[test]
    fn what_makes_no_sense_is_not_believed() {
        let good = stage_of(&log());
        let len = good.len() as u64;
        let head = Head::parse(&good, len).expect("a head");
        assert_eq!((head.layout, head.process), (LAYOUT, std::process::id()));
        assert!(Head::parse(&good, len - 1).is_none() && Head::parse(&[], 0).is_none());
        for at in 0..90 {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            // Whatever it holds: no panic, and a layout of so many bytes.
            if let Some(head) = Head::parse(&bad, len) {
                assert_eq!(head.layout.len_bytes() as u64, len);
            }
        }
    }
}
