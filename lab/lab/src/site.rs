//! A place to measure in: a working directory of our own, with all facts about the disk under it.
//!
//! *Owns*: finding out, checking that there is room, and cleaning up. *May not touch*: measuring.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use inkstone_host::{
    LabDirectory, WorkDir, atomic_write_bytes, can_trace, sweep, sweep_trace_instances,
};
use inkstone_io::{Access, Capabilities, CopyOnWrite, DeviceFacts, DioAlignment};

use crate::result::Place;
use crate::stage::{Session, WayError};
use crate::writing::Writing;

/// The place of a run's files, with the facts about its disk.
#[derive(Debug)]
pub struct Site {
    /// The working directory, created for this run and removed after it.
    pub directory: LabDirectory,
    /// The disk.
    pub capabilities: Capabilities,
    /// The same for the result.
    pub place: Place,
    /// The part below it that is memory, if any: then nothing here is durable.
    pub memory: Option<String>,
    /// Whether the block layer can be traced, or the reason why not.
    pub trace: Result<(), String>,
    /// Whether only this process uses the file system.
    pub private: bool,
    workdir: WorkDir,
    /// What a killed earlier lab had left, and what was done about it.
    pub swept: Vec<String>,
}

impl Site {
    /// Creates a working directory in `parent`, after cleaning up what a killed lab left there.
    ///
    /// # Errors
    /// When the directory is missing, read-only, or has no room for `needed_bytes`: before anything
    /// was written.
    pub fn open(parent: &Path, name: &str, needed_bytes: u64) -> Result<Self, SiteError> {
        let capabilities = Capabilities::of(parent)?;
        if capabilities.mount.read_only {
            return Err(SiteError::ReadOnly { directory: parent.display().to_string() });
        }
        let mut swept = sweep(parent)?;
        // Experiment 4 also works in memory (tmpfs), which a killed run leaves allocated: the
        // next run frees it. Another user's stays, and does not prevent measuring.
        let memory = Path::new(MEMORY);
        if memory.is_dir() && memory != parent {
            swept.extend(sweep(memory).unwrap_or_default());
        }
        swept.extend(sweep_trace_instances());
        check_room(parent, needed_bytes)?;
        let workdir = WorkDir::create(parent)?;
        Ok(Self {
            directory: LabDirectory::at(workdir.path())?,
            place: place_of(&capabilities, name),
            memory: capabilities.memory_below(),
            capabilities,
            trace: can_trace(),
            private: false,
            workdir,
            swept,
        })
    }

    /// Removes the working directory.
    ///
    /// # Errors
    /// What could not be removed.
    pub fn close(self) -> Result<(), SiteError> {
        Ok(self.workdir.remove()?)
    }

    /// Refuses a way that would not be what its name says here.
    pub(crate) fn can(&self, writing: &Writing) -> Result<(), WayError> {
        self.can_open(writing.strategy.access)?;
        match self.capabilities.direct {
            DioAlignment::Bytes { offset, .. }
                if writing.strategy.access == Access::Direct
                    && !writing.write_bytes.is_multiple_of(offset.into()) =>
            {
                Err(WayError::Invalid(format!(
                    "O_DIRECT takes multiples of {offset} bytes here, but a write has {}",
                    writing.write_bytes
                )))
            }
            _ => Ok(()),
        }
    }

    /// Refuses an access that is not to be had here.
    ///
    /// # Errors
    /// There is no O_DIRECT.
    pub(crate) fn can_open(&self, access: Access) -> Result<(), WayError> {
        if access == Access::Direct && self.capabilities.direct == DioAlignment::Refused {
            let file_system = &self.capabilities.mount.file_system;
            return Err(WayError::Invalid(format!(
                "{file_system} has no O_DIRECT here: requests would still go through memory"
            )));
        }
        Ok(())
    }

    /// The session for the stages of a run.
    pub fn session<'a>(&'a self, stop: &'a AtomicBool) -> Session<'a> {
        let device = self.capabilities.device.as_ref().map(|device| device.number);
        Session { directory: &self.directory, stop, device }
    }
}

/// Why the lab cannot measure in a directory at all.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The operating system refused something.
    #[error(transparent)]
    Io(#[from] inkstone_io::Error),
    /// Not enough free bytes, noticed before the first write.
    #[error(
        "{directory}: {} MiB are needed, but {} MiB are free; take another directory, or measure \
         less at once (smaller files, fewer ways)",
        needed_bytes.div_ceil(1 << 20),
        free_bytes >> 20
    )]
    NoRoom {
        /// Where.
        directory: String,
        /// The bytes that the run needs at the same time.
        needed_bytes: u64,
        /// The bytes that are free for this user.
        free_bytes: u64,
    },
    /// The file system is mounted read-only.
    #[error("{directory} is on a read-only mount; take another directory, or remount it with rw")]
    ReadOnly {
        /// Where.
        directory: String,
    },
}

/// Where tmpfs is available.
pub(crate) const MEMORY: &str = "/dev/shm";

/// Kept free besides what a run needs: for metadata and other programs.
const MARGIN_BYTES: u64 = 16 << 20;

/// # Errors
/// [`SiteError::NoRoom`], or an error of `statvfs`.
fn check_room(directory: &Path, needed_bytes: u64) -> Result<(), SiteError> {
    let free_bytes = inkstone_io::free_bytes(directory)?;
    let needed_bytes = needed_bytes.saturating_add(MARGIN_BYTES);
    if free_bytes < needed_bytes {
        return Err(SiteError::NoRoom {
            directory: directory.display().to_string(),
            needed_bytes,
            free_bytes,
        });
    }
    Ok(())
}

/// The description of a place for the result; for a loop device with its host.
fn place_of(capabilities: &Capabilities, name: &str) -> Place {
    let device = capabilities.device.as_ref();
    let host =
        capabilities.host_directory().and_then(|directory| Capabilities::of(&directory).ok());
    Place {
        name: name.into(),
        directory: capabilities.directory.display().to_string(),
        file_system: capabilities.mount.file_system.clone(),
        mount_options: capabilities.mount.options.clone().unwrap_or_else(|| "unknown".into()),
        journal: capabilities.journal,
        copy_on_write: match capabilities.copy_on_write {
            CopyOnWrite::Never => "no".into(),
            CopyOnWrite::SharedExtents => "shared extents only".into(),
            CopyOnWrite::Always => "always".into(),
        },
        device: device.map(|device| device.name.clone()),
        write_cache: device.and_then(|device| device.volatile_cache).map(cache_words),
        fua: device.and_then(|device| device.fua),
        scheduler: device.and_then(|device| device.scheduler.clone()),
        model: device.and_then(|device| device.model.clone()),
        direct_align_bytes: match capabilities.direct {
            DioAlignment::Bytes { offset, .. } => Some(offset),
            DioAlignment::Refused => Some(0),
            DioAlignment::NotTold => None,
        },
        atomic_write_bytes: atomic_write_bytes(&capabilities.directory),
        loop_backing: device.and_then(loop_words),
        host: host.map(|host| Box::new(place_of(&host, "host"))),
    }
}

fn cache_words(volatile: bool) -> String {
    if volatile { "write back".into() } else { "write through".into() }
}

fn loop_words(device: &DeviceFacts) -> Option<String> {
    let backing = device.loop_backing.as_ref()?;
    let how = if device.loop_direct == Some(true) { "direct" } else { "buffered" };
    Some(format!("{} ({how})", backing.display()))
}
