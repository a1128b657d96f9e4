//! A FUSE server in a process of its own, which can be killed and started again: a pass-through to
//! the files of one directory.
//!
//! *Owns*: the server and its process. *May not touch*: the log on it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, Session, WriteFlags,
};
use inkstone_host::unmount;

use crate::common::{LONG, wait_until};

const SERVES: &str = "INKSTONE_TEST_SERVES";
const TTL: Duration = Duration::ZERO;
/// With a file of this name the server ends when it has written something, before it says so.
pub(crate) const ENDS_UNANSWERED: &str = "ends-unanswered";

/// Each call opens the file that it needs.
struct PassThrough(PathBuf);

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
    /// The path of a file that has its own number here too.
    fn path(&self, inode: INodeNo) -> io::Result<PathBuf> {
        if inode.0 == 1 {
            return Ok(self.0.clone());
        }
        let mut entries = fs::read_dir(&self.0)?.flatten();
        let is_it =
            |entry: &fs::DirEntry| entry.metadata().is_ok_and(|facts| facts.ino() == inode.0);
        entries.find(is_it).map(|entry| entry.path()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn file(&self, inode: INodeNo) -> io::Result<File> {
        File::options().read(true).write(true).open(self.path(inode)?)
    }
}

impl Filesystem for PassThrough {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match fs::metadata(self.0.join(name)) {
            Ok(facts) => reply.entry(&TTL, &attributes(&facts, facts.ino()), Generation(0)),
            Err(error) => reply.error(answer(&error)),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.path(inode).and_then(fs::metadata) {
            Ok(facts) => reply.attr(&TTL, &attributes(&facts, inode.0)),
            Err(error) => reply.error(answer(&error)),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    #[rustfmt::skip]
    fn create(
        &self, _: &Request, _: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate,
    ) {
        let path = self.0.join(name);
        let made = File::options().read(true).write(true).create(true).truncate(false).open(path);
        match made.and_then(|file| file.metadata()) {
            Ok(facts) => {
                let attributes = attributes(&facts, facts.ino());
                reply.created(&TTL, &attributes, Generation(0), FileHandle(0), FopenFlags::empty());
            }
            Err(error) => reply.error(answer(&error)),
        }
    }

    #[rustfmt::skip]
    fn read(
        &self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, size: u32, _: OpenFlags,
        _: Option<LockOwner>, reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        match self.file(inode).and_then(|file| file.read_at(&mut bytes, offset)) {
            Ok(count) => reply.data(&bytes[..count]),
            Err(error) => reply.error(answer(&error)),
        }
    }

    #[rustfmt::skip]
    fn write(
        &self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, data: &[u8],
        _: WriteFlags, _: OpenFlags, _: Option<LockOwner>, reply: ReplyWrite,
    ) {
        let written = self.file(inode).and_then(|file| file.write_at(data, offset));
        if self.0.join(ENDS_UNANSWERED).exists() {
            std::process::exit(1);
        }
        match written {
            Ok(count) => reply.written(count as u32),
            Err(error) => reply.error(answer(&error)),
        }
    }

    #[rustfmt::skip]
    fn readdir(
        &self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory,
    ) {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        for (at, entry) in (1..).zip(entries).skip(offset as usize) {
            let inode = INodeNo(entry.metadata().map_or(0, |facts| facts.ino()));
            if reply.add(inode, at, FileType::RegularFile, entry.file_name()) {
                break;
            }
        }
        reply.ok();
    }
}

/// Not a test by itself: the process that serves.
#[test]
fn server() {
    let Some(word) = std::env::var_os(SERVES) else { return };
    let word = word.to_str().and_then(|word| word.split_once(' '));
    let (from, at) = word.expect("two directories");
    let session =
        Session::new(PassThrough(from.into()), Path::new(at), &Config::default()).expect("mounted");
    session.spawn().expect("a thread").join().expect("served");
}

/// The server of one directory's files at another one. Dropping it ends and unmounts it.
pub(crate) struct Server {
    process: Child,
    from: PathBuf,
    at: PathBuf,
}

fn process(from: &Path, at: &Path) -> Child {
    let device = || fs::metadata(at).map(|facts| facts.dev()).ok();
    let before = device();
    let mut server = Command::new(std::env::current_exe().expect("this program"));
    server.args(["--exact", "served::server", "--nocapture"]).stdout(Stdio::null());
    server.env(SERVES, format!("{} {}", from.display(), at.display()));
    let server = server.spawn().expect("a server");
    wait_until("the mount", || device().is_some() && device() != before);
    server
}

impl Server {
    pub(crate) fn start(from: &Path, at: &Path) -> Self {
        Self { process: process(from, at), from: from.to_path_buf(), at: at.to_path_buf() }
    }

    /// Once it is unmounted.
    pub(crate) fn start_again(&mut self) {
        self.process = process(&self.from, &self.at);
    }

    /// Kills it, if it has not ended: whoever uses its files gets an error.
    pub(crate) fn kill(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).expect("killed");
    }

    /// Its directory is what it was before; an error if a process has anything of it open.
    pub(crate) fn unmount(&self) {
        unmount(&self.at, LONG).expect("nobody has it open");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill().and_then(|()| self.process.wait());
        let _ = unmount(&self.at, Duration::from_secs(1));
    }
}
