//! What is in a stage: whose it is, and the buffers of a killed process that count.
//!
//! *Owns*: the name and the head of the stage file, and which buffers count. *May not touch*: the
//! log's files.
//!
//! A buffer counts if it has a number and bytes. A piece of a long line counts only if the previous
//! piece does, or is in the log already: the first piece is published last.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use inkstone_io::{OsDirectory, Result, StageBuffer, StageFile, StageLayout};

use crate::buffer::{Buffer, Sum};
use crate::event::WaitingLines;
use crate::inbox::{is_in_use, left_in};

/// One page.
pub(crate) const HEAD_BYTES: usize = 4096;
const MAGIC: &[u8; 16] = b"inkstone stage 7";
const NANOS: u64 = 1_000_000_000;
/// Behind the magic: four numbers before the path, one behind it.
const PATH_AT: usize = MAGIC.len() + 4 * 8;
const PATH_BYTES_MAX: usize = HEAD_BYTES - PATH_AT - 8;

/// The identity of a log: that of its directory, and its name there. Not the file's, which changes
/// with every rotation, nor the number of the file system, which changes with every mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    inode: u64,
    born_nanos: u64,
    /// That of the file system where the time of birth is a whole second, as for the first
    /// directory of ext4: others may have been made in that second. 0 elsewhere: some have another
    /// number at each mount.
    system: u64,
    name: String,
}

impl Identity {
    /// `None` if the directory has none that lasts: it has no time of birth (NFS, FUSE), or its
    /// number is one of an overlay without `xino`, whose files are of another device than its
    /// directories.
    pub(crate) fn of(directory: &OsDirectory, name: &str) -> Result<Option<Self>> {
        let here = directory.identity()?;
        let file = directory.look(name)?;
        let lasts =
            here.born_nanos != 0 && file.is_none_or(|file| file.facts.device == here.device);
        let (inode, born_nanos, name) = (here.inode, here.born_nanos, name.to_owned());
        let system = if born_nanos % NANOS == 0 { here.system } else { 0 };
        Ok(lasts.then_some(Self { inode, born_nanos, system, name }))
    }

    /// The path of its stage. A log's name may be too long for another file's.
    pub(crate) fn stage_in(&self, directory: &Path) -> PathBuf {
        let Self { inode, born_nanos, system, name } = self;
        // FNV-1a.
        let bytes = name.bytes().chain(system.to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        StageFile::path_in(directory, &format!("{inode:x}-{born_nanos:x}-{hash:016x}"))
    }
}

/// The head of a stage.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) layout: StageLayout,
    pub(crate) process: u32,
    /// The path of the log, for people; the beginning of one that is too long.
    pub(crate) log: PathBuf,
}

impl Head {
    /// That of a stage of this process.
    pub(crate) fn own(log: &Path, layout: StageLayout) -> Self {
        Self { layout, process: std::process::id(), log: log.to_path_buf() }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let Self { layout, process, log } = self;
        let path = log.as_os_str().as_bytes();
        let path = &path[..path.len().min(PATH_BYTES_MAX)];
        let (bytes, buffers) = (layout.buffer_bytes as u64, layout.buffers as u64);
        let mut head = MAGIC.to_vec();
        for number in [bytes, buffers, u64::from(*process), path.len() as u64] {
            head.extend(number.to_le_bytes());
        }
        head.extend(path);
        head.extend(u64::from(Sum::of(&head).mark()).to_le_bytes());
        head
    }

    /// `None` if the stage does not begin with a head, or with one that was changed.
    fn parse(stage: &[u8]) -> Option<Self> {
        let number = |at: usize| {
            let bytes = stage.get(at..)?.first_chunk::<8>()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let size = |at: usize| usize::try_from(number(at)?).ok();
        let end = PATH_AT + size(PATH_AT - 8)?.min(PATH_BYTES_MAX);
        let is_whole = stage.starts_with(MAGIC)
            && number(end)? == u64::from(Sum::of(stage.get(..end)?).mark());
        let (buffer_bytes, buffers) = (size(MAGIC.len())?, size(MAGIC.len() + 8)?);
        let layout = StageLayout { head_bytes: HEAD_BYTES, buffer_bytes, buffers };
        let process = u32::try_from(number(MAGIC.len() + 16)?).ok()?;
        let log = PathBuf::from(OsStr::from_bytes(&stage[PATH_AT..end]));
        (is_whole && layout.is_sound()).then_some(Self { layout, process, log })
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
    pub(crate) head: Option<Head>,
    /// The buffers that count, in order; empty ones are in the log.
    pub(crate) buffers: Vec<Buffer>,
    /// Those whose bytes are not the ones that were put there.
    pub(crate) changed: Vec<Buffer>,
    /// What was done to the stage, so that it has not all that was put there.
    pub(crate) damage: Option<&'static str>,
}

impl Left {
    pub(crate) fn of(file: &mut StageFile) -> Result<Self> {
        let mut left = Self { head: None, buffers: Vec::new(), changed: Vec::new(), damage: None };
        let (len, head) = file.read_head(HEAD_BYTES)?;
        if len == 0 {
            // Its maker was killed before anything was in it.
            return Ok(left);
        }
        // The words beside the buffers say what is in these.
        let has_words = |head: &Head| len >= head.layout.buffer_at(0) as u64;
        let Some(head) = Head::parse(&head).filter(has_words) else {
            left.damage = Some("its head was changed, or cut");
            return Ok(left);
        };
        let mut buffers = file.map(head.layout)?;
        let mut lacks = false;
        if len < head.layout.len_bytes() as u64 {
            // What is missing needs memory to be looked at; then its sums are wrong. What was just
            // read has none.
            let is_used = |buffer: &&mut StageBuffer| !buffer.is_empty() || is_in_use(buffer);
            let mut used = buffers.iter_mut().filter(is_used);
            used.try_for_each(StageBuffer::ready)?;
            lacks = buffers.last().is_some_and(is_in_use);
        }
        let inbox = buffers.pop().and_then(|inbox| left_in(inbox, &buffers));
        buffers.extend(inbox);
        let buffers = counting(buffers).into_iter();
        (left.buffers, left.changed) = buffers.partition(Buffer::is_sound);
        lacks |= !left.changed.is_empty();
        left.damage = lacks.then_some("some of its bytes were changed or cut");
        left.head = Some(head);
        Ok(left)
    }

    /// Whether any of it may be needed.
    pub(crate) fn is_needed(&self) -> bool {
        self.damage.is_some() || self.buffers.iter().any(|buffer| !buffer.is_empty())
    }

    /// All that can be read, in order.
    pub(crate) fn texts(&self) -> Vec<&[u8]> {
        let mut all: Vec<_> = self.buffers.iter().chain(&self.changed).collect();
        all.sort_by_key(|buffer| buffer.number());
        all.into_iter().map(Buffer::bytes).collect()
    }

    /// As it is said to people; `None` if nothing in it is needed.
    pub(crate) fn waiting(&self, path: &Path) -> Option<WaitingLines> {
        let (log, process) =
            self.head.as_ref().map(|head| (head.log.clone(), head.process)).unwrap_or_default();
        let texts = self.texts();
        self.is_needed().then(|| WaitingLines {
            stage: path.to_path_buf(),
            log,
            process,
            lines: texts.iter().copied().flatten().filter(|byte| **byte == b'\n').count() as u64,
            bytes: texts.iter().map(|text| text.len() as u64).sum(),
            damage: self.damage,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{CONTINUES, NUMBER};
    use inkstone_io::buffers_in_memory;

    const LAYOUT: StageLayout =
        StageLayout { head_bytes: HEAD_BYTES, buffer_bytes: 4096, buffers: 4 };

    /// The numbers of the buffers that count, of those with so many bytes, their numbers and 1 for
    /// a piece.
    fn numbers(buffers: &[[u64; 3]]) -> Vec<u64> {
        let mut memory = buffers_in_memory(LAYOUT).expect("memory");
        for (memory, [bytes, number, is_piece]) in memory.iter_mut().zip(buffers) {
            memory.put(&vec![b'x'; usize::try_from(*bytes).expect("small")]);
            memory.publish(0);
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
    fn a_head_of_which_one_bit_was_changed_is_none() {
        for path in ["/log".to_owned(), "/long".repeat(1000)] {
            let mut good = Head::own(path.as_ref(), LAYOUT).write();
            assert!(good.len() <= HEAD_BYTES);
            let end = good.len();
            good.resize(HEAD_BYTES, 0);
            let head = Head::parse(&good).expect("a head");
            assert_eq!((head.layout, head.process), (LAYOUT, std::process::id()));
            assert!(path.starts_with(head.log.to_str().expect("text")));
            for at in 0..end {
                for bit in 0..8 {
                    let mut bad = good.clone();
                    bad[at] ^= 1 << bit;
                    assert!(Head::parse(&bad).is_none(), "byte {at}, bit {bit}");
                }
                assert!(Head::parse(&good[..at]).is_none(), "cut at {at}");
            }
        }
    }
}
