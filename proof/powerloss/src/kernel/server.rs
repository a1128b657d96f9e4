//! Disks in memory as files that a loop device can be attached to: a file system of our own by
//! FUSE.
//!
//! *Owns*: the mount and the thread that answers the kernel. *May not touch*: how a disk carries
//! out requests (`disk.rs`). Its thread must do nothing that could wait for the mount itself, or
//! the two would wait for each other.
//!
//! Each file is opened for direct I/O, so that a write of the loop device arrives as it was sent,
//! once, without a page cache in between. One thread answers the requests, one after the other.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, TimeOrNow,
    WriteFlags,
};

use inkstone_host::{ServedMount, unmount};

use super::disk::{Disk, Failure};

/// The kernel caches nothing: disks come and go under one name.
const TTL: Duration = Duration::ZERO;
/// Another process may have one of its files open for this long.
const BUSY_FOR: Duration = Duration::from_secs(3);
const FALLOCATE_PUNCH_HOLE: i32 = 2;
const FALLOCATE_ZERO_RANGE: i32 = 16;
const FALLOCATE_KEEP_SIZE: i32 = 1;

type Disks = Arc<RwLock<Vec<Disk>>>;

/// The mounted file system; dropping it unmounts it. First unmount and detach what is on its disks.
#[derive(Debug)]
pub struct DiskServer {
    target: PathBuf,
    disks: Disks,
    session: Option<BackgroundSession>,
    /// A killed process must not wait for its own answers.
    _watch: ServedMount,
}

impl DiskServer {
    /// Mounts it at `target`, an empty directory.
    pub fn mount(target: &Path) -> io::Result<Self> {
        let disks = Disks::default();
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::FSName("inkstone-powerloss".into()), MountOption::NoAtime];
        let session =
            Session::new(Files { disks: Arc::clone(&disks) }, target, &config)?.spawn()?;
        let watch =
            ServedMount::watch(target).map_err(|error| io::Error::new(error.kind(), error))?;
        Ok(Self { target: target.to_path_buf(), disks, session: Some(session), _watch: watch })
    }

    /// Serves a disk and returns its file. A disk of the same name is replaced.
    pub fn serve(&self, disk: &Disk) -> PathBuf {
        let mut disks = self.disks.write().unwrap_or_else(PoisonError::into_inner);
        match disks.iter_mut().find(|known| known.name() == disk.name()) {
            Some(known) => *known = disk.clone(),
            None => disks.push(disk.clone()),
        }
        self.target.join(disk.name())
    }

    pub fn unmount(mut self) -> io::Result<()> {
        // The kernel closes a loop device's file a little after the device is detached, and other
        // programs may scan all directories.
        unmount(&self.target, BUSY_FOR).map_err(|error| io::Error::new(error.kind(), error))?;
        self.session.take().map_or(Ok(()), BackgroundSession::join)
    }
}

impl Drop for DiskServer {
    fn drop(&mut self) {
        // On a drop the rest is removed with the work directory.
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }
}

struct Files {
    disks: Disks,
}

/// A file, or the directory of a server.
fn attributes(inode: u64, size: u64, kind: FileType) -> FileAttr {
    let epoch = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(inode),
        size,
        blocks: size.div_ceil(512),
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind,
        perm: if kind == FileType::Directory { 0o700 } else { 0o600 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        flags: 0,
        blksize: 4096,
    }
}

impl Files {
    fn disk(&self, inode: INodeNo) -> Option<Disk> {
        let index = usize::try_from(u64::from(inode).checked_sub(2)?).ok()?;
        self.disks.read().unwrap_or_else(PoisonError::into_inner).get(index).cloned()
    }
}

fn errno(failure: Failure) -> Errno {
    match failure {
        Failure::Error => Errno::EIO,
        Failure::NoSpace => Errno::ENOSPC,
    }
}

fn answer(reply: ReplyEmpty, result: Option<Result<(), Failure>>) {
    match result {
        Some(Ok(())) => reply.ok(),
        Some(Err(failure)) => reply.error(errno(failure)),
        None => reply.error(Errno::ENOENT),
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Larger pieces mean fewer switches. Where they are split does not matter, since a write
        // tears at every sector.
        let _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let disks = self.disks.read().unwrap_or_else(PoisonError::into_inner);
        match disks.iter().position(|disk| OsStr::new(disk.name()) == name) {
            Some(index) => {
                let size = disks[index].len_bytes();
                let found = attributes(index as u64 + 2, size, FileType::RegularFile);
                reply.entry(&TTL, &found, Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if inode == INodeNo::ROOT {
            return reply.attr(&TTL, &attributes(1, 0, FileType::Directory));
        }
        match self.disk(inode) {
            Some(disk) => {
                reply.attr(&TTL, &attributes(inode.into(), disk.len_bytes(), FileType::RegularFile))
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    #[rustfmt::skip]
    fn setattr(
        &self, request: &Request, inode: INodeNo, _: Option<u32>, _: Option<u32>, _: Option<u32>,
        size: Option<u64>, _: Option<TimeOrNow>, _: Option<TimeOrNow>, _: Option<SystemTime>,
        handle: Option<FileHandle>, _: Option<SystemTime>, _: Option<SystemTime>,
        _: Option<SystemTime>, _: Option<fuser::BsdFileFlags>, reply: ReplyAttr,
    ) {
        // A disk keeps its size.
        match size {
            Some(_) => reply.error(Errno::EPERM),
            None => self.getattr(request, inode, handle, reply),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.disk(inode) {
            Some(_) => reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO),
            None => reply.error(Errno::ENOENT),
        }
    }

    #[rustfmt::skip]
    fn read(
        &self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, size: u32, _: OpenFlags,
        _: Option<LockOwner>, reply: ReplyData,
    ) {
        match self.disk(inode).map(|disk| disk.read(offset, size as usize)) {
            Some(Ok(bytes)) => reply.data(&bytes),
            Some(Err(failure)) => reply.error(errno(failure)),
            None => reply.error(Errno::ENOENT),
        }
    }

    #[rustfmt::skip]
    fn write(
        &self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, data: &[u8], _: WriteFlags,
        _: OpenFlags, _: Option<LockOwner>, reply: ReplyWrite,
    ) {
        match self.disk(inode).map(|disk| disk.write(offset, data)) {
            Some(Ok(())) => reply.written(data.len() as u32),
            Some(Err(failure)) => reply.error(errno(failure)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // FUSE's `flush` reports a closed descriptor: it is not a flush of a disk.
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(reply, self.disk(inode).map(|disk| disk.flush()));
    }

    #[rustfmt::skip]
    fn fallocate(
        &self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, length: u64, mode: i32,
        reply: ReplyEmpty,
    ) {
        match mode & !FALLOCATE_KEEP_SIZE {
            FALLOCATE_PUNCH_HOLE | FALLOCATE_ZERO_RANGE => {
                answer(reply, self.disk(inode).map(|disk| disk.clear(offset, length)));
            }
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let disks = self.disks.read().unwrap_or_else(PoisonError::into_inner);
        for (index, disk) in disks.iter().enumerate().skip(offset as usize) {
            let inode = INodeNo(index as u64 + 2);
            if reply.add(inode, index as u64 + 1, FileType::RegularFile, disk.name()) {
                break;
            }
        }
        reply.ok();
    }
}
