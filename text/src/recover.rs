//! Appends the lines that a killed process left in its stage file.
//!
//! *Owns*: the head of the stage file, which buffers count, how much of each is in the log already.
//! *May not touch*: the stage of a living process, which is locked.
//!
//! A buffer counts if it has a number and bytes. A piece of a long line counts only if the previous
//! piece does, or is in the log already: the first piece is published last. For a buffer that was
//! being written, the file's bytes show how much is there: not its size, since other processes may
//! have appended, and another file may have its inode. Each buffer is placed before it is appended
//! and released after, so a kill in the middle of a recovery is a kill like any other.

use std::ffi::OsStr;
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use inkstone_io::{
    Directory as _, DirectoryIdentity, Error, OsDirectory, Result, STAGE_WORDS, StageFile,
    StageLayout,
};

use crate::buffer::{CONTINUES, DEVICE, ELSEWHERE, First, INODE, NUMBER, OFFSET, PLACED, Place};
use crate::content::{find, read};
use crate::output::Output;
use crate::passage::{Passage, Source};
use crate::stage::Identity;
use crate::time::later;
use crate::waiting::WaitingLines;

pub(crate) const HEAD_BYTES: usize = 8192;
const MAGIC: &[u8; 16] = b"inkstone stage 3";
/// How often a full disk is retried.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(100);
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What the opening found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The process that left the lines.
    pub process: u32,
    /// Bytes of lines that the opening appended.
    pub bytes: u64,
    /// Why some of them may be in the log twice.
    pub doubt: Option<String>,
}

impl Recovery {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, doubt: self.doubt.or(other.doubt), ..other }
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "appended {} bytes of log lines that process {} left unwritten",
            self.bytes, self.process
        )?;
        self.doubt
            .as_ref()
            .map_or(Ok(()), |why| write!(f, "; some of them may be in the log twice: {why}"))
    }
}

/// The id of this boot of the machine; empty if the kernel does not give it.
fn boot_id() -> String {
    std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// The head: which process, log and layout. `path` is for people.
pub(crate) fn head(log: &Identity, path: &Path, layout: StageLayout) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    let (bytes, buffers) = (layout.buffer_bytes as u64, layout.buffers as u64);
    let DirectoryIdentity { device, inode, born_nanos, system } = log.directory;
    let numbers =
        [bytes, buffers, u64::from(std::process::id()), device, inode, born_nanos, system];
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
    /// Whether it is of this log, which is at this path now. The number of a file system is not
    /// asked: the same one gets another at each mount (btrfs, overlays, NFS, loop devices, USB),
    /// and another one gets the same. A directory keeps its own number and its time of birth; two
    /// that were made in one instant have different numbers. Of the file system's lasting number
    /// and the path, one must be the same: XFS makes the first from the device, a directory may be
    /// renamed, and a snapshot at another path has neither.
    fn is_of(&self, log: &Identity, path: &Path) -> bool {
        let (there, here) = (self.directory, log.directory);
        let is_directory = (there.inode, there.born_nanos) == (here.inode, here.born_nanos);
        let is_system = there.system == here.system;
        let is_path = self.path == path.as_os_str().as_encoded_bytes();
        let is_same = match (there.born_nanos, there.system) {
            (0, 0) => is_system && is_path,
            (0, _) => is_system,
            (_, 0) => is_path,
            _ => is_system || is_path,
        };
        self.name == log.name.as_bytes() && is_directory && is_same
    }

    /// Where these lines were to go.
    fn log(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.path))
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

/// Whose a stage is that begins with these bytes and has this length.
pub(crate) fn whose(bytes: &[u8], len: u64, log: &Identity, path: &Path) -> Whose {
    let head = usize::try_from(len).ok().and_then(|len| parse_head(bytes, len));
    match head {
        Some(head) if head.is_of(log, path) => Whose::Ours,
        Some(head) if head.log() == path => Whose::SamePath,
        None if bytes.iter().all(|byte| *byte == 0) => Whose::Nobodys,
        _ => Whose::Others,
    }
}

/// The lines that wait in a stage with these contents, if there are any.
pub(crate) fn waiting(stage: &Path, bytes: &[u8]) -> Option<WaitingLines> {
    let head = parse_head(bytes, bytes.len())?;
    let texts: Vec<_> = pending(bytes, head.layout).into_iter().map(|one| one.bytes).collect();
    let ends = |text: &Range<usize>| {
        bytes[text.clone()].iter().filter(|byte| **byte == b'\n').count() as u64
    };
    (!texts.is_empty()).then(|| WaitingLines {
        stage: stage.to_path_buf(),
        log: head.log(),
        process: head.process,
        lines: texts.iter().map(ends).sum(),
        bytes: texts.iter().map(|text| text.len() as u64).sum(),
    })
}

/// `None` if there is no head or it is invalid.
fn parse_head(stage: &[u8], len: usize) -> Option<Head> {
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
    (layout.is_sound() && layout.len_bytes() == len).then_some(head)
}

/// A buffer that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pending {
    number: u64,
    /// Where its words are in the stage.
    words_at: usize,
    /// Where its bytes are.
    bytes: Range<usize>,
    place: Option<Place>,
    /// This many of its bytes are elsewhere: the place is for the rest.
    elsewhere: usize,
    /// Its first bytes begin a line.
    begins: bool,
    /// They continue the previous line.
    is_piece: bool,
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
        // Longer than the buffer: invalid.
        let used = usize::try_from(words[0]).unwrap_or(0);
        let used = if used <= layout.buffer_bytes { used } else { 0 };
        let place = Place { device: words[DEVICE], inode: words[INODE], offset: words[OFFSET] };
        let place = (words[PLACED] == 1).then_some(place);
        let elsewhere = usize::try_from(words[ELSEWHERE]).unwrap_or(0);
        let elsewhere = if place.is_some() && elsewhere <= used { elsewhere } else { 0 };
        let (words_at, bytes) = (layout.words_at(buffer), at..at + used);
        let begins = words[CONTINUES] == First::Line as u64;
        let is_piece = words[CONTINUES] == First::Piece as u64;
        found.push(Pending {
            number: words[NUMBER],
            words_at,
            bytes,
            place,
            elsewhere,
            begins,
            is_piece,
        });
    }
    found.sort_by_key(|pending| pending.number);
    let mut kept = Vec::new();
    let mut unpublished = None;
    for pending in found {
        let is_cut =
            pending.is_piece && unpublished.is_some_and(|number| number + 1 == pending.number);
        if pending.bytes.is_empty() || is_cut {
            unpublished = Some(pending.number);
        } else {
            kept.push(pending);
        }
    }
    kept
}

/// How long a start waits for room on a full disk. By default it does not.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    until: Option<Instant>,
    /// A file of this many bytes is about to be rotated.
    arriving: Option<u64>,
    has_looked: bool,
}

impl Patience {
    pub(crate) fn new(at_most: Duration, arriving: Option<u64>) -> Self {
        Self { until: Some(later(Instant::now(), at_most)), arriving, has_looked: false }
    }

    /// Whether to try again after this error. Removes files above the limits first, but only if
    /// room is needed: a refused start must leave them.
    pub(crate) fn awaits_room(&mut self, output: &Output, error: &Error) -> bool {
        let Some(until) = self.until.filter(|_| error.is_full()) else { return false };
        if std::mem::replace(&mut self.has_looked, true) {
            if Instant::now() >= until {
                return false;
            }
            // Freed room becomes usable with the file system's next commit.
            thread::sleep(TRY_AGAIN_AFTER);
        }
        if let Ok(directory) = output.folder.get() {
            output.make_room(&directory, self.arriving);
        }
        true
    }
}

/// Whether a stage holds lines that a killed process left.
pub(crate) fn has_lines(bytes: &[u8]) -> bool {
    parse_head(bytes, bytes.len()).is_some_and(|head| !pending(bytes, head.layout).is_empty())
}

/// Appends the lines that a killed process left, and empties the stage.
pub(crate) fn recover(
    stage: &StageFile,
    bytes: &[u8],
    log: &Identity,
    output: &mut Output,
    patience: &mut Patience,
) -> Result<Option<Recovery>> {
    let Some(head) = parse_head(bytes, bytes.len()) else { return Ok(None) };
    let pending = pending(bytes, head.layout);
    // Inodes and file sizes mean nothing after another boot of the machine, nor in another log.
    let is_this_boot = head.boot == boot_id().as_bytes();
    let is_known = is_this_boot && head.is_of(log, &output.path());
    let directory = output.folder.get()?;
    let mut run = Run { stage, output, directory, patience, bytes: 0, doubt: None };
    if !is_known && pending.iter().any(|one| one.place.is_some()) {
        run.doubt = Some(if is_this_boot {
            format!("they were for the log {}", head.log().display())
        } else {
            "the machine was restarted since then".into()
        });
    }
    for one in &pending {
        let mut place = one.place.filter(|_| is_known);
        // Mounted again, the file system has another number, and the file its own.
        if let Some(place) = place.as_mut().filter(|place| place.device == head.directory.device) {
            place.device = log.directory.device;
        }
        run.append(&bytes[one.bytes.clone()], one, place)?;
        stage.write_at(&0_u64.to_ne_bytes(), (one.words_at + NUMBER * 8) as u64)?;
    }
    let Run { bytes, doubt, output, .. } = run;
    // Before anything reports that the lines were appended.
    output.sync_quietly();
    stage.clear()?;
    let recovery = Recovery { process: head.process, bytes, doubt };
    let is_any = recovery.bytes > 0 || recovery.doubt.is_some();
    Ok(is_any.then_some(recovery))
}

/// What a file has where a buffer was to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum There {
    All,
    /// The file ends with this many of its bytes.
    Begin(usize),
    /// This many of its bytes, followed by those of another process; or none.
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

    /// How many bytes, of `all`.
    fn bytes(self, all: usize) -> usize {
        match self {
            There::All => all,
            There::Begin(some) | There::Cut(some) => some,
        }
    }
}

/// A buffer of the stage that is being written to the log.
struct Left<'a> {
    bytes: &'a [u8],
    one: &'a Pending,
    stage: &'a StageFile,
}

impl Source for Left<'_> {
    fn bytes(&self) -> &[u8] {
        self.bytes
    }

    fn begins(&self) -> bool {
        self.one.begins
    }

    fn place(&mut self, place: Place, elsewhere: usize) -> Result<()> {
        let word = |word: usize, value: u64| {
            self.stage.write_at(&value.to_ne_bytes(), (self.one.words_at + word * 8) as u64)
        };
        word(PLACED, 0)?;
        word(DEVICE, place.device)?;
        word(INODE, place.inode)?;
        word(OFFSET, place.offset)?;
        word(ELSEWHERE, elsewhere as u64)?;
        word(PLACED, 1)
    }

    fn in_file(&mut self, _done: usize) {}

    fn vanished(&mut self, _bytes: u64) {}
}

/// One recovery.
struct Run<'a> {
    stage: &'a StageFile,
    output: &'a mut Output,
    directory: Arc<OsDirectory>,
    patience: &'a mut Patience,
    bytes: u64,
    doubt: Option<String>,
}

impl Run<'_> {
    /// Appends the missing part of one buffer.
    fn append(&mut self, bytes: &[u8], one: &Pending, place: Option<Place>) -> Result<()> {
        let elsewhere = place.map_or(0, |_| one.elsewhere);
        let found = place.and_then(|place| {
            find(&self.directory, &self.output.name, place).map(|file| (file, place.offset))
        });
        if let Some(place) = place {
            self.doubt_unless_there(found.as_ref().map(|(file, _)| file.as_str()), place);
        }
        let rest = &bytes[elsewhere..];
        let there =
            found.as_ref().map_or(There::Cut(0), |(file, offset)| self.look(file, *offset, rest));
        let mut done = elsewhere + there.bytes(rest.len());
        if let (There::All | There::Begin(_), Some((file, _))) = (there, &found)
            && *file != self.output.name
        {
            done += self.append_to(file, &bytes[done..])?;
        }
        let mut source = Left { bytes, one, stage: self.stage };
        let mut passage = Passage::at(place, elsewhere, done);
        if done == bytes.len() {
            // It may not be durable.
            self.output.is_dirty = true;
            return Ok(());
        }
        let from = if matches!(there, There::Cut(_)) { passage.resumes_at(&source) } else { done };
        self.bytes += (bytes.len() - from) as u64;
        while let Err(error) = passage.advance(self.output, &mut source) {
            if !self.patience.awaits_room(self.output, &error) {
                return Err(stays(error));
            }
        }
        Ok(())
    }

    /// Appends to a file that has moved away and ends with the beginning of these bytes. Returns
    /// how many bytes it took: all, unless it may not grow further.
    fn append_to(&mut self, file: &str, bytes: &[u8]) -> Result<usize> {
        let opened = self.output.disk.open(&self.directory, file)?;
        let mut done = 0;
        while done < bytes.len() {
            match opened.append(&bytes[done..]) {
                Ok(count) => done += count,
                Err(error) if self.patience.awaits_room(self.output, &error) => {}
                Err(error) if Output::is_limit(&error) => break,
                Err(error) => return Err(stays(error)),
            }
        }
        self.bytes += done as u64;
        self.output.sync_other(&*opened);
        Ok(done)
    }

    /// If the file of a buffer is missing or was truncated, it is unknown how much of the buffer
    /// went with it into a compressed form or a copy.
    fn doubt_unless_there(&mut self, file: Option<&str>, place: Place) {
        let (directory, name) = (&self.directory, &self.output.name);
        let len = file
            .and_then(|file| directory.look(file).ok().flatten())
            .map(|named| named.facts.len_bytes);
        let log = directory.path().join(name);
        match len {
            None => {
                let why = "the file that they were for is missing: it was removed or compressed";
                self.doubt = Some(format!("{}: {why}", log.display()));
            }
            Some(len) if len < place.offset => {
                self.doubt = Some(format!("{}: its file was truncated or replaced", log.display()));
            }
            Some(_) => {}
        }
    }

    /// Reads what the file has at this place.
    fn look(&mut self, file: &str, offset: u64, bytes: &[u8]) -> There {
        match read(&self.directory, file, offset, bytes.len()) {
            Ok(found) => There::of(&found, bytes),
            Err(error) => {
                self.doubt = Some(format!("the log cannot be read: {error}"));
                There::Cut(0)
            }
        }
    }
}

fn stays(error: Error) -> Error {
    error.advise(
        "the lines of the killed process stay in memory; put this right and open the log again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: StageLayout =
        StageLayout { head_bytes: HEAD_BYTES, buffer_bytes: 4096, buffers: 4 };

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
            // It reads no more than the buffer has.
            assert_eq!(
                There::of(&found[..found.len().min(bytes.len())], bytes),
                expected,
                "{found:?}"
            );
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
    fn a_stage_is_of_the_directory_that_was_mounted_again_and_of_no_other() {
        let good = stage(&[]);
        let there = log().directory;
        let unborn = |directory| DirectoryIdentity { born_nanos: 0, ..directory };
        for (what, here, path, is_ours) in [
            ("as it was", there, "/log", true),
            (
                "another number of the file system",
                DirectoryIdentity { device: 1, ..there },
                "/log",
                true,
            ),
            ("the same, elsewhere", DirectoryIdentity { device: 1, ..there }, "/other/log", true),
            (
                "XFS on another device",
                DirectoryIdentity { device: 1, system: 1, ..there },
                "/log",
                true,
            ),
            (
                "another one, made in the same instant",
                DirectoryIdentity { inode: 1, ..there },
                "/log",
                false,
            ),
            (
                "made anew, with its numbers",
                DirectoryIdentity { born_nanos: 1, ..there },
                "/log",
                false,
            ),
            (
                "a snapshot",
                DirectoryIdentity { device: 1, system: 1, ..there },
                "/other/log",
                false,
            ),
            (
                "a copy on the same disk",
                DirectoryIdentity { inode: 1, ..there },
                "/other/log",
                false,
            ),
            ("no time of birth now", unborn(there), "/log", false),
        ] {
            let other = Identity { directory: here, ..log() };
            let others = if path == "/log" { Whose::SamePath } else { Whose::Others };
            let expected = if is_ours { Whose::Ours } else { others };
            assert_eq!(
                whose(&good, good.len() as u64, &other, Path::new(path)),
                expected,
                "{what}"
            );
        }
        let other = Identity { name: "another".to_owned(), ..log() };
        assert_eq!(whose(&good, good.len() as u64, &other, Path::new("/another")), Whose::Others);
        assert_eq!(whose(&[0; 100], 100, &other, Path::new("/log")), Whose::Nobodys);
        // Network file systems say neither when a directory was made nor which number they have.
        let directory = DirectoryIdentity { device: 7, inode: 8, born_nanos: 0, system: 0 };
        let net = Identity { directory, ..log() };
        let mut stage = head(&net, Path::new("/log"), LAYOUT);
        stage.resize(LAYOUT.len_bytes(), 0);
        let mounted = Identity { directory: DirectoryIdentity { device: 1, ..directory }, ..log() };
        let of =
            |log: &Identity, path: &str| whose(&stage, stage.len() as u64, log, Path::new(path));
        assert_eq!(of(&mounted, "/log"), Whose::Ours);
        assert_eq!(of(&mounted, "/other/log"), Whose::Others);
        let moved = Identity { directory: DirectoryIdentity { inode: 1, ..directory }, ..log() };
        assert_eq!(of(&moved, "/log"), Whose::SamePath);
    }

    #[test]
    fn what_makes_no_sense_is_not_believed() {
        assert_eq!(numbers(&[[4097, 4, 0, 0], [u64::MAX, 5, 0, 0]]), [] as [u64; 0]);
        let good = stage(&[]);
        let len = good.len();
        let head = parse_head(&good, len).expect("a head");
        assert_eq!((head.layout, head.process), (LAYOUT, std::process::id()));
        assert!(parse_head(&good, len - 1).is_none() && parse_head(&[], 0).is_none());
        for at in 0..90 {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            // Whatever it holds: no panic, and buffers within the bytes.
            if let Some(head) = parse_head(&bad, len) {
                assert!(pending(&bad, head.layout).iter().all(|one| one.bytes.end <= bad.len()));
            }
        }
    }
}
