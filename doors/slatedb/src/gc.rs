//! Garbage collection: truncates everything before the lowest referenced id.
//!
//! *Owns*: the trait `WalGc`. *May not touch*: the contents of a record.

use std::ops::Bound;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use inkstone::inspect::{Keep, first_to_keep_in};
use inkstone::{Error, Log, Lsn};
use slatedb::wal::{WalError, WalFileRange, WalGc};

use crate::blocking::blocking;
use crate::bound::Held;
use crate::error::of_log;
use crate::wals::{DatabaseWal, Found};

/// The lowest id of a range; `None` for an empty range.
fn lowest(range: &WalFileRange) -> Option<u64> {
    let first = match range.0 {
        Bound::Included(first) => first,
        Bound::Excluded(before) => before.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let is_empty = match range.1 {
        Bound::Included(last) => last < first,
        Bound::Excluded(end) => end <= first,
        Bound::Unbounded => false,
    };
    (!is_empty).then_some(first)
}

impl DatabaseWal {
    /// Truncates before `first`, but only files that are older than `min_age`.
    fn collect_before(
        &self,
        (reader, living): Found,
        first: u64,
        min_age: Duration,
        dry_run: bool,
    ) -> Result<(), WalError> {
        let mut first = Lsn::new(first);
        if !min_age.is_zero() {
            let Some(directory) = self.find()? else { return Ok(()) };
            let keep = Keep::For(min_age);
            first =
                first.min(first_to_keep_in(directory, keep, SystemTime::now()).map_err(of_log)?);
        }
        if dry_run || first <= reader.first() {
            return Ok(());
        }
        if let Some(writer) = living {
            let first = first.min(Lsn::new(writer.log.last().get().saturating_add(1)));
            return writer.log.truncate_before(first).map_err(of_log);
        }
        let Some(directory) = self.find()? else { return Ok(()) };
        self.tuning().check()?;
        let options = self.tuning().bounded(&Held::of(&directory, self.tuning()), 0);
        let log = match Log::open_in(directory, options.create(false)) {
            Err(Error::NoLog { .. }) => return Ok(()),
            // `Locked` by another process, which collects for itself.
            opened => opened.map_err(of_log)?,
        };
        if log.reader().owner() != reader.owner() {
            // Another log has come meanwhile: the next collection compares it.
            return Ok(());
        }
        let first = first.min(Lsn::new(log.last().get().saturating_add(1)));
        log.truncate_before(first).map_err(of_log)?;
        log.close().map_err(of_log)
    }
}

#[async_trait]
impl WalGc for DatabaseWal {
    async fn collect(
        &self,
        referenced_ranges: Vec<WalFileRange>,
        min_age: Duration,
        dry_run: bool,
    ) -> Result<(), WalError> {
        // No reference at all is more likely a mistake than an empty database.
        let Some(first) = referenced_ranges.iter().filter_map(lowest).min() else { return Ok(()) };
        let Some(found) = self.reader().await? else { return Ok(()) };
        let wal = self.clone();
        blocking(move || wal.collect_before(found, first, min_age, dry_run)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_id_of_each_kind_of_range() {
        use Bound::{Excluded, Included, Unbounded};
        for (range, expected) in [
            (WalFileRange(Included(3), Unbounded), Some(3)),
            (WalFileRange(Excluded(3), Excluded(5)), Some(4)),
            (WalFileRange(Excluded(3), Excluded(4)), None),
            (WalFileRange(Included(3), Included(3)), Some(3)),
            (WalFileRange(Included(3), Included(2)), None),
            (WalFileRange(Unbounded, Included(2)), Some(0)),
            (WalFileRange(Excluded(u64::MAX), Unbounded), None),
        ] {
            assert_eq!(lowest(&range), expected, "{range:?}");
        }
    }
}
