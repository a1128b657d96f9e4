//! A file system that refuses one thing: a FUSE server of this process, with files in memory.
//!
//! *Owns*: the server, and the table of what it refuses. *May not touch*: the story (`main.rs`).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLock, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, Session, TimeOrNow, WriteFlags,
};
use inkstone::{Log, Options};
use inkstone_host::{ServedMount, unmount};
use inkstone_io::Access;
use inkstone_powerloss::kernel::server::attributes;

use super::host_support::{not_run, temporary};
use super::{Told, append, check_whole, options};

const TTL: Duration = Duration::ZERO;
const DIRECT: i32 = libc::O_DIRECT;

/// What may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thing {
    Nothing,
    OpenDirect,
    WriteDirect,
    ReadDirect,
    Reserve,
    RenameFlags,
    Times,
    Room,
    SyncFile,
    SyncDirectory,
    Locks,
}

/// Of these a log has no need; of the others its writer has, and no reader.
const SPARED: [Thing; 8] = [
    Thing::Nothing,
    Thing::OpenDirect,
    Thing::WriteDirect,
    Thing::ReadDirect,
    Thing::Reserve,
    Thing::RenameFlags,
    Thing::Times,
    Thing::Room,
];
const NEEDED_TO_WRITE: [Thing; 3] = [Thing::SyncFile, Thing::SyncDirectory, Thing::Locks];

struct State {
    refuses: Thing,
    answer: i32,
    files: BTreeMap<u64, (String, Vec<u8>)>,
    next: u64,
}

#[derive(Clone)]
struct Odd(Arc<Mutex<State>>);

impl Odd {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn set(&self, refuses: Thing, answer: i32) {
        let mut state = self.state();
        (state.refuses, state.answer) = (refuses, answer);
    }
}

impl State {
    fn refused(&self, thing: Thing) -> Option<Errno> {
        (self.refuses == thing).then(|| Errno::from_i32(self.answer))
    }

    fn named(&self, name: &OsStr) -> Option<u64> {
        self.files.iter().find(|(_, (known, _))| OsStr::new(known) == name).map(|(inode, _)| *inode)
    }

    fn facts(&self, inode: u64) -> Option<FileAttr> {
        let file = self.files.get(&inode);
        if inode != 1 && file.is_none() {
            return None;
        }
        let kind = if inode == 1 { FileType::Directory } else { FileType::RegularFile };
        let size = file.map_or(0, |(_, bytes)| bytes.len() as u64);
        Some(attributes(inode, size, kind))
    }
}

fn done(reply: ReplyEmpty, refused: Option<Errno>) {
    match refused {
        Some(errno) => reply.error(errno),
        None => reply.ok(),
    }
}

impl Filesystem for Odd {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Otherwise the kernel keeps the locks itself.
        let _ = config.add_capabilities(InitFlags::FUSE_POSIX_LOCKS);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let state = self.state();
        match state.named(name).and_then(|inode| state.facts(inode)) {
            Some(facts) => reply.entry(&TTL, &facts, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.state().facts(inode.into()) {
            Some(facts) => reply.attr(&TTL, &facts),
            None => reply.error(Errno::ENOENT),
        }
    }

    #[rustfmt::skip]
    fn setattr(
        &self, _: &Request, inode: INodeNo, _: Option<u32>, _: Option<u32>, _: Option<u32>,
        size: Option<u64>, accessed: Option<TimeOrNow>, _: Option<TimeOrNow>, _: Option<SystemTime>,
        _: Option<FileHandle>, _: Option<SystemTime>, _: Option<SystemTime>, _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>, reply: ReplyAttr,
    ) {
        let mut state = self.state();
        if let Some(errno) = state.refused(Thing::Times).filter(|_| accessed.is_some()) {
            return reply.error(errno);
        }
        if let (Some(size), Some((_, bytes))) = (size, state.files.get_mut(&inode.into())) {
            bytes.resize(size as usize, 0);
        }
        match state.facts(inode.into()) {
            Some(facts) => reply.attr(&TTL, &facts),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.state().refused(Thing::OpenDirect).filter(|_| flags.0 & DIRECT != 0) {
            Some(errno) => reply.error(errno),
            None => reply.opened(FileHandle(0), FopenFlags::empty()),
        }
    }

    #[rustfmt::skip]
    fn create(
        &self, _: &Request, _: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate,
    ) {
        let mut state = self.state();
        let inode = state.next;
        state.next += 1;
        state.files.insert(inode, (name.to_str().unwrap().to_owned(), Vec::new()));
        let facts = state.facts(inode).unwrap();
        reply.created(&TTL, &facts, Generation(0), FileHandle(0), FopenFlags::empty());
    }

    #[rustfmt::skip]
    fn read(
        &self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, size: u32, flags: OpenFlags,
        _: Option<LockOwner>, reply: ReplyData,
    ) {
        let state = self.state();
        if let Some(errno) = state.refused(Thing::ReadDirect).filter(|_| flags.0 & DIRECT != 0) {
            return reply.error(errno);
        }
        let Some((_, bytes)) = state.files.get(&inode.into()) else {
            return reply.error(Errno::ENOENT);
        };
        let from = bytes.len().min(offset as usize);
        reply.data(&bytes[from..bytes.len().min(from + size as usize)]);
    }

    #[rustfmt::skip]
    fn write(
        &self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, data: &[u8], _: WriteFlags,
        flags: OpenFlags, _: Option<LockOwner>, reply: ReplyWrite,
    ) {
        let mut state = self.state();
        if let Some(errno) = state.refused(Thing::WriteDirect).filter(|_| flags.0 & DIRECT != 0) {
            return reply.error(errno);
        }
        let Some((_, bytes)) = state.files.get_mut(&inode.into()) else {
            return reply.error(Errno::ENOENT);
        };
        let end = offset as usize + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(data);
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(reply, self.state().refused(Thing::SyncFile));
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(reply, self.state().refused(Thing::SyncDirectory));
    }

    #[rustfmt::skip]
    fn fallocate(
        &self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, length: u64, mode: i32,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        if let Some(errno) = state.refused(Thing::Reserve) {
            return reply.error(errno);
        }
        match state.files.get_mut(&inode.into()) {
            Some((_, bytes)) if mode == 0 => {
                let end = (offset + length) as usize;
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                reply.ok();
            }
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut state = self.state();
        match state.named(name) {
            // Its bytes stay for those who have it open.
            Some(inode) => {
                state.files.get_mut(&inode).unwrap().0 = format!("/{inode}");
                reply.ok();
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    #[rustfmt::skip]
    fn rename(
        &self, _: &Request, _: INodeNo, name: &OsStr, _: INodeNo, new: &OsStr, flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        if let Some(errno) = state.refused(Thing::RenameFlags).filter(|_| !flags.is_empty()) {
            return reply.error(errno);
        }
        let Some(inode) = state.named(name) else { return reply.error(Errno::ENOENT) };
        match state.named(new) {
            Some(_) if !flags.is_empty() => return reply.error(Errno::EEXIST),
            Some(old) => state.files.get_mut(&old).unwrap().0 = format!("/{old}"),
            None => {}
        }
        state.files.get_mut(&inode).unwrap().0 = new.to_str().unwrap().to_owned();
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let state = self.state();
        for (inode, (name, _)) in &state.files {
            let is_shown = *inode > offset && !name.starts_with('/');
            if is_shown && reply.add(INodeNo(*inode), *inode, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.state().refused(Thing::Room) {
            Some(errno) => reply.error(errno),
            None => reply.statfs(1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 4096, 255, 4096),
        }
    }

    #[rustfmt::skip]
    fn getlk(
        &self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, start: u64, end: u64, _: i32,
        _: u32, reply: ReplyLock,
    ) {
        match self.state().refused(Thing::Locks) {
            Some(errno) => reply.error(errno),
            None => reply.locked(start, end, i32::from(libc::F_UNLCK as i16), 0),
        }
    }

    #[rustfmt::skip]
    fn setlk(
        &self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, _: u64, _: u64, _: i32, _: u32,
        _: bool, reply: ReplyEmpty,
    ) {
        done(reply, self.state().refused(Thing::Locks));
    }
}

struct Mounted {
    odd: Odd,
    directory: tempfile::TempDir,
    session: Option<BackgroundSession>,
    _watch: ServedMount,
}

impl Mounted {
    fn new() -> io::Result<Self> {
        let directory = tempfile::tempdir_in(temporary())?;
        let state = State { refuses: Thing::Nothing, answer: 0, files: BTreeMap::new(), next: 2 };
        let odd = Odd(Arc::new(Mutex::new(state)));
        let session = Session::new(odd.clone(), directory.path(), &Config::default())?.spawn()?;
        let watch = ServedMount::watch(directory.path()).map_err(io::Error::other)?;
        Ok(Self { odd, directory, session: Some(session), _watch: watch })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn end(mut self) {
        unmount(self.path(), Duration::from_secs(3)).unwrap();
        self.session.take().unwrap().join().unwrap();
    }
}

fn can_mount(test: &str) -> bool {
    if inkstone_io::is_root() && File::open("/dev/fuse").is_ok() {
        return true;
    }
    not_run(test, "it needs root and /dev/fuse");
    false
}

fn answers(thing: Thing) -> Vec<i32> {
    match thing {
        Thing::Nothing => vec![0],
        Thing::Locks => vec![libc::ENOLCK, libc::EOPNOTSUPP, libc::EINVAL],
        // To ENOSYS the kernel itself has a substitute for most.
        _ => vec![libc::EINVAL, libc::EPERM, libc::EOPNOTSUPP],
    }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn what_a_file_system_lacks_and_a_log_can_do_without_is_no_error() {
    if !can_mount("what_a_file_system_lacks") {
        return;
    }
    let mut faults = Vec::new();
    for thing in SPARED {
        let is_about_direct =
            [Thing::OpenDirect, Thing::WriteDirect, Thing::ReadDirect].contains(&thing);
        // The rule does not choose it here.
        let asked: &[_] = if is_about_direct { &[None, Some(Access::Direct)] } else { &[None] };
        for (answer, access) in answers(thing)
            .into_iter()
            .flat_map(|answer| asked.iter().map(move |access| (answer, *access)))
        {
            let mounted = Mounted::new().unwrap();
            mounted.odd.set(thing, answer);
            let to = tempfile::tempdir_in(temporary()).unwrap();
            let options: Options = access.map_or_else(options, |access| options().access(access));
            let mut told = Told::default();
            for _ in 0..2 {
                told.open_and_write("log", mounted.path(), &options, 30);
            }
            told.read(mounted.path(), to.path());
            // Where O_DIRECT was asked for and is known to be refused, the options are refused.
            told.refused.retain(|(_, error)| access.is_none() || !error.contains("O_DIRECT"));
            if !told.refused.is_empty() || !told.doubts.is_empty() {
                faults.push(format!(
                    "{thing:?} {answer} {access:?}: {:?} {:?}",
                    told.refused, told.doubts
                ));
            }
            mounted.odd.set(Thing::Nothing, 0);
            check_whole(mounted.path(), told.last("log"));
            mounted.end();
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn what_a_file_system_lacks_and_a_writer_needs_keeps_no_reader_away() {
    if !can_mount("what_a_file_system_lacks_and_a_writer_needs") {
        return;
    }
    let mut faults = Vec::new();
    for thing in NEEDED_TO_WRITE {
        for answer in answers(thing) {
            let mounted = Mounted::new().unwrap();
            let to = tempfile::tempdir_in(temporary()).unwrap();
            let log = Log::open(mounted.path(), options().own_thread(false)).unwrap();
            append(&log, 30);
            log.abandon();
            mounted.odd.set(thing, answer);
            let mut told = Told::default();
            told.read(mounted.path(), to.path());
            let why = format!("{thing:?} {answer}");
            if !told.refused.is_empty() || told.doubts.is_empty() {
                faults.push(format!("{why}: {:?} {:?}", told.refused, told.doubts));
            }
            match Log::open(mounted.path(), options()) {
                Ok(_) => faults.push(format!("{why}: it opens for writing")),
                Err(error) if !error.to_string().contains("; ") => {
                    faults.push(format!("{why}: {error}"))
                }
                Err(_) => {}
            }
            mounted.odd.set(Thing::Nothing, 0);
            check_whole(mounted.path(), 30);
            mounted.end();
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
