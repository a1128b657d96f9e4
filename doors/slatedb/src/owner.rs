//! Whose log it is. The log's header has an id, its owner's, which the log keeps for its whole
//! life; an object beside the database's manifest has the same id.
//!
//! *Owns*: the object, and what the two say together. *May not touch*: a log, other than to ask it
//! for its id.

use inkstone::{Reader, Recovery};
use slatedb::object_store::path::Path;
use slatedb::object_store::{Error, ObjectStoreExt, PutMode};
use slatedb::wal::WalError;

use crate::blocking::blocking;
use crate::error::{data, unavailable};
use crate::wals::{DatabaseWal, Found};

/// The id of a log's owner: drawn when the log begins.
pub(crate) type OwnerId = [u8; 16];

/// What the object says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) id: OwnerId,
    /// The WAL id at which the log began: rows before it were given up, if the tree lacks them.
    pub(crate) first: u64,
}

/// The object has one short line; more is not read.
const OBJECT_BYTES_MAX: u64 = 64;

impl Named {
    fn encode(&self) -> String {
        format!("{} {}\n", hex(self.id), self.first)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (id, first) = text.strip_suffix('\n').unwrap_or(text).split_once(' ')?;
        let id = u128::from_str_radix(id, 16).ok()?.to_be_bytes();
        let named = Self { id, first: first.parse().ok()? };
        // One way to write it: an editor may leave out the end of the line, and nothing else.
        (named.encode().trim_end() == text.trim_end_matches('\n')).then_some(named)
    }
}

fn hex(id: OwnerId) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

/// What a log and an object say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Both have this id.
    Ours(Named),
    /// There is no log with rows, and no object.
    Nobodys,
    /// The object names a log, and there is none with rows.
    Lost(Named),
    /// The log has rows, and its id is this one, which the object does not have.
    Anothers(OwnerId),
}

impl Whose {
    /// `found` is the id of the log, and whether it may have had rows: a log that never had one
    /// counts for none, since a crash may have come before its object.
    pub(crate) fn of(named: Option<Named>, found: Option<(OwnerId, bool)>) -> Self {
        match (named, found) {
            (Some(named), Some((id, _))) if named.id == id => Self::Ours(named),
            (_, Some((id, true))) => Self::Anothers(id),
            (Some(named), _) => Self::Lost(named),
            (None, _) => Self::Nobodys,
        }
    }
}

/// As [`Whose::of`], of what a look has found.
pub(crate) fn whose(named: Option<Named>, found: Option<&Found>) -> Whose {
    let has_rows = |reader: &Reader| reader.first() <= reader.durable();
    Whose::of(named, found.map(|(reader, _)| (reader.owner(), has_rows(reader))))
}

impl DatabaseWal {
    /// The object, which SlateDB's collector and its lists of manifests do not look at. `delete_db`
    /// removes it with everything below the database's path.
    pub(crate) fn object(&self) -> Path {
        self.database.clone().join("inkstone.owner")
    }

    /// What the object says; `None` if it is not there.
    pub(crate) async fn named(&self) -> Result<Option<Named>, WalError> {
        let object = self.object();
        let got = match self.wals.objects.get(&object).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            got => got.map_err(|error| of_store(&object, &error))?,
        };
        let bytes = match got.meta.size {
            ..=OBJECT_BYTES_MAX => got.bytes().await.map_err(|error| of_store(&object, &error))?,
            _ => Default::default(),
        };
        let named = Named::decode(&bytes).ok_or_else(|| {
            data(format!(
                "the object {object} does not have 32 hexadecimal digits and a WAL id in one line: \
                 bring it back from a copy of the objects"
            ))
        })?;
        Ok(Some(named))
    }

    /// Writes the object. False if another one is there, which only `Overwrite` replaces.
    pub(crate) async fn name(&self, named: Named, mode: PutMode) -> Result<bool, WalError> {
        let object = self.object();
        match self.wals.objects.put_opts(&object, named.encode().into(), mode.into()).await {
            Ok(_) => Ok(true),
            // A store that repeats a request by itself finds its own object.
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                Ok(self.named().await? == Some(named))
            }
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => Err(data(format!(
                "{object}: the object store cannot put an object only if it is absent, and without \
                 that two databases may take one log: use a store that can"
            ))),
            Err(error) => Err(of_store(&object, &error)),
        }
    }

    /// Removes the object.
    pub(crate) async fn unname(&self) -> Result<(), WalError> {
        let object = self.object();
        match self.wals.objects.delete(&object).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(of_store(&object, &error)),
        }
    }

    /// A reader of this database's log, and never of another's. `None` if there is no log, or none
    /// with rows and no object.
    pub(crate) async fn reader(&self) -> Result<Option<Found>, WalError> {
        loop {
            let (wal, named) = (self.clone(), self.named().await?);
            let found = blocking(move || wal.look()).await?;
            let refused = match whose(named, found.as_ref()) {
                Whose::Ours(_) => {
                    let recovery = found.as_ref().and_then(|(reader, _)| reader.recovery());
                    return self.check_whole(recovery.as_ref()).map(|()| found);
                }
                Whose::Nobodys => return Ok(None),
                Whose::Lost(named) => self.is_lost(named),
                Whose::Anothers(id) => self.is_anothers(id, named),
            };
            // A writer may have begun and named the log meanwhile.
            if self.named().await? == named {
                return Err(refused);
            }
        }
    }

    /// Refuses a log of which records are lost: it was salvaged, and rows that were acknowledged
    /// may be among them.
    ///
    /// # Errors
    /// A data error, until somebody has truncated the log behind them.
    pub(crate) fn check_whole(&self, recovery: Option<&Recovery>) -> Result<(), WalError> {
        let Some(lost_to) = recovery.and_then(|recovery| recovery.lost_to) else { return Ok(()) };
        let (path, next) = (self.path(), lost_to.get().saturating_add(1));
        Err(data(format!(
            "{path}: WAL ids up to {lost_to} are lost, since the log was salvaged without them: to \
             do without these rows and all before them, run `inkstone truncate {path} --before \
             {next}`, and open the log once with DatabaseWal::begin_anew"
        )))
    }

    pub(crate) fn is_anothers(&self, id: OwnerId, named: Option<Named>) -> WalError {
        let (path, id, object) = (self.path(), hex(id), self.object());
        match named {
            Some(named) => data(format!(
                "{path}: this is another database's log: its owner is {id}, and the object \
                 {object} says {}: bring the directory of the right log back, or give each \
                 database a root of its own",
                hex(named.id)
            )),
            None => data(format!(
                "{path}: this is another database's log: its owner is {id}, and there is no object \
                 {object} that says so: give each database a root of its own, or, if the objects \
                 were copied without that one, bring it back"
            )),
        }
    }

    pub(crate) fn is_lost(&self, named: Named) -> WalError {
        data(format!(
            "{}: there is no log here, and the object {} names one with the owner {}: mount its \
             disk, bring its directory back, or, if it is gone for good, give its rows up with \
             DatabaseWal::begin_anew",
            self.path(),
            self.object(),
            hex(named.id)
        ))
    }
}

fn of_store(object: &Path, error: &Error) -> WalError {
    unavailable(format!("the object {object}, which names the log of a database: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_one_form() {
        let named = Named { id: *b"0123456789abcdef", first: 7 };
        assert_eq!(named.encode(), "30313233343536373839616263646566 7\n");
        assert_eq!(Named::decode(named.encode().as_bytes()), Some(named));
        assert_eq!(Named::decode(named.encode().trim_end().as_bytes()), Some(named));
        for bad in ["", " ", "7", "+0313233343536373839616263646566 7", "0 7", "\u{ff}"] {
            assert_eq!(Named::decode(bad.as_bytes()), None, "{bad}");
        }
        for change in [" 8x", " +7", " 07", "  7", " 7\n\n"] {
            let bad = named.encode().replace(" 7\n", change);
            assert_eq!(Named::decode(bad.as_bytes()), None, "{bad}");
        }
    }
}
