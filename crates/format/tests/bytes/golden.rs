//! The directories that version 1 has written: read forever, byte for byte and word for word.
//!
//! *Owns*: how they were made (`tests/golden/v1/README.md`), and that they are read as they were
//! then. *May not touch*: the directories, unless the environment asks for it; then it adds what is
//! missing and changes nothing.

use std::fs;

use crate::support::{File, Writer, dump, golden_directories, golden_root, log_id};
use inkstone_format::{Control, LogId, Lsn, Position, PromiseReason};

fn text(words: &str) -> Vec<u8> {
    words.as_bytes().to_vec()
}

/// One segment with every kind of frame but the seal.
fn every_kind() -> Writer {
    let mut writer = Writer::create(log_id(0));
    writer.append(&[text("the first"), text(""), text("the third")]);
    writer.append_batch(&[text("all"), text("or"), text("none")]);
    writer.idle();
    writer.truncate_before(Lsn::new(3));
    writer.reopen();
    writer.pad = true;
    writer.append(&[text("padded to a block")]);
    writer.pad = false;
    writer.append(&[text("on a block of its own"), vec![0xff; 100]]);
    writer.close();
    writer
}

/// Four segments, of which a cut takes one off and ends another inside a group.
fn cut() -> Writer {
    let mut writer = Writer::create(log_id(1));
    writer.append(&[text("one")]);
    writer.roll(None);
    writer.append(&[text("two"), text("three: cut off"), text("four: cut off")]);
    let group = *writer.groups.last().unwrap();
    writer.roll(None);
    writer.append(&[text("five: cut off")]);
    writer.cut(Lsn::new(2), Position { segment: group.segment, byte: group.at + 48 + 24 + 8 });
    writer.append(&[text("another three")]);
    writer
}

/// A last group of which one sector is missing.
fn torn() -> Writer {
    let mut writer = Writer::create(log_id(2));
    writer.append(&[text("whole")]);
    writer.append(&[text("torn"), vec![b'x'; 900]]);
    let sector = (writer.at as usize - 600) / 512 * 512;
    writer.active()[sector..sector + 512].fill(0);
    writer
}

/// A file that held another segment, opened again after a crash, old groups beneath.
fn recycled() -> Writer {
    let mut writer = Writer::create(log_id(3));
    for number in 0..12 {
        writer.append(&[text(&format!("old record {number}")), vec![b'o'; 60]]);
    }
    let old = writer.active().clone();
    writer.truncate_before(writer.next_lsn);
    writer.roll(Some(old));
    writer.append(&[text("new")]);
    writer.reopen();
    writer.append(&[text("newer")]);
    writer.files.remove(0);
    writer
}

/// One half of the header is gone, and a promised record is damaged.
fn damaged() -> Writer {
    let mut writer = Writer::create(log_id(4));
    writer.append(&[text("good")]);
    let at = writer.at as usize;
    writer.append(&[text("damaged")]);
    writer.control(&Control::Promise(PromiseReason::Idle));
    writer.active()[..512].fill(0x55);
    writer.active()[at + 48 + 24] ^= 0x20;
    writer
}

fn made() -> [(&'static str, Writer); 5] {
    [
        ("every-kind", every_kind()),
        ("cut", cut()),
        ("torn", torn()),
        ("recycled", recycled()),
        ("damaged", damaged()),
    ]
}

fn write(name: &str, files: &[File]) {
    let directory = golden_root().join(name);
    if directory.exists() {
        return; // What is there stays as it was written.
    }
    fs::create_dir_all(&directory).unwrap();
    for file in files {
        let used = file.bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        fs::write(directory.join(format!("{}.seg", file.number)), &file.bytes[..used]).unwrap();
    }
    fs::write(golden_root().join(format!("{name}.txt")), dump(files)).unwrap();
}

#[test]
fn golden_directories_read_as_they_were_written() {
    if std::env::var_os("INKSTONE_WRITE_GOLDEN").is_some() {
        for (name, writer) in made() {
            write(name, &writer.files);
        }
    }
    let all = golden_directories();
    assert!(all.len() >= 5, "golden directories are missing");
    for (name, files) in all {
        let expected = fs::read_to_string(golden_root().join(format!("{name}.txt"))).unwrap();
        assert_eq!(dump(&files), expected, "{name}");
    }
}

#[test]
fn this_code_still_writes_the_same_bytes() {
    let golden = golden_directories();
    for (name, writer) in made() {
        let (_, files) = golden.iter().find(|(golden, _)| golden == name).unwrap();
        assert_eq!(files.len(), writer.files.len(), "{name}");
        for (old, new) in files.iter().zip(&writer.files) {
            assert!(
                old.number == new.number && old.bytes == new.bytes,
                "{name}: segment {} differs",
                old.number
            );
        }
    }
    assert_eq!(log_id(0), LogId::new([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]));
}
