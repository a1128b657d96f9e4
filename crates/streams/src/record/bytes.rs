//! Numbers of variable length.
//!
//! *Owns*: writing numbers, and reading them with checks (LEB128: seven bits a byte, the lowest
//! first). *May not touch*: what they mean (`record.rs`, `page.rs`). No bytes make reading panic.

/// The most bytes that a number takes.
pub(crate) const NUMBER_BYTES_MAX: usize = 10;

/// Writes a number.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes a number with a sign: zigzag, so that one near 0 takes few bytes.
pub(crate) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put(out, ((number << 1) ^ (number >> 63)) as u64);
}

/// The bytes that are not read yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rest<'a>(pub(crate) &'a [u8]);

impl<'a> Rest<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for place in 0..NUMBER_BYTES_MAX {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if place == NUMBER_BYTES_MAX - 1 && bits > 1 {
                return None;
            }
            number |= bits << (7 * place);
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let zigzag = self.number()?;
        Some((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_read_back_and_nothing_else_does() {
        for bits in 0..=64_u32 {
            for number in [
                1_u64.checked_shl(bits).map_or(u64::MAX, |n| n - 1),
                u64::MAX >> (64 - bits.max(1)),
            ] {
                let mut bytes = Vec::new();
                put(&mut bytes, number);
                assert!(bytes.len() <= NUMBER_BYTES_MAX);
                assert_eq!(Rest(&bytes).number(), Some(number));
                assert_eq!(Rest(&bytes[..bytes.len() - 1]).number(), None);
            }
        }
        for number in [0, -1, 1, i64::MIN, i64::MAX] {
            let mut bytes = Vec::new();
            put_signed(&mut bytes, number);
            assert_eq!(Rest(&bytes).signed(), Some(number));
        }
        assert_eq!(Rest(&[0xff; 11]).number(), None);
        assert_eq!(Rest(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number(), None);
        assert_eq!(Rest(&[1, 2]).bytes(3), None);
    }
}
