//! Disks that once were hard, opened by every build: the right outcome of each is in its file, a
//! text of a few KiB.
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

use std::path::Path;

use inkstone::Lsn;
use inkstone_io::{Directory, File, OpenFile, SyncKind};
use inkstone_powerloss::sim::PATH;
use inkstone_sim::{DiskOptions, SimDisk};
use inkstone_subject::log::options::small;

/// Records from the first to the last, and in which life of the log they were appended: a record
/// that is appended after a truncation has the LSN of a truncated one, and another life.
type Lives = Vec<(u64, u64, u32)>;

/// What an opening must find.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Right {
    /// These records, and no other.
    Records(Lives),
    /// [`inkstone::Error::Corrupt`].
    Corrupt,
}

/// A disk, and what is right for it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Scene {
    /// What happened to it, in words.
    what: String,
    /// What must be found.
    right: Right,
    /// Its files by name.
    files: Vec<(String, Vec<u8>)>,
}

/// What record `lsn` of a life holds.
fn payload(lsn: u64, life: u32, bytes: usize) -> Vec<u8> {
    let mut payload = format!("record {lsn} of life {life} ").into_bytes();
    payload.resize(bytes.max(payload.len()), b'.');
    payload
}

impl Scene {
    /// Reads a text.
    fn from_text(text: &str) -> Result<Self, String> {
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
    fn disk(&self) -> inkstone_io::Result<SimDisk> {
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
    fn check(&self) -> Result<(), String> {
        let disk = self.disk().map_err(|error| error.to_string())?;
        let found = look(&disk)?;
        if found != self.right {
            return Err(format!("found {found:?} instead of {:?}", self.right));
        }
        let Right::Records(mut lives) = found else { return Ok(()) };
        let log = open(&disk).map_err(|error| format!("the log does not reopen: {error}"))?;
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

fn open(disk: &SimDisk) -> inkstone::Result<inkstone::Log> {
    inkstone::Log::open_in(&disk.directory(PATH), small())
}

/// Opens the log of a disk and reads all of it.
fn look(disk: &SimDisk) -> Result<Right, String> {
    let log = match open(disk) {
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

fn corpus() -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (
                path.file_stem().unwrap().to_string_lossy().into_owned(),
                std::fs::read_to_string(path).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

#[test]
fn every_disk_of_the_corpus_opens_as_is_right() {
    let corpus = corpus();
    for (name, text) in &corpus {
        let scene = Scene::from_text(text).unwrap_or_else(|why| panic!("{name}: {why}"));
        scene.check().unwrap_or_else(|why| panic!("{name}, {}: {why}", scene.what));
    }
    assert!(corpus.len() >= 15, "{} disks", corpus.len());
    assert!(corpus.iter().map(|(_, text)| text.len()).sum::<usize>() < 200 << 10);
}

/// The check can fail: with one byte of a header changed, or with another outcome called right, no
/// disk passes.
#[test]
fn a_wrong_outcome_is_noticed() {
    let corpus = corpus();
    for (name, text) in &corpus {
        let scene = Scene::from_text(text).unwrap();
        let wrong = match &scene.right {
            Right::Corrupt => vec![Right::Records(Vec::new()), Right::Records(vec![(1, 2, 1)])],
            Right::Records(lives) => {
                let longer =
                    lives.iter().map(|(first, last, life)| (*first, last + 1, *life)).collect();
                let other =
                    lives.iter().map(|(first, last, life)| (*first, *last, life + 1)).collect();
                vec![Right::Corrupt, Right::Records(longer), Right::Records(other)]
            }
        };
        for right in wrong {
            assert!(
                Scene { right: right.clone(), ..scene.clone() }.check().is_err(),
                "{name} is {right:?} too"
            );
        }
    }
}
