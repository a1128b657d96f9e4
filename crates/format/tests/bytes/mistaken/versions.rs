//! The promise that a newer reader reads every older version, tested with a version 2 that only the
//! copy of the tree has that `.ci/mistaken` makes: its group and frame headers are longer, their
//! fields have another order, and their sums begin with other words.
//!
//! *Owns*: logs of segments of both versions. *May not touch*: how a version is read; there is one
//! way.

use crate::support::{File, Writer, full_segment_in, log_id, random_bytes, survey_of};
use inkstone_format::{
    Decoder, Epoch, Lsn, Mark, Position, Prover, Reason, ScanAhead, Skim, Step, Verdict, Version,
    limits,
};

/// A log of several segments, each of the version that comes, with a cut now and then.
fn mixed(random: &mut fastrand::Rng) -> Writer {
    let mut version = || *[Version::One, Version::Two].get(random.usize(..2)).unwrap();
    let versions: Vec<Version> = (0..5).map(|_| version()).collect();
    let mut writer = Writer::create_in(versions[0], log_id(5));
    for next in &versions[1..] {
        for _ in 0..random.usize(1..6) {
            let len = random.usize(0..700);
            let payload = random_bytes(random, len);
            match random.u8(..6) {
                0 => writer.idle(),
                1 => writer.reopen(),
                2 => writer.append_batch(&[payload, vec![], vec![1; 9]]),
                3 => writer.truncate_before(Lsn::new(
                    random.u64(writer.first_live.get()..=writer.next_lsn.get()),
                )),
                _ => writer.append(&[payload, vec![3; 5]]),
            }
        }
        writer.version = *next;
        let group = *writer.groups.last().unwrap();
        let last = group.next_lsn.before().unwrap();
        if random.bool() && last >= writer.header.first_lsn && last >= writer.first_live {
            writer.cut(last, Position { segment: group.segment, byte: group.end });
        } else {
            // Over the bytes of the other version.
            let old = writer.active().clone();
            writer.roll(random.bool().then_some(old));
        }
    }
    writer.append(&[b"the last".to_vec()]);
    writer
}

#[test]
fn segments_of_both_versions_are_one_log() {
    let mut random = fastrand::Rng::with_seed(2);
    let mut seen = [0, 0];
    for _ in 0..300 {
        let writer = mixed(&mut random);
        let (found, shown) = writer.survey();
        assert_eq!(found.verdict, Verdict::End, "{}", found.row);
        assert_eq!(shown, writer.live());
        assert_eq!(found.next_lsn, writer.next_lsn);
        for segment in &found.segments {
            seen[segment.header.version as usize] += 1;
        }
    }
    assert!(seen.iter().all(|seen| *seen > 100), "{seen:?}");
}

/// As with version 1 (`damage.rs`): what is damaged is never shown, and what is shown was written.
#[test]
fn no_damage_to_either_version_is_shown() {
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..40 {
        let writer = mixed(&mut random);
        let all = writer.live();
        for _ in 0..200 {
            let mut files = writer.files.clone();
            let file = random.usize(..files.len());
            let bytes = &mut files[file].bytes;
            let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
            let at = random.usize(..used);
            match random.u8(..3) {
                0 => bytes[at] ^= 1 << random.u8(..8),
                1 => bytes[at..].fill(0),
                _ => bytes[at / 512 * 512..][..512].fill(0),
            }
            let (found, shown) = survey_of(&files);
            let is_prefix = all.starts_with(&shown);
            // A truncation that was damaged in an open tail gives back what it had taken.
            let is_more = shown.iter().all(|record| writer.records.contains(record));
            assert!(is_prefix || is_more, "{:?}", found.verdict);
        }
    }
}

#[test]
fn every_flipped_bit_of_a_group_of_version_2_is_noticed() {
    let mut writer = Writer::create_in(Version::Two, log_id(7));
    let from = writer.at as usize;
    writer.append(&[b"of version two".to_vec()]);
    let to = writer.at as usize;
    assert_eq!(to - from, 56 + 32 + 16, "longer headers");
    writer.idle();
    for bit in from * 8..to * 8 {
        let mut files = writer.files.clone();
        files[0].bytes[bit / 8] ^= 1 << (bit % 8);
        let (found, shown) = survey_of(&files);
        assert!(
            matches!(found.verdict, Verdict::Corrupt(Reason::Damaged)),
            "bit {bit}: {}",
            found.row
        );
        assert!(shown.is_empty());
    }
}

/// Bytes of one version never pass for those of the other, in the same segment of the same log.
#[test]
fn a_segment_is_read_by_the_rules_of_its_own_version_only() {
    for (version, other) in [(Version::One, Version::Two), (Version::Two, Version::One)] {
        let mut writer = Writer::create_in(version, log_id(8));
        writer.append(&[b"a record".to_vec()]);
        let header = inkstone_format::SegmentHeader { version: other, ..writer.header };
        header.encode(writer.files[0].bytes.first_chunk_mut().unwrap());
        let (found, shown) = writer.survey();
        assert_eq!((found.row, shown.len()), ("E2", 0));
        // Without any header a segment of either version is known to have been in use.
        writer.files[0].bytes[..limits::HEADER_BYTES].fill(0);
        let known = inkstone_format::SurveyOptions { log: Some(log_id(8)), ..Default::default() };
        let found = crate::support::survey_with(&writer.files, &known, |_, _| {});
        assert_eq!(found.row, "H6");
    }
}

/// Finding a record by its LSN, proving sums ahead and looking ahead go by the version too.
#[test]
fn skimming_proving_and_scanning_agree_with_the_decoder() {
    for version in [Version::One, Version::Two] {
        let writer = full_segment_in(version, &mut fastrand::Rng::with_seed(4), 40_000);
        let File { bytes, .. } = &writer.files[0];
        let identity = writer.header.identity();
        let first = Mark::between(limits::HEADER_BYTES as u64, Lsn::FIRST, Epoch::FIRST);
        let (mut mark, mut skimmed) = (first, Vec::new());
        loop {
            match mark.skim(&identity, bytes, 0) {
                Skim::Passed(next) => mark = next,
                Skim::Record(record) => {
                    skimmed.push((mark.lsn, record.payload(bytes, 0).unwrap().to_vec()));
                    mark = record.next;
                }
                Skim::Unsound => break,
                Skim::NeedBytes(_) => unreachable!("the window is the whole file"),
            }
        }
        assert_eq!((mark.at, &skimmed), (writer.at, &writer.records));
        // In pieces, as a reader reads ahead; headers lie across them, and no proof covers a frame
        // that does.
        let mut prover = Prover::new(identity, first);
        let mut decoder = Decoder::new(&writer.header, bytes.len() as u64);
        let mut proven = 0;
        for (number, piece) in bytes[4096..].chunks(1000).enumerate() {
            let at = 4096 + number as u64 * 1000;
            let proof = prover.prove(piece, at);
            proven += proof.map_or(0, |proof| proof.to - proof.from.at);
            prover = prover.behind(piece, at);
        }
        assert!(proven > (writer.at - 4096) / 4, "{proven} of {}", writer.at - 4096);
        let whole = Prover::new(identity, first).prove(&bytes[4096..], 4096);
        assert_eq!(whole.unwrap().to, writer.at);
        decoder.believe(whole);
        while !matches!(decoder.step(bytes, 0), Step::Stop(_)) {}
        assert_eq!(decoder.tail().end, writer.at);
        let groups: Vec<u64> = writer.groups.iter().map(|group| group.at).collect();
        for at in &groups {
            let scan = ScanAhead::new(&identity, Epoch::FIRST, *at, bytes.len() as u64);
            assert_eq!(scan.run(bytes).first, Some(*at));
        }
    }
}
