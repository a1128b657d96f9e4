//! A directory of the operating system behind the seam.
//!
//! *Owns*: opening, renaming, removing, listing, and the directory's own sync. *May not touch*: what files hold.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::capability::Capabilities;
use crate::engine::OsEngine;
use crate::error::{Error, Result};
use crate::file::OsFile;
use crate::lock::{self, OsLock};
use crate::seam::{Directory, OpenFile};
use crate::strategy::EngineKind;
use crate::transfer::retry;

/// A directory of the operating system.
#[derive(Debug)]
pub struct OsDirectory {
    path: PathBuf,
}

impl OsDirectory {
    /// An existing directory.
    ///
    /// # Errors
    /// When it is missing, no directory, or may not be looked into.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let metadata = fs::metadata(&path).map_err(|source| Error::new("open directory", &path, source))?;
        if !metadata.is_dir() {
            return Err(Error::invalid("open directory", &path, "it is not a directory"));
        }
        Ok(Self { path })
    }

    /// A directory that is created, with its missing parents, if it is not there. Each creation is durable on return.
    ///
    /// # Errors
    /// A part of the path is no directory, or could not be created or synced. What was created before stays.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        create_durably(&path, &mut sync_directory)?;
        Self::open(path)
    }

    fn join(&self, name: &str) -> Result<PathBuf> {
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            return Err(Error::invalid(
                "open",
                self.path.join(name),
                "a file's name has no slash and is not empty",
            ));
        }
        Ok(self.path.join(name))
    }
}

/// Makes creations, renames and removals in the directory durable.
///
/// # Errors
/// What the file system answers.
pub fn sync_directory(path: &Path) -> Result<()> {
    let directory = fs::File::open(path).map_err(|source| Error::new("open directory", path, source))?;
    retry(|| directory.sync_all()).map_err(|source| Error::new("fsync directory", path, source))
}

/// Creates what is missing of `path`, from the top down, each durable before the next is made.
///
/// So a directory that is found has durable parents, and only its own name may still wait for a sync: of a creator that
/// is at it right now, or was killed between its two calls. That sync is made here.
fn create_durably(path: &Path, sync: &mut impl FnMut(&Path) -> Result<()>) -> Result<()> {
    let parent = match path.parent() {
        None => return Ok(()),
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
    };
    let mut answer = fs::create_dir(path);
    if matches!(&answer, Err(error) if error.kind() == ErrorKind::NotFound)
        && path.parent() != Some(Path::new(""))
    {
        create_durably(parent, sync)?;
        answer = fs::create_dir(path);
    }
    match answer {
        Ok(()) => sync(parent),
        Err(_) if path.is_dir() => match sync(parent) {
            // Who may not look into the parent, or not write there, has not created anything in it.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EACCES | libc::EPERM | libc::EROFS | libc::EINVAL)
                ) =>
            {
                Ok(())
            }
            synced => synced,
        },
        Err(source) => Err(Error::new("create directory", path, source)
            .advise("choose a path whose parents are directories that you may write to")),
    }
}

impl Directory for OsDirectory {
    type File = OsFile;
    type Engine = OsEngine;
    type Lock = OsLock;

    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, name: &str, how: &OpenFile) -> Result<OsFile> {
        OsFile::open(&self.join(name)?, how)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.join(from)?, self.join(to)?);
        fs::rename(&from, &to).map_err(|source| Error::new("rename", &from, source))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.join(name)?;
        fs::remove_file(&path).map_err(|source| Error::new("unlink", &path, source))
    }

    fn list(&self) -> Result<Vec<String>> {
        let failed = |source| Error::new("list directory", &self.path, source);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_file() {
                // A name that is no UTF-8 is none of ours.
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync(&self) -> Result<()> {
        sync_directory(&self.path)
    }

    fn lock(&self, name: &str) -> Result<Option<OsLock>> {
        OsLock::take(&self.join(name)?)
    }

    fn locked_by(&self, name: &str) -> Result<Option<String>> {
        lock::holder(&self.join(name)?)
    }

    fn free_bytes(&self) -> Result<u64> {
        crate::capability::free_bytes(&self.path)
    }

    fn capabilities(&self) -> Result<Option<Capabilities>> {
        Capabilities::of(&self.path).map(Some)
    }

    fn random_bytes(&self) -> Result<[u8; 16]> {
        let mut bytes = [0; 16];
        // So few bytes come whole, or not at all.
        retry(|| {
            rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()).map_err(Into::into)
        })
        .map_err(|source| Error::new("getrandom for", &self.path, source))?;
        Ok(bytes)
    }

    fn engine(&self, kind: EngineKind, depth: usize) -> Result<OsEngine> {
        OsEngine::open(kind, depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_creation_is_durable_before_the_next() {
        let above = tempfile::tempdir().expect("a directory");
        let path = above.path().join("a/b/c");
        let mut synced = Vec::new();
        let mut sync = |parent: &Path| {
            let made = ["a", "a/b", "a/b/c"].iter().filter(|part| above.path().join(part).exists()).count();
            synced.push((parent.to_path_buf(), made));
            Ok(())
        };
        create_durably(&path, &mut sync).expect("created");
        // Again: the last name could be of somebody who has not come to the sync yet.
        create_durably(&path, &mut sync).expect("found");
        // The one above was found before the first was made in it.
        let expected = [("", 1), ("a", 2), ("a/b", 3), ("a/b", 3)]
            .map(|(parent, made)| (above.path().join(parent), made));
        assert_eq!(synced.len(), 4, "{synced:?}");
        assert!(synced.iter().zip(&expected).all(|(found, wanted)| found == wanted), "{synced:?}");
    }

    #[test]
    fn a_creation_that_cannot_be_synced_fails_and_one_that_was_there_need_not_be_ours() {
        let above = tempfile::tempdir().expect("a directory");
        let path = above.path().join("a");
        let fail = |code: i32| {
            move |parent: &Path| Err(Error::new("x", parent, std::io::Error::from_raw_os_error(code)))
        };
        assert!(create_durably(&path, &mut fail(libc::EACCES)).is_err());
        assert!(path.exists());
        create_durably(&path, &mut fail(libc::EACCES)).expect("another user's");
        assert!(create_durably(&path, &mut fail(libc::EIO)).is_err());
    }
}
