//! The names of nodes in a raft log.
//!
//! *Owns*: which bytes stand for a node id. *May not touch*: anything else.

use std::io;

/// A node id as the raft log stores it: the name of a leader.
///
/// The bytes of two ids must compare as the ids do, since the raft log compares leaders of one term
/// by their names; and they are on disk for ever. Implemented for unsigned integers, which are
/// stored big endian, and for [`String`], stored as its bytes. For an id type of your own, forward
/// to one of these.
pub trait NodeName: Sized {
    /// The bytes, at most 255.
    fn to_name(&self) -> Vec<u8>;

    /// The id of which these are the bytes.
    ///
    /// # Errors
    /// `InvalidData` when they are of no id of this type.
    fn from_name(name: &[u8]) -> io::Result<Self>;
}

macro_rules! big_endian {
    ($($number:ty),*) => {$(
        impl NodeName for $number {
            fn to_name(&self) -> Vec<u8> {
                self.to_be_bytes().to_vec()
            }

            fn from_name(name: &[u8]) -> io::Result<Self> {
                let bytes = name.try_into().map_err(|_| {
                    let wanted = size_of::<Self>();
                    invalid(format!(
                        "a node id of type {} has {wanted} bytes, and the name {} has {}",
                        stringify!($number),
                        name.escape_ascii(),
                        name.len()
                    ))
                })?;
                Ok(Self::from_be_bytes(bytes))
            }
        }
    )*};
}

big_endian!(u8, u16, u32, u64, u128);

impl NodeName for String {
    fn to_name(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn from_name(name: &[u8]) -> io::Result<Self> {
        Self::from_utf8(name.to_vec()).map_err(|_| {
            invalid(format!("the name {} of a node is no text in UTF-8", name.escape_ascii()))
        })
    }
}

pub(crate) fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_compare_as_ids_do() {
        let ids = [0_u64, 1, 255, 256, 65_535, 65_536, u64::MAX];
        for (a, b) in ids.iter().flat_map(|a| ids.iter().map(move |b| (a, b))) {
            assert_eq!(a.cmp(b), a.to_name().cmp(&b.to_name()), "{a} and {b}");
        }
        let names = ["", "a", "a1", "b", "\u{e9}", "\u{1f600}"].map(String::from);
        for (a, b) in names.iter().flat_map(|a| names.iter().map(move |b| (a, b))) {
            assert_eq!(a.cmp(b), a.to_name().cmp(&b.to_name()), "{a} and {b}");
        }
    }

    #[test]
    fn a_name_is_read_as_it_was_written_or_refused() {
        assert_eq!(258_u64.to_name(), [0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(u64::from_name(&258_u64.to_name()).unwrap(), 258);
        assert_eq!(String::from_name(b"node-a").unwrap(), "node-a");
        let short = u64::from_name(b"seven").unwrap_err();
        assert_eq!(
            short.to_string(),
            "a node id of type u64 has 8 bytes, and the name seven has 5"
        );
        assert!(String::from_name(&[0xff]).unwrap_err().to_string().contains("UTF-8"));
    }
}
