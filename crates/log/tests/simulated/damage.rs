//! Damage through the front door: whatever a bit, a length or a file of a log's directory becomes,
//! opening it shows no wrong record, does not panic, and loses nothing promised in silence. It
//! refuses, and then no file has changed; or all that was promised is there, byte for byte.
//!
//! *Owns*: damage to bytes. What is wrong with whole files is `directories.rs`.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use crate::every_kind::{FIRST, HEAD, LAST, OLD, SEGMENT_BYTES, every_kind, record_of};
use crate::history::{LOG, Told, check_with, name, open, small};
use inkstone::{Error, Lsn};
use inkstone_io::{Directory, File, OpenFile};
use inkstone_sim::{Fate, PowerCut, SimDisk};

/// How the damaged logs opened.
#[derive(Debug, Default)]
struct Count {
    refused: u64,
    sound: u64,
}

/// A disk as it was, to be damaged.
fn copy(cut: &PowerCut) -> SimDisk {
    cut.state(|_, _| Fate::Kept)
}

/// Opens the damaged log and reads all of it.
fn judge(disk: &SimDisk, count: &mut Count, what: impl Fn() -> String) {
    let log = match open(disk, small()) {
        Ok(log) => log,
        Err(Error::Corrupt(_)) => {
            count.refused += 1;
            return;
        }
        Err(error) => panic!("{}: {error}", what()),
    };
    assert_eq!(log.first(), Lsn::new(FIRST), "{}", what());
    let mut next = FIRST;
    let reader = log.reader();
    for lsn in (FIRST..=LAST).step_by(17) {
        match reader.get(Lsn::new(lsn)) {
            Ok(shown) => assert!(shown == record_of(lsn), "{}: record {lsn} is wrong", what()),
            Err(Error::Corrupt(_)) => {}
            Err(error) => panic!("{}: {error}", what()),
        }
    }
    for shown in log.reader().records(Lsn::new(FIRST)) {
        match shown {
            Ok(shown) => {
                assert_eq!(shown.lsn.get(), next, "{}", what());
                assert!(shown.bytes == record_of(next), "{}: record {next} is wrong", what());
            }
            Err(Error::Corrupt(_)) => {
                count.refused += 1;
                return log.abandon();
            }
            Err(error) => panic!("{}: {error}", what()),
        }
        next += 1;
    }
    assert_eq!(next, LAST + 1, "{}: lost in silence", what());
    count.sound += 1;
    log.abandon();
}

/// Every bit of these bytes of a segment, flipped.
fn flips(segment: u64, bytes: impl Iterator<Item = u64>) -> Count {
    let cut = every_kind().power_cut();
    let file = name(segment);
    let mut count = Count::default();
    for byte in bytes {
        for bit in 0..8 {
            let disk = copy(&cut);
            disk.rot(LOG, &file, byte, 1 << bit);
            judge(&disk, &mut count, || format!("bit {bit} of byte {byte} of segment {segment}"));
        }
    }
    println!("segment {segment}: {count:?}");
    count
}

/// The test that shows what the others are about: each kind of frame is in the log.
#[test]
fn the_log_holds_every_kind_of_frame_and_is_sound() {
    let disk = every_kind();
    assert_eq!(crate::every_kind::kinds_in_head(&disk), crate::every_kind::KINDS.into());
    assert!(crate::every_kind::seal_at() > SEGMENT_BYTES / 2);
    let log = open(&disk, small()).unwrap();
    let end = log.recovery().end.unwrap();
    assert_eq!(end.segment.get(), HEAD);
    // The last 16 KiB of a segment are not for records.
    assert!(end.byte > SEGMENT_BYTES - (26 << 10), "{end:?}: nearly full");
    log.abandon();
    let mut count = Count::default();
    judge(&disk, &mut count, String::new);
    assert_eq!(count.sound, 1);
}

#[test]
fn every_flipped_bit_of_the_first_half_of_the_last_segment() {
    let count = flips(HEAD, 0..SEGMENT_BYTES / 2);
    assert!(count.refused > 100_000 && count.sound > 10_000, "{count:?}");
}

#[test]
fn every_flipped_bit_of_the_second_half_of_the_last_segment() {
    let count = flips(HEAD, SEGMENT_BYTES / 2..SEGMENT_BYTES);
    assert!(count.refused > 100_000, "{count:?}");
}

/// The older segment by every 29th byte (each byte is as the one beside it in another record), its
/// header and its seal by every one.
#[test]
fn flipped_bits_of_the_segment_before() {
    let seal = crate::every_kind::seal_at();
    let sampled = (4096..SEGMENT_BYTES).step_by(29);
    let count = flips(OLD, sampled.chain(0..520).chain(seal..seal + 96));
    assert!(count.refused > 5_000 && count.sound > 1_000, "{count:?}");
}

#[test]
fn every_length_of_every_file() {
    let cut = every_kind().power_cut();
    for segment in [OLD, HEAD] {
        let mut count = Count::default();
        for len in 0..SEGMENT_BYTES {
            let disk = copy(&cut);
            let file = disk.directory(LOG).open(&name(segment), &OpenFile::existing()).unwrap();
            file.set_len(len).unwrap();
            drop(file);
            judge(&disk, &mut count, || format!("segment {segment} cut to {len} bytes"));
        }
        println!("segment {segment}: {count:?}");
        // A head that is too short is always noticed; of an older one, what lies behind its end is
        // no loss.
        assert!(count.refused > 40_000, "{count:?}");
        assert!(segment == OLD || count.sound == 0, "{count:?}");
    }
}

/// Zeros from every eighth byte to the end: every promise that could show the loss is gone too, so
/// what is left before is shown. But an opening with `expect_durable` does not report that all is
/// well.
#[test]
fn every_tail_that_became_zeros() {
    let cut = every_kind().power_cut();
    let (mut shown, mut refused) = (0, 0);
    for from in (4096..SEGMENT_BYTES).step_by(8) {
        let disk = copy(&cut);
        let zeros = vec![0; (SEGMENT_BYTES - from) as usize];
        crate::history::write_file(&disk.directory(LOG), &name(HEAD), from, &zeros);
        let knowing =
            open(&disk, small().expect_durable(Lsn::new(LAST))).map(inkstone::Log::abandon);
        let told = Told { acked: shown, appended: LAST };
        shown = check_with(&disk, small(), told, record_of)
            .unwrap_or_else(|reason| panic!("{from}: {reason}"));
        assert_eq!(matches!(knowing, Err(Error::Corrupt(_))), shown < LAST, "{from}");
        refused += u64::from(shown < LAST);
    }
    assert!(shown == LAST && refused > 1000, "{shown}, {refused}");
}

/// Every sector zeroed alone: what a write that never arrived leaves.
#[test]
fn every_sector_that_became_zeros() {
    let cut = every_kind().power_cut();
    let mut count = Count::default();
    for segment in [OLD, HEAD] {
        for sector in 0..SEGMENT_BYTES / 512 {
            let disk = copy(&cut);
            crate::history::write_file(
                &disk.directory(LOG),
                &name(segment),
                sector * 512,
                &[0; 512],
            );
            judge(&disk, &mut count, || format!("sector {sector} of segment {segment} is zeros"));
        }
    }
    assert!(count.refused > 100 && count.sound > 10, "{count:?}");
}
