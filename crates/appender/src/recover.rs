//! What a killed process left in its stage file, and appending it.
//!
//! *Owns*: the head of the stage file, which buffers count, how much of each is in the log already. *May not touch*: a living
//! process's stage: it is locked.
//!
//! A buffer counts if it has a number and bytes. A piece of a long line counts only if the piece before it does, or is in the
//! log already: the first piece is published last. Of a buffer that was being written, the file tells how much is there: by its
//! bytes, as others may have appended since, and another file may have its number. Each buffer is placed before it is appended
//! and released after, so a kill in the middle of this is one like any other.

use std::fmt;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use inkstone_io::{
    AppendFacts, Directory as _, DirectoryIdentity, Error, OpenFile, OsDirectory, Result, STAGE_WORDS,
    StageFile, StageLayout,
};

use crate::buffer::{CONTINUES, DEVICE, ELSEWHERE, INODE, NUMBER, OFFSET, PLACED, Place};
use crate::disk::{Disk, LogFile};
use crate::stage::Identity;

pub(crate) const HEAD_BYTES: usize = 8192;
const MAGIC: &[u8; 16] = b"inkstone stage 3";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What was found and done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The process that was killed.
    pub process: u32,
    /// Bytes of lines that were appended now.
    pub bytes: u64,
    /// Why some of them may be in the log twice.
    pub doubt: Option<String>,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes of log lines of process {}, which was killed, were appended",
            self.bytes, self.process
        )?;
        self.doubt.as_ref().map_or(Ok(()), |why| write!(f, "; some of them may be there twice: {why}"))
    }
}

/// The id of this start of the machine; empty where the kernel does not say it.
fn boot_id() -> String {
    std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// The head: who, which log, which layout. `path` is for the reader.
pub(crate) fn head(log: &Identity, path: &Path, layout: StageLayout) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    let (bytes, buffers) = (layout.buffer_bytes as u64, layout.buffers as u64);
    let DirectoryIdentity { device, inode, born_nanos, system } = log.directory;
    let numbers = [bytes, buffers, u64::from(std::process::id()), device, inode, born_nanos, system];
    head.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    for text in [boot_id().as_bytes(), log.name.as_bytes(), path.as_os_str().as_encoded_bytes()] {
        head.extend((text.len() as u64).to_le_bytes());
        head.extend(text);
    }
    head
}

struct Head {
    layout: StageLayout,
    process: u32,
    boot: Vec<u8>,
    directory: DirectoryIdentity,
    name: Vec<u8>,
    path: Vec<u8>,
}

impl Head {
    fn is_of(&self, log: &Identity) -> bool {
        (self.directory, self.name.as_slice()) == (log.directory, log.name.as_bytes())
    }
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
    let directory = DirectoryIdentity {
        device: number(&mut rest)?,
        inode: number(&mut rest)?,
        born_nanos: number(&mut rest)?,
        system: number(&mut rest)?,
    };
    let text = |rest: &mut &[u8]| -> Option<Vec<u8>> {
        let len = usize::try_from(number(rest)?).ok()?;
        let (text, behind) = rest.split_at_checked(len)?;
        *rest = behind;
        Some(text.to_vec())
    };
    let (boot, name, path) = (text(&mut rest)?, text(&mut rest)?, text(&mut rest)?);
    let layout = StageLayout {
        head_bytes: HEAD_BYTES,
        buffer_bytes: usize::try_from(bytes).ok()?,
        buffers: usize::try_from(buffers).ok()?,
    };
    let head = Head { layout, process, boot, directory, name, path };
    (layout.is_sound() && layout.len_bytes() == stage.len()).then_some(head)
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
    /// So many of its bytes are elsewhere: only the rest has the place.
    elsewhere: usize,
    /// Its first bytes are the beginning of a line.
    begins: bool,
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
    let mut found: Vec<Pending> = Vec::new();
    for (buffer, words) in words.iter().enumerate().filter(|(_, words)| words[NUMBER] != 0) {
        let at = layout.buffer_at(buffer);
        // Longer than the buffer: not ours to believe.
        let used = usize::try_from(words[0]).unwrap_or(0);
        let used = if used <= layout.buffer_bytes { used } else { 0 };
        let place = Place { device: words[DEVICE], inode: words[INODE], offset: words[OFFSET] };
        let place = (words[PLACED] == 1).then_some(place);
        let elsewhere = usize::try_from(words[ELSEWHERE]).unwrap_or(0);
        let elsewhere = if place.is_some() && elsewhere <= used { elsewhere } else { 0 };
        let (words_at, bytes) = (layout.words_at(buffer), at..at + used);
        let begins = words[CONTINUES] != 1;
        found.push(Pending { number: words[NUMBER], words_at, bytes, place, elsewhere, begins });
    }
    found.sort_by_key(|pending| pending.number);
    let mut kept = Vec::new();
    let mut unpublished = None;
    for pending in found {
        let is_cut = !pending.begins && unpublished.is_some_and(|number| number + 1 == pending.number);
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
    pub(crate) directory: &'a Arc<OsDirectory>,
    pub(crate) name: &'a str,
    pub(crate) disk: &'a dyn Disk,
    /// What is appended is to be durable before anybody hears of it.
    pub(crate) is_durable: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) recovery: Option<Recovery>,
    /// It was appended, and may be lost by a power loss.
    pub(crate) failed_sync: Option<Error>,
}

/// Whose the lines in a stage are, if there are any and they are not this log's: a directory of the same numbers may be
/// another one, as both are used again.
pub(crate) fn stranger(bytes: &[u8], log: &Identity) -> Option<String> {
    let head = parse_head(bytes).filter(|head| !head.is_of(log))?;
    let path = String::from_utf8_lossy(&head.path).into_owned();
    let process = head.process;
    (!pending(bytes, head.layout).is_empty())
        .then(|| format!("lines of process {process}, which was killed, for the log {path}"))
}

/// Whether there is anything in a stage that a killed process left.
pub(crate) fn has_lines(bytes: &[u8]) -> bool {
    parse_head(bytes).is_some_and(|head| !pending(bytes, head.layout).is_empty())
}

/// Appends what a killed process left in the log, if it left anything, and empties the stage. What fails is tried again for as long
/// as `may_try_again` says so.
pub(crate) fn recover(
    stage: &StageFile,
    bytes: &[u8],
    to: Target<'_>,
    may_try_again: &mut dyn FnMut(&Error) -> bool,
) -> Result<Recovered> {
    let Some(head) = parse_head(bytes) else { return Ok(Recovered::default()) };
    let pending = pending(bytes, head.layout);
    // Numbers of files and their lengths mean nothing after another start of the machine.
    let is_this_boot = head.boot == boot_id().as_bytes();
    let mut run = Run { stage, to, may_try_again, bytes: 0, doubt: None, files: Vec::new() };
    if !is_this_boot && pending.iter().any(|one| one.place.is_some()) {
        run.doubt = Some("the machine was started since".into());
    }
    for one in &pending {
        let place = one.place.filter(|_| is_this_boot);
        run.append(&bytes[one.bytes.clone()], one, place)?;
        stage.write_at(&0_u64.to_ne_bytes(), (one.words_at + NUMBER * 8) as u64)?;
    }
    let failed_sync = run.files.iter().filter(|_| to.is_durable).find_map(|file| file.sync().err());
    stage.clear()?;
    let recovery = Recovery { process: head.process, bytes: run.bytes, doubt: run.doubt };
    let is_any = recovery.bytes > 0 || recovery.doubt.is_some();
    Ok(Recovered { recovery: is_any.then_some(recovery), failed_sync })
}

/// What a file has where a buffer was to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum There {
    All,
    /// The file ends with so many of its bytes.
    Begin(usize),
    /// So many of its bytes, and then somebody else's; or none.
    Cut(usize),
}

impl There {
    fn of(found: &[u8], bytes: &[u8]) -> Self {
        let same = found.iter().zip(bytes).take_while(|(found, byte)| found == byte).count();
        match same {
            all if all == bytes.len() => There::All,
            some if some == found.len() && some > 0 => There::Begin(some),
            some => There::Cut(some),
        }
    }
}

/// One recovery.
struct Run<'a> {
    stage: &'a StageFile,
    to: Target<'a>,
    may_try_again: &'a mut dyn FnMut(&Error) -> bool,
    bytes: u64,
    doubt: Option<String>,
    /// Those that were appended to, or have bytes that may not be durable.
    files: Vec<Box<dyn LogFile>>,
}

impl Run<'_> {
    /// Appends the part of one buffer that is not there.
    fn append(&mut self, bytes: &[u8], one: &Pending, place: Option<Place>) -> Result<()> {
        let Target { directory, name, disk, .. } = self.to;
        let placed = &bytes[if place.is_some() { one.elsewhere } else { 0 }..];
        let found = place.and_then(|place| find(directory, name, place).map(|file| (file, place)));
        if let Some(place) = place {
            self.doubt_unless_there(found.as_ref().map(|(file, _)| file.as_str()), place);
        }
        let there = found.as_ref().map_or(There::Cut(0), |(file, place)| self.look(file, *place, placed));
        let (file, rest) = match (there, &found) {
            (There::All, Some((file, _))) => (disk.open(directory, file)?, &placed[placed.len()..]),
            (There::Begin(done), Some((file, _))) => (disk.open(directory, file)?, &placed[done..]),
            (There::Cut(done), _) => {
                // The line that somebody else's bytes cut is appended whole.
                let line = placed[..done].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                let file = disk.open(directory, name)?;
                let elsewhere = bytes.len() - placed.len() + line;
                // Behind somebody else's half of a line, too; where nobody was before, this goes on where its own process was.
                let begins = one.begins || elsewhere > 0;
                if begins && place.is_some() && ends_within_line(directory, name, file.facts()?) {
                    self.write(&*file, b"\n")?;
                    self.bytes -= 1;
                }
                self.place(one, file.facts()?, elsewhere)?;
                (file, &placed[line..])
            }
            // Nothing can be there without a file that has it.
            (_, None) => (disk.open(directory, name)?, placed),
        };
        self.write(&*file, rest)?;
        self.files.push(file);
        Ok(())
    }

    /// Where the file that a buffer was going to is not to be found, or was cut, nobody can tell how much of the buffer went
    /// elsewhere with it: into a compressed form, or a copy.
    fn doubt_unless_there(&mut self, file: Option<&str>, place: Place) {
        let Target { directory, name, .. } = self.to;
        let len =
            file.and_then(|file| directory.look(file).ok().flatten()).map(|named| named.facts.len_bytes);
        let log = directory.path().join(name);
        match len {
            None => {
                let why = "the file that they were going to is not there: it was removed, or compressed";
                self.doubt = Some(format!("{}: {why}", log.display()));
            }
            Some(len) if len < place.offset => {
                self.doubt = Some(format!("{}: its file was cut, or is another one", log.display()));
            }
            Some(_) => {}
        }
    }

    /// What the file has at this place.
    fn look(&mut self, file: &str, place: Place, bytes: &[u8]) -> There {
        match read(self.to.directory, file, place, bytes.len()) {
            Ok(found) => There::of(&found, bytes),
            Err(error) => {
                self.doubt = Some(format!("the log cannot be read: {error}"));
                There::Cut(0)
            }
        }
    }

    /// Says where the buffer goes, all but the bytes that are elsewhere.
    fn place(&self, one: &Pending, facts: AppendFacts, elsewhere: usize) -> Result<()> {
        let word = |word: usize, value: u64| {
            self.stage.write_at(&value.to_ne_bytes(), (one.words_at + word * 8) as u64)
        };
        word(PLACED, 0)?;
        word(DEVICE, facts.device)?;
        word(INODE, facts.inode)?;
        word(OFFSET, facts.len_bytes)?;
        word(ELSEWHERE, elsewhere as u64)?;
        word(PLACED, 1)
    }

    fn write(&mut self, file: &dyn LogFile, mut rest: &[u8]) -> Result<()> {
        self.bytes += rest.len() as u64;
        while !rest.is_empty() {
            match file.append(rest) {
                Ok(count) => rest = &rest[count.min(rest.len())..],
                Err(error) if (self.may_try_again)(&error) => {}
                Err(error) => {
                    let advice = "what a killed process left stays in memory; open the log again when this is put right";
                    return Err(error.advise(advice));
                }
            }
        }
        Ok(())
    }
}

/// What the file has from this place on, up to so many bytes; nothing if it is another file by now.
fn read(directory: &OsDirectory, name: &str, place: Place, most: usize) -> Result<Vec<u8>> {
    let file = directory.open(name, &OpenFile::existing().read_only())?;
    let failed = |source| Error::new("read log", directory.path().join(name), source).at(place.offset);
    let mut bytes = vec![0; most];
    let mut len = 0;
    while len < most {
        match file.std_file().read_at(&mut bytes[len..], place.offset + len as u64) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// Whether the file's last line has no end. Where that cannot be told: no.
pub(crate) fn ends_within_line(directory: &OsDirectory, name: &str, facts: AppendFacts) -> bool {
    let AppendFacts { device, inode, len_bytes, .. } = facts;
    let Some(offset) = len_bytes.checked_sub(1) else { return false };
    let last = read(directory, name, Place { device, inode, offset }, 1);
    last.is_ok_and(|last| last.first().is_some_and(|byte| *byte != b'\n'))
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

    fn log() -> Identity {
        let directory = DirectoryIdentity { device: 7, inode: 8, born_nanos: 9, system: 10 };
        Identity { directory, name: "log".to_owned() }
    }

    #[test]
    fn bytes_are_compared_and_not_lengths() {
        let bytes = b"one\ntwo\nthree\n";
        for (found, expected) in [
            (b"one\ntwo\nthree\n".as_slice(), There::All),
            (b"", There::Cut(0)),
            (b"one\ntw", There::Begin(6)),
            (b"one\ntwsomebody's\n", There::Cut(6)),
            (b"somebody's\n", There::Cut(0)),
            (b"one and another\n", There::Cut(3)),
        ] {
            // No more is read than the buffer has.
            assert_eq!(There::of(&found[..found.len().min(bytes.len())], bytes), expected, "{found:?}");
        }
    }

    /// A stage with these words for its buffers.
    fn stage(words: &[[u64; 4]]) -> Vec<u8> {
        let mut stage = head(&log(), Path::new("/log"), LAYOUT);
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
        assert!(head.is_of(&log()));
        let directory = log().directory;
        for directory in [
            DirectoryIdentity { device: 1, ..directory },
            DirectoryIdentity { inode: 1, ..directory },
            DirectoryIdentity { born_nanos: 1, ..directory },
            DirectoryIdentity { system: 1, ..directory },
        ] {
            let other = Identity { directory, ..log() };
            assert!(!head.is_of(&other) && stranger(&good, &other).is_none(), "nothing is in it");
            let left = stage(&[[10, 7, 0, 0]]);
            assert!(stranger(&left, &log()).is_none());
            assert!(stranger(&left, &other).is_some_and(|whose| whose.contains("/log")));
        }
        assert!(parse_head(&good[..good.len() - 1]).is_none() && parse_head(&[]).is_none());
        for at in 0..90 {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            // Whatever it says: no panic, and buffers within the bytes.
            if let Some(head) = parse_head(&bad) {
                assert!(pending(&bad, head.layout).iter().all(|one| one.bytes.end <= bad.len()));
            }
        }
    }
}
