//! Bytes that show where they belong: a misplaced, old or torn block is noticed at its first wrong
//! byte.
//!
//! *Owns*: which byte belongs where, and comparing. *May not touch*: files.
//!
//! The eight bytes at offset `8 i` of the file are `seed + i * STEP` modulo 2^64. `STEP` is odd, so
//! that no two words of a file are equal, and its upper half is not small, so that nothing
//! compresses. (The lowest byte of a word is the same at the same place of every block, so a wrong
//! block is noticed from its second byte on.) The sum continues from word to word, which a compiler
//! turns into a loop as fast as memory.

/// 2^64 divided by the golden ratio, made odd: consecutive words have nothing in common.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
const WORD_BYTES: usize = 8;

/// The word at this offset.
fn word(offset: u64, seed: u64) -> u64 {
    seed.wrapping_add((offset / WORD_BYTES as u64).wrapping_mul(STEP))
}

/// Fills `bytes`, which begin at `offset` of the file. Offset and length are multiples of eight.
pub(crate) fn fill(bytes: &mut [u8], offset: u64, seed: u64) {
    let mut expected = word(offset, seed);
    for place in bytes.chunks_exact_mut(WORD_BYTES) {
        place.copy_from_slice(&expected.to_le_bytes());
        expected = expected.wrapping_add(STEP);
    }
}

/// Checks that every byte is what [`fill`] would have put there.
///
/// # Errors
/// The offset in the file of the first wrong byte, with the bytes that are there.
pub(crate) fn check(bytes: &[u8], offset: u64, seed: u64) -> Result<(), String> {
    let mut expected = word(offset, seed);
    let mut wrong = 0;
    let mut places = bytes.chunks_exact(WORD_BYTES);
    for place in places.by_ref() {
        let mut found = [0; WORD_BYTES];
        found.copy_from_slice(place);
        wrong |= u64::from_le_bytes(found) ^ expected;
        expected = expected.wrapping_add(STEP);
    }
    if wrong == 0 && places.remainder().is_empty() {
        return Ok(());
    }
    Err(first_wrong(bytes, offset, seed))
}

/// The error text; slow, for use once something is known to be wrong.
fn first_wrong(bytes: &[u8], offset: u64, seed: u64) -> String {
    let mut right = vec![0; bytes.len().next_multiple_of(WORD_BYTES)];
    fill(&mut right, offset, seed);
    match bytes.iter().zip(&right).position(|(found, right)| found != right) {
        Some(at) => format!(
            "byte {} reads back as {:#04x}, but was written as {:#04x}",
            offset + at as u64,
            bytes[at],
            right[at]
        ),
        None => format!("{} bytes at {offset} are not whole words", bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 4096;

    fn file(blocks: usize, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0; blocks * BLOCK];
        // In pieces, as a writer does.
        for (number, block) in bytes.chunks_exact_mut(BLOCK).enumerate() {
            fill(block, (number * BLOCK) as u64, seed);
        }
        bytes
    }

    #[test]
    fn what_was_filled_is_right_in_any_pieces() {
        let bytes = file(8, 7);
        assert_eq!(check(&bytes, 0, 7), Ok(()));
        assert_eq!(check(&bytes[8..1000], 8, 7), Ok(()));
    }

    #[test]
    fn every_single_bit_counts() {
        let mut bytes = file(1, 7);
        for at in 0..BLOCK {
            bytes[at] ^= 1 << (at % 8);
            let said = check(&bytes, 0, 7).expect_err("a wrong bit");
            assert!(said.starts_with(&format!("byte {at} ")), "{said}");
            bytes[at] ^= 1 << (at % 8);
        }
    }

    #[test]
    fn two_swapped_blocks_an_old_block_and_a_hole_are_noticed() {
        let good = file(4, 7);
        let mut swapped = good.clone();
        swapped[BLOCK..3 * BLOCK].rotate_left(BLOCK);
        assert!(check(&swapped, 0, 7).expect_err("swapped").starts_with("byte 4097 "));
        for number in [1, 2] {
            let at = number * BLOCK;
            assert!(check(&swapped[at..at + BLOCK], at as u64, 7).is_err());
        }
        assert!(check(&file(4, 8), 0, 7).is_err(), "the bytes of another round");
        assert!(check(&vec![0; BLOCK], 0, 7).is_err(), "a hole");
    }
}
