//! A file of a simulated disk behind the seam.
//!
//! *Owns*: a handle, and translating the seam's calls into the file system's. *May not touch*: what
//! those do.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use inkstone_io::{
    Access, Durability, Error, File, FileFacts, NamedChoice, OpenFile, OwnName, Preparation,
    Result, SyncKind,
};

use crate::content::blocks_of;
use crate::disk::SimDisk;
use crate::durable::Durably;
use crate::fault::{Effect, OperationKind, errno};
use crate::hooked::{Call, FileCall, Hooked};
use crate::state::{State, os_error};
use crate::transfer::{Target, Written};

/// Zeros are written in pieces of this size, as `inkstone_io::OsFile` does it.
const ZEROS_CHUNK_BYTES: u64 = 1 << 20;

/// A file of a [`SimDisk`], open.
#[derive(Debug)]
pub struct SimFile {
    pub(crate) disk: SimDisk,
    /// [`State::open`] has counted the handle.
    pub(crate) inode: u64,
    pub(crate) path: PathBuf,
    pub(crate) how: OpenFile,
    pub(crate) hooked: Hooked,
}

impl SimFile {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.disk.lock()
    }

    fn around<T>(&self, call: FileCall, run: impl FnOnce() -> Result<T>) -> Result<T> {
        self.hooked.around(&Call::OfFile { path: &self.path, call }, run)
    }

    fn target(&self, offset: u64, memory: &[u8]) -> Target {
        let align_bytes = 1_usize << memory.as_ptr().addr().trailing_zeros().min(20);
        Target { inode: self.inode, offset, direct: self.how.access == Access::Direct, align_bytes }
    }

    /// A write is the worst that the seam allows: a crash may keep its bytes as soon as it has
    /// begun, they become durable only when it returns, and a sync that began meanwhile does not
    /// cover them.
    fn write(&self, bytes: &[u8], offset: u64, is_dsync: bool) -> Result<()> {
        let call = Call::Write { path: &self.path, bytes, offset, is_dsync };
        self.hooked.around(&call, || {
            let name = if is_dsync { "pwritev2(RWF_DSYNC)" } else { "pwrite" };
            let failed = |source| Error::new(name, &self.path, source).at(offset);
            let mut state = self.lock();
            if self.how.read_only {
                return Err(failed(os_error(errno::EBADF)));
            }
            let target = self.target(offset, bytes);
            if target.direct && state.options.refuses_direct_writes {
                return Err(failed(os_error(errno::EINVAL)));
            }
            let Written { writes, result } = state.write(&target, bytes);
            state.in_flight.extend(&writes);
            drop(state);
            self.hooked.during(&Call::DuringWrite);
            let mut state = self.lock();
            for write in &writes {
                state.in_flight.remove(write);
            }
            let count = result.map_err(failed)?;
            let full = self.how.durability == Durability::OSync;
            let is_durable = is_dsync || full || self.how.durability == Durability::ODsync;
            if is_durable && count > 0 {
                state.counters.dsync_writes += 1;
                state.persist(&Durably {
                    inode: self.inode,
                    writes: &writes,
                    offset,
                    len: count as u64,
                    direct: target.direct,
                    full,
                });
            } else {
                state.take_time(|times| times.write);
            }
            Ok(())
        })
    }

    fn write_zeros(&self, state: &mut State, len_bytes: u64) -> Result<()> {
        let direct = self.how.access == Access::Direct;
        let sector = state.options.sector_bytes as u64;
        if direct && !len_bytes.is_multiple_of(sector) {
            let why = format!("{len_bytes} bytes are no multiple of {sector}");
            return Err(Error::invalid("write zeros", &self.path, why));
        }
        let zeros = vec![0; ZEROS_CHUNK_BYTES.min(len_bytes) as usize];
        let mut offset = 0;
        while offset < len_bytes {
            let len = ZEROS_CHUNK_BYTES.min(len_bytes - offset) as usize;
            let target = Target { inode: self.inode, offset, direct, align_bytes: 4096 };
            let written = state.write(&target, &zeros[..len]);
            written.result.map_err(|source| Error::new("pwrite", &self.path, source).at(offset))?;
            offset += len as u64;
        }
        Ok(())
    }

    fn reserve(&self, len_bytes: u64) -> Result<()> {
        let failed = |source| Error::new("fallocate", &self.path, source).at(0);
        if self.how.read_only {
            return Err(failed(os_error(errno::EBADF)));
        }
        self.lock().reserve(self.inode, len_bytes).map_err(|source| {
            let is_full = source.raw_os_error() == Some(errno::ENOSPC);
            let advice = format!("{len_bytes} bytes were asked for: free some room");
            if is_full { failed(source).advise(advice) } else { failed(source) }
        })
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.lock().close(self.inode);
    }
}

impl File for SimFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len_bytes(&self) -> Result<u64> {
        Ok(self.lock().inode(self.inode).size_bytes)
    }

    fn facts(&self) -> Result<FileFacts> {
        let state = self.lock();
        let inode = state.inode(self.inode);
        let has_unwritten_extents = inode.blocks.reserved.count() > 0;
        let blocks = blocks_of(0, inode.size_bytes);
        let has_holes = !inode.blocks.allocated.has_all(blocks);
        let hard_links = state.names_of(self.inode);
        Ok(FileFacts {
            inode: self.inode,
            hard_links,
            has_shared_extents: false,
            has_unwritten_extents,
            has_holes,
            // It has no clock.
            modified: None,
        })
    }

    fn own_name(&self) -> OwnName {
        let mut state = self.lock();
        let place = self.path.parent().zip(self.path.file_name().and_then(OsStr::to_str));
        let leads_to = place.and_then(|(directory, name)| {
            let directory = state.directory(directory);
            state.leads_to(directory, name)
        });
        match leads_to {
            Some(inode) if inode != self.inode => OwnName::Lost,
            Some(_) if state.names_of(self.inode) > 1 => OwnName::Linked,
            Some(_) => OwnName::Alone,
            None => OwnName::Lost,
        }
    }

    fn check_takes_changes(&self) -> Result<()> {
        self.around(FileCall::CheckTakesChanges, || {
            let mut state = self.lock();
            let name = Arc::clone(&state.inode(self.inode).name);
            match state.begin(OperationKind::Touch, &name, 0) {
                Some(Effect::Error(code)) => {
                    Err(Error::new("futimens", &self.path, os_error(code)))
                }
                _ => Ok(()),
            }
        })
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        let failed = |source| Error::new("ftruncate", &self.path, source).at(len_bytes);
        if self.how.read_only {
            return Err(failed(os_error(errno::EINVAL)));
        }
        self.around(FileCall::SetLen, || self.lock().resize(self.inode, len_bytes).map_err(failed))
    }

    fn forget_cached(&self) -> Result<()> {
        self.lock().forget_file(self.inode);
        Ok(())
    }

    /// Every second file is, so that both ways of reading are exercised.
    fn is_cached(&self) -> Result<bool> {
        Ok(self.inode.is_multiple_of(2))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.around(FileCall::Read, || {
            let target = self.target(offset, buffer);
            let read = self.lock().read(&target, buffer);
            read.map_err(|source| Error::new("pread", &self.path, source).at(offset))
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.write(bytes, offset, false)
    }

    fn write_dsync(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.write(bytes, offset, true)
    }

    /// Covers what was written before it began.
    fn sync(&self, kind: SyncKind) -> Result<()> {
        self.around(FileCall::Sync, || {
            let cover = self.lock().cover_now();
            self.hooked.during(&Call::DuringSync);
            let name = match kind {
                SyncKind::All => "fsync",
                SyncKind::Data => "fdatasync",
            };
            let synced = self.lock().sync(self.inode, kind, &cover);
            synced.map_err(|source| Error::new(name, &self.path, source))
        })
    }

    fn clock(&self) -> Duration {
        self.lock().clock
    }

    fn prepare(&self, preparation: Preparation, len_bytes: u64) -> Result<()> {
        self.around(FileCall::Prepare, || match preparation {
            Preparation::None => Ok(()),
            Preparation::Fallocate => self.reserve(len_bytes),
            Preparation::Zeros => {
                let mut state = self.lock();
                self.write_zeros(&mut state, len_bytes)?;
                let cover = state.cover_now();
                let synced = state.sync(self.inode, SyncKind::All, &cover);
                synced.map_err(|source| Error::new("fsync after zeros", &self.path, source))
            }
            other => Err(Error::unsupported(
                other.name(),
                &self.path,
                "this file system does not have it",
            )),
        })
    }
}
