//! Little-endian numbers in byte slices.
//!
//! *Owns*: the only reading and writing of integers. *May not touch*: what they mean. The caller
//! has checked that the bytes are there: an index out of bounds is a bug of this crate, never
//! caused by a disk.

/// The `N` bytes at `at`.
#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// The `u32` at `at`.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// The `u64` at `at`.
#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// Writes `value` at `at`.
#[inline]
pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Writes `value` at `at`.
#[inline]
pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Whether every byte is zero.
#[inline]
pub fn all_zero(bytes: &[u8]) -> bool {
    let mut chunks = bytes.chunks_exact(16);
    chunks.by_ref().all(|chunk| u128::from_le_bytes(array(chunk, 0)) == 0)
        && chunks.remainder().iter().all(|byte| *byte == 0)
}

/// `bytes` rounded up to `multiple`, a power of two.
#[inline]
pub(crate) const fn round_up(bytes: usize, multiple: usize) -> usize {
    (bytes + multiple - 1) & !(multiple - 1)
}
