//! CRC-32C (Castagnoli) by the processor's instruction, in the way that is fastest for each length.
//!
//! *Owns*: which code sums how many bytes, and the one place outside `inkstone-io` that is `unsafe`: calling code for
//! instructions that not every processor has, after asking for them. *May not touch*: what is summed.
//!
//! A log sums two short runs of bytes for each record: its header and its payload. The crate `crc32c` takes long runs in
//! three streams at once, and before it gets to a short one it has looked for them, split the bytes by their alignment, and
//! takes what is left of a word byte by byte. On x86-64 a plain loop over words, by the instruction that SSE 4.2 has for it
//! (Intel, "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", 2011), takes a third to a half of that up to
//! 256 bytes (`cargo run --release -p inkstone-crc32c --example lengths`); above [`SHORT_BYTES`] three streams are faster.
//! Everywhere else, and without the instruction, it is the crate.

/// Up to here bytes are summed one word after the other: the crate's streams need this many and one more.
pub const SHORT_BYTES: usize = 767;

/// The CRC-32C of what gave `crc`, followed by `bytes`; that of nothing is 0.
#[inline]
#[must_use]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_BYTES && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions: that was asked in the line above. (The answer is kept by `std`; asking
        // again is one load.)
        return unsafe { append_short(crc, bytes) };
    }
    crc32c::crc32c_append(crc, bytes)
}

/// One word after the other. Safe code, but for processors that have its instructions only.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn append_short(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit, as the polynomial says.
    fn append_slowly(crc: u32, bytes: &[u8]) -> u32 {
        let bit = |state: u32| if state & 1 == 1 { state >> 1 ^ 0x82f6_3b78 } else { state >> 1 };
        !bytes.iter().fold(!crc, |state, byte| (0..8).fold(state ^ u32::from(*byte), |state, _| bit(state)))
    }

    #[test]
    fn known_values() {
        assert_eq!(append(0, b"123456789"), 0xe306_9283);
        assert_eq!(append(0, &[]), 0);
        // RFC 3720, B.4.
        assert_eq!(append(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(append(0, &[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn every_length_at_every_alignment_gives_what_the_polynomial_says() {
        let mut random = fastrand::Rng::with_seed(9);
        let bytes: Vec<u8> = (0..SHORT_BYTES + 100).map(|_| random.u8(..)).collect();
        for len in (0..=80).chain(SHORT_BYTES - 20..=SHORT_BYTES + 20).chain([128, 255, 256, 257, 511]) {
            for from in 0..16 {
                let part = &bytes[from..from + len];
                let crc = random.u32(..);
                assert_eq!(append(crc, part), append_slowly(crc, part), "{len} bytes from {from} on");
            }
        }
    }

    #[test]
    fn parts_give_what_the_whole_gives() {
        let mut random = fastrand::Rng::with_seed(10);
        let bytes: Vec<u8> = (0..3000).map(|_| random.u8(..)).collect();
        for _ in 0..2000 {
            let to = random.usize(..=bytes.len());
            let cut = random.usize(..=to);
            let crc = random.u32(..);
            assert_eq!(append(append(crc, &bytes[..cut]), &bytes[cut..to]), append(crc, &bytes[..to]));
        }
    }

    #[test]
    fn says_by_which_code_these_tests_went() {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("sse4.2") {
            return;
        }
        eprintln!(
            "NOT RUN: the loop for SSE 4.2: this processor does not have it, only the crate `crc32c` was tested"
        );
    }
}
