//! The forms in which a record can be appended: bytes, or parts that follow each other.
//!
//! *Owns*: how the log gets at a record's bytes. *May not touch*: where they are copied to.

use std::io::IoSlice;

use sealed::AsPayload;

/// A record that can be appended: everything that can be seen as bytes (`[u8]`, `Vec<u8>`, `str`
/// and their like), and [`Parts`].
pub trait AsRecord: AsPayload {}

impl<T: AsPayload + ?Sized> AsRecord for T {}

/// A record whose bytes are in several places: the same record as the parts joined. Each part is
/// copied once, to its place in the group, and summed once; nothing is allocated. No part, or only
/// empty ones, is an empty record.
///
/// ```
/// # fn main() -> inkstone::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("log");
/// # let log = inkstone::Log::open(path, inkstone::Options::default())?;
/// use std::io::IoSlice;
///
/// use inkstone::Parts;
///
/// let (header, body) = (7u32.to_le_bytes(), b"the body");
/// let lsn = log.append_durable(&Parts(&[IoSlice::new(&header), IoSlice::new(body)]))?;
/// assert_eq!(log.reader().get(lsn)?, b"\x07\0\0\0the body");
/// # log.close()
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a>(pub &'a [IoSlice<'a>]);

pub(crate) mod sealed {
    use super::{IoSlice, Parts};

    /// The bytes of a record, which are the same each time they are asked for: they are summed
    /// first, and copied later.
    pub trait Payload: Copy {
        fn parts(&self) -> impl Iterator<Item = &[u8]>;
    }

    impl Payload for &[u8] {
        #[inline]
        fn parts(&self) -> impl Iterator<Item = &[u8]> {
            std::iter::once(*self)
        }
    }

    impl Payload for &[IoSlice<'_>] {
        #[inline]
        fn parts(&self) -> impl Iterator<Item = &[u8]> {
            self.iter().map(|part| &part[..])
        }
    }

    /// Asked once for each record.
    pub trait AsPayload {
        type Payload<'a>: Payload
        where
            Self: 'a;

        fn payload(&self) -> Self::Payload<'_>;
    }

    impl<T: AsRef<[u8]> + ?Sized> AsPayload for T {
        type Payload<'a>
            = &'a [u8]
        where
            Self: 'a;

        #[inline]
        fn payload(&self) -> &[u8] {
            self.as_ref()
        }
    }

    impl AsPayload for Parts<'_> {
        type Payload<'a>
            = &'a [IoSlice<'a>]
        where
            Self: 'a;

        #[inline]
        fn payload(&self) -> &[IoSlice<'_>] {
            self.0
        }
    }
}
