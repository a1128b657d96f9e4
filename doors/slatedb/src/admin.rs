//! Clone and delete.
//!
//! *Owns*: the trait `WalAdmin`. *May not touch*: the logs of open writers, other than to read
//! them.

use std::sync::Arc;

use async_trait::async_trait;
use inkstone::{AnyDirectory, Error, Log, Lsn, Reader};
use inkstone_io::AnyLock;
use slatedb::VersionedManifest;
use slatedb::object_store::{PutMode, path::Path};
use slatedb::wal::{WalAdmin, WalError, WalGc};

use crate::blocking::blocking;
use crate::error::{data, of_io, of_log, unavailable};
use crate::owner::{Named, Whose, whose};
use crate::place::{begin_unfinished, finish, is_unfinished, log_files};
use crate::wals::{DatabaseWal, Wals, last_of};

/// The lock of a log's writer, which a clone and a deletion take, too.
const LOCK: &str = "inkstone.lock";

/// A directory in which a deletion has begun, and its lock.
type Begun = (AnyDirectory, AnyLock);

impl DatabaseWal {
    /// The log, then its object: a crash in between leaves the marker, and the next call goes on.
    async fn delete(&self, dry_run: bool) -> Result<Vec<String>, WalError> {
        let (wal, named) = (self.clone(), self.named().await?);
        let (mut names, begun) = blocking(move || wal.begin_deletion(named, dry_run)).await?;
        if named.is_some() {
            names.push(self.object().to_string());
            if !dry_run {
                self.unname().await?;
            }
        }
        if let Some((directory, lock)) = begun {
            blocking(move || {
                let finished = finish(&directory);
                drop(lock);
                finished
            })
            .await?;
        }
        Ok(names)
    }

    /// Removes the log, unless it is another database's. `delete_db` of SlateDB has removed the
    /// object before: then the path alone says whose log it is.
    fn begin_deletion(
        &self,
        named: Option<Named>,
        dry_run: bool,
    ) -> Result<(Vec<String>, Option<Begun>), WalError> {
        let Some(directory) = self.wals.place.find(&self.name).map_err(of_io)? else {
            return Ok((Vec::new(), None));
        };
        if named.is_some()
            && !is_unfinished(&directory)?
            && let Whose::Anothers(id) = whose(named, self.look()?.as_ref())
        {
            return Err(self.is_anothers(id, named));
        }
        let path = directory.path().to_path_buf();
        let name = |name: &String| path.join(name).display().to_string();
        if dry_run {
            let names = log_files(&directory).map_err(of_io)?;
            return Ok((names.iter().map(name).collect(), None));
        }
        let Some(lock) = directory.lock(LOCK).map_err(of_io)? else {
            return Err(unavailable(format!(
                "{}: a writer has the log open; close the database, then delete it",
                path.display()
            )));
        };
        let removed = begin_unfinished(&directory)?;
        Ok((removed.iter().map(name).collect(), Some((directory, lock))))
    }

    async fn has_no_rows(&self, replay_after: u64, last: u64) -> Result<bool, WalError> {
        if last <= replay_after {
            return Ok(true);
        }
        let Some((reader, _)) = self.reader().await? else { return Err(self.lacks(None, last, 0)) };
        if reader.first().get() > replay_after.saturating_add(1) {
            return Err(self.is_given_back(replay_after.saturating_add(1)));
        }
        let looks = reader.clone();
        let durable = blocking(move || last_of(&looks)).await?.get();
        if durable < last {
            return Err(self.lacks(Some(&reader), last, durable));
        }
        // Each id has rows.
        Ok(false)
    }

    /// Copies the ids after `replay_after` up to `last` into the log of another database, which
    /// gets an id of its own. The log is durable, then the object, and then nothing is unfinished.
    ///
    /// # Errors
    /// Those of `WalAdmin::clone_wal`.
    #[doc(hidden)]
    pub async fn clone_range(
        &self,
        replay_after: u64,
        last: u64,
        to: &Self,
    ) -> Result<(), WalError> {
        let source = match self.reader().await? {
            Some((reader, _)) => Some(reader),
            None if last > replay_after => return Err(self.lacks(None, last, 0)),
            None => None,
        };
        let (first, last) = (Lsn::new(replay_after.saturating_add(1)), Lsn::new(last));
        if let Some(reader) = &source
            && first < reader.first()
            && first <= last
        {
            return Err(self.is_given_back(first.get()));
        }
        let (from, target, known) = (self.clone(), to.clone(), to.named().await?);
        let made = blocking(move || from.copy(source, first, last, &target, known)).await?;
        let Some((directory, named)) = made else { return Ok(()) };
        // An earlier call may have named a log that it did not finish.
        let mode = known.map_or(PutMode::Create, |_| PutMode::Overwrite);
        if !to.name(named, mode).await? {
            return Err(to.is_there());
        }
        blocking(move || finish(&directory)).await
    }

    /// Makes the log of a clone, which is to be named and finished; `None` if an earlier call has
    /// made it.
    fn copy(
        &self,
        source: Option<Reader>,
        first: Lsn,
        last: Lsn,
        to: &Self,
        known: Option<Named>,
    ) -> Result<Option<(AnyDirectory, Named)>, WalError> {
        let target = to.wals.place.create(&to.name).map_err(of_io)?;
        if !is_unfinished(&target)? {
            let found = to.look()?;
            match (whose(known, found.as_ref()), found) {
                (Whose::Nobodys, _) => {}
                (Whose::Ours(_), Some((made, _))) => {
                    to.is_copy(source.as_ref(), &made, first, last)?;
                    return Ok(None);
                }
                _ => return Err(to.is_there()),
            }
        }
        {
            let Some(_lock) = target.lock(LOCK).map_err(of_io)? else {
                return Err(unavailable(format!(
                    "{}: a writer has the clone's log open; close that database first",
                    to.path()
                )));
            };
            begin_unfinished(&target)?;
        }
        let id = target.random_bytes().map_err(of_io)?;
        // Also without rows, since the clone's manifest knows the id before the first.
        let options = to.tuning().log.clone().create(true).begin_at(first).owner(id);
        let log = Log::open_in(target.clone(), options).map_err(of_log)?;
        if let Some(reader) = source {
            self.each(&reader, first, last, |_, bytes| {
                log.append(bytes).map(drop).map_err(of_log)
            })?;
        }
        log.close().map_err(of_log)?;
        Ok(Some((target, Named { id, first: first.get() })))
    }

    fn is_there(&self) -> WalError {
        let (path, object) = (self.path(), self.object());
        data(format!(
            "{path}: another log is here already, or {object} names one; delete it, then clone"
        ))
    }

    /// An existing log must be the same clone, made by an earlier call.
    fn is_copy(
        &self,
        source: Option<&Reader>,
        made: &Reader,
        first: Lsn,
        last: Lsn,
    ) -> Result<(), WalError> {
        if made.first() != first || made.durable() != last {
            return Err(self.is_there());
        }
        // Without a source there is no row.
        let Some(source) = source else { return Ok(()) };
        self.each(source, first, last, |lsn, bytes| match made.get(lsn) {
            Ok(copied) if copied == bytes => Ok(()),
            Ok(_) => Err(self.is_there()),
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
                Ok(None) => {
                    return Err(self.lacks(Some(reader), last.get(), cursor.durable().get()));
                }
                Err(Error::TruncatedBefore { lsn, .. }) => {
                    return Err(self.is_given_back(lsn.get()));
                }
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
        self.of(path.clone()).delete(dry_run).await
    }

    async fn is_empty(
        &self,
        path: &Path,
        replay_after_wal_id: u64,
        wal_id_last_seen: u64,
    ) -> Result<bool, WalError> {
        self.of(path.clone()).has_no_rows(replay_after_wal_id, wal_id_last_seen).await
    }

    async fn clone_wal(
        &self,
        from_path: &Path,
        from_manifest: VersionedManifest,
        to_path: &Path,
    ) -> Result<(u64, u64), WalError> {
        let replay_after = from_manifest.replay_after_wal_id();
        let last = from_manifest.next_wal_sst_id().saturating_sub(1).max(replay_after);
        let to = self.of(to_path.clone());
        self.of(from_path.clone()).clone_range(replay_after, last, &to).await?;
        Ok((replay_after, last))
    }
}
