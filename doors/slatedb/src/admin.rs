//! Clone and delete.
//!
//! *Owns*: the trait `WalAdmin`. *May not touch*: the logs of open writers, other than to read
//! them.

use std::sync::Arc;

use async_trait::async_trait;
use inkstone::{Log, Lsn, Reader};
use slatedb::VersionedManifest;
use slatedb::object_store::path::Path;
use slatedb::wal::{WalAdmin, WalError, WalGc};

use crate::blocking::blocking;
use crate::error::{data, of_io, of_log, unavailable};
use crate::place::{UNFINISHED, begin_unfinished, is_marked, unmark};
use crate::wals::{DatabaseWal, Wals, last_of};

/// The lock of a log's writer, which a clone and a deletion take, too.
const LOCK: &str = "inkstone.lock";

impl DatabaseWal {
    fn delete(&self, dry_run: bool) -> Result<Vec<String>, WalError> {
        let Some(directory) = self.wals.place.find(&self.name).map_err(of_io)? else {
            return Ok(Vec::new());
        };
        let path = directory.path().to_path_buf();
        let name = |name: &String| path.join(name).display().to_string();
        if dry_run {
            let names = directory.list().map_err(of_io)?;
            let is_log = |name: &&String| *name != UNFINISHED && !name.ends_with(".lock");
            return Ok(names.iter().filter(is_log).map(name).collect());
        }
        let Some(_lock) = directory.lock(LOCK).map_err(of_io)? else {
            return Err(unavailable(format!(
                "{}: a writer has the log open; close the database, then delete it",
                path.display()
            )));
        };
        let removed = begin_unfinished(&directory)?;
        unmark(&directory, UNFINISHED)?;
        Ok(removed.iter().map(name).collect())
    }

    fn has_no_rows(&self, replay_after: u64, last: u64) -> Result<bool, WalError> {
        if last <= replay_after {
            return Ok(true);
        }
        let Some((reader, _)) = self.reader()? else { return Err(self.lacks(last, 0)) };
        if reader.first().get() > replay_after.saturating_add(1) {
            return Err(WalError::WalTruncated(replay_after.saturating_add(1)));
        }
        let durable = last_of(&reader)?.get();
        if durable < last {
            return Err(self.lacks(last, durable));
        }
        // Each id has rows.
        Ok(false)
    }

    fn lacks(&self, last: u64, durable: u64) -> WalError {
        data(format!(
            "{}: the manifest knows WAL id {last}, the log ends at {durable}: bring back the log \
             that belongs to the database",
            self.path()
        ))
    }

    /// Copies the ids after `replay_after` up to `last` into the log of another database.
    ///
    /// # Errors
    /// Those of `WalAdmin::clone_wal`.
    #[doc(hidden)]
    pub fn clone_range(&self, replay_after: u64, last: u64, to: &Self) -> Result<(), WalError> {
        let first = Lsn::new(replay_after.saturating_add(1));
        let source = match self.reader()? {
            Some((reader, _)) => Some(reader),
            None if last > replay_after => return Err(self.lacks(last, 0)),
            None => None,
        };
        let target = to.wals.place.create(&to.name).map_err(of_io)?;
        if !is_marked(&target, UNFINISHED)?
            && let Some((made, _)) = to.reader()?
            && made.first() <= made.durable()
        {
            return to.is_copy(source.as_ref(), &made, first, Lsn::new(last));
        }
        {
            let Some(_lock) = target.lock(LOCK).map_err(of_io)? else {
                return Err(unavailable(format!(
                    "{}: a writer has the clone's log open",
                    target.path().display()
                )));
            };
            begin_unfinished(&target)?;
        }
        // Also without rows, since the clone's manifest knows the id before the first.
        let options = to.tuning().log.clone().create(true).begin_at(first);
        let log = Log::open_in(target.clone(), options).map_err(of_log)?;
        if let Some(reader) = source {
            self.each(&reader, first, Lsn::new(last), |_, bytes| {
                log.append(bytes).map(drop).map_err(of_log)
            })?;
        }
        log.close().map_err(of_log)?;
        unmark(&target, UNFINISHED)
    }

    /// An existing log must be the same clone, made by an earlier call.
    fn is_copy(
        &self,
        source: Option<&Reader>,
        made: &Reader,
        first: Lsn,
        last: Lsn,
    ) -> Result<(), WalError> {
        let other =
            || data(format!("{}: another log is here already; delete it, then clone", self.path()));
        let Some(source) = source else { return Err(other()) };
        if made.first() != first || made.durable() != last {
            return Err(other());
        }
        self.each(source, first, last, |lsn, bytes| match made.get(lsn) {
            Ok(copied) if copied == bytes => Ok(()),
            Ok(_) => Err(other()),
            Err(error) => Err(of_log(error)),
        })
    }

    fn each(
        &self,
        reader: &Reader,
        first: Lsn,
        last: Lsn,
        mut call: impl FnMut(Lsn, &[u8]) -> Result<(), WalError>,
    ) -> Result<(), WalError> {
        let mut cursor = reader.from(first);
        while cursor.next_lsn() <= last {
            match cursor.next() {
                Ok(Some(record)) => call(record.lsn, record.bytes)?,
                Ok(None) => return Err(self.lacks(last.get(), cursor.durable().get())),
                Err(error) => return Err(of_log(error)),
            }
        }
        Ok(())
    }
}

#[async_trait]
impl WalAdmin for Wals {
    fn garbage_collector(&self, path: &Path) -> Arc<dyn WalGc> {
        Arc::new(self.of(path.clone()))
    }

    async fn delete_wal(&self, path: &Path, dry_run: bool) -> Result<Vec<String>, WalError> {
        let wal = self.of(path.clone());
        blocking(move || wal.delete(dry_run)).await
    }

    async fn is_empty(
        &self,
        path: &Path,
        replay_after_wal_id: u64,
        wal_id_last_seen: u64,
    ) -> Result<bool, WalError> {
        let wal = self.of(path.clone());
        blocking(move || wal.has_no_rows(replay_after_wal_id, wal_id_last_seen)).await
    }

    async fn clone_wal(
        &self,
        from_path: &Path,
        from_manifest: VersionedManifest,
        to_path: &Path,
    ) -> Result<(u64, u64), WalError> {
        let replay_after = from_manifest.replay_after_wal_id();
        let last = from_manifest.next_wal_sst_id().saturating_sub(1).max(replay_after);
        let (from, to) = (self.of(from_path.clone()), self.of(to_path.clone()));
        blocking(move || from.clone_range(replay_after, last, &to)).await?;
        Ok((replay_after, last))
    }
}
