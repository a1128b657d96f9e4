//! The format's own code over any bytes: it may refuse, it may not panic, and what it shows is
//! dense and the same whether the decoder sees the file at once or in small windows, and whether it
//! sums every frame or believes a prover.

#![no_main]

use inkstone_format::{
    Decoder, Epoch, Facts, HeaderBlock, Lsn, Proof, Prover, ScanAhead, SegmentHeader, Step, Stop,
    Verdict, explain, judge,
};
use inkstone_fuzz::survey::survey;
use inkstone_fuzz::{images, mutate};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_mutator!(|input: &mut [u8], len: usize, max_len: usize, seed: u32| {
    mutate(input, len, max_len, seed, fuzzer_mutate)
});

fuzz_target!(|input: &[u8]| {
    // As they are: hardly a sum fits.
    let _ = HeaderBlock::classify(input);
    let images = images(input);
    for (_, bytes) in &images {
        let block = HeaderBlock::classify(bytes);
        if let Some(header) = block.header() {
            walk(header, bytes);
        }
    }
    let files: Vec<_> = images
        .iter()
        .filter_map(|(number, bytes)| {
            Some((inkstone_format::SegmentNumber::new(*number)?, &bytes[..]))
        })
        .collect();
    let mut next = None;
    let found = survey(&files, &mut |lsn, _| {
        assert!(next.is_none_or(|next| next == lsn), "records are dense");
        next = lsn.next();
    });
    let again = survey(&files, &mut |_, _| {});
    assert_eq!(found.verdict, again.verdict);
    assert!(!matches!(found.verdict, Verdict::Corrupt(inkstone_format::Reason::Contradiction)));
});

/// Reads a segment whole and in windows of a block, and explains its stop.
fn walk(header: &SegmentHeader, bytes: &[u8]) {
    let (whole, records) = run(header, bytes, bytes.len(), false);
    for is_proven in [false, true] {
        let (windowed, same) = run(header, bytes, 4096, is_proven);
        assert_eq!(format!("{whole:?}"), format!("{windowed:?}"));
        assert_eq!(records, same);
    }
    let id = header.identity();
    let evidence = ScanAhead::behind(&id, &whole, bytes.len() as u64).run(bytes);
    let _ = judge(&Facts::of(&whole, &evidence));
    let _ = explain(&id, &whole, bytes, 0);
    let _ = ScanAhead::new(&id, Epoch::FIRST, 0, bytes.len() as u64).run(bytes);
}

fn run(
    header: &SegmentHeader,
    bytes: &[u8],
    window: usize,
    is_proven: bool,
) -> (Stop, Vec<(Lsn, usize)>) {
    let mut decoder = Decoder::new(header, bytes.len() as u64);
    let proofs = if is_proven { proofs(&decoder, bytes, window) } else { Vec::new() };
    let (mut at, mut len) = (0, window.min(bytes.len()));
    let mut records = Vec::new();
    loop {
        match decoder.step(&bytes[at..at + len], at as u64) {
            Step::NeedBytes { at: from, bytes: needed } => {
                at = from as usize;
                assert!(
                    at + needed <= bytes.len(),
                    "bytes are asked for that the file does not have"
                );
                len = needed.max(window).min(bytes.len() - at);
                if is_proven {
                    // The piece that it is in, or what lies across two.
                    let piece = at / window * window;
                    if at + needed <= piece + window {
                        (at, len) = (piece, window.min(bytes.len() - piece));
                    } else {
                        len = needed;
                    }
                    decoder.believe(proofs.get(piece / window).copied().flatten());
                }
            }
            Step::Frame(frame) => records.push((frame.lsn, frame.payload.len())),
            Step::Stop(stop) => return (stop, records),
            Step::GroupStart(_) | Step::GroupEnd(_) => {}
        }
    }
}

/// What a prover says of each piece of the file; of the first nothing, as it is the header.
fn proofs(decoder: &Decoder, bytes: &[u8], piece_bytes: usize) -> Vec<Option<Proof>> {
    let mut prover = Prover::new(*decoder.identity(), decoder.mark());
    let pieces = bytes.chunks(piece_bytes).enumerate().skip(1);
    let proofs = pieces.map(|(index, piece)| {
        let proof = prover.prove(piece, (index * piece_bytes) as u64);
        prover = prover.behind(piece, (index * piece_bytes) as u64);
        proof
    });
    [None].into_iter().chain(proofs).collect()
}
