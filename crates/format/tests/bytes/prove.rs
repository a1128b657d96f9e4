//! Sums that are checked ahead, piece by piece: a decoder that believes the proofs sees the same as
//! without them, whatever the bytes.
//!
//! *Owns*: `Prover`, and `Decoder::believe`. *May not touch*: threads; the log decides how pieces
//! are read.

use crate::support::{SEGMENT_BYTES, Writer, full_segment};
use inkstone_format::{Decoder, Kind, Mark, Proof, Prover, Step, Stop, limits};

const FIRST: u64 = limits::HEADER_BYTES as u64;

/// What a reader sees, payloads included.
#[derive(Debug, PartialEq)]
struct Read {
    frames: Vec<(u64, u64, Kind, Vec<u8>)>,
    stop: Stop,
}

fn segment(seed: u64) -> Writer {
    let mut writer = full_segment(&mut fastrand::Rng::with_seed(seed), SEGMENT_BYTES);
    writer.close();
    writer
}

fn decoder(writer: &Writer) -> Decoder {
    Decoder::new(&writer.header, SEGMENT_BYTES)
}

fn first(writer: &Writer) -> Prover {
    let header = writer.header;
    let mark = Mark::between(FIRST, header.first_lsn, header.epoch);
    Prover::new(header.identity(), mark)
}

/// Where pieces begin, and the end.
fn cuts(random: &mut fastrand::Rng) -> Vec<u64> {
    let mut cuts = vec![FIRST];
    let most = 1 << random.u64(1..8);
    while *cuts.last().unwrap() < SEGMENT_BYTES {
        let next = cuts.last().unwrap() + 64 * random.u64(1..=most);
        cuts.push(next.min(SEGMENT_BYTES));
    }
    cuts
}

/// What is proven of each piece.
fn proofs(mut prover: Prover, bytes: &[u8], cuts: &[u64]) -> Vec<Option<Proof>> {
    let mut proofs = Vec::new();
    for piece in cuts.windows(2) {
        let part = &bytes[piece[0] as usize..piece[1] as usize];
        proofs.push(prover.prove(part, piece[0]));
        prover = prover.behind(part, piece[0]);
    }
    proofs
}

/// Reads piece by piece; a frame that lies across several is shown by itself. Counts the frames
/// that lay in a proof.
fn read(
    mut decoder: Decoder,
    bytes: &[u8],
    cuts: &[u64],
    proofs: &[Option<Proof>],
) -> (Read, usize) {
    let (mut from, mut to, mut proven) = (FIRST, FIRST, FIRST..FIRST);
    let (mut frames, mut covered) = (Vec::new(), 0);
    loop {
        let window = &bytes[from as usize..to as usize];
        match decoder.step(window, from) {
            Step::NeedBytes { at, bytes } => {
                let index = cuts.partition_point(|cut| *cut <= at) - 1;
                (from, to) = (cuts[index], cuts[index + 1]);
                let proof = proofs[index];
                if at + bytes as u64 > to {
                    (from, to) = (at, at + bytes as u64);
                }
                proven = proof.map_or(FIRST..FIRST, |proof| proof.from.at..proof.to);
                decoder.believe(proof);
            }
            Step::Frame(frame) => {
                covered += usize::from(proven.contains(&frame.at));
                frames.push((frame.at, frame.lsn.get(), frame.kind, frame.payload.to_vec()));
            }
            Step::Stop(stop) => return (Read { frames, stop }, covered),
            Step::GroupStart(_) | Step::GroupEnd(_) => {}
        }
    }
}

fn read_plainly(writer: &Writer, bytes: &[u8]) -> Read {
    read(decoder(writer), bytes, &[FIRST, SEGMENT_BYTES], &[None]).0
}

#[test]
fn every_frame_that_lies_in_one_piece_is_proven_and_all_are_read_as_without() {
    for seed in 0..200 {
        let writer = segment(seed);
        let bytes = &writer.files[0].bytes;
        let cuts = cuts(&mut fastrand::Rng::with_seed(seed));
        let proofs = proofs(first(&writer), bytes, &cuts);
        let (shown, covered) = read(decoder(&writer), bytes, &cuts, &proofs);
        let ends = shown
            .frames
            .iter()
            .map(|frame| frame.0 + inkstone_format::frame_bytes(frame.3.len()) as u64);
        let whole = shown.frames.iter().zip(ends).filter(|(frame, end)| {
            let piece = cuts.partition_point(|cut| *cut <= frame.0) - 1;
            *end <= cuts[piece + 1]
        });
        assert_eq!(covered, whole.count(), "seed {seed}");
        assert_eq!(shown, read_plainly(&writer, bytes), "seed {seed}");
    }
}

#[test]
fn damage_is_told_as_without_wherever_it_is() {
    let mut differs = 0;
    for seed in 0..40 {
        let writer = segment(seed);
        let sound = read_plainly(&writer, &writer.files[0].bytes);
        let mut random = fastrand::Rng::with_seed(seed);
        let cuts = cuts(&mut random);
        for _ in 0..100 {
            let mut bytes = writer.files[0].bytes.clone();
            let at = random.usize(FIRST as usize..sound.stop.at as usize);
            match random.u8(..3) {
                0 => bytes[at] ^= 1 << random.u8(..8),
                1 => bytes[at / 512 * 512..][..512].fill(0),
                _ => bytes[at / 8 * 8..][..8].copy_from_slice(&random.u64(..).to_le_bytes()),
            }
            let proofs = proofs(first(&writer), &bytes, &cuts);
            let (shown, _) = read(decoder(&writer), &bytes, &cuts, &proofs);
            assert_eq!(shown, read_plainly(&writer, &bytes), "seed {seed}, damage at {at}");
            differs += usize::from(shown != sound);
        }
    }
    // Zeros over padding change nothing.
    assert!(differs > 3000, "only {differs} of 4,000 changes were seen at all");
}

/// A proof that begins elsewhere speaks of other frames: it is not believed.
#[test]
fn a_proof_counts_only_where_it_begins() {
    let writer = segment(3);
    let sound = read_plainly(&writer, &writer.files[0].bytes);
    let (at, ..) = sound.frames[sound.frames.len() / 2];
    let mut bytes = writer.files[0].bytes.clone();
    bytes[at as usize + limits::FRAME_HEADER_BYTES - 1] ^= 1;
    let told = read_plainly(&writer, &bytes);
    assert_eq!(told.stop.at, at);
    let cuts = [FIRST, SEGMENT_BYTES];
    let everything = |from: Mark| [Some(Proof { from, to: SEGMENT_BYTES })];
    let from = decoder(&writer).mark();
    // The one that begins there is believed: so it is the beginning that decides.
    assert!(read(decoder(&writer), &bytes, &cuts, &everything(from)).0.stop.at > at);
    let next =
        |epoch: inkstone_format::Epoch| inkstone_format::Epoch::new(epoch.get() + 1).unwrap();
    for other in [
        Mark { lsn: from.lsn.next().unwrap(), ..from },
        Mark { epoch: next(from.epoch), ..from },
        Mark { group_end: from.group_end + 8, ..from },
        Mark { at: from.at - 8, ..from },
        Mark { at: from.at + 8, ..from },
    ] {
        assert_eq!(read(decoder(&writer), &bytes, &cuts, &everything(other)).0, told, "{other:?}");
    }
    // Nor does it outlive the bytes that it is about.
    let mut again = decoder(&writer);
    again.believe(everything(from)[0]);
    let again = again.clone().from_tail(*again.tail());
    assert_eq!(read(again, &bytes, &[FIRST, SEGMENT_BYTES], &[None]).0, told);
}
