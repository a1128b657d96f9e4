//! What is written comes back, whatever the sizes of records, groups and windows.

use crate::support::{SEGMENT_BYTES, Writer, full_segment, log_id, random_bytes};
use inkstone_format::{
    Batch, Control, Decoder, EncodeError, GroupEncoder, GroupStart, Kind, Lsn, PayloadSum, Promise,
    PromiseReason, ScanAhead, Step, Stop, Tail, Verdict, frame_bytes, limits,
};

/// A step with the payload copied out.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Start(GroupStart),
    Frame(u64, Lsn, Kind, Batch, Vec<u8>),
    End(Tail),
    Stop(Box<Stop>),
}

fn seen(step: Step<'_>) -> Option<Seen> {
    Some(match step {
        Step::NeedBytes { .. } => return None,
        Step::GroupStart(start) => Seen::Start(start),
        Step::Frame(frame) => {
            Seen::Frame(frame.at, frame.lsn, frame.kind, frame.batch, frame.payload.to_vec())
        }
        Step::GroupEnd(tail) => Seen::End(tail),
        Step::Stop(stop) => Seen::Stop(Box::new(stop)),
    })
}

fn decode_whole(bytes: &[u8], mut decoder: Decoder) -> Vec<Seen> {
    let mut all = Vec::new();
    loop {
        let step = seen(decoder.step(bytes, 0)).expect("the window is the whole file");
        let stopped = matches!(step, Seen::Stop(_));
        all.push(step);
        if stopped {
            return all;
        }
    }
}

/// Feeds the decoder with a buffer that grows by `piece` bytes whenever more are wanted, and drops
/// what is used.
fn decode_in_pieces(bytes: &[u8], mut decoder: Decoder, piece: usize) -> Vec<Seen> {
    let mut all = Vec::new();
    let (mut window_at, mut window) = (0, Vec::new());
    loop {
        let step = decoder.step(&window, window_at as u64);
        if let Step::NeedBytes { at, bytes: wanted } = step {
            let (at, have) = (at as usize, window_at + window.len());
            assert!(at + wanted <= bytes.len(), "wants what the file does not have");
            assert!(at + wanted > have, "wants what it has");
            if at >= have {
                (window_at, window) = (at, bytes[at..(at + piece).min(bytes.len())].to_vec());
            } else {
                window.drain(..at - window_at);
                window_at = at;
                window.extend_from_slice(&bytes[have..(have + piece).min(bytes.len())]);
            }
            continue;
        }
        let step = seen(step).expect("it is no wish for bytes");
        let stopped = matches!(step, Seen::Stop(_));
        all.push(step);
        if stopped {
            return all;
        }
    }
}

#[test]
fn pieces_of_any_size_give_the_same_as_the_whole() {
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..12 {
        let mut writer = full_segment(&mut random, SEGMENT_BYTES - 16000);
        if round % 3 == 1 {
            let bit = random.usize(4096 * 8..writer.at as usize * 8);
            writer.active()[bit / 8] ^= 1 << (bit % 8);
        }
        if round % 3 == 2 {
            let len = random.usize(4096..writer.at as usize);
            writer.active().truncate(len);
        }
        let bytes = &writer.files[0].bytes;
        let decoder = Decoder::new(&writer.header, bytes.len() as u64);
        let whole = decode_whole(bytes, decoder.clone());
        for piece in [1, 7, 512, 4096] {
            assert_eq!(decode_in_pieces(bytes, decoder.clone(), piece), whole, "pieces of {piece}");
        }
        let Some(Seen::Stop(stop)) = whole.last() else { panic!("no stop") };
        let scan = ScanAhead::behind(decoder.identity(), stop, bytes.len() as u64);
        let evidence = scan.clone().run(bytes);
        for piece in [48, 56, 512, 4096] {
            let mut scan = scan.clone();
            while let Some(at) = scan.wants() {
                let to = (at as usize + piece).min(bytes.len());
                scan.feed(&bytes[at as usize..to], at);
            }
            assert_eq!(scan.evidence(), evidence, "scanned in pieces of {piece}");
        }
    }
}

#[test]
fn random_logs_come_back() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut writer = Writer::create(log_id(seed as u8));
        for _ in 0..random.usize(0..40) {
            let count = random.usize(1..6);
            let sizes = [0, 1, 7, 8, 9, 100, 511, 4096];
            let payloads: Vec<Vec<u8>> = (0..count)
                .map(|_| {
                    let len = random.choice(sizes).unwrap();
                    random_bytes(&mut random, len)
                })
                .collect();
            writer.pad = random.u8(..4) == 0;
            if writer.at + 40_000 > SEGMENT_BYTES {
                let old = writer.files[0].bytes.clone();
                writer.roll(random.bool().then_some(old));
            }
            match random.u8(..8) {
                0 => writer.idle(),
                1 => writer.reopen(),
                2 if writer.next_lsn > writer.first_live => {
                    let first = random.u64(writer.first_live.get()..=writer.next_lsn.get());
                    writer.truncate_before(Lsn::new(first));
                }
                3 if count > 1 => writer.append_batch(&payloads),
                _ => writer.append(&payloads),
            }
        }
        if random.bool() {
            writer.close();
        }
        let (found, shown) = writer.survey();
        assert_eq!(found.verdict, Verdict::End, "seed {seed}: {found:?}");
        assert_eq!(shown, writer.live(), "seed {seed}");
        assert_eq!(found.next_lsn, writer.next_lsn);
        assert_eq!(found.at.unwrap().byte, writer.at);
        assert_eq!(found.epoch, Some(writer.epoch));
    }
}

#[test]
fn records_of_every_size_take_what_was_computed() {
    let writer = Writer::create(log_id(3));
    for len in 0..200 {
        let mut buffer = vec![0xff; 4096];
        let mut group = GroupEncoder::begin(&writer.header, 4096, writer.epoch, Lsn::FIRST);
        let payload = vec![0x5a; len];
        let before = group.used();
        group.record(&mut buffer, &payload, PayloadSum::of(&payload), Batch::Alone).unwrap();
        assert_eq!(group.used() - before, frame_bytes(len));
        let finished = group.finish(&mut buffer, Promise { lsn: Lsn::ZERO, end: 4096 });
        assert_eq!(finished.bytes, limits::GROUP_HEADER_BYTES + frame_bytes(len));
        assert_eq!(finished.next_lsn, Lsn::new(2));
    }
}

#[test]
fn a_full_segment_still_takes_control_groups() {
    let mut writer = Writer::create(log_id(4));
    let room =
        GroupEncoder::begin(&writer.header, writer.at, writer.epoch, writer.next_lsn).record_room();
    let payload = vec![1; room as usize - limits::FRAME_HEADER_BYTES];
    writer.append(&[payload]);
    assert_eq!(writer.at, SEGMENT_BYTES - limits::CONTROL_RESERVE_BYTES);
    let mut group = GroupEncoder::begin(&writer.header, writer.at, writer.epoch, writer.next_lsn);
    let mut buffer = vec![0; 1000];
    let full = group.record(&mut buffer, &[], PayloadSum::of(&[]), Batch::Alone);
    assert_eq!(full, Err(EncodeError::SegmentFull { needed: 24, room: 0 }));
    assert!(group.is_empty());
    // Each padded to a block of its own, as the option to pad does: four fit, the last of them the
    // seal.
    writer.pad = true;
    writer.truncate_before(Lsn::new(2));
    writer.idle();
    writer.close();
    assert_eq!(writer.at, SEGMENT_BYTES - limits::BLOCK_BYTES as u64);
    writer.roll(None);
    writer.append(&[vec![9]]);
    let (found, shown) = writer.survey();
    assert_eq!((found.verdict, shown), (Verdict::End, writer.live()));
    // Without padding, more than a hundred.
    let mut writer = Writer::create(log_id(5));
    writer.append(&[vec![1; room as usize - limits::FRAME_HEADER_BYTES]]);
    for _ in 0..150 {
        writer.idle();
    }
    assert_eq!(writer.survey().0.verdict, Verdict::End);
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let writer = Writer::create(log_id(6));
    let mut group = GroupEncoder::begin(&writer.header, 4096, writer.epoch, Lsn::FIRST);
    let mut buffer = vec![0; 200];
    group.record(&mut buffer, b"kept", PayloadSum::of(b"kept"), Batch::Alone).unwrap();
    let large = [0; 128];
    let error =
        group.record(&mut buffer, &large, PayloadSum::of(&large), Batch::Alone).unwrap_err();
    assert_eq!(error, EncodeError::BufferFull { needed: 152, room: 120 });
    assert_eq!(
        error.to_string(),
        "a frame of 152 bytes does not fit: the group has 120 bytes left"
    );
    let error = group.control(&mut buffer, &Control::Padding(100)).unwrap_err();
    assert_eq!(error, EncodeError::BufferFull { needed: 128, room: 120 });
    group.control(&mut buffer, &Control::Promise(PromiseReason::Idle)).unwrap();
    let finished = group.finish(&mut buffer, Promise { lsn: Lsn::ZERO, end: 4096 });
    assert_eq!(finished.bytes, 48 + 32 + 32);
    let mut bytes = writer.files[0].bytes.clone();
    bytes[4096..4096 + finished.bytes].copy_from_slice(&buffer[..finished.bytes]);
    let all = decode_whole(&bytes, Decoder::new(&writer.header, bytes.len() as u64));
    assert_eq!(all.len(), 1 + 2 + 1 + 1);
}
