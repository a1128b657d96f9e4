//! A directory of a simulated disk behind the seam.
//!
//! *Owns*: names as the seam has them, and the text of errors. *May not touch*: what files hold.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use inkstone_io::{
    Access, Barriers, Capabilities, CopyOnWrite, DeviceFacts, DeviceNumber, DioAlignment,
    Directory, Error, Lock, MountFacts, OpenFile, Result, SharedPage, SharedPageReader,
};

use crate::disk::SimDisk;
use crate::fault::errno;
use crate::file::SimFile;
use crate::hooked::{Call, Hook, Hooked};
use crate::state::os_error;

/// The room of a disk without [`crate::DiskOptions::capacity_bytes`]: 1 EiB, so that sums with it
/// do not overflow.
const UNLIMITED_FREE_BYTES: u64 = 1 << 60;

/// A directory of a [`SimDisk`]. Clones are the same directory.
#[derive(Debug, Clone)]
pub struct SimDirectory {
    disk: SimDisk,
    number: usize,
    path: PathBuf,
    hooked: Hooked,
}

impl SimDirectory {
    /// What the disk says of itself: see [`crate::DiskOptions::times`].
    fn told(&self) -> Option<Capabilities> {
        let options = self.disk.options();
        options.times?;
        let sector_bytes = options.sector_bytes as u32;
        let direct = match options.has_direct {
            true => DioAlignment::Bytes { memory: sector_bytes, offset: sector_bytes },
            false => DioAlignment::Refused,
        };
        let device = DeviceFacts {
            name: "sim".into(),
            number: DeviceNumber { major: 1, minor: 1 },
            node: "/dev/sim".into(),
            partition: None,
            partition_start_bytes: 0,
            volatile_cache: Some(true),
            fua: Some(options.has_fua),
            scheduler: None,
            hardware_queues: None,
            rotational: Some(false),
            model: None,
            logical_block_bytes: Some(sector_bytes),
            physical_block_bytes: Some(sector_bytes),
            loop_backing: None,
            loop_direct: None,
        };
        Some(Capabilities {
            directory: self.path.clone(),
            mount: MountFacts {
                file_system: "sim".into(),
                target: Some("/".into()),
                source: Some("/dev/sim".into()),
                options: Some("rw".into()),
                read_only: false,
                barriers: Barriers::On,
            },
            device: Some(device),
            direct,
            copy_on_write: CopyOnWrite::Never,
            dsync_writes: true,
            in_memory: false,
            journal: None,
        })
    }
}

impl SimDisk {
    /// The directory of this path. The first call creates it, durably.
    pub fn directory(&self, path: impl Into<PathBuf>) -> SimDirectory {
        let path = path.into();
        let number = self.lock().directory(&path);
        SimDirectory { disk: self.clone(), number, path, hooked: Hooked::default() }
    }
}

impl SimDirectory {
    /// The same directory with a hook around each call of it and of its files.
    #[must_use]
    pub fn hooked(self, hook: Arc<impl Hook>) -> Self {
        Self { hooked: Hooked(Some(hook)), ..self }
    }

    fn open_now(&self, name: &str, how: &OpenFile) -> Result<SimFile> {
        let name = self.check_name(name)?;
        let path = self.path.join(&*name);
        if !matches!(how.access, Access::Buffered | Access::Direct) {
            let why = format!("a simulated disk has no access {}", how.access);
            return Err(Error::unsupported("open", path, why));
        }
        if how.create_new && how.read_only {
            // The standard library refuses that without a system call.
            return Err(Error::invalid("open", path, "creating a file requires write access"));
        }
        let mut state = self.disk.lock();
        if how.access == Access::Direct && !state.options.has_direct {
            return Err(Error::new("open", path, os_error(errno::EINVAL))
                .advise("this file system has no O_DIRECT: use access buffered"));
        }
        let hooked = self.hooked.clone();
        match state.open(self.number, &name, how.create_new) {
            Ok(inode) => Ok(SimFile { disk: self.disk.clone(), inode, path, how: *how, hooked }),
            Err(source) => Err(Error::new("open", path, source)),
        }
    }

    fn rename_as(&self, from: &str, to: &str, replaces: bool) -> Result<()> {
        let (from, to) = (self.check_name(from)?, self.check_name(to)?);
        let renamed = self.disk.lock().rename(self.number, &from, &to, replaces);
        renamed.map_err(|source| Error::new("rename", self.path.join(&*from), source))
    }

    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    fn check_name(&self, name: &str) -> Result<Arc<str>> {
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            let why = "a file's name has no slash and is not empty";
            return Err(Error::invalid("open", self.path.join(name), why));
        }
        Ok(name.into())
    }
}

/// The exclusive lock on a file of a [`SimDisk`]; released when dropped. A disk found after a crash
/// has no locks.
#[derive(Debug)]
pub struct SimLock {
    disk: SimDisk,
    directory: usize,
    name: Arc<str>,
    inode: u64,
    path: PathBuf,
}

impl Lock for SimLock {
    fn check_named(&self) -> Result<()> {
        if self.disk.lock().leads_to(self.directory, &self.name) == Some(self.inode) {
            return Ok(());
        }
        let source = io::Error::other("the lock file was removed, moved or replaced");
        Err(Error::new("check lock", &self.path, source))
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.lock().release_lock(self.inode);
    }
}

impl Directory for SimDirectory {
    type File = SimFile;
    type Lock = SimLock;

    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, name: &str, how: &OpenFile) -> Result<SimFile> {
        self.hooked.around(&Call::Open { name, how }, || self.open_now(name, how))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.hooked.around(&Call::Rename { to }, || self.rename_as(from, to, true))
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.hooked.around(&Call::Rename { to }, || self.rename_as(from, to, false))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.hooked.around(&Call::Remove { name }, || {
            let name = self.check_name(name)?;
            let removed = self.disk.lock().remove(self.number, &name);
            removed.map_err(|source| Error::new("unlink", self.path.join(&*name), source))
        })
    }

    fn list(&self) -> Result<Vec<String>> {
        self.hooked.around(&Call::List, || {
            let listed = self.disk.lock().list(self.number);
            listed.map_err(|source| Error::new("list directory", &self.path, source))
        })
    }

    fn sync(&self) -> Result<()> {
        self.hooked.around(&Call::SyncNames, || {
            let synced = self.disk.lock().sync_directory(self.number);
            synced.map_err(|source| Error::new("fsync directory", &self.path, source))
        })
    }

    fn lock(&self, name: &str) -> Result<Option<SimLock>> {
        self.hooked.around(&Call::Lock { name }, || {
            let name = self.check_name(name)?;
            let taken = self.disk.lock().take_lock(self.number, &name);
            let lock = |inode| SimLock {
                disk: self.disk.clone(),
                directory: self.number,
                name: Arc::clone(&name),
                inode,
                path: self.path.join(&*name),
            };
            match taken {
                Ok(inode) => Ok(inode.map(lock)),
                Err(source) => Err(Error::new("open lock", self.path.join(&*name), source)),
            }
        })
    }

    fn locked_by(&self, name: &str) -> Result<Option<String>> {
        self.hooked.around(&Call::LockedBy { name }, || {
            let name = self.check_name(name)?;
            let is_locked = self.disk.lock().is_locked(self.number, &name);
            Ok(is_locked.then(|| "another process".to_owned()))
        })
    }

    fn shared_page(&self, _lock: &SimLock) -> Option<Arc<SharedPage>> {
        self.hooked.0.as_ref()?.shared_page()
    }

    fn read_shared_page(&self, _name: &str) -> Option<SharedPageReader> {
        self.hooked.0.as_ref()?.read_shared_page()
    }

    fn is_forked(&self) -> bool {
        self.hooked.0.as_ref().is_some_and(|hook| hook.is_forked())
    }

    fn capabilities(&self) -> Result<Option<Capabilities>> {
        let hook = self.hooked.0.as_ref().and_then(|hook| hook.capabilities());
        Ok(hook.or_else(|| self.told()))
    }

    fn free_bytes(&self) -> Result<u64> {
        Ok(self.disk.lock().free_bytes().unwrap_or(UNLIMITED_FREE_BYTES))
    }

    fn overwrites_need_room(&self, _found: Option<&Capabilities>) -> bool {
        self.disk.lock().options.copy_on_write
    }

    fn random_bytes(&self) -> Result<[u8; 16]> {
        Ok(self.disk.lock().rng.u128(..).to_le_bytes())
    }

    fn has_reading_threads(&self) -> bool {
        false
    }
}
