//! Every kind of frame comes back, in windows of any size, and what does not fit in a group or a
//! segment is refused.
//!
//! *Owns*: what frames say, windows, and the limits of the encoder. *May not touch*: which bytes
//! are right; the second reader compares that, of random logs.

use crate::support::{GROUPS_END, SEGMENT_BYTES, Writer, full_segment, log_id, segment};
use inkstone_format::{
    Batch, Control, Decoder, EncodeError, Epoch, GroupEncoder, GroupStart, HeaderBlock, Kind, Lsn,
    PayloadSum, Promise, PromiseReason, ScanAhead, Step, Stop, Tail, Verdict, limits,
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
fn a_full_segment_still_takes_control_groups() {
    let mut writer = Writer::create(log_id(4));
    let room =
        GroupEncoder::begin(&writer.header, writer.at, writer.epoch, writer.next_lsn).record_room();
    let payload = vec![1; room as usize - limits::FRAME_HEADER_BYTES];
    writer.append(&[payload]);
    assert_eq!(writer.at, GROUPS_END - limits::CONTROL_RESERVE_BYTES);
    let mut group = GroupEncoder::begin(&writer.header, writer.at, writer.epoch, writer.next_lsn);
    let mut buffer = vec![0; 1000];
    let full = group.record(&mut buffer, &[], PayloadSum::of(&[]), Batch::Alone);
    assert_eq!(full, Err(EncodeError::SegmentFull { needed: 24, room: 0 }));
    assert!(group.is_empty());
    // Each padded to a block of its own, as the option to pad does: three fit, the last of them the
    // seal.
    writer.pad = true;
    writer.truncate_before(Lsn::new(2));
    writer.close();
    assert_eq!(writer.at, GROUPS_END - limits::BLOCK_BYTES as u64);
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

#[test]
fn every_kind_of_frame_comes_back() {
    let mut writer = Writer::create_with_gaps(log_id(7), Lsn::new(9));
    writer.append_batch(&[vec![1], vec![], vec![2; 9]]);
    writer.append(&[vec![3; 8]]);
    writer.lose(5);
    writer.idle();
    writer.truncate_before(Lsn::new(3));
    writer.reopen();
    writer.control(&Control::Padding(40));
    writer.close();
    writer.roll(None);
    let bytes = &writer.files[0].bytes;
    let header = *HeaderBlock::classify(bytes).header().unwrap();
    let record = |lsn, batch, bytes: &[u8]| (lsn, batch, Err(bytes.to_vec()));
    let control = |lsn, control| (lsn, Batch::Alone, Ok(control));
    let found: Vec<(u64, Batch, Result<Control, Vec<u8>>)> =
        decode_whole(bytes, Decoder::new(&header, bytes.len() as u64))
            .into_iter()
            .filter_map(|seen| match seen {
                Seen::Frame(_, lsn, kind, batch, payload) => {
                    Some((lsn.get(), batch, Control::decode(kind, &payload).ok_or(payload)))
                }
                _ => None,
            })
            .collect();
    let opening = |previous, recovered| Control::Epoch { previous, recovered: Lsn::new(recovered) };
    assert_eq!(
        found,
        [
            control(1, opening(None, 0)),
            record(1, Batch::First, &[1]),
            record(2, Batch::Middle, &[]),
            record(3, Batch::Last, &[2; 9]),
            record(4, Batch::Alone, &[3; 8]),
            control(5, Control::Lost(Lsn::new(9))),
            control(10, Control::Promise(PromiseReason::Idle)),
            control(10, Control::TruncateBefore(Lsn::new(3))),
            control(10, opening(Some(Epoch::FIRST), 9)),
            control(10, Control::Padding(40)),
            control(10, Control::Promise(PromiseReason::Close)),
            control(10, Control::Seal(segment(2))),
        ]
    );
}
