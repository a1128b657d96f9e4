//! Must crash: it proves that the fuzzer gets past the checksums and finds what lies behind them.
//! The mistake: a record that has a byte above 127 is not borne. Its seed has none, and a record is
//! seen only if four checksums fit.

#![no_main]

use inkstone_format::SegmentNumber;
use inkstone_fuzz::survey::survey;
use inkstone_fuzz::{images, mutate};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_mutator!(|input: &mut [u8], len: usize, max_len: usize, seed: u32| {
    mutate(input, len, max_len, seed, fuzzer_mutate)
});

fuzz_target!(|input: &[u8]| {
    let images = images(input);
    let files: Vec<_> = images
        .iter()
        .filter_map(|(number, bytes)| Some((SegmentNumber::new(*number)?, &bytes[..])))
        .collect();
    survey(&files, &mut |_, payload| {
        assert!(payload.is_ascii(), "the canary is found");
    });
});
