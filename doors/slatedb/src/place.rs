//! Where the logs are, and which of them this process writes.
//!
//! *Owns*: the names of the directories, the marker, the list of open writers. *May not touch*:
//! the contents of a log.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use inkstone::{AnyDirectory, IoError, OsDirectory};
use inkstone_io::OpenFile;
use slatedb::wal::WalError;

use crate::error::{of_io, unavailable};
use crate::state::Shared;

/// The marker of an unfinished clone or deletion: the other files here may be removed.
const UNFINISHED: &str = "slatedb.unfinished";

/// Directories by name: real ones, or simulated ones in tests.
pub trait Place: Send + Sync + 'static {
    /// The directory, if it exists.
    ///
    /// # Errors
    /// Those of the system.
    fn find(&self, name: &str) -> Result<Option<AnyDirectory>, IoError>;

    /// The directory; created if it does not exist, and then durable on return.
    ///
    /// # Errors
    /// Those of the system.
    fn create(&self, name: &str) -> Result<AnyDirectory, IoError>;

    /// The path of the directory, for messages.
    fn path(&self, name: &str) -> PathBuf;

    /// The open writers of this process, by the path of their log.
    fn living(&self) -> &Living;
}

/// The open writers of a process.
#[derive(Default)]
pub struct Living(Mutex<HashMap<PathBuf, Weak<Shared>>>);

impl Living {
    pub(crate) fn get(&self, directory: &AnyDirectory) -> Option<Arc<Shared>> {
        self.locked().get(directory.path()).and_then(Weak::upgrade)
    }

    pub(crate) fn put(&self, directory: &AnyDirectory, writer: &Arc<Shared>) {
        let mut living = self.locked();
        living.retain(|_, writer| writer.strong_count() > 0);
        living.insert(directory.path().to_path_buf(), Arc::downgrade(writer));
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<PathBuf, Weak<Shared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A real directory with a directory for each log.
pub(crate) struct OsPlace {
    root: PathBuf,
    file_mode: Option<u32>,
}

impl OsPlace {
    /// The directory `root`, which is created with the first log, and the mode of new files, as by
    /// [`inkstone::Options::file_mode`].
    pub(crate) fn new(root: PathBuf, file_mode: Option<u32>) -> Self {
        // The process may change its working directory later.
        Self { root: std::path::absolute(&root).unwrap_or(root), file_mode }
    }
}

impl Place for OsPlace {
    fn find(&self, name: &str) -> Result<Option<AnyDirectory>, IoError> {
        match OsDirectory::open(self.path(name)) {
            Ok(directory) => Ok(Some(AnyDirectory::new(match self.file_mode {
                Some(mode) => directory.file_mode(mode),
                None => directory,
            }))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create(&self, name: &str) -> Result<AnyDirectory, IoError> {
        // Not what is above the root: its disk may not be mounted.
        OsDirectory::create_in_parent(&self.root, self.file_mode)?;
        OsDirectory::create_with_mode(self.path(name), self.file_mode).map(AnyDirectory::new)
    }

    /// One path for all writers, however they spell it.
    fn path(&self, name: &str) -> PathBuf {
        std::fs::canonicalize(&self.root).unwrap_or_else(|_| self.root.clone()).join(name)
    }

    fn living(&self) -> &Living {
        static LIVING: LazyLock<Living> = LazyLock::new(Living::default);
        &LIVING
    }
}

/// The name of a database's directory: its path, with every byte that is not a letter, digit, `-`,
/// `_` or inner `.` as `%` and two hexadecimal digits. `%` alone is the empty path.
pub(crate) fn directory_name(database: &str) -> String {
    let mut name = String::with_capacity(database.len() + 1);
    for (at, byte) in database.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            b'.' if at > 0 => name.push('.'),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    if name.is_empty() { "%".into() } else { name }
}

pub(crate) fn is_unfinished(directory: &AnyDirectory) -> Result<bool, WalError> {
    Ok(directory.list().map_err(of_io)?.iter().any(|name| name == UNFINISHED))
}

/// Removes the marker; durable on return.
pub(crate) fn finish(directory: &AnyDirectory) -> Result<(), WalError> {
    directory.remove(UNFINISHED).and_then(|()| directory.sync()).map_err(of_io)
}

/// Refuses a directory in which a clone or a deletion is not finished.
pub(crate) fn check_finished(directory: &AnyDirectory) -> Result<(), WalError> {
    if is_unfinished(directory)? {
        let path = directory.path().display();
        return Err(unavailable(format!(
            "{path}: a clone or a deletion of this log is not finished; do it again"
        )));
    }
    Ok(())
}

/// Marks the directory as unfinished, and removes the log; durable on return. Returns the names of
/// the removed files.
pub(crate) fn begin_unfinished(directory: &AnyDirectory) -> Result<Vec<String>, WalError> {
    match directory.open(UNFINISHED, &OpenFile::new_file()) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(of_io(error));
        }
        _ => directory.sync().map_err(of_io)?,
    }
    remove_log(directory).map_err(of_io)
}

/// The names of every file but the lock and the marker.
pub(crate) fn log_files(directory: &AnyDirectory) -> Result<Vec<String>, IoError> {
    let is_logs = |name: &String| name != UNFINISHED && !name.ends_with(".lock");
    Ok(directory.list()?.into_iter().filter(is_logs).collect())
}

/// Removes these files; durable on return. Returns their names.
pub(crate) fn remove_log(directory: &AnyDirectory) -> Result<Vec<String>, IoError> {
    let names = log_files(directory)?;
    for name in &names {
        match directory.remove(name) {
            // It is not the log's.
            Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => {}
            removed => removed?,
        }
    }
    directory.sync()?;
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::directory_name;

    #[test]
    fn each_path_has_a_name_of_its_own() {
        assert_eq!(directory_name("orders.v1"), "orders.v1");
        assert_eq!(directory_name("a/b"), "a%2Fb");
        assert_eq!(directory_name("a%2Fb"), "a%252Fb");
        assert_eq!(directory_name(".."), "%2E.");
        assert_eq!(directory_name(""), "%");
    }
}
