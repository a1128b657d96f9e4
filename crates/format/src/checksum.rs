//! CRC-32C (Castagnoli), the only checksum of the format.
//!
//! *Owns*: which code computes it: the crate `crc32c`, by the processor's instruction (feature
//! `std`), or the tables here. *May not touch*: which bytes are summed.
//!
//! Why it is enough: it finds every change within 32 neighbouring bits. The fields for the place of
//! bytes are laid out for that: bytes that are moved within a segment differ *only* in the low half
//! of their position (a segment has at most 4 GiB), so they always fail. Any other difference
//! passes once in 2^32 times.

/// The checksum and the length of a payload, computed before its LSN and position are known,
/// outside of any lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadSum {
    crc: u32,
    len: usize,
}

impl PayloadSum {
    /// Sums `payload`.
    #[inline]
    pub fn of(payload: &[u8]) -> Self {
        Self { crc: crc32c(payload), len: payload.len() }
    }

    /// Sums a payload that is in several parts: the same as that of the parts joined.
    #[inline]
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let none = Self { crc: 0, len: 0 };
        parts
            .into_iter()
            .fold(none, |sum, part| Self { crc: append(sum.crc, part), len: sum.len + part.len() })
    }

    /// The CRC-32C.
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// The number of bytes that were summed.
    #[allow(clippy::len_without_is_empty)] // A sum is not a collection.
    pub fn len(&self) -> usize {
        self.len
    }
}

/// The CRC-32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    append(0, bytes)
}

/// Continues a CRC-32C: `crc` is that of the bytes so far, and `bytes` follow them.
#[cfg(feature = "std")]
#[inline]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// Continues a CRC-32C: `crc` is that of the bytes so far, and `bytes` follow them.
#[cfg(not(feature = "std"))]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    append_by_table(crc, bytes)
}

/// The same by tables, eight bytes at a time, for builds without `std`.
#[cfg(any(test, not(feature = "std")))]
fn append_by_table(crc: u32, bytes: &[u8]) -> u32 {
    let mut state = !crc;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in chunks.by_ref() {
        let low = state ^ crate::bytes::u32_at(chunk, 0);
        let high = crate::bytes::u32_at(chunk, 4);
        state = TABLES[7][(low & 0xff) as usize]
            ^ TABLES[6][(low >> 8 & 0xff) as usize]
            ^ TABLES[5][(low >> 16 & 0xff) as usize]
            ^ TABLES[4][(low >> 24) as usize]
            ^ TABLES[3][(high & 0xff) as usize]
            ^ TABLES[2][(high >> 8 & 0xff) as usize]
            ^ TABLES[1][(high >> 16 & 0xff) as usize]
            ^ TABLES[0][(high >> 24) as usize];
    }
    for byte in chunks.remainder() {
        state = step(state ^ u32::from(*byte));
    }
    !state
}

/// One byte through the register.
#[cfg(any(test, not(feature = "std")))]
const fn step(state: u32) -> u32 {
    state >> 8 ^ TABLES[0][(state & 0xff) as usize]
}

/// The Castagnoli polynomial, bits reversed.
#[cfg(any(test, not(feature = "std")))]
const POLYNOMIAL: u32 = 0x82f6_3b78;

#[cfg(any(test, not(feature = "std")))]
static TABLES: [[u32; 256]; 8] = tables();

#[cfg(any(test, not(feature = "std")))]
const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        tables[0][index] = value;
        index += 1;
    }
    let mut table = 1;
    while table < 8 {
        index = 0;
        while index < 256 {
            let previous = tables[table - 1][index];
            tables[table][index] = previous >> 8 ^ tables[0][(previous & 0xff) as usize];
            index += 1;
        }
        table += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn known_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(append_by_table(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[]), 0);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa); // RFC 3720, B.4.
    }

    #[test]
    fn both_ways_give_the_same() {
        let mut random = fastrand::Rng::with_seed(7);
        let bytes: Vec<u8> = (0..5000).map(|_| random.u8(..)).collect();
        for _ in 0..2000 {
            let from = random.usize(..bytes.len());
            let part = &bytes[from..random.usize(from..bytes.len())];
            let crc = random.u32(..);
            assert_eq!(append(crc, part), append_by_table(crc, part));
            let cut = random.usize(..=part.len());
            assert_eq!(append(append(crc, &part[..cut]), &part[cut..]), append(crc, part));
        }
    }

    #[test]
    fn parts_have_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..3000u32).map(|at| (at * at) as u8).collect();
        for parts in [0, 1, 2, 7, 700, 3000] {
            let parts = bytes.chunks(bytes.len() / parts.max(1)).flat_map(|part| [part, &[]]);
            assert_eq!(PayloadSum::of_parts(parts), PayloadSum::of(&bytes));
        }
        assert_eq!(PayloadSum::of_parts([]), PayloadSum::of(&[]));
    }
}
