//! Disks that once were hard, each a text of a few KiB that says which outcome is right.
//!
//! *Owns*: the format of those files, opening what they hold. *May not touch*: the files; one that
//! was written once stays, even when a later version would make another disk of the same scene.
//!
//! ```text
//! what: the first sector of a group is lost, the others arrived
//! right: records 1..=3 of life 1
//! file 00000000000000000001.ink 65536
//! @0 494e4b53...         bytes in hexadecimal from there on
//! @4512 2e*60            one byte, this many times
//! ```
//!
//! All other bytes are zeros.

use std::fmt::Write;

use inkstone::Lsn;
use inkstone_io::{Directory, File, OpenFile, SyncKind};
use inkstone_sim::{DiskOptions, SimDisk};

use super::explore::{PATH, open};
use super::variant::{Variant, small};

/// Bytes of a line of hexadecimal.
const LINE_BYTES: usize = 48;
/// A byte that is repeated this often is written in short form.
const REPEATED: usize = 12;

/// Records from the first to the last, and in which life of the log they were appended: a record
/// that is appended after a truncation has the LSN of a truncated one, and another life.
pub type Lives = Vec<(u64, u64, u32)>;

/// What an opening must find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Right {
    /// These records, and no other.
    Records(Lives),
    /// [`inkstone::Error::Corrupt`].
    Corrupt,
}

/// A disk, and what is right for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scene {
    /// What happened to it, in words.
    pub what: String,
    /// What must be found.
    pub right: Right,
    /// Its files by name.
    pub files: Vec<(String, Vec<u8>)>,
}

/// What record `lsn` of a life holds.
pub fn payload(lsn: u64, life: u32, bytes: usize) -> Vec<u8> {
    let mut payload = format!("record {lsn} of life {life} ").into_bytes();
    payload.resize(bytes.max(payload.len()), b'.');
    payload
}

impl Scene {
    /// Writes it as text.
    pub fn to_text(&self) -> String {
        let right = match &self.right {
            Right::Corrupt => "corrupt".to_owned(),
            Right::Records(lives) if lives.is_empty() => "no records".to_owned(),
            Right::Records(lives) => {
                let parts = lives
                    .iter()
                    .map(|(first, last, life)| format!("{first}..={last} of life {life}"));
                format!("records {}", parts.collect::<Vec<_>>().join(", "))
            }
        };
        let mut text = format!("what: {}\nright: {right}\n", self.what);
        for (name, bytes) in &self.files {
            let _infallible = writeln!(text, "file {name} {}", bytes.len());
            write_bytes(&mut text, bytes);
        }
        text
    }

    /// Reads a text.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let mut scene = Self { what: String::new(), right: Right::Corrupt, files: Vec::new() };
        let mut is_judged = false;
        for line in text.lines() {
            let bad = || format!("{line:?} is not valid");
            if let Some(what) = line.strip_prefix("what: ") {
                what.clone_into(&mut scene.what);
            } else if let Some(right) = line.strip_prefix("right: ") {
                (scene.right, is_judged) = (right_of(right).ok_or_else(bad)?, true);
            } else if let Some((name, len)) =
                line.strip_prefix("file ").and_then(|rest| rest.split_once(' '))
            {
                scene.files.push((name.to_owned(), vec![0; len.parse().map_err(|_| bad())?]));
            } else {
                let (_, bytes) = scene.files.last_mut().ok_or_else(bad)?;
                read_line(line, bytes).ok_or_else(bad)?;
            }
        }
        if scene.what.is_empty() || !is_judged {
            Err("it has no line `what` or no judgement".into())
        } else {
            Ok(scene)
        }
    }

    /// The disk.
    pub fn disk(&self) -> inkstone_io::Result<SimDisk> {
        let disk = SimDisk::new(1, DiskOptions::default());
        let directory = disk.directory(PATH);
        for (name, bytes) in &self.files {
            let file = directory.open(name, &OpenFile::new_file())?;
            if !bytes.is_empty() {
                file.write_at(bytes, 0)?;
            }
            file.sync(SyncKind::All)?;
        }
        directory.sync()?;
        Ok(disk)
    }

    /// Opens the disk and checks the outcome. A log that opens must take appends, and show the same
    /// again.
    pub fn check(&self) -> Result<(), String> {
        let disk = self.disk().map_err(|error| error.to_string())?;
        let found = look(&disk)?;
        if found != self.right {
            return Err(format!("found {found:?} instead of {:?}", self.right));
        }
        let Right::Records(mut lives) = found else { return Ok(()) };
        let variant = Variant::new(disk.options(), small());
        let log =
            open(&disk, &variant).map_err(|error| format!("the log does not reopen: {error}"))?;
        let next = log.last().get() + 1;
        let life = lives.last().map_or(0, |(.., life)| *life) + 1;
        log.append_durable(&payload(next, life, 700))
            .map_err(|error| format!("an append fails: {error}"))?;
        log.abandon();
        lives.push((next, next, life));
        match look(&disk.crash_with(|_| inkstone_sim::Fate::Dropped))? {
            Right::Records(shown) if shown == lives => Ok(()),
            other => Err(format!("after one more append: {other:?}")),
        }
    }
}

/// Opens the log of a disk and reads all of it.
pub fn look(disk: &SimDisk) -> Result<Right, String> {
    let variant = Variant::new(disk.options(), small());
    let log = match open(disk, &variant) {
        Ok(log) => log,
        Err(error) if error.corruption().is_some() => return Ok(Right::Corrupt),
        Err(error) => return Err(format!("the log does not open: {error}")),
    };
    let mut lives: Lives = Vec::new();
    let first = log.first();
    let mut next = first;
    for record in log.reader().records(first) {
        let record = match record {
            Ok(record) => record,
            Err(error) if error.corruption().is_some() => return Ok(Right::Corrupt),
            Err(error) => return Err(error.to_string()),
        };
        let lsn = record.lsn.get();
        let life = (1..10).find(|&life| record.bytes == payload(lsn, life, record.bytes.len()));
        let life = life
            .filter(|_| record.lsn == next)
            .ok_or_else(|| format!("LSN {lsn} was never appended"))?;
        next = Lsn::new(lsn + 1);
        match lives.last_mut() {
            Some((_, last, of)) if *of == life => *last = lsn,
            _ => lives.push((lsn, lsn, life)),
        }
    }
    if next.get() != log.last().get() + 1 {
        return Err(format!("the log says that its last LSN is {}, but shows less", log.last()));
    }
    log.abandon();
    Ok(Right::Records(lives))
}

fn right_of(text: &str) -> Option<Right> {
    match text {
        "corrupt" => return Some(Right::Corrupt),
        "no records" => return Some(Right::Records(Vec::new())),
        _ => {}
    }
    let part = |part: &str| {
        let (range, life) = part.split_once(" of life ")?;
        let (first, last) = range.split_once("..=")?;
        Some((first.parse().ok()?, last.parse().ok()?, life.parse().ok()?))
    };
    text.strip_prefix("records ")?.split(", ").map(part).collect::<Option<_>>().map(Right::Records)
}

fn write_bytes(text: &mut String, bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        let run = run_length(&bytes[at..]);
        if bytes[at] == 0 && run >= REPEATED {
            at += run;
        } else if run >= REPEATED {
            let _infallible = writeln!(text, "@{at} {:02x}*{run}", bytes[at]);
            at += run;
        } else {
            let from = at;
            while at < bytes.len() && at - from < LINE_BYTES && run_length(&bytes[at..]) < REPEATED
            {
                at += 1;
            }
            let _infallible = write!(text, "@{from} ");
            for byte in &bytes[from..at] {
                let _infallible = write!(text, "{byte:02x}");
            }
            text.push('\n');
        }
    }
}

fn run_length(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|&&byte| byte == bytes[0]).count()
}

fn read_line(line: &str, bytes: &mut [u8]) -> Option<()> {
    let (at, what) = line.strip_prefix('@')?.split_once(' ')?;
    let at: usize = at.parse().ok()?;
    if let Some((byte, count)) = what.split_once('*') {
        let (byte, count) = (u8::from_str_radix(byte, 16).ok()?, count.parse::<usize>().ok()?);
        bytes.get_mut(at..at.checked_add(count)?)?.fill(byte);
        return Some(());
    }
    if !what.is_ascii() || !what.len().is_multiple_of(2) {
        return None;
    }
    for (number, target) in bytes.get_mut(at..at + what.len() / 2)?.iter_mut().enumerate() {
        *target = u8::from_str_radix(&what[2 * number..2 * number + 2], 16).ok()?;
    }
    Some(())
}
