//! Where a consumer of a log is, also after a restart.
//!
//! *Owns*: the two numbers of a place, and what a cursor may begin with. *May not touch*: whether
//! the log still has what was read before the place (`cursor.rs`).

use inkstone_format::Lsn;

/// Where a consumer of a log is: its next record, and how often the log had been cut when it read
/// the one before. A consumer stores the place with what it has made of the records, and begins
/// there after a restart ([`Reader::from`](crate::Reader::from)): then it learns of records that
/// `truncate_after` has cut while it was away, as a cursor does that was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The next record.
    pub lsn: Lsn,
    /// How many cuts there had been in the log's life.
    pub cuts: u64,
}

impl Place {
    /// Both numbers, little endian.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.cuts) << 64 | u128::from(self.lsn.get())).to_le_bytes()
    }

    /// The place with these bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self { lsn: Lsn::new(both as u64), cuts: (both >> 64) as u64 }
    }
}

/// Where a cursor begins: at an LSN, for a consumer that has read nothing before it, or at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At this record, of the log as it is now.
    Lsn(Lsn),
    /// Where a consumer was.
    Place(Place),
}

impl From<Lsn> for Start {
    fn from(lsn: Lsn) -> Self {
        Self::Lsn(lsn)
    }
}

impl From<Place> for Start {
    fn from(place: Place) -> Self {
        Self::Place(place)
    }
}
