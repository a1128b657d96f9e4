//! A sum that distinguishes disks: equal disks have equal sums, and different ones almost certainly
//! have different sums.
//!
//! *Owns*: the mixing. *May not touch*: what is summed. No adversary chooses the content of a
//! simulated disk, so 128 bits are enough: among a thousand million disks two share a sum with a
//! probability below 10^-20.

/// Odd numbers without pattern: digits of pi.
const KEYS: [u64; 4] =
    [0x2436_F688_85A3_08D3, 0x1319_8A2E_0370_7345, 0xA409_3822_299F_31D1, 0x082E_FA98_EC4E_6C89];

/// Multiplies and folds: every bit of both reaches every bit of the result.
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

/// A sum of words, in their order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sum {
    halves: [u64; 2],
}

impl Sum {
    pub(crate) fn new() -> Self {
        Self { halves: [KEYS[2], KEYS[3]] }
    }

    pub(crate) fn add(&mut self, word: u64) {
        let [left, right] = self.halves;
        self.halves = [fold(left ^ word, KEYS[0]), fold(right.rotate_left(23) ^ word, KEYS[1])];
    }

    /// Adds a text, so that different lists of texts have different sums.
    pub(crate) fn add_text(&mut self, text: &str) {
        self.add(text.len() as u64);
        let of_text = sum_of(text.as_bytes());
        self.add(of_text as u64);
        self.add((of_text >> 64) as u64);
    }

    pub(crate) fn get(self) -> u128 {
        u128::from(self.halves[0]) << 64 | u128::from(self.halves[1])
    }
}

/// The sum of bytes; trailing zeros within a word make no difference.
pub(crate) fn sum_of(bytes: &[u8]) -> u128 {
    let mut sum = Sum::new();
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum.add(u64::from_le_bytes(word));
    }
    sum.get()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_bit_and_every_place_counts() {
        let mut sums = HashSet::new();
        assert!(sums.insert(sum_of(&[0; 4096])));
        for bit in 0..4096 * 8 {
            let mut page = [0; 4096];
            page[bit / 8] = 1 << (bit % 8);
            let sum = sum_of(&page);
            assert!(sums.insert(sum), "bit {bit}");
        }
        // Both halves differ, not one for both.
        for half in [0, 64] {
            let halves: HashSet<u64> = sums.iter().map(|sum| (sum >> half) as u64).collect();
            assert_eq!(halves.len(), sums.len());
        }
        let texts = |texts: &[&str]| {
            let mut sum = Sum::new();
            texts.iter().for_each(|text| sum.add_text(text));
            sum.get()
        };
        assert_ne!(texts(&["ab", "c"]), texts(&["a", "bc"]));
    }
}
