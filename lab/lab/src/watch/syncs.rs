//! The syncs that a program asked for: each with its file, its thread, its start and its end.
//!
//! *Owns*: pairing calls with their ends, with the file systems' events, and with the requests of
//! io_uring and Linux AIO. *May not touch*: requests to the disk (`tally`).
//!
//! The file system's event within the call names the file by its inode, which stays right if the
//! descriptor is used again. Without an event the call's descriptor names the file.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use inkstone_host::{Call, DeviceNumber, RequestOp, TraceEvent, TraceKind};

use super::recording::{Descriptor, Recording, SeenFile};

/// How a program asked for durability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the others are named by `words`")]
pub enum How {
    Fsync,
    Fdatasync,
    /// `sync_file_range`, which does not make anything durable by itself.
    SyncFileRange,
    /// `msync(MS_SYNC)`.
    Msync,
    Syncfs,
    /// `sync`, of all file systems.
    SyncAll,
    /// A write to a descriptor opened with O_DSYNC.
    DsyncWrite,
    /// A write to a descriptor opened with O_SYNC, or with RWF_SYNC.
    SyncWrite,
    RwfDsync,
    RingFsync,
    /// A write of io_uring that is durable without a sync.
    RingWrite,
    /// A sync by a kernel worker, for Linux AIO.
    Aio,
    /// A durable write outside of any traced call, such as one of Linux AIO.
    Other,
}

impl How {
    /// Its name.
    pub fn words(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Fdatasync => "fdatasync",
            Self::SyncFileRange => "sync_file_range",
            Self::Msync => "msync",
            Self::Syncfs => "syncfs",
            Self::SyncAll => "sync",
            Self::DsyncWrite => "O_DSYNC write",
            Self::SyncWrite => "O_SYNC write",
            Self::RwfDsync => "RWF_DSYNC write",
            Self::RingFsync => "io_uring fsync",
            Self::RingWrite => "io_uring O_DSYNC write",
            Self::Aio => "Linux AIO sync",
            Self::Other => "durable write",
        }
    }
}

impl How {
    /// Whether it is a write that carries its durability, so that each of them has data.
    pub fn is_write(self) -> bool {
        use How::{Aio, DsyncWrite, Other, RingWrite, RwfDsync, SyncWrite};
        matches!(self, Aio | DsyncWrite | Other | RingWrite | RwfDsync | SyncWrite)
    }
}

/// One sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sync {
    /// How it was asked for.
    pub how: How,
    /// Which file, as a place in [`Syncs::files`].
    pub file: usize,
    /// The thread that asked.
    pub thread: u32,
    /// The kernel thread that made it, if it was another thread.
    pub worker: Option<u32>,
    /// When it began.
    pub start_ns: u64,
    /// When it had ended.
    pub end_ns: u64,
    /// Whether it was a data sync, which leaves time stamps out.
    pub data_only: bool,
    /// Whether it returned an error.
    pub failed: bool,
}

/// A write call that was traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// Which file.
    pub file: usize,
    /// How many bytes; `None` if the call's arguments do not show it (`writev`).
    pub bytes: Option<u64>,
    /// When it began.
    pub start_ns: u64,
}

/// All syncs of a recording, and the files that they name.
#[derive(Debug, Clone, Default)]
pub struct Syncs {
    /// The recording's files, then files that only events name.
    pub files: Vec<SeenFile>,
    /// The syncs, ordered by their start.
    pub syncs: Vec<Sync>,
    /// The traced writes.
    pub writes: Vec<Write>,
    /// The program's threads, each with its process, including short-lived ones.
    pub(super) threads: HashMap<u32, u32>,
    /// The files by the inode numbers of events.
    pub(super) by_inode: HashMap<(Option<DeviceNumber>, u64), usize>,
    /// For each thread, when it began to write to which file past the page cache.
    pub(super) direct: HashMap<u32, Vec<(u64, usize)>>,
    /// How many calls have no row, since their file could not be named.
    pub unnamed: u64,
}

impl Syncs {
    /// The file that an event names. The events of btrfs have a device number that `stat` does not
    /// show.
    pub(super) fn file_at(&self, device: DeviceNumber, inode: u64) -> Option<usize> {
        let at = |key| self.by_inode.get(&key).copied();
        at((Some(device), inode)).or(at((None, inode)))
    }
}

const RING_FSYNC: u8 = 3;
const RING_WRITES: [u8; 3] = [2, 5, 23];
const MS_SYNC: u32 = 4;
const RWF_DSYNC: u32 = 2;
const RWF_SYNC: u32 = 4;

/// A call, or a request of a ring, that has not ended; or a file system's sync outside of a call:
/// by a worker of io_uring or of the kernel.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// How it was asked for, if a call showed that.
    how: Option<How>,
    thread: u32,
    start_ns: u64,
    descriptor: Option<u32>,
    file: Option<usize>,
    bytes: Option<u64>,
    data_only: bool,
    /// Whether the file system reported it.
    is_told: bool,
    /// When the file system finished it, and whether it failed.
    synced: Option<(u64, bool)>,
    /// When its thread asked for a flush or a FUA write, and when the next one ended: its end where
    /// the file system does not report it.
    asked_ns: Option<u64>,
    flushed_ns: Option<u64>,
    /// How many flushes it asked for that have not ended.
    flushes: u32,
    /// Whether it is the second half of a ring's request, or its end was not seen.
    is_taken: bool,
}

impl Open {
    fn at(start_ns: u64, thread: u32) -> Self {
        Self {
            how: None,
            thread,
            start_ns,
            descriptor: None,
            file: None,
            bytes: None,
            data_only: false,
            is_told: false,
            synced: None,
            asked_ns: None,
            flushed_ns: None,
            flushes: 0,
            is_taken: false,
        }
    }

    fn ended(&self, how: How, file: usize, (end_ns, failed): (u64, bool)) -> Sync {
        let Self { thread, start_ns, data_only, .. } = *self;
        Sync { how, file, thread, worker: None, start_ns, end_ns, data_only, failed }
    }
}

/// The file of a sync that neither an event nor /proc has named.
const UNKNOWN: usize = usize::MAX;

/// Finds the syncs of a recording.
pub fn syncs_of(recording: &Recording) -> Syncs {
    let mut finder = Finder::of(recording);
    recording.events.iter().for_each(|event| finder.see(event));
    finder.finish()
}

struct Finder<'a> {
    recording: &'a Recording,
    descriptors: HashMap<(u32, u32), Vec<Descriptor>>,
    /// Inode numbers that several files of btrfs share: there the call's descriptor names the file.
    ambiguous: HashSet<u64>,
    calls: HashMap<u32, Open>,
    ring: HashMap<u64, Open>,
    /// The file systems' syncs outside of calls.
    workers: Vec<Open>,
    running: HashMap<u32, usize>,
    /// Those whose flush has not ended.
    flushing: Vec<usize>,
    found: Syncs,
}

impl<'a> Finder<'a> {
    fn of(recording: &'a Recording) -> Self {
        let mut by_inode = HashMap::new();
        let mut ambiguous = HashSet::new();
        for (index, file) in recording.files.iter().enumerate() {
            by_inode.insert((Some(file.device), file.inode), index);
            // Events of btrfs have no device, and subvolumes use the same inode numbers.
            if recording.is_btrfs(file.place)
                && by_inode.insert((None, file.inode), index).is_some()
            {
                ambiguous.insert(file.inode);
            }
        }
        ambiguous.iter().for_each(|&inode| _ = by_inode.remove(&(None, inode)));
        let mut descriptors: HashMap<(u32, u32), Vec<Descriptor>> = HashMap::new();
        for seen in &recording.descriptors {
            descriptors.entry((seen.process, seen.number)).or_default().push(*seen);
        }
        Self {
            recording,
            descriptors,
            ambiguous,
            calls: HashMap::new(),
            ring: HashMap::new(),
            workers: Vec::new(),
            running: HashMap::new(),
            flushing: Vec::new(),
            found: Syncs {
                files: recording.files.clone(),
                threads: recording.threads.clone(),
                by_inode,
                ..Syncs::default()
            },
        }
    }

    fn see(&mut self, event: &TraceEvent) {
        let (now_ns, thread) = (event.time_ns, event.tid);
        match event.what {
            // Its descriptors are not known: it may be a process with its own ones.
            TraceKind::Fork { parent, child } if self.found.threads.contains_key(&parent) => {
                self.found.threads.entry(child).or_insert(child);
            }
            TraceKind::Pause { .. } => self.pause(),
            TraceKind::CallEnter { .. } | TraceKind::CallExit { .. }
                if !self.found.threads.contains_key(&thread) => {}
            TraceKind::CallEnter { call, argument, bytes, flags } => {
                let number = u32::try_from(argument).ok();
                self.entered(now_ns, thread, call, number, (bytes, flags));
            }
            TraceKind::CallExit { result, .. } => {
                if let Some(open) = self.calls.remove(&thread) {
                    self.ended(open, now_ns, result < 0);
                }
            }
            TraceKind::FileSync { device, inode, data_only } => {
                self.file(now_ns, thread, (device, inode), data_only);
            }
            TraceKind::FileSyncEnd { failed } => {
                if let Some(index) = self.running.remove(&thread) {
                    self.workers[index].synced = Some((now_ns, failed));
                }
            }
            TraceKind::DirectIo { device, inode } => {
                let Some(file) = self.found.file_at(device, inode) else { return };
                self.found.direct.entry(thread).or_default().push((now_ns, file));
                if let Some(open) = self.calls.get_mut(&thread) {
                    open.file = open.file.or(Some(file));
                }
            }
            TraceKind::BioQueue { flags, .. } if flags.preflush || flags.fua => {
                let Some(&index) = self.running.get(&thread) else { return };
                let worker = &mut self.workers[index];
                worker.asked_ns = Some(now_ns);
                let is_first = worker.flushes == 0;
                worker.flushes += u32::from(flags.preflush) + u32::from(flags.fua);
                if is_first {
                    self.flushing.push(index);
                }
            }
            TraceKind::RequestComplete { device, flags, .. }
                if flags.op == RequestOp::Flush || flags.fua =>
            {
                let flushing = std::mem::take(&mut self.flushing);
                for index in flushing {
                    // Below a loop device another disk flushes, too.
                    if self.is_on(self.workers[index].file, device) {
                        let worker = &mut self.workers[index];
                        worker.flushed_ns = Some(now_ns);
                        worker.flushes -= 1;
                    }
                    let runs = self.running.get(&self.workers[index].thread) == Some(&index);
                    if self.workers[index].flushes > 0 && runs {
                        self.flushing.push(index);
                    }
                }
            }
            TraceKind::RingSubmit { request, opcode } => {
                let how = match opcode {
                    RING_FSYNC => How::RingFsync,
                    opcode if RING_WRITES.contains(&opcode) => How::RingWrite,
                    _ => return,
                };
                if self.found.threads.contains_key(&thread) {
                    let data_only = how == How::RingWrite;
                    let open = Open { how: Some(how), data_only, ..Open::at(now_ns, thread) };
                    self.ring.insert(request, open);
                }
            }
            TraceKind::RingFile { request, descriptor } => {
                if let Some(open) = self.ring.get_mut(&request) {
                    open.descriptor = Some(descriptor);
                }
            }
            TraceKind::RingComplete { request } => {
                if let Some(open) = self.ring.remove(&request) {
                    self.ended(open, now_ns, false);
                }
            }
            _ => {}
        }
    }

    fn entered(
        &mut self,
        start_ns: u64,
        thread: u32,
        call: Call,
        descriptor: Option<u32>,
        (bytes, flags): (Option<u64>, u32),
    ) {
        let seen = self.descriptor(thread, descriptor, start_ns);
        let how = match call {
            Call::Fsync => How::Fsync,
            Call::Fdatasync => How::Fdatasync,
            Call::SyncFileRange => How::SyncFileRange,
            Call::Syncfs => How::Syncfs,
            Call::Sync => How::SyncAll,
            Call::Msync if flags & MS_SYNC != 0 => How::Msync,
            Call::Msync => return,
            Call::Write => {
                let Some(seen) = seen else { return };
                self.found.writes.push(Write { file: seen.file, bytes, start_ns });
                match (flags & RWF_SYNC != 0, flags & RWF_DSYNC != 0) {
                    (true, _) => How::SyncWrite,
                    (_, true) => How::RwfDsync,
                    _ if seen.opened.full => How::SyncWrite,
                    _ if seen.opened.durable => How::DsyncWrite,
                    _ => return,
                }
            }
        };
        let descriptor = descriptor.filter(|_| !matches!(call, Call::Msync | Call::Sync));
        let file = seen.filter(|_| call == Call::Write).map(|seen| seen.file);
        let data_only = !matches!(how, How::Fsync | How::Syncfs | How::SyncAll | How::SyncWrite);
        let how = Some(how);
        let open = Open { how, descriptor, file, bytes, data_only, ..Open::at(start_ns, thread) };
        self.calls.insert(thread, open);
    }

    /// What was in progress may have ended unseen.
    fn pause(&mut self) {
        self.calls.clear();
        self.ring.clear();
        self.flushing.clear();
        for (_, index) in std::mem::take(&mut self.running) {
            self.workers[index].is_taken = true;
        }
    }

    fn descriptor(&self, thread: u32, number: Option<u32>, now_ns: u64) -> Option<Descriptor> {
        let process = *self.found.threads.get(&thread)?;
        let all = self.descriptors.get(&(process, number?))?;
        let since = all.iter().rev().find(|seen| seen.since_ns <= now_ns);
        since.or(all.first()).copied()
    }

    /// A file system begins to sync this file in this thread.
    fn file(
        &mut self,
        now_ns: u64,
        thread: u32,
        (device, inode): (Option<DeviceNumber>, u64),
        data_only: Option<bool>,
    ) {
        if let Some(open) = self.calls.get(&thread).copied() {
            if matches!(open.how, Some(How::Syncfs | How::SyncAll)) {
                return;
            }
            let is_ambiguous = device.is_none() && self.ambiguous.contains(&inode);
            let file = (!is_ambiguous).then(|| self.file_of(device, inode, &open));
            if let Some(open) = self.calls.get_mut(&thread) {
                open.file = file.or(open.file);
                open.is_told = true;
                open.data_only = data_only.unwrap_or(open.data_only);
            }
            return;
        }
        let is_ours = self.found.threads.contains_key(&thread);
        let known = self.found.by_inode.get(&(device, inode)).copied();
        // A worker may sync for any program: only files that the program had open count.
        let seen = self.recording.files.len();
        let is_known = |&file: &usize| is_ours || file < seen && self.is_kernels(thread);
        let Some(file) = known.filter(is_known) else { return };
        self.running.insert(thread, self.workers.len());
        let (file, data_only) = (Some(file), data_only.unwrap_or(false));
        self.workers.push(Open { file, data_only, ..Open::at(now_ns, thread) });
    }

    fn is_on(&self, file: Option<usize>, device: DeviceNumber) -> bool {
        let place = file.and_then(|file| self.found.files[file].place);
        place.is_some_and(|at| self.recording.places[at].layer.holds(device))
    }

    fn is_kernels(&self, thread: u32) -> bool {
        self.recording.kernel_threads.contains(&thread)
    }

    /// The file with this inode. For an unknown inode it is the file that the descriptor last led
    /// to, if that is gone: programs create the same file again and again.
    fn file_of(&mut self, device: Option<DeviceNumber>, inode: u64, open: &Open) -> usize {
        if let Some(&file) = self.found.by_inode.get(&(device, inode)) {
            return file;
        }
        let seen = self.descriptor(open.thread, open.descriptor, open.start_ns);
        let gone = seen.filter(|seen| self.found.files[seen.file].is_gone);
        let file = gone.map(|seen| seen.file);
        let file = file.unwrap_or_else(|| self.nameless(device, inode));
        self.found.by_inode.insert((device, inode), file);
        file
    }

    fn nameless(&mut self, device: Option<DeviceNumber>, inode: u64) -> usize {
        let path = PathBuf::from(format!("a file without a name here (inode {inode})"));
        let place = self.recording.places.iter().position(|place| match device {
            Some(device) => place.device == device,
            None => place.layer.file_system == "btrfs",
        });
        let number = device.unwrap_or(DeviceNumber { major: 0, minor: 0 });
        let file = SeenFile::named(number, inode, path, place);
        let file = self.unseen(SeenFile { is_gone: true, ..file });
        self.found.by_inode.insert((device, inode), file);
        file
    }

    fn unseen(&mut self, file: SeenFile) -> usize {
        self.found.files.push(SeenFile { is_new: true, ..file });
        self.found.files.len() - 1
    }

    fn ended(&mut self, open: Open, end_ns: u64, failed: bool) {
        let Some(how) = open.how else { return };
        let seen = self.descriptor(open.thread, open.descriptor, open.start_ns);
        if how == How::RingWrite {
            let Some(seen) = seen else { return };
            let Open { bytes, start_ns, .. } = open;
            self.found.writes.push(Write { file: seen.file, bytes, start_ns });
            if !seen.opened.durable {
                return;
            }
        }
        if matches!(how, How::DsyncWrite | How::SyncWrite)
            && !open.is_told
            && seen.is_some_and(|s| self.would_sync(s))
        {
            // The descriptor has another file by now, opened in another way.
            return;
        }
        // What a sync of all files writes is of all programs.
        let of_one = !matches!(how, How::Syncfs | How::SyncAll);
        let file = open.file.or(seen.map(|seen| seen.file)).filter(|_| of_one);
        let sync = open.ended(how, file.unwrap_or(UNKNOWN), (end_ns, failed));
        self.found.syncs.push(sync);
    }

    /// Whether the file system reports each durable write through this descriptor. A direct write
    /// may be durable by FUA alone, without an event.
    fn would_sync(&self, seen: Descriptor) -> bool {
        let place = self.found.files[seen.file].place.map(|at| &self.recording.places[at]);
        let told = ["ext4", "xfs", "btrfs"];
        !seen.opened.direct
            && place.is_some_and(|place| told.contains(&place.layer.file_system.as_str()))
    }

    fn finish(mut self) -> Syncs {
        self.found.syncs.sort_by_key(|sync| sync.start_ns);
        for sync in &mut self.found.syncs {
            if !matches!(sync.how, How::RingFsync | How::RingWrite) {
                continue;
            }
            let from = self.workers.partition_point(|one| one.start_ns < sync.start_ns);
            let within = self.workers[from..].iter_mut();
            let mut within = within.take_while(|one| one.start_ns <= sync.end_ns);
            let is_it = |one: &&mut Open| {
                !one.is_taken && (sync.file == UNKNOWN || one.file == Some(sync.file))
            };
            if let Some(one) = within.find(is_it) {
                one.is_taken = true;
                sync.file = one.file.unwrap_or(sync.file);
                (sync.worker, sync.data_only) = (Some(one.thread), one.data_only);
            }
        }
        let left = self.workers.iter().filter(|one| !one.is_taken).map(|one| {
            let how = if self.is_kernels(one.thread) { How::Aio } else { How::Other };
            let end_ns = one.flushed_ns.max(one.asked_ns).unwrap_or(one.start_ns);
            one.ended(how, one.file.unwrap_or(UNKNOWN), one.synced.unwrap_or((end_ns, false)))
        });
        let left: Vec<Sync> = left.collect();
        self.found.syncs.extend(left);
        let all = self.found.syncs.len();
        self.found.syncs.retain(|sync| sync.file != UNKNOWN);
        self.found.unnamed = (all - self.found.syncs.len()) as u64;
        self.found.syncs.sort_by_key(|sync| sync.start_ns);
        self.found
    }
}
