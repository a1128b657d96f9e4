//! Damage of every kind: no wrong record, no panic, nothing promised lost in silence; and what a
//! crash leaves is no damage.
//!
//! What is promised, precisely. Let P be the highest LSN promised by a group header that the damage
//! does not touch. Then either the verdict is Corrupt, or every record up to P is shown. Whatever
//! the verdict, what is shown is a prefix of what was written.

use crate::support::{
    SEGMENT_BYTES, Writer, epoch, full_segment, log_id, random_bytes, segment, survey_of,
    survey_with,
};
use inkstone_format::{
    Batch, Control, Copies, Decoder, Facts, Fault, Found, GroupEncoder, HeaderBlock, Lsn,
    PayloadSum, Position, Promise, Reason, ScanAhead, Step, SurveyOptions, Verdict, explain, judge,
    limits,
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
    // The header block: a flip never loses the header, and is never unnoticed.
    let mut files = writer.files.clone();
    for bit in (0..4096 * 8).step_by(7) {
        files[0].bytes[bit / 8] ^= 1 << (bit % 8);
        let (found, shown) = survey_of(&files);
        assert_eq!((found.verdict, shown), (Verdict::End, writer.live()), "bit {bit}");
        let HeaderBlock::Valid { copies, stray, .. } = HeaderBlock::classify(&files[0].bytes)
        else {
            panic!()
        };
        assert!(stray || copies != Copies::Both);
        files[0].bytes[bit / 8] ^= 1 << (bit % 8);
    }
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
    for len in (0..4096).step_by(5) {
        let mut files = writer.files.clone();
        files[0].bytes.truncate(len);
        assert_eq!(survey_of(&files).0.verdict, Verdict::Corrupt(Reason::FileShort));
    }
}

#[test]
fn every_sector_zeroed_or_filled_with_rubbish() {
    let mut random = fastrand::Rng::with_seed(23);
    for seed in 30..34 {
        let writer = closed_segment(seed);
        let starts = starts(&writer);
        for sector in 8..SEGMENT_BYTES / 512 {
            let (from, to) = (sector * 512, sector * 512 + 512);
            let rubbish = random_bytes(&mut random, 512);
            for fill in [&[0; 512][..], &rubbish] {
                let mut bytes = writer.files[0].bytes.clone();
                bytes[from as usize..to as usize].copy_from_slice(fill);
                let verdict = check(&writer, &bytes, from..to, &starts);
                if to <= writer.groups.last().unwrap().at && bytes != writer.files[0].bytes {
                    assert!(matches!(verdict, Verdict::Corrupt(_)), "sector {sector}: {verdict:?}");
                }
            }
        }
    }
}

/// The last group in every state that a crash can leave it in, over zeros and over an older use of
/// the file.
#[test]
fn a_torn_last_group_is_no_damage() {
    let mut random = fastrand::Rng::with_seed(24);
    for round in 0..2000 {
        let old = full_segment(&mut random, 30_000).files.remove(0).bytes;
        let mut writer = Writer::create(log_id(0x10));
        writer.append(&[random_bytes(&mut random, 50)]);
        writer.roll((round % 2 == 0).then_some(old));
        for _ in 0..random.usize(0..4) {
            writer.append(&[random_bytes(&mut random, 300)]);
        }
        let before = writer.clone();
        let payloads: Vec<Vec<u8>> = (0..8).map(|_| random_bytes(&mut random, 700)).collect();
        writer.append(&payloads);
        let (from, to) = (before.at as usize, writer.at as usize);
        let mut torn = before.clone();
        let new = writer.active().clone();
        let image = torn.active();
        for sector in from / 512..to.div_ceil(512) {
            if random.bool() {
                image[sector * 512..sector * 512 + 512]
                    .copy_from_slice(&new[sector * 512..sector * 512 + 512]);
            }
        }
        let whole = image[from..to] == new[from..to];
        let (found, shown) = survey_of(&torn.files);
        assert!(matches!(found.verdict, Verdict::End | Verdict::Torn), "{found:?}");
        assert_eq!(shown, if whole { writer.live() } else { before.live() });
        // The next opening writes over it, and nothing of the torn group ever comes back.
        if !whole {
            torn.reopen();
            torn.append(&[vec![1, 2, 3]]);
            assert_eq!(torn.survey().1, torn.live());
            torn.close();
            assert_eq!(torn.survey().1, torn.live());
        }
    }
}

/// A hole: the group after it is whole, was never acknowledged, and must not come back when the
/// hole is filled.
#[test]
fn groups_behind_a_hole_never_come_back() {
    let mut writer = Writer::create(log_id(1));
    writer.append(&[vec![1; 100]]);
    let before = writer.clone();
    // A writer with two groups in flight: the second promises no more than the first did.
    let promise = Promise { lsn: Lsn::new(1), end: writer.at };
    let mut second_at = 0;
    for lsn in [2, 3] {
        let mut group = GroupEncoder::begin(&writer.header, writer.at, writer.epoch, Lsn::new(lsn));
        let mut buffer = vec![0; 1000];
        let payload = [lsn as u8; 200];
        group.record(&mut buffer, &payload, PayloadSum::of(&payload), Batch::Alone).unwrap();
        let done = group.finish(&mut buffer, promise);
        second_at = done.at as usize;
        writer.active()[second_at..second_at + done.bytes].copy_from_slice(&buffer[..done.bytes]);
        writer.at = done.end();
    }
    let mut crashed = before.clone();
    let behind = writer.active()[second_at..second_at + 300].to_vec();
    crashed.active()[second_at..second_at + 300].copy_from_slice(&behind);
    let (found, shown) = survey_of(&crashed.files);
    assert_eq!((found.verdict, found.row), (Verdict::Torn, "T1"));
    assert_eq!(shown, before.live());
    // Filled by the next opening so that the old group stands exactly where the next one should:
    // older epoch.
    crashed.reopen();
    let gap = second_at - crashed.at as usize;
    crashed.group(|group, buffer| group.control(buffer, &Control::Padding(gap - 72)).unwrap());
    assert_eq!(crashed.at as usize, second_at);
    let (found, shown) = survey_of(&crashed.files);
    assert_eq!((found.verdict, found.row), (Verdict::End, "E3"));
    assert_eq!(shown, before.live());
}

/// Damage to a group without records, with the last record's group after it: only the promised byte
/// shows it.
#[test]
fn a_damaged_control_group_hides_nothing() {
    let mut writer = Writer::create(log_id(2));
    writer.append(&[vec![1; 10]]);
    writer.idle();
    let idle = *writer.groups.last().unwrap();
    writer.append(&[vec![2; 10]]);
    writer.active()[idle.at as usize + 20] ^= 1;
    let (found, shown) = writer.survey();
    assert_eq!(found.verdict, Verdict::Corrupt(Reason::Damaged));
    assert_eq!(shown.len(), 1);
}

#[test]
fn records_that_are_raw_segments_of_the_same_log() {
    let mut random = fastrand::Rng::with_seed(25);
    let mut writer = Writer::create(log_id(3));
    writer.append(&[random_bytes(&mut random, 3000)]);
    writer.append(&[vec![5; 10], vec![6; 100]]);
    for round in 0..200 {
        let image = writer.active().clone();
        // The segment so far, whole, and from odd places, so that its groups lie at every distance
        // from their own.
        let from = if round % 4 == 0 { 0 } else { random.usize(0..2000) };
        let payload = image[from..from + 12_000].to_vec();
        writer.append(&[payload]);
        let (at, end) = (writer.groups.last().unwrap().at, writer.at);
        assert_eq!(writer.survey().1, writer.live());
        // Torn in every sector of the payload: what lies in it is never taken for a group, nor for
        // a promise.
        for sector in at.div_ceil(512)..end / 512 {
            let mut torn = writer.files.clone();
            let bytes = &mut torn.last_mut().unwrap().bytes;
            bytes[sector as usize * 512] ^= 0xff;
            let (found, shown) = survey_of(&torn);
            assert_eq!(found.verdict, Verdict::Torn, "{found:?}");
            assert_eq!(shown.len(), writer.live().len() - 1);
            let evidence = found.segments.last().unwrap().evidence;
            assert!(!evidence.later);
        }
        if writer.at + 30_000 > SEGMENT_BYTES {
            let recycled = writer.active().clone();
            writer.roll((round % 3 == 0).then_some(recycled));
            writer.append(&[random_bytes(&mut random, 100)]);
        }
        if writer.files.len() > 4 {
            break;
        }
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
fn a_sound_group_with_another_lsn_is_corrupt() {
    let mut writer = Writer::create(log_id(5));
    writer.append(&[vec![1; 10]]);
    writer.next_lsn = Lsn::new(3);
    writer.append(&[vec![2; 10]]);
    let (found, _) = writer.survey();
    assert_eq!(found.verdict, Verdict::Corrupt(Reason::LsnJump));
    let mut writer = Writer::create(log_id(5));
    writer.epoch = epoch(2);
    writer.append(&[vec![2; 10]]);
    assert_eq!(
        writer.survey().0.verdict,
        Verdict::Corrupt(Reason::Grammar),
        "a new epoch that does not say so"
    );
}

#[test]
fn what_the_caller_knows_to_be_durable_is_a_promise() {
    let mut writer = Writer::create(log_id(6));
    writer.append(&[vec![1; 10]]);
    writer.append(&[vec![2; 10]]);
    let at = writer.groups.last().unwrap().at as usize;
    writer.active()[at + 75] ^= 4;
    assert_eq!(writer.survey().0.verdict, Verdict::Torn);
    for (lsn, corrupt) in [(1, false), (2, true)] {
        let options = SurveyOptions { expect_durable: Lsn::new(lsn), ..SurveyOptions::default() };
        let found = survey_with(&writer.files, &options, |_, _| {});
        assert_eq!(matches!(found.verdict, Verdict::Corrupt(_)), corrupt);
    }
    let none = survey_with(
        &[],
        &SurveyOptions { expect_durable: Lsn::FIRST, ..SurveyOptions::default() },
        |_, _| {},
    );
    assert_eq!(none.row, "D2");
}

#[test]
fn segments_are_linked() {
    let mut writer = Writer::create(log_id(7));
    for round in 0..4u8 {
        writer.append(&[vec![round; 100]]);
        writer.roll(None);
    }
    writer.append(&[vec![9; 9]]);
    assert_eq!(writer.survey().0.verdict, Verdict::End);
    let verdict_without = |number: usize| {
        let mut files = writer.files.clone();
        files.remove(number - 1);
        survey_of(&files).0
    };
    for number in 1..5 {
        assert_eq!(
            verdict_without(number).verdict,
            Verdict::Corrupt(Reason::MissingSegment),
            "{number} is gone"
        );
    }
    // The last one is missed too: the seal of the one before it says so.
    let last = verdict_without(5);
    assert_eq!((last.verdict, last.row), (Verdict::Corrupt(Reason::MissingSegment), "S1"));
    for (number, row) in [(2, "D1"), (5, "H6")] {
        let mut files = writer.files.clone();
        files[number - 1].bytes[..4096].fill(0);
        assert_eq!(survey_of(&files).0.row, row, "the header of {number} is gone");
    }
    // Damage in an older segment is below the promise that its successor's header gives.
    let mut files = writer.files.clone();
    let end = files[1].bytes.iter().rposition(|byte| *byte != 0).unwrap();
    files[1].bytes[end - 100] ^= 1;
    let (found, shown) = survey_of(&files);
    assert_eq!((found.verdict, shown.len()), (Verdict::Corrupt(Reason::Damaged), 1));
    // Truncated records may be gone.
    writer.truncate_before(Lsn::new(4));
    let kept: Vec<_> =
        writer.files.iter().filter(|file| file.number >= segment(4)).cloned().collect();
    let (found, shown) = survey_of(&kept);
    assert_eq!(
        (found.verdict, found.first_live, shown),
        (Verdict::End, Lsn::new(4), writer.live())
    );
}

#[test]
fn files_that_are_not_the_logs() {
    let mut writer = Writer::create(log_id(8));
    writer.append(&[vec![1; 100]]);
    let verdict_with = |bytes: Vec<u8>| {
        let mut files = writer.files.clone();
        files.push(crate::support::File { number: segment(2), bytes });
        let (found, shown) = survey_of(&files);
        (found.verdict, shown.len())
    };
    let size = SEGMENT_BYTES as usize;
    assert_eq!(verdict_with(vec![0; size]), (Verdict::End, 1), "ready, never used");
    assert_eq!(verdict_with(writer.files[0].bytes.clone()), (Verdict::End, 1), "ready, recycled");
    assert_eq!(verdict_with(vec![7; size]), (Verdict::Torn, 1), "a header that was cut");
    assert_eq!(verdict_with(vec![]), (Verdict::Corrupt(Reason::FileShort), 0));
    let other = Writer::create(log_id(9)).files.remove(0).bytes;
    assert_eq!(verdict_with(other), (Verdict::Corrupt(Reason::ForeignLog), 0));
    let mut longer = writer.clone();
    longer.roll(None);
    longer.roll(None);
    assert_eq!(
        verdict_with(longer.files[2].bytes.clone()),
        (Verdict::Corrupt(Reason::Misplaced), 0)
    );
    // A log whose only header is gone.
    let mut alone = writer.files.clone();
    alone[0].bytes[..4096].fill(3);
    assert_eq!(survey_of(&alone).0.verdict, Verdict::Corrupt(Reason::HeaderLost));
    alone[0].bytes[4096..].fill(0);
    assert_eq!(survey_of(&alone).0.verdict, Verdict::Torn, "a creation that was cut");
    alone[0].bytes.fill(0);
    assert_eq!(survey_of(&alone).0.verdict, Verdict::End, "no log yet");
}

#[test]
fn a_log_whose_only_segment_has_another_name_is_not_an_empty_log() {
    let mut writer = Writer::create(log_id(8));
    writer.append(&[vec![1; 100]]);
    let mut renamed = writer.files.clone();
    renamed[0].number = segment(2);
    let found = survey_of(&renamed).0;
    assert_eq!((found.verdict, found.row), (Verdict::Corrupt(Reason::MissingSegment), "D2"));
}

/// Every bit around the seal, with and without the segment that it names; the whole directory is
/// read.
#[test]
fn every_flipped_bit_of_a_sealed_segment() {
    let mut writer = Writer::create(log_id(11));
    writer.append(&[vec![1; 40]]);
    let end = writer.at;
    writer.roll(None);
    let sealed = *writer.groups.last().unwrap();
    writer.append(&[vec![2; 8]]);
    let mut files = writer.files.clone();
    for bit in 4096 * 8..sealed.end * 8 {
        let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        files[0].bytes[byte] ^= mask;
        let (found, shown) = survey_of(&files);
        // The named end is a promise; the seal lies behind it and counts for nothing while the next
        // segment is there.
        assert_eq!(
            matches!(found.verdict, Verdict::Corrupt(_)),
            bit / 8 < end,
            "bit {bit}: {found:?}"
        );
        assert!(writer.live().starts_with(&shown));
        let (found, shown) = survey_of(&files[..1]);
        // Without the next segment a broken seal does not show that there was one; a whole seal
        // does.
        assert!(found.row != "S1" && writer.live().starts_with(&shown), "bit {bit}: {found:?}");
        files[0].bytes[byte] ^= mask;
    }
    assert_eq!(survey_of(&files[..1]).0.row, "S1");
}

#[test]
fn an_opening_that_finds_the_segment_full_rolls_and_seals_with_its_epoch() {
    let mut writer = Writer::create(log_id(12));
    writer.append(&[vec![1; 40]]);
    writer.epoch = epoch(2);
    let full = writer.clone();
    // The seal alone would be a new epoch that does not say so.
    let mut wrong = full.clone();
    wrong.control(&Control::Seal(segment(2)));
    assert_eq!(wrong.survey().0.verdict, Verdict::Corrupt(Reason::Grammar));
    writer.group(|group, buffer| {
        let recovered = Lsn::new(1);
        group.control(buffer, &Control::Epoch { previous: Some(epoch(1)), recovered }).unwrap();
        group.control(buffer, &Control::Seal(segment(2))).unwrap();
    });
    assert_eq!(writer.survey().0.row, "S1", "sealed, and the next segment is not there");
}

#[test]
fn a_cut_is_one_header_and_stays() {
    let mut writer = Writer::create(log_id(9));
    let mut ends = Vec::new();
    for round in 0..6u8 {
        let mut buffer_at = 0;
        writer.append(&[vec![round; 50], vec![round; 60]]);
        let group = writer.groups.last().unwrap();
        buffer_at += group.at + limits::GROUP_HEADER_BYTES as u64;
        let first_end = buffer_at + inkstone_format::frame_bytes(50) as u64;
        ends.push((writer.header.number, first_end, group.end));
        if round % 2 == 1 {
            writer.roll(None);
        }
    }
    let last = writer.records.last().unwrap().0.get();
    for keep in 1..=last {
        let (number, inside, whole) = ends[(keep as usize - 1) / 2];
        let byte = if keep % 2 == 1 { inside } else { whole };
        let mut cut = writer.clone();
        cut.cut(Lsn::new(keep), Position { segment: number, byte });
        assert_eq!(cut.survey().1, cut.live(), "cut after {keep}");
        let before_append = cut.clone();
        cut.append(&[vec![0xcc; 5]]);
        let (found, shown) = cut.survey();
        assert_eq!((found.verdict, shown), (Verdict::End, cut.live()), "cut after {keep}");
        // Half of the header is lost: the other half keeps the cut. All of it: the cut is not
        // undone in silence.
        let mut files = before_append.files.clone();
        let head = files.len() - 1;
        files[head].bytes[..512].fill(0xaa);
        assert_eq!(survey_of(&files).1, before_append.live());
        files[head].bytes[..4096].fill(0xaa);
        assert_eq!(survey_of(&files).0.row, "H6");
        files[head].bytes.fill(0);
        let (found, _) = survey_of(&files);
        assert_eq!(
            found.verdict,
            Verdict::Corrupt(Reason::MissingSegment),
            "cut after {keep}: {found:?}"
        );
    }
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
