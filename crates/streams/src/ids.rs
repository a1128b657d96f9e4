//! A map by the ids of streams.
//!
//! *Owns*: how ids are hashed. *May not touch*: what is kept for them.
//!
//! The standard library's hash of an id takes 15 to 20 ns, and an append needs five. This one is a
//! multiplication whose halves are joined, with a secret seed for each map (as wyhash by Wang Yi
//! mixes): whoever chooses ids does not know which of them collide.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map by the ids of streams.
pub(crate) type IdMap<T> = HashMap<u64, T, IdHash>;

/// The seed of a map.
#[derive(Debug, Clone)]
pub(crate) struct IdHash {
    seed: u64,
}

impl Default for IdHash {
    fn default() -> Self {
        Self { seed: RandomState::new().hash_one(0_u64) }
    }
}

impl BuildHasher for IdHash {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher(self.seed)
    }
}

/// The hash of one id.
#[derive(Debug)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write_u64(&mut self, id: u64) {
        let product = u128::from(id ^ self.0) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither the low bits, by which a map finds its bucket, nor the high ones, by which it tells
    /// entries there, are the same for ids that are alike.
    #[test]
    fn ids_that_are_alike_have_hashes_that_are_not() {
        let hash = IdHash::default();
        for stride in [1, 64, 1 << 20, 1 << 32, 1 << 52] {
            for part in [|hash: u64| hash % 4096, |hash: u64| hash >> 52] {
                let mut counts = vec![0_u32; 4096];
                (0..4096_u64).for_each(|id| counts[part(hash.hash_one(id * stride)) as usize] += 1);
                let most = counts.iter().max().copied();
                assert!(most < Some(24), "{most:?} of 4,096 ids {stride} apart are together");
            }
        }
    }
}
