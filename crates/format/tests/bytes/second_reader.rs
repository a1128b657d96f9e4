//! The reader in Python, written from `docs/format.md` alone, against this one, on 30,000 damaged
//! directories.
//!
//! *Owns*: how the images are damaged. *May not touch*: what is expected; the two readers only have
//! to agree, and to show of a log without damage what was written.

use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};

use crate::support::contradictions::contradictions;
use crate::support::{File, Writer, full_segment, line, log_id, not_run, random_bytes, survey_of};
use inkstone_format::checksum::crc32c;
use inkstone_format::{
    Batch, Control, GroupEncoder, Lsn, PayloadSum, Position, Promise, Verdict, limits,
};

const IMAGES: usize = 30_000;

/// A log of one to four segments, with an older use of the files beneath, a cut now and then, open
/// or closed.
fn base(random: &mut fastrand::Rng) -> Vec<File> {
    let lost_to = if random.bool() { Lsn::new(random.u64(..60)) } else { Lsn::ZERO };
    let mut writer = Writer::create_with_gaps(log_id(random.u8(..3)), lost_to);
    let mut old = Vec::new();
    for _ in 0..random.usize(1..12) {
        let len = random.usize(0..900);
        let payload = random_bytes(random, len);
        match random.u8(..12) {
            0 => writer.idle(),
            1 => writer.reopen(),
            2 => writer.append_batch(&[payload, vec![], vec![1; 9]]),
            3 => writer.truncate_before(Lsn::new(
                random.u64(writer.first_live.get()..=writer.next_lsn.get()),
            )),
            4 if writer.files.len() < 4 => {
                old = writer.active().clone();
                // Without a record in between, an old group would look like the next one, torn.
                let is_older = writer.next_lsn > writer.header.first_lsn;
                writer.roll((random.bool() && is_older).then(|| old.clone()));
            }
            5 => {
                // The payload is a piece of the segment itself.
                let from = random.usize(0..writer.at as usize);
                let piece = writer.active()[from..(from + 3000).min(20_000).max(from)].to_vec();
                writer.append(&[piece]);
            }
            6 if writer.next_lsn > writer.first_live => {
                let group = *random.choice(&writer.groups[..]).unwrap();
                let live = writer.first_live.before().unwrap();
                let last = group.next_lsn.before().unwrap();
                // Only a cut into the segment in use: older ones may have been truncated before.
                if group.segment == writer.header.number
                    && last > live
                    && last >= writer.header.first_lsn
                {
                    writer.cut(last, Position { segment: group.segment, byte: group.end });
                }
            }
            7 => {
                writer.pad = true;
                writer.append(&[payload]);
                writer.pad = false;
            }
            8 if writer.next_lsn <= lost_to => {
                writer.lose(random.u64(1..=lost_to.get() - writer.next_lsn.get() + 1));
            }
            _ => writer.append(&[payload, vec![3; 5]]),
        }
        if writer.at > 24_000 {
            break;
        }
    }
    if random.u8(..3) == 0 {
        writer.close();
    }
    check(&writer);
    if random.u8(..6) == 0 {
        let number = writer.files.iter().map(|file| file.number).max().unwrap().next().unwrap();
        let bytes = if random.bool() { old } else { vec![0; limits::SEGMENT_BYTES_MIN as usize] };
        writer.files.push(File { number, bytes });
    }
    writer.files
}

/// What was written comes back.
fn check(writer: &Writer) {
    let (found, shown) = writer.survey();
    assert_eq!((found.verdict, shown), (Verdict::End, writer.live()));
    assert_eq!((found.next_lsn, found.at.unwrap().byte), (writer.next_lsn, writer.at));
    assert_eq!(found.epoch, Some(writer.epoch));
    let promise = found.segments.last().unwrap().stop.tail.promise;
    assert_eq!(promise, writer.groups.last().unwrap().promise.lsn);
}

/// A group that was not written before one that was (T1); then the same with the hole filled by the
/// next opening, so that the old group is where the next one should be (E3); then a segment that is
/// full to its last byte (E1).
fn corners() -> [Vec<File>; 4] {
    let mut writer = Writer::create(log_id(1));
    writer.append(&[vec![1; 100]]);
    let before = writer.clone();
    let promise = Promise { lsn: Lsn::FIRST, end: writer.at };
    let mut ahead = writer.clone();
    ahead.at += 272;
    let mut group = GroupEncoder::begin(&writer.header, ahead.at, writer.epoch, Lsn::new(3));
    let mut buffer = vec![0; 1000];
    group.record(&mut buffer, b"behind", PayloadSum::of(b"behind"), Batch::Alone).unwrap();
    let done = group.finish(&mut buffer, promise);
    let at = done.at as usize;
    writer.active()[at..at + done.bytes].copy_from_slice(&buffer[..done.bytes]);
    let hole = writer.files.clone();
    writer.at = before.at;
    writer.reopen();
    let gap = at - writer.at as usize;
    writer
        .control(&Control::Padding(gap - limits::GROUP_HEADER_BYTES - limits::FRAME_HEADER_BYTES));
    let filled = writer.files;
    let mut full = before;
    let rest = (full.header.groups_end() - full.at) as usize;
    full.control(&Control::Padding(rest - limits::GROUP_HEADER_BYTES - limits::FRAME_HEADER_BYTES));
    [hole, filled, full.files, unknown()]
}

/// A log that another program has gone on with in a version of its own.
fn unknown() -> Vec<File> {
    let mut writer = Writer::create(log_id(1));
    writer.append(&[vec![1; 100]]);
    writer.roll(None);
    let copy = &mut writer.active()[..limits::HEADER_COPY_BYTES];
    copy[8] = 77;
    let sum = crc32c(&copy[..limits::HEADER_COPY_BYTES - 4]);
    copy[limits::HEADER_COPY_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    writer.files
}

/// How far the bytes matter: behind that are zeros.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

fn damage(random: &mut fastrand::Rng, files: &mut Vec<File>, others: &[Vec<File>]) {
    let index = if random.u8(..3) == 0 { random.usize(..files.len()) } else { files.len() - 1 };
    let bytes = &mut files[index].bytes;
    if bytes.len() < 8192 {
        return; // Cut short already.
    }
    let used = used(bytes).clamp(4200, bytes.len());
    let at = if random.u8(..8) == 0 { random.usize(..4096) } else { random.usize(4096..used) };
    let sector = at / 512 * 512;
    let sector_end = (sector + 512).min(bytes.len());
    match random.u8(..14) {
        0..=3 => bytes[at] ^= 1 << random.u8(..8),
        4 => bytes.truncate(at),
        5 => bytes[at..].fill(0),
        6 => bytes[sector..sector_end].fill(0),
        7 => random.fill(&mut bytes[sector..sector_end]),
        8 => {
            let other = random.usize(8..used.div_ceil(512).max(9)) * 512;
            if other + 512 <= bytes.len() && sector + 512 <= bytes.len() {
                let (a, b) =
                    (bytes[sector..sector + 512].to_vec(), bytes[other..other + 512].to_vec());
                bytes[sector..sector + 512].copy_from_slice(&b);
                bytes[other..other + 512].copy_from_slice(&a);
            }
        }
        9 | 10 => {
            // A piece of another log, segment or epoch in the same place.
            let directory = random.choice(others).unwrap();
            let other = random.choice(directory).unwrap();
            let to = (at + random.usize(1..4000)).min(bytes.len()).min(other.bytes.len());
            if at < to {
                bytes[at..to].copy_from_slice(&other.bytes[at..to]);
            }
        }
        11 => {
            // A group twice: at its own place and somewhere behind.
            let len = random.usize(48..1000).min(bytes.len() - at);
            let to = (at + len) / 8 * 8;
            if to + len <= bytes.len() {
                bytes.copy_within(at..at + len, to);
            }
        }
        12 if files.len() > 1 => {
            files.remove(index);
        }
        12 => {}
        _ => {
            let directory = random.choice(others).unwrap();
            files[index].bytes = random.choice(directory).unwrap().bytes.clone();
        }
    }
}

fn send(out: &mut impl Write, files: &[File]) -> std::io::Result<()> {
    out.write_all(&(files.len() as u32).to_le_bytes())?;
    for file in files {
        let prefix = &file.bytes[..used(&file.bytes)];
        out.write_all(&file.number.get().to_le_bytes())?;
        out.write_all(&(file.bytes.len() as u64).to_le_bytes())?;
        out.write_all(&(prefix.len() as u32).to_le_bytes())?;
        out.write_all(prefix)?;
    }
    Ok(())
}

#[test]
#[ignore = "needs python3"]
fn two_readers_agree_on_damaged_directories() {
    let reader = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reader.py");
    let mut python = Command::new("python3");
    python.args([reader, "--stream"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = python.spawn() else {
        return not_run("two_readers_agree_on_damaged_directories: there is no python3");
    };
    let mut to_python = BufWriter::new(child.stdin.take().unwrap());
    // Python's answers are read by a thread of their own, so that neither side waits for the other.
    let answers = std::thread::spawn(move || child.wait_with_output().unwrap());

    let mut random = fastrand::Rng::with_seed(2026);
    let mut bases: Vec<Vec<File>> = (0..80).map(|_| base(&mut random)).collect();
    bases.push(full_segment(&mut random, 24_000).files);
    bases.extend(corners());
    bases.extend(contradictions().into_iter().map(|case| case.files));
    let mut images: Vec<Vec<File>> = bases.clone();
    let mut expected = Vec::new();
    let mut rows = std::collections::BTreeMap::<String, usize>::new();
    for number in 0..IMAGES + bases.len() {
        let image = images.pop().unwrap_or_else(|| {
            let mut files = bases[number % bases.len()].clone();
            for _ in 0..random.usize(1..4) {
                damage(&mut random, &mut files, &bases);
            }
            files
        });
        send(&mut to_python, &image).unwrap();
        let found = survey_of(&image).0;
        *rows.entry(found.row.to_string()).or_default() += 1;
        expected.push(line(&found));
    }
    drop(to_python);
    let output = answers.join().unwrap();
    assert!(output.status.success(), "the Python reader failed");
    let answers: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
    for (number, (rust, python)) in expected.iter().zip(&answers).enumerate() {
        assert_eq!(rust, python, "image {number}: Rust on the left, Python on the right");
    }
    assert_eq!(expected.len(), answers.len());
    println!("{} images; rows: {rows:?}", expected.len());
    // The images are worth their time only if they reach the tables' corners.
    for row in [
        "P1", "P2", "F1", "S1", "E1", "E2", "E3", "T1", "T2", "T3", "T4", "C1", "C2", "C3", "H2",
        "H3", "H4", "H6", "H8", "D1", "D3", "H1",
    ] {
        assert!(rows.get(row).is_some_and(|count| *count > 0), "no image for row {row}: {rows:?}");
    }
}
