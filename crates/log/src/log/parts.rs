//! Appending records whose bytes are in several places, without joining them first.
//!
//! *Owns*: the calls. *May not touch*: how a record is gathered: these records go the way of all
//! others (`log.rs`).

use std::io::IoSlice;

use inkstone_format::PayloadSum;

use super::Log;
use crate::append::Append;
use crate::commit::open_group::Payload;
use crate::error::{Error, Result};

/// The checksum of a record in parts.
fn sum_of(parts: &[IoSlice<'_>]) -> PayloadSum {
    PayloadSum::of_parts(parts.parts())
}

/// # Advanced: records in parts
///
/// For records whose bytes are in several places.
impl Log {
    /// Appends one record whose bytes are in several parts: the same as [`Log::append`] of the
    /// parts joined. Each part is copied once, to its place in the group, and summed once; nothing
    /// is allocated. No part, or only empty ones, is an empty record.
    ///
    /// # Errors
    /// As [`Log::append`].
    ///
    /// # Durability
    /// None on return: wait for the handle.
    ///
    /// ```
    /// # fn main() -> inkstone::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let log = inkstone::Log::open(directory.path().join("log"), inkstone::Options::default())?;
    /// use std::io::IoSlice;
    ///
    /// let (header, body) = (7u32.to_le_bytes(), b"the body");
    /// let lsn = log.append_parts(&[IoSlice::new(&header), IoSlice::new(body)])?.wait()?;
    /// assert_eq!(log.reader().get(lsn)?, b"\x07\0\0\0the body");
    /// # log.close()
    /// # }
    /// ```
    pub fn append_parts(&self, parts: &[IoSlice<'_>]) -> Result<Append<'_>> {
        self.check_size(parts)?;
        self.append_all(&[(parts, sum_of(parts))])
    }

    /// Appends one record in parts if that needs no waiting.
    ///
    /// # Errors
    /// As [`Log::try_append`].
    ///
    /// # Durability
    /// None on return: wait for the handle.
    pub fn try_append_parts(&self, parts: &[IoSlice<'_>]) -> Result<Append<'_>> {
        self.check_size(parts)?;
        self.try_gather(parts, sum_of(parts), None)
    }

    /// Appends one record in parts; waits as a future where [`Log::append_parts`] would block.
    /// Works in any runtime or none.
    ///
    /// # Errors
    /// As [`Log::append`].
    ///
    /// # Durability
    /// None when it is ready: await the handle that it returns.
    pub async fn append_parts_async(&self, parts: &[IoSlice<'_>]) -> Result<Append<'_>> {
        self.check_size(parts)?;
        self.append_when_there_is_room(parts, sum_of(parts)).await
    }

    /// Appends several records in parts, all or none: the same as [`Log::append_batch`] of records
    /// that are joined.
    ///
    /// # Errors
    /// As [`Log::append_batch`].
    ///
    /// # Durability
    /// None on return: wait for the handle.
    pub fn append_batch_parts(&self, records: &[&[IoSlice<'_>]]) -> Result<Append<'_>> {
        match records {
            [] => {
                Err(Error::Invalid("the batch is empty: a batch needs at least one record".into()))
            }
            [one] => self.append_parts(one),
            _ => self.append_all(&self.sum_batch(records.iter().copied())?),
        }
    }
}
