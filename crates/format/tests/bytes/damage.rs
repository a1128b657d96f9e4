//! Damage at every bit and every length: no wrong record, no panic, nothing promised lost in
//! silence. Every other damage, of whole directories, is in `second_reader`, which says of each
//! image what the reader in Python says; what a crash leaves is in the log's simulation.
//!
//! What is promised, precisely. Let P be the highest LSN promised by a group header that the damage
//! does not touch. Then either the verdict is Corrupt, or every record up to P is shown. Whatever
//! the verdict, what is shown is a prefix of what was written.

use crate::support::{SEGMENT_BYTES, Writer, epoch, full_segment, log_id, segment};
use inkstone_format::{
    Batch, Decoder, Facts, Fault, Found, GroupEncoder, Lsn, PayloadSum, ScanAhead, Step, Verdict,
    explain, judge, limits,
};

/// A full segment of 64 KiB that ends with a promise of everything.
fn closed_segment(seed: u64) -> Writer {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut writer = full_segment(&mut random, SEGMENT_BYTES);
    writer.close();
    writer
}

/// Reads a damaged image from the last whole group before the damage on, and checks what is
/// promised.
fn check(
    writer: &Writer,
    bytes: &[u8],
    touched: std::ops::Range<u64>,
    starts: &[(u64, Decoder)],
) -> Verdict {
    let from =
        starts.iter().rfind(|(end, _)| *end <= touched.start).map_or(&starts[0], |found| found);
    let mut decoder = from.1.clone();
    let mut shown = decoder.tail().next_lsn;
    let stop = loop {
        match decoder.step(bytes, 0) {
            Step::Frame(frame) if frame.kind == inkstone_format::Kind::Record => {
                let index = (frame.lsn.get() - 1) as usize;
                assert_eq!(frame.lsn, shown, "out of order");
                assert!(
                    writer.records[index].1 == frame.payload,
                    "a wrong record, damage at {touched:?}"
                );
                shown = shown.next().unwrap();
            }
            Step::Stop(stop) => break stop,
            Step::NeedBytes { .. } => panic!("the window is the whole file"),
            _ => {}
        }
    };
    let evidence = ScanAhead::behind(decoder.identity(), &stop, bytes.len() as u64).run(bytes);
    let row = judge(&Facts::of(&stop, &evidence));
    let header = |at: u64| at..at + limits::GROUP_HEADER_BYTES as u64;
    let apart =
        |group: &std::ops::Range<u64>| group.end <= touched.start || touched.end <= group.start;
    let standing = writer.groups.iter().filter(|group| apart(&header(group.at)));
    let promised = standing.map(|group| group.promise.lsn).max().unwrap_or(Lsn::ZERO);
    if !matches!(row.verdict, Verdict::Corrupt(_)) {
        assert!(
            stop.tail.next_lsn > promised,
            "{} lost a promised record in silence, damage at {touched:?}",
            row.name
        );
    }
    row.verdict
}

fn starts(writer: &Writer) -> Vec<(u64, Decoder)> {
    let bytes = &writer.files[0].bytes;
    let mut decoder = Decoder::new(&writer.header, bytes.len() as u64);
    let mut starts = vec![(4096, decoder.clone())];
    loop {
        match decoder.step(bytes, 0) {
            Step::GroupEnd(tail) => starts.push((tail.end, decoder.clone())),
            Step::Stop(_) => return starts,
            _ => {}
        }
    }
}

#[test]
fn every_flipped_bit_of_a_full_segment() {
    let writer = closed_segment(21);
    let starts = starts(&writer);
    let close_at = writer.groups.last().unwrap().at;
    assert!(writer.at > SEGMENT_BYTES - 10_000, "the segment is full");
    let verify = |range: std::ops::Range<u64>| {
        let mut bytes = writer.files[0].bytes.clone();
        for bit in range.start * 8..range.end * 8 {
            let (byte, mask) = (bit / 8, 1 << (bit % 8));
            bytes[byte as usize] ^= mask;
            let verdict = check(&writer, &bytes, byte..byte + 1, &starts);
            // Everything but the last promise is promised: every flip there is found.
            let expected = byte < close_at;
            assert_eq!(matches!(verdict, Verdict::Corrupt(_)), expected, "bit {bit}: {verdict:?}");
            bytes[byte as usize] ^= mask;
        }
    };
    let middle = u64::midpoint(4096, SEGMENT_BYTES);
    std::thread::scope(|scope| {
        scope.spawn(|| verify(4096..middle));
        verify(middle..SEGMENT_BYTES);
    });
}

#[test]
fn every_length_of_a_full_segment() {
    let writer = closed_segment(22);
    let whole = &writer.files[0].bytes;
    let full = starts(&writer);
    for len in 4096..whole.len() {
        // Cut to this length: the file is too short, and that alone is known.
        let short: Vec<(u64, Decoder)> = full
            .iter()
            .filter(|(end, _)| *end <= len as u64)
            .map(|(end, decoder)| {
                (*end, Decoder::new(&writer.header, len as u64).from_tail(*decoder.tail()))
            })
            .collect();
        let verdict = check(&writer, &whole[..len], len as u64..SEGMENT_BYTES, &short);
        assert!(matches!(verdict, Verdict::Corrupt(_)), "{len}: {verdict:?}");
    }
    let mut bytes = whole.clone();
    for len in (4096..whole.len()).rev() {
        // Zeros from here on: what a lost tail looks like.
        bytes[len] = 0;
        check(&writer, &bytes, len as u64..SEGMENT_BYTES, &full);
    }
}

#[test]
fn identity_is_under_every_checksum() {
    let mut writer = Writer::create(log_id(4));
    writer.append(&[vec![1; 100]]);
    writer.append(&[vec![2; 100]]);
    let bytes = writer.files[0].bytes.clone();
    let groups = |header: &inkstone_format::SegmentHeader, bytes: &[u8]| {
        let mut decoder = Decoder::new(header, SEGMENT_BYTES);
        loop {
            match decoder.step(bytes, 0) {
                Step::Stop(stop) => break stop,
                Step::NeedBytes { .. } => panic!(),
                _ => {}
            }
        }
    };
    assert_eq!(groups(&writer.header, &bytes).tail.groups, 3);
    let mut other = writer.header;
    other.number = segment(2);
    assert_eq!(groups(&other, &bytes).tail.groups, 0, "another segment number");
    other = writer.header;
    other.log = log_id(5);
    assert_eq!(groups(&other, &bytes).tail.groups, 0, "another log");
    // Another place: every distance that is a multiple of 8.
    for shift in (8..2000).step_by(8) {
        let mut moved = bytes.clone();
        moved.copy_within(4096..8192, 4096 + shift);
        moved.copy_within(8192.., 4096);
        let mut decoder = Decoder::new(&writer.header, SEGMENT_BYTES);
        let tail = inkstone_format::Tail { end: 4096 + shift as u64, ..*decoder.tail() };
        decoder = decoder.from_tail(tail);
        assert!(matches!(decoder.step(&moved, 0), Step::Stop(_)), "moved by {shift}");
    }
    // A frame under the header of another epoch, everything else as it was.
    let mut first = GroupEncoder::begin(&writer.header, 8192, epoch(1), Lsn::new(3));
    let mut second = GroupEncoder::begin(&writer.header, 8192, epoch(2), Lsn::new(3));
    let (mut a, mut b) = (vec![0; 500], vec![0; 500]);
    for (group, buffer) in [(&mut first, &mut a), (&mut second, &mut b)] {
        group.record(buffer, b"same", PayloadSum::of(b"same"), Batch::Alone).unwrap();
    }
    assert_eq!(a[48..68], b[48..68]);
    assert_ne!(a[68..72], b[68..72], "the epoch is not under the frame's checksum");
    let mut third = GroupEncoder::begin(&writer.header, 8200, epoch(1), Lsn::new(3));
    third.record(&mut b, b"same", PayloadSum::of(b"same"), Batch::Alone).unwrap();
    assert_eq!(a[48..68], b[48..68]);
    assert_ne!(a[68..72], b[68..72], "the position is not under the frame's checksum");
}

#[test]
fn a_flipped_bit_is_named() {
    let mut writer = Writer::create(log_id(10));
    writer.append(&[vec![1; 100], vec![2; 1000]]);
    let group = *writer.groups.last().unwrap();
    for byte in group.at..group.end {
        let mut bytes = writer.files[0].bytes.clone();
        let bit = (byte % 8) as u8;
        bytes[byte as usize] ^= 1 << bit;
        let mut decoder = Decoder::new(&writer.header, SEGMENT_BYTES);
        let stop = loop {
            match decoder.step(&bytes, 0) {
                Step::Stop(stop) => break stop,
                Step::NeedBytes { .. } => panic!(),
                _ => {}
            }
        };
        let said = explain(decoder.identity(), &stop, &bytes, 0);
        assert!(
            said.lines[0].contains("a group should begin")
                || said.lines[0].contains("inside a group")
        );
        if stop.fault == Fault::Gap {
            continue;
        }
        let flip = said.flip.unwrap_or_else(|| panic!("byte {byte}: {said}"));
        assert_eq!((flip.byte, flip.bit), (byte, bit), "{said}");
        assert!(matches!(stop.found, Found::Garbage | Found::Remains | Found::Sound));
    }
}
