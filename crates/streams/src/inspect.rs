//! What a record of the log says, for those who look at it.
//!
//! *Owns*: what a look at a record gets. *May not touch*: bytes, and the names of changes and of
//! their numbers (`record.rs`).

use inkstone::Lsn;

use crate::record::{Flaw, decode};

/// A change of a record of the log, with its numbers. A length is in bytes.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub change: &'static str,
    pub numbers: Vec<(&'static str, u64)>,
}

/// What the record with this LSN says: first its head, then its changes.
///
/// # Errors
/// Why it is no record of streams that this program knows.
#[doc(hidden)]
pub fn said(record: &[u8], lsn: Lsn) -> Result<Vec<Said>, String> {
    let flaw = |flaw| match flaw {
        Flaw::Unknown(what) => format!("it has {what}, which this program does not know"),
        Flaw::Malformed(why) => why.to_owned(),
    };
    let (head, changes) = decode(record, lsn).map_err(flaw)?;
    let section = u64::from(head.section);
    let numbers = vec![("section", section), ("replay_from", head.replay_from.get())];
    let mut all = vec![Said { change: "head", numbers }];
    for change in changes {
        let (change, numbers) = change.map_err(flaw)?.said();
        all.push(Said { change, numbers });
    }
    Ok(all)
}
