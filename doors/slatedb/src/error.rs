//! Errors of the log as errors of SlateDB's WAL.
//!
//! *Owns*: which is which. *May not touch*: anything else. Each error keeps its cause.

use std::sync::Arc;

use inkstone::Error;
use slatedb::wal::WalError;

/// What SlateDB gets for an error of the log.
pub(crate) fn of_log(error: Error) -> WalError {
    match &error {
        Error::Closed => WalError::Closed,
        Error::TruncatedBefore { lsn, .. } | Error::TruncatedAfter { lsn, .. } => {
            WalError::WalTruncated(lsn.get())
        }
        Error::Corrupt(_) | Error::UnknownVersion { .. } | Error::Incomplete { .. } => {
            WalError::DataError(Arc::new(error))
        }
        Error::Invalid(_)
        | Error::TooLarge { .. }
        | Error::Busy
        | Error::Stopped
        | Error::Forked { .. }
        | Error::UsedUp => WalError::InternalError(Arc::new(error)),
        _ => WalError::Unavailable(Arc::new(error)),
    }
}

/// What SlateDB gets for an error of the system.
pub(crate) fn of_io(error: inkstone::IoError) -> WalError {
    of_log(Error::from(error))
}

/// The bytes of a log, or the log itself, are not what the manifest or the format says.
pub(crate) fn data(why: impl Into<String>) -> WalError {
    WalError::DataError(Arc::new(std::io::Error::new(std::io::ErrorKind::InvalidData, why.into())))
}

/// A call that makes no sense here.
pub(crate) fn internal(why: impl Into<String>) -> WalError {
    let why = std::io::Error::new(std::io::ErrorKind::InvalidInput, why.into());
    WalError::InternalError(Arc::new(why))
}

/// Something that may be better when it is tried again.
pub(crate) fn unavailable(why: impl Into<String>) -> WalError {
    WalError::Unavailable(Arc::new(std::io::Error::other(why.into())))
}
