//! CRC-32C of short runs of bytes, by the CRC instruction of x86-64 processors with SSE 4.2.
//!
//! *Owns*: up to which length this is the fastest way, the loop, and the one `unsafe` call of this
//! crate. *May not touch*: which bytes are summed; longer runs.
//!
//! A log sums two short runs of bytes for each record: the header of its frame, and its payload.
//! The crate `crc32c` sums long runs in three streams at once. Before it comes to a short run it
//! has checked for long ones and split the bytes by alignment, and it sums the rest of a word byte
//! by byte. A plain loop over words (Intel, "Fast CRC Computation for iSCSI Polynomial Using CRC32
//! Instruction", 2011) takes a third to three fifths of that time up to 256 bytes (the example
//! `lengths` at 1cb4a8b8).
//!
//! The instruction may run only on a processor that has it, which the compiler cannot check:
//! calling a function that uses it is `unsafe`. The standard library asks the processor, once per
//! process.

use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
use std::is_x86_feature_detected;

/// Up to this length bytes are summed one word after the other: the streams of the crate need one
/// byte more.
pub(crate) const SHORT_BYTES: usize = 767;

/// Continues a CRC-32C with `bytes`; `None` if they are too many, or the processor does not have
/// the instruction.
#[inline]
pub(crate) fn append(crc: u32, bytes: &[u8]) -> Option<u32> {
    if bytes.len() > SHORT_BYTES || !is_x86_feature_detected!("sse4.2") {
        return None;
    }
    #[expect(unsafe_code, reason = "the compiler cannot know which processor this is")]
    // SAFETY: the processor has what the function is compiled for; nothing else is asked for.
    let sum = unsafe { word_by_word(crc, bytes) };
    Some(sum)
}

#[target_feature(enable = "sse4.2")]
fn word_by_word(crc: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks();
    let mut wide = u64::from(!crc);
    for word in words {
        wide = _mm_crc32_u64(wide, u64::from_le_bytes(*word));
    }
    // The instruction leaves the upper half of the register zero.
    let mut state = wide as u32;
    let (half, rest) = match rest.split_first_chunk() {
        Some((half, rest)) => (Some(half), rest),
        None => (None, rest),
    };
    if let Some(half) = half {
        state = _mm_crc32_u32(state, u32::from_le_bytes(*half));
    }
    for byte in rest {
        state = _mm_crc32_u8(state, *byte);
    }
    !state
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::append_by_table;
    use alloc::vec::Vec;

    /// Bit by bit, straight from the polynomial.
    fn append_slowly(crc: u32, bytes: &[u8]) -> u32 {
        let bit = |state: u32| if state & 1 == 1 { state >> 1 ^ 0x82f6_3b78 } else { state >> 1 };
        !bytes
            .iter()
            .fold(!crc, |state, byte| (0..8).fold(state ^ u32::from(*byte), |state, _| bit(state)))
    }

    #[test]
    fn every_length_at_every_alignment_gives_what_the_polynomial_says() {
        if !is_x86_feature_detected!("sse4.2") {
            std::eprintln!("NOT RUN: sums by SSE 4.2: this processor does not have it");
            return;
        }
        let mut random = fastrand::Rng::with_seed(9);
        let bytes: Vec<u8> = (0..SHORT_BYTES + 16).map(|_| random.u8(..)).collect();
        for len in (0..=80).chain(SHORT_BYTES - 20..=SHORT_BYTES).chain([128, 255, 256, 257, 511]) {
            for from in 0..16 {
                let part = &bytes[from..from + len];
                let crc = random.u32(..);
                let slowly = append_slowly(crc, part);
                assert_eq!(append(crc, part), Some(slowly), "{len} bytes from {from} on");
                assert_eq!(
                    append_by_table(crc, part),
                    slowly,
                    "{len} bytes from {from} on, by table"
                );
            }
        }
    }
}
