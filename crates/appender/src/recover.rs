//! What a killed process left in its stage file, and appending it.
//!
//! *Owns*: the head of the stage file, which buffers count, how much of each is in the log already. *May not touch*: a living
//! process's stage: it is locked.
//!
//! A buffer counts if it has a number and bytes. A piece of a long line counts only if the piece before it does, or is in the
//! log already: the first piece is published last. Of a buffer that was being written, the file's length tells how much is
//! there. Each buffer is placed before it is appended and released after, so a kill in the middle of this is one like any other.

use std::fmt;
use std::path::{Path, PathBuf};

use inkstone_io::{Directory as _, Error, OsDirectory, Result, STAGE_WORDS, StageFile, StageLayout};

use crate::buffer::{CONTINUES, DEVICE, INODE, NUMBER, OFFSET, PLACED, Place};
use crate::disk::{Disk, LogFile};

pub(crate) const HEAD_BYTES: usize = 8192;
const MAGIC: &[u8; 16] = b"inkstone stage 1";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What was found and done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The process that was killed.
    pub process: u32,
    /// Bytes of lines that were appended now.
    pub bytes: u64,
    /// Bytes that were left where they are, and why: nothing was known about where they belong.
    pub left: Option<String>,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes of log lines of process {}, which was killed, were appended",
            self.bytes, self.process
        )?;
        self.left.as_ref().map_or(Ok(()), |why| write!(f, "; {why}"))
    }
}

/// This start of the machine, or nothing where it cannot be told.
fn boot_id() -> String {
    std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// The head: who, which log, which layout.
pub(crate) fn head(log: &Path, layout: StageLayout) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    let numbers = [layout.buffer_bytes as u64, layout.buffers as u64, u64::from(std::process::id())];
    head.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    for text in [boot_id().as_bytes(), log.as_os_str().as_encoded_bytes()] {
        head.extend((text.len() as u64).to_le_bytes());
        head.extend(text);
    }
    head
}

struct Head {
    layout: StageLayout,
    process: u32,
    boot: Vec<u8>,
    log: Vec<u8>,
}

/// `None`: there is no head, or one that makes no sense.
fn parse_head(stage: &[u8]) -> Option<Head> {
    let mut rest = stage.strip_prefix(MAGIC)?;
    let number = |rest: &mut &[u8]| -> Option<u64> {
        let (number, behind) = rest.split_first_chunk::<8>()?;
        *rest = behind;
        Some(u64::from_le_bytes(*number))
    };
    let (bytes, buffers) = (number(&mut rest)?, number(&mut rest)?);
    let process = u32::try_from(number(&mut rest)?).ok()?;
    let text = |rest: &mut &[u8]| -> Option<Vec<u8>> {
        let len = usize::try_from(number(rest)?).ok()?;
        let (text, behind) = rest.split_at_checked(len)?;
        *rest = behind;
        Some(text.to_vec())
    };
    let (boot, log) = (text(&mut rest)?, text(&mut rest)?);
    let layout = StageLayout {
        head_bytes: HEAD_BYTES,
        buffer_bytes: usize::try_from(bytes).ok()?,
        buffers: usize::try_from(buffers).ok()?,
    };
    (layout.is_sound() && layout.len_bytes() == stage.len()).then_some(Head { layout, process, boot, log })
}

/// A buffer that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pending {
    number: u64,
    /// Where its words are in the stage.
    words_at: usize,
    /// Where its bytes are.
    bytes: std::ops::Range<usize>,
    place: Option<Place>,
}

/// The buffers that count, in order.
fn pending(stage: &[u8], layout: StageLayout) -> Vec<Pending> {
    let words: Vec<[u64; STAGE_WORDS]> = (0..layout.buffers)
        .map(|buffer| {
            let at = layout.words_at(buffer);
            std::array::from_fn(|word| {
                let bytes = stage[at + word * 8..][..8].first_chunk::<8>().expect("eight bytes");
                u64::from_ne_bytes(*bytes)
            })
        })
        .collect();
    let mut found: Vec<(bool, Pending)> = Vec::new();
    for (buffer, words) in words.iter().enumerate().filter(|(_, words)| words[NUMBER] != 0) {
        let at = layout.buffer_at(buffer);
        // Longer than the buffer: not ours to believe.
        let used = usize::try_from(words[0]).unwrap_or(0);
        let used = if used <= layout.buffer_bytes { used } else { 0 };
        let place = Place { device: words[DEVICE], inode: words[INODE], offset: words[OFFSET] };
        let place = (words[PLACED] == 1).then_some(place);
        let bytes = at..at + used;
        let one = Pending { number: words[NUMBER], words_at: layout.words_at(buffer), bytes, place };
        found.push((words[CONTINUES] == 1, one));
    }
    found.sort_by_key(|(_, pending)| pending.number);
    let mut kept = Vec::new();
    let mut unpublished = None;
    for (continues, pending) in found {
        let is_cut = continues && unpublished.is_some_and(|number| number + 1 == pending.number);
        if pending.bytes.is_empty() || is_cut {
            unpublished = Some(pending.number);
        } else {
            kept.push(pending);
        }
    }
    kept
}

/// The log that is recovered: where it lies, and how it is opened.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) directory: &'a OsDirectory,
    pub(crate) name: &'a str,
    pub(crate) disk: &'a dyn Disk,
}

/// Appends what a killed process left in the log of this path, if it left anything, and empties the stage.
pub(crate) fn recover(stage: &StageFile, log: &Path, to: Target<'_>) -> Result<Option<Recovery>> {
    let bytes = stage.read()?;
    let Some(head) = parse_head(&bytes) else { return Ok(None) };
    if head.log != log.as_os_str().as_encoded_bytes() {
        let whose = PathBuf::from(String::from_utf8_lossy(&head.log).into_owned());
        let why = format!("it belongs to the log {}", whose.display());
        return Err(Error::invalid("open stage", stage.path(), why).advise("choose another stage directory"));
    }
    let mut recovery = Recovery { process: head.process, bytes: 0, left: None };
    let pending = pending(&bytes, head.layout);
    // Numbers of files and their lengths mean nothing after another start of the machine.
    let is_this_boot = head.boot == boot_id().as_bytes();
    for one in &pending {
        let place = one.place.filter(|_| is_this_boot);
        recovery.bytes += append(stage, to, &bytes[one.bytes.clone()], one, place)?;
        stage.write_at(&0_u64.to_ne_bytes(), (one.words_at + NUMBER * 8) as u64)?;
    }
    if !is_this_boot && !pending.is_empty() {
        recovery.left =
            Some("the machine was started since: lines that were being written may be there twice".into());
    }
    stage.clear()?;
    Ok((recovery.bytes > 0 || recovery.left.is_some()).then_some(recovery))
}

/// Appends the part of one buffer that is not there; gives its length.
fn append(
    stage: &StageFile,
    to: Target<'_>,
    bytes: &[u8],
    one: &Pending,
    place: Option<Place>,
) -> Result<u64> {
    let Target { directory, name, disk } = to;
    let mut file: Box<dyn LogFile> = match place.and_then(|place| find(directory, name, place)) {
        Some(name) => disk.open(directory, &name)?,
        None => disk.open(directory, name)?,
    };
    let mut facts = file.facts()?;
    let done = match place {
        Some(place) if (place.device, place.inode) == (facts.device, facts.inode) => {
            // Shorter than where it began: somebody has cut it, and nothing of this buffer is there.
            let done = facts.len_bytes.saturating_sub(place.offset);
            usize::try_from(done).unwrap_or(usize::MAX).min(bytes.len())
        }
        _ => {
            // Its file is gone, or it had none: it goes to the end of the log as it is now.
            file = disk.open(directory, name)?;
            facts = file.facts()?;
            let words =
                [(DEVICE, facts.device), (INODE, facts.inode), (OFFSET, facts.len_bytes), (PLACED, 1)];
            stage.write_at(&0_u64.to_ne_bytes(), (one.words_at + PLACED * 8) as u64)?;
            for (word, value) in words {
                stage.write_at(&value.to_ne_bytes(), (one.words_at + word * 8) as u64)?;
            }
            0
        }
    };
    let mut rest = &bytes[done..];
    let missing = rest.len() as u64;
    while !rest.is_empty() {
        let count = file.append(rest).map_err(|error| {
            error.advise(
                "what a killed process left stays in memory; open the log again when this is put right",
            )
        })?;
        rest = &rest[count.min(rest.len())..];
    }
    Ok(missing)
}

/// The file of the log that has this number: its name may have changed.
fn find(directory: &OsDirectory, name: &str, place: Place) -> Option<String> {
    let is_it = |name: &str| {
        let named = directory.look(name).ok().flatten();
        named.is_some_and(|named| (named.facts.device, named.facts.inode) == (place.device, place.inode))
    };
    if is_it(name) {
        return Some(name.to_owned());
    }
    directory.list().ok()?.into_iter().find(|other| other.starts_with(name) && is_it(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: StageLayout = StageLayout { head_bytes: HEAD_BYTES, buffer_bytes: 4096, buffers: 4 };

    /// A stage with these words for its buffers.
    fn stage(words: &[[u64; 4]]) -> Vec<u8> {
        let mut stage = head(Path::new("/log"), LAYOUT);
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
        pending(&stage(words), LAYOUT).iter().map(|pending| pending.number).collect()
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
    fn what_makes_no_sense_is_not_believed() {
        assert_eq!(numbers(&[[4097, 4, 0, 0], [u64::MAX, 5, 0, 0]]), [] as [u64; 0]);
        let good = stage(&[]);
        let head = parse_head(&good).expect("a head");
        assert_eq!((head.layout, head.process), (LAYOUT, std::process::id()));
        assert!(parse_head(&good[..good.len() - 1]).is_none() && parse_head(&[]).is_none());
        for at in 0..60 {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            // Whatever it says: no panic, and buffers within the bytes.
            if let Some(head) = parse_head(&bad) {
                assert!(pending(&bad, head.layout).iter().all(|one| one.bytes.end <= bad.len()));
            }
        }
    }
}
