//! CRC-32C of short runs of bytes by the instruction that x86-64 processors with SSE 4.2 have for it.
//!
//! *Owns*: up to which length that is the fastest, and the loop. *May not touch*: what is summed; what sums the rest.
//!
//! A log sums two short runs of bytes for each record: its frame's header and its payload. The crate `crc32c` takes long
//! runs in three streams at once, and before it gets to a short one it has looked for them, split the bytes by their
//! alignment, and takes what is left of a word byte by byte. A plain loop over words (Intel, "Fast CRC Computation for iSCSI
//! Polynomial Using CRC32 Instruction", 2011) takes a third to three fifths of that up to 256 bytes (`cargo run --release -p
//! inkstone-format --example lengths`).
//!
//! The instruction may be used only where the processor has it, and the compiler cannot see that: calling code that uses it
//! is `unsafe`, and that one call is the library's. `fearless_simd` asks the processor, once a process, and gives out a token
//! that proves the answer; the function that its `kernel!` makes cannot be called without one.

use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};

use fearless_simd::Level;

/// Up to here bytes are summed one word after the other: the crate's streams need this many and one more.
pub(crate) const SHORT_BYTES: usize = 767;

/// The CRC-32C of what gave `crc`, followed by `bytes`; `None` when they are too many, or the processor has no such
/// instruction.
#[inline]
pub(crate) fn append(crc: u32, bytes: &[u8]) -> Option<u32> {
    if bytes.len() > SHORT_BYTES {
        return None;
    }
    Level::new().as_sse4_2().map(|proof| word_by_word(proof, crc, bytes))
}

fearless_simd::kernel!(
    fn word_by_word(proof: Sse4_2, crc: u32, bytes: &[u8]) -> u32 {
        let (words, rest) = bytes.as_chunks();
        let wide =
            words.iter().fold(u64::from(!crc), |state, word| _mm_crc32_u64(state, u64::from_le_bytes(*word)));
        // The upper half of the register is zero: the instruction leaves it so.
        let mut state = wide as u32;
        let (half, rest) = match rest.split_first_chunk() {
            Some((half, rest)) => (Some(half), rest),
            None => (None, rest),
        };
        if let Some(half) = half {
            state = _mm_crc32_u32(state, u32::from_le_bytes(*half));
        }
        !rest.iter().fold(state, |state, byte| _mm_crc32_u8(state, *byte))
    }
);

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::checksum::append_by_table;
    use alloc::vec::Vec;

    /// Bit by bit, as the polynomial says.
    fn append_slowly(crc: u32, bytes: &[u8]) -> u32 {
        let bit = |state: u32| if state & 1 == 1 { state >> 1 ^ 0x82f6_3b78 } else { state >> 1 };
        !bytes.iter().fold(!crc, |state, byte| (0..8).fold(state ^ u32::from(*byte), |state, _| bit(state)))
    }

    #[test]
    fn every_length_at_every_alignment_gives_what_the_polynomial_says() {
        if Level::new().as_sse4_2().is_none() {
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
                assert_eq!(append_by_table(crc, part), slowly, "{len} bytes from {from} on, by table");
            }
        }
    }

    #[test]
    fn long_runs_are_left_to_who_is_faster() {
        assert_eq!(append(0, &[7; SHORT_BYTES + 1]), None);
    }
}
