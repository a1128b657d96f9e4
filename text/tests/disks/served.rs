//! A FUSE server in a process of its own, which can be killed and started again: a pass-through to
//! the files of one directory.
//!
//! *Owns*: the server and its process. *May not touch*: the log on it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session, TimeOrNow, WriteFlags,
};
use inkstone_host::unmount;

use crate::common::{LONG, wait_until};

const SERVES: &str = "INKSTONE_TEST_SERVES";
const TTL: Duration = Duration::ZERO;

struct PassThrough {
    from: PathBuf,
    /// By the number of their handles.
    open: Mutex<BTreeMap<u64, File>>,
}

fn attributes(facts: &fs::Metadata, inode: u64) -> FileAttr {
    let time = facts.modified().expect("a time");
    let kind = if facts.is_dir() { FileType::Directory } else { FileType::RegularFile };
    FileAttr {
        ino: INodeNo(inode),
        size: facts.len(),
        blocks: facts.blocks(),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm: (facts.mode() & 0o777) as u16,
        nlink: facts.nlink() as u32,
        uid: facts.uid(),
        gid: facts.gid(),
        rdev: 0,
        flags: 0,
        blksize: 4096,
    }
}

fn answer(error: &io::Error) -> Errno {
    Errno::from_i32(error.raw_os_error().unwrap_or(5))
}

impl PassThrough {
    fn files(&self) -> MutexGuard<'_, BTreeMap<u64, File>> {
        self.open.lock().expect("no panic")
    }

    /// The path of a file that has its own number here too.
    fn path(&self, inode: INodeNo) -> io::Result<PathBuf> {
        if inode.0 == 1 {
            return Ok(self.from.clone());
        }
        let mut entries = fs::read_dir(&self.from)?.flatten();
        let entry =
            entries.find(|entry| entry.metadata().is_ok_and(|facts| facts.ino() == inode.0));
        entry.map(|entry| entry.path()).ok_or_else(|| io::Error::from_raw_os_error(2))
    }

    fn keep(&self, file: File) -> FileHandle {
        let mut files = self.files();
        let handle = files.last_key_value().map_or(1, |(last, _)| last + 1);
        files.insert(handle, file);
        FileHandle(handle)
    }

    fn with<T>(
        &self,
        handle: FileHandle,
        work: impl FnOnce(&File) -> io::Result<T>,
    ) -> io::Result<T> {
        work(self.files().get(&handle.0).ok_or_else(|| io::Error::from_raw_os_error(9))?)
    }

    fn facts(&self, inode: INodeNo) -> io::Result<FileAttr> {
        Ok(attributes(&fs::metadata(self.path(inode)?)?, inode.0))
    }
}

impl Filesystem for PassThrough {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match fs::metadata(self.from.join(name)) {
            Ok(facts) => reply.entry(&TTL, &attributes(&facts, facts.ino()), Generation(0)),
            Err(error) => reply.error(answer(&error)),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.facts(inode) {
            Ok(facts) => reply.attr(&TTL, &facts),
            Err(error) => reply.error(answer(&error)),
        }
    }

    #[rustfmt::skip]
    fn setattr(
        &self, request: &Request, inode: INodeNo, _: Option<u32>, _: Option<u32>, _: Option<u32>, _: Option<u64>,
        _: Option<TimeOrNow>, _: Option<TimeOrNow>, _: Option<std::time::SystemTime>, handle: Option<FileHandle>,
        _: Option<std::time::SystemTime>, _: Option<std::time::SystemTime>, _: Option<std::time::SystemTime>,
        _: Option<fuser::BsdFileFlags>, reply: ReplyAttr,
    ) {
        self.getattr(request, inode, handle, reply);
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.path(inode);
        match opened.and_then(|path| File::options().read(true).write(true).open(path)) {
            Ok(file) => reply.opened(self.keep(file), FopenFlags::empty()),
            Err(error) => reply.error(answer(&error)),
        }
    }

    #[rustfmt::skip]
    fn create(
        &self, _: &Request, _: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate,
    ) {
        let path = self.from.join(name);
        let made = File::options().read(true).write(true).create(true).truncate(false).open(path);
        match made.and_then(|file| Ok((file.metadata()?, file))) {
            Ok((facts, file)) => {
                let attributes = attributes(&facts, facts.ino());
                reply.created(&TTL, &attributes, Generation(0), self.keep(file), FopenFlags::empty());
            }
            Err(error) => reply.error(answer(&error)),
        }
    }

    #[rustfmt::skip]
    fn read(
        &self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, size: u32, _: OpenFlags, _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        match self.with(handle, |file| file.read_at(&mut bytes, offset)) {
            Ok(count) => reply.data(&bytes[..count]),
            Err(error) => reply.error(answer(&error)),
        }
    }

    #[rustfmt::skip]
    fn write(
        &self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, data: &[u8], _: WriteFlags, _: OpenFlags,
        _: Option<LockOwner>, reply: ReplyWrite,
    ) {
        match self.with(handle, |file| file.write_at(data, offset)) {
            Ok(count) => reply.written(count as u32),
            Err(error) => reply.error(answer(&error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    #[rustfmt::skip]
    fn release(
        &self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, _: Option<LockOwner>, _: bool,
        reply: ReplyEmpty,
    ) {
        self.files().remove(&handle.0);
        reply.ok();
    }

    #[rustfmt::skip]
    fn readdir(
        &self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory,
    ) {
        let entries = fs::read_dir(&self.from).into_iter().flatten().flatten();
        for (at, entry) in (1..).zip(entries).skip(offset as usize) {
            let inode = INodeNo(entry.metadata().map_or(0, |facts| facts.ino()));
            if reply.add(inode, at, FileType::RegularFile, entry.file_name()) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 4096, 255, 4096);
    }
}

/// Not a test by itself: the process that serves.
#[test]
fn server() {
    let Some(word) = std::env::var_os(SERVES) else { return };
    let word = word.to_str().and_then(|word| word.split_once(' '));
    let (from, at) = word.expect("two directories");
    let served = PassThrough { from: from.into(), open: Mutex::default() };
    let session = Session::new(served, Path::new(at), &Config::default()).expect("mounted");
    session.spawn().expect("a thread").join().expect("served");
}

/// The running server.
pub(crate) struct Server {
    process: Child,
    at: PathBuf,
}

impl Server {
    /// Serves the files of one directory at another one.
    pub(crate) fn start(from: &Path, at: &Path) -> Self {
        let device = || fs::metadata(at).map(|facts| facts.dev()).ok();
        let before = device();
        let mut server = Command::new(std::env::current_exe().expect("this program"));
        server.args(["--exact", "served::server", "--nocapture"]).stdout(Stdio::null());
        server.env(SERVES, format!("{} {}", from.display(), at.display()));
        let server = Self { process: server.spawn().expect("a server"), at: at.to_path_buf() };
        wait_until("the mount", || device().is_some() && device() != before);
        server
    }

    /// Kills it: whoever uses its files gets an error.
    pub(crate) fn kill(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).expect("killed");
    }

    /// Its directory is what it was before; an error if a process has anything of it open.
    pub(crate) fn unmount(&self) {
        unmount(&self.at, LONG).expect("nobody has it open");
    }
}
