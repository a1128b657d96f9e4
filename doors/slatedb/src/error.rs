//! Maps errors of the log to errors of SlateDB's WAL.
//!
//! *Owns*: the mapping. *May not touch*: anything else. Each error keeps its cause.

use std::sync::Arc;

use inkstone::Error;
use slatedb::wal::WalError;

/// Maps an error of the log.
pub(crate) fn of_log(error: Error) -> WalError {
    match &error {
        Error::Closed => WalError::Closed,
        Error::TruncatedBefore { lsn, .. } | Error::TruncatedAfter { lsn, .. } => {
            WalError::WalTruncated(lsn.get())
        }
        Error::Corrupt(_)
        | Error::UnknownVersion { .. }
        | Error::OtherKind { .. }
        | Error::Incomplete { .. }
        | Error::Lost { .. } => WalError::DataError(Arc::new(error)),
        Error::Invalid(_)
        | Error::TooLarge { .. }
        | Error::Busy
        | Error::Stopped
        | Error::Forked { .. }
        | Error::UsedUp => WalError::InternalError(Arc::new(error)),
        _ => WalError::Unavailable(Arc::new(error)),
    }
}

/// Whether a log had no room for a record.
pub(crate) fn is_no_room(error: &WalError) -> bool {
    let WalError::Unavailable(cause) = error else { return false };
    matches!(cause.downcast_ref(), Some(Error::NoRoom { .. }))
}

/// Maps an error of the system.
pub(crate) fn of_io(error: inkstone::IoError) -> WalError {
    of_log(Error::from(error))
}

/// A log that does not match its manifest, or bytes that do not match the format.
pub(crate) fn data(why: impl Into<String>) -> WalError {
    WalError::DataError(Arc::new(std::io::Error::new(std::io::ErrorKind::InvalidData, why.into())))
}

/// A call that SlateDB should not make.
pub(crate) fn internal(why: impl Into<String>) -> WalError {
    let why = std::io::Error::new(std::io::ErrorKind::InvalidInput, why.into());
    WalError::InternalError(Arc::new(why))
}

/// A failure that may pass: try again.
pub(crate) fn unavailable(why: impl Into<String>) -> WalError {
    WalError::Unavailable(Arc::new(std::io::Error::other(why.into())))
}
