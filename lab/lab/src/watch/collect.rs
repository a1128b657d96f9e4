//! Watches a program: finds its processes, threads, files and disks in /proc, and traces them.
//!
//! *Owns*: the trace from start to end, and all reads of /proc. *May not touch*: the program.
//! Nothing is attached to it, nothing is written into its files, and they are opened, for reading,
//! only while their blocks are looked up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use inkstone_host::{
    Call, DeviceNumber, ExtentMap, OpenedAs, TraceKind, Tracer, block_stat, can_trace,
    monotonic_ns, sweep_trace_instances,
};
use inkstone_io::Capabilities;

use crate::bill::Layer;

use super::recording::{Descriptor, FileState, Place, Recording, SeenFile};

/// What to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A process and its descendants.
    Process(u32),
    /// All processes of this name.
    Name(String),
    /// All processes that have files below this directory open, and only those files.
    Path(PathBuf),
}

impl Target {
    /// The target in words.
    pub fn words(&self) -> String {
        match self {
            Self::Process(id) => format!("process {id}"),
            Self::Name(name) => format!("processes named {name}"),
            Self::Path(path) => format!("files below {}", path.display()),
        }
    }
}

/// Why nothing could be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// There is no such program.
    #[error("{0}")]
    NotThere(String),
    /// The trace.
    #[error(transparent)]
    Io(#[from] inkstone_io::Error),
}

/// How often to look at the processes' threads and files.
const LOOK: Duration = Duration::from_millis(500);
/// The same for a program with many descriptors.
const LOOK_SELDOM: Duration = Duration::from_secs(2);
const MANY: usize = 1000;
/// Writes are traced for at most this many descriptors: of the others only the bytes are missed.
const DESCRIPTORS_MAX: usize = 48;
/// The blocks of at most this many files are looked up.
const FILES_MAX: usize = 4000;
/// In `/proc/PID/stat`: a kernel thread.
const PF_KTHREAD: u64 = 0x0020_0000;

/// The directory of a [`Target::Path`], as the host names it, and its identity: a container may
/// mount it elsewhere.
struct Below {
    path: PathBuf,
    identity: (u64, u64),
    /// The mounts of this command.
    mounts: Option<PathBuf>,
}

impl Below {
    fn of(target: &Target) -> Option<Self> {
        let Target::Path(path) = target else { return None };
        let (path, facts) = (absolute(path), fs::metadata(path).ok()?);
        Some(Self { path, identity: identity(&facts), mounts: mounts_of("self") })
    }

    /// The host's path of a file of this process if it is below the directory.
    fn path_of(&self, process: u32, link: PathBuf) -> Option<PathBuf> {
        if !may_be_a_file(&link) {
            return None;
        }
        // With the same mounts the kernel shows the path that we would see. With others it may be
        // the same path and another directory.
        if mounts_of(&process.to_string()) == self.mounts {
            return link.starts_with(&self.path).then_some(link);
        }
        let is_it = |at: &Path| {
            fs::metadata(below_root(process, at)).is_ok_and(|at| identity(&at) == self.identity)
        };
        let inside = link.ancestors().skip(1).find(|at| is_it(at))?;
        Some(self.path.join(link.strip_prefix(inside).ok()?))
    }
}

fn identity(facts: &fs::Metadata) -> (u64, u64) {
    (facts.dev(), facts.ino())
}

fn mounts_of(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}

/// A watched program.
pub struct Watched {
    target: Target,
    /// Of a directory: only files in it are watched.
    below: Option<Below>,
    started: SystemTime,
    processes: BTreeMap<u32, Process>,
    recording: Recording,
    by_inode: HashMap<(DeviceNumber, u64), usize>,
    /// The file of each descriptor when it was last seen.
    links: HashMap<(u32, u32), (PathBuf, usize)>,
    /// Threads that synced and of which it is known whether they are the kernel's.
    looked_at: BTreeSet<u32>,
    places: HashMap<DeviceNumber, Option<usize>>,
    births: HashMap<usize, SystemTime>,
    warnings: BTreeSet<String>,
    trace: Option<Tracer>,
    /// The descriptors whose writes are traced.
    writes: (Vec<u32>, bool),
    seen_events: usize,
    /// Of them calls of threads that are not the program's.
    calls_of_others: usize,
    last_look: Instant,
    descriptor_count: usize,
}

#[derive(Debug, Clone)]
struct Process {
    name: String,
    /// Its start: with its number, this identifies the process for ever.
    started: u64,
    ended: bool,
}

impl Watched {
    /// Finds the program, and begins to trace it.
    ///
    /// # Errors
    /// [`WatchError::NotThere`]: there is no such program, or it cannot be watched here.
    /// [`WatchError::Io`]: the trace could not begin.
    pub fn start(target: Target) -> Result<Watched, WatchError> {
        let mut warnings: BTreeSet<String> = sweep_trace_instances().into_iter().collect();
        let mut watched = Watched {
            below: Below::of(&target),
            target,
            started: SystemTime::now(),
            processes: BTreeMap::new(),
            recording: Recording::default(),
            by_inode: HashMap::new(),
            links: HashMap::new(),
            looked_at: BTreeSet::new(),
            places: HashMap::new(),
            births: HashMap::new(),
            warnings: BTreeSet::new(),
            trace: None,
            writes: (Vec::new(), false),
            seen_events: 0,
            calls_of_others: 0,
            last_look: Instant::now(),
            descriptor_count: 0,
        };
        watched.warnings.append(&mut warnings);
        watched.check_target()?;
        can_watch().map_err(|why| WatchError::NotThere(format!("syncs cannot be seen: {why}")))?;
        watched.look();
        if watched.processes.is_empty() && !matches!(watched.target, Target::Path(_)) {
            let what = watched.target.words();
            return Err(WatchError::NotThere(format!("there are no {what}")));
        }
        watched.add_homes();
        watched.trace()?;
        watched.recording.span_ns = monotonic_ns()..monotonic_ns();
        Ok(watched)
    }

    fn check_target(&self) -> Result<(), WatchError> {
        let refuse = |text: String| Err(WatchError::NotThere(text));
        match &self.target {
            Target::Process(id) if *id == std::process::id() => {
                refuse(format!("process {id} is this command itself"))
            }
            Target::Process(id) => match stat_of(*id) {
                None => refuse(format!("there is no process {id}: `pidof NAME` shows numbers")),
                Some(stat) if stat.is_kernels => refuse(format!(
                    "process {id} ({}) is a kernel thread: it works for others and syncs \
                     nothing by itself; watch the program that it works for",
                    stat.name
                )),
                Some(_) => Ok(()),
            },
            Target::Path(path) if !path.is_dir() => {
                refuse(format!("there is no directory {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Adds the disks where files will appear: that of the path, or those of the working
    /// directories.
    fn add_homes(&mut self) {
        let homes: Vec<PathBuf> = match &self.target {
            Target::Path(path) => vec![path.clone()],
            _ if self.recording.places.is_empty() => {
                self.processes.keys().map(|id| PathBuf::from(format!("/proc/{id}/cwd"))).collect()
            }
            _ => Vec::new(),
        };
        for home in homes {
            if let Ok(facts) = fs::metadata(&home) {
                self.place(DeviceNumber::from_st_dev(facts.dev()), &home);
            }
        }
    }

    fn devices(&self) -> Vec<DeviceNumber> {
        self.recording.places.iter().flat_map(|place| place.layer.numbers()).collect()
    }

    fn trace(&mut self) -> Result<(), WatchError> {
        let devices = self.devices();
        if devices.is_empty() {
            let why = "it has no file on a disk open for writing, so there is no disk to watch";
            return Err(WatchError::NotThere(why.into()));
        }
        self.trace = Some(Tracer::of_syncs(&devices)?);
        self.show_writes()?;
        // Threads may have started meanwhile.
        self.look();
        Ok(())
    }

    /// Looks at what is new. Returns false if the program has ended.
    ///
    /// # Errors
    /// The trace.
    pub(super) fn look_again(&mut self) -> Result<bool, WatchError> {
        self.look_at_syncs();
        let seldom = self.descriptor_count > MANY;
        if self.last_look.elapsed() >= if seldom { LOOK_SELDOM } else { LOOK } {
            self.look();
            self.show_writes()?;
        }
        let is_path = matches!(self.target, Target::Path(_));
        let has_ended = !is_path && self.processes.values().all(|process| process.ended);
        if has_ended {
            self.warnings.insert("the program ended: this is what was seen until then".into());
        }
        Ok(!has_ended)
    }

    /// How many calls of other programs were traced so far.
    pub(super) fn calls_of_others(&self) -> usize {
        self.calls_of_others
    }

    /// The trace of its syncs.
    pub(super) fn trace_of_syncs(&mut self) -> &mut Tracer {
        self.trace.as_mut().expect("it began with one")
    }

    /// What is known so far, without events.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Ends the trace and returns all that was seen.
    ///
    /// # Errors
    /// The trace could not be read or removed.
    pub fn finish(mut self) -> Result<Seen, WatchError> {
        let end_ns = monotonic_ns();
        let trace = self.trace.take().expect("it began with one").stop()?;
        for event in &trace.events {
            if let TraceKind::FileSync { .. } = event.what {
                self.look_at_syncing(event.tid);
            }
        }
        self.look();
        self.look_at_ends();
        for place in &mut self.recording.places {
            place.layer.look_at_chunks();
        }
        let mut recording = self.recording;
        recording.span_ns.end = end_ns;
        (recording.events, recording.lost) = (trace.events, trace.lost);
        let span = &recording.span_ns;
        recording.events.retain(|event| {
            span.contains(&event.time_ns) || matches!(event.what, TraceKind::Pause { .. })
        });
        let processes = self.processes.into_iter();
        Ok(Seen {
            recording,
            processes: processes.map(|(id, process)| (id, process.name)).collect(),
            warnings: self.warnings.into_iter().collect(),
        })
    }

    /// Looks at processes, threads and descriptors.
    fn look(&mut self) {
        self.last_look = Instant::now();
        let found = self.find();
        for (id, process) in &mut self.processes {
            let is_there = found.contains_key(id)
                || stat_of(*id).is_some_and(|s| s.started == process.started);
            process.ended |= !is_there;
        }
        for (id, stat) in found {
            let Stat { name, started, .. } = stat;
            self.processes.entry(id).or_insert(Process { name, started, ended: false });
        }
        let alive = self.processes.iter().filter(|(_, process)| !process.ended);
        let alive: Vec<u32> = alive.map(|(&id, _)| id).collect();
        self.descriptor_count = 0;
        for id in alive {
            self.look_at_threads(id);
            for number in numbers_in(&format!("/proc/{id}/fd")) {
                self.descriptor_count += 1;
                self.look_at_descriptor(id, number);
            }
        }
    }

    fn find(&self) -> BTreeMap<u32, Stat> {
        let own = std::process::id();
        let mut all: BTreeMap<u32, Stat> = BTreeMap::new();
        let ids = numbers_in("/proc").into_iter().filter(|&id| id != own);
        let stats = ids.filter_map(|id| Some((id, stat_of(id)?)));
        all.extend(stats.filter(|(_, stat)| !stat.is_kernels));
        let kept: BTreeSet<u32> = match &self.target {
            Target::Process(root) => {
                // Process numbers may wrap around, so repeat until nothing is added.
                let mut kept = BTreeSet::from([*root]);
                loop {
                    let more: Vec<u32> = all
                        .iter()
                        .filter(|(id, stat)| kept.contains(&stat.parent) && !kept.contains(id))
                        .map(|(&id, _)| id)
                        .collect();
                    if more.is_empty() {
                        break kept;
                    }
                    kept.extend(more);
                }
            }
            Target::Name(name) => {
                let is_it = |id: u32, stat: &Stat| stat.name == *name || program_of(id) == *name;
                all.iter().filter(|(id, stat)| is_it(**id, stat)).map(|(&id, _)| id).collect()
            }
            Target::Path(_) => {
                let is_below = |id: u32| {
                    let mut links = numbers_in(&format!("/proc/{id}/fd")).into_iter();
                    links.any(|number| self.link_below(id, number).is_some())
                };
                all.keys().copied().filter(|&id| is_below(id)).collect()
            }
        };
        all.retain(|id, _| kept.contains(id));
        all
    }

    /// Where a descriptor leads; `None` if the target is a directory and it leads elsewhere.
    fn link_below(&self, process: u32, number: u32) -> Option<PathBuf> {
        let link = fs::read_link(format!("/proc/{process}/fd/{number}")).ok()?;
        match &self.below {
            Some(below) => below.path_of(process, link),
            None => Some(link),
        }
    }

    fn look_at_threads(&mut self, process: u32) {
        let threads = numbers_in(&format!("/proc/{process}/task")).into_iter();
        self.recording.threads.extend(threads.map(|thread| (thread, process)));
    }

    /// Looks up the files of the newest syncs' descriptors, before they are removed.
    fn look_at_syncs(&mut self) {
        let Some(trace) = &self.trace else { return };
        let new = trace.after(self.seen_events);
        self.seen_events += new.len();
        let mut asked = BTreeSet::new();
        for event in &new {
            let is_call =
                matches!(event.what, TraceKind::CallEnter { .. } | TraceKind::CallExit { .. });
            let is_ours = self.recording.threads.contains_key(&event.tid);
            self.calls_of_others += usize::from(is_call && !is_ours);
            match event.what {
                TraceKind::CallEnter { call: Call::Fsync | Call::Fdatasync, argument, .. } => {
                    asked.extend(u32::try_from(argument).map(|number| (event.tid, number)));
                }
                TraceKind::FileSync { .. } => self.look_at_syncing(event.tid),
                _ => {}
            }
        }
        for (thread, number) in asked.into_iter().take(64) {
            if let Some(process) = self.process_of_sync(thread, number) {
                self.recording.threads.insert(thread, process);
                self.look_at_descriptor(process, number);
            }
        }
    }

    /// Notes whether this thread is the kernel's, which may sync for anyone.
    fn look_at_syncing(&mut self, thread: u32) {
        if !self.recording.threads.contains_key(&thread)
            && self.looked_at.insert(thread)
            && stat_of(thread).is_some_and(|stat| stat.is_kernels)
        {
            self.recording.kernel_threads.insert(thread);
        }
    }

    /// The process of a thread that syncs, if it is the program's. The thread may have started
    /// since the last look.
    fn process_of_sync(&self, thread: u32, number: u32) -> Option<u32> {
        if let Some(&known) = self.recording.threads.get(&thread) {
            return Some(known);
        }
        let process = process_of(thread)?;
        let is_it = match &self.target {
            Target::Path(_) => self.link_below(process, number).is_some(),
            Target::Process(_) => self.processes.contains_key(&stat_of(process)?.parent),
            Target::Name(_) => false,
        };
        (is_it || self.processes.contains_key(&process)).then_some(process)
    }

    fn look_at_descriptor(&mut self, process: u32, number: u32) {
        let Some(link) = self.link_below(process, number) else { return };
        let is_same = self.links.get(&(process, number)).is_some_and(|(before, _)| *before == link);
        if is_same && self.descriptor_count > MANY || !may_be_a_file(&link) {
            return;
        }
        let own = PathBuf::from(format!("/proc/{process}/fd/{number}"));
        let Ok(facts) = fs::metadata(&own) else { return };
        if !facts.is_file() && !facts.is_dir() || facts.file_type().is_block_device() {
            return;
        }
        let device = DeviceNumber::from_st_dev(facts.dev());
        let known = self.by_inode.get(&(device, facts.ino())).copied();
        if let Some(file) = known {
            self.note_birth(file, &facts);
        }
        if is_same && known == self.links.get(&(process, number)).map(|(_, file)| *file) {
            return;
        }
        let info = fs::read_to_string(format!("/proc/{process}/fdinfo/{number}"));
        let Some(opened) = info.ok().and_then(|text| OpenedAs::parse(&text)) else { return };
        if !opened.writes && !facts.is_dir() {
            return;
        }
        let file = known.unwrap_or_else(|| self.add_file(process, &own, &link, &facts));
        let (path, was_removed) = without_mark(&link);
        let seen = &mut self.recording.files[file];
        (seen.path, seen.is_gone) = (path, was_removed);
        self.links.insert((process, number), (link, file));
        let since_ns = if self.trace.is_some() { monotonic_ns() } else { 0 };
        let seen = Descriptor { process, number, since_ns, file, opened };
        self.recording.descriptors.push(seen);
    }

    /// A new file can get a used inode number, but its time of birth differs.
    fn note_birth(&mut self, file: usize, facts: &fs::Metadata) {
        let Ok(born) = facts.created() else { return };
        self.recording.files[file].looks += 1;
        let before = self.births.insert(file, born);
        if before.is_some_and(|before| before != born) {
            self.recording.files[file].births += 1;
        }
    }

    fn add_file(&mut self, process: u32, own: &Path, link: &Path, facts: &fs::Metadata) -> usize {
        let device = DeviceNumber::from_st_dev(facts.dev());
        let (path, is_gone) = without_mark(link);
        // Of a process in a container the kernel shows its own path, of one in a chroot the whole.
        let parent = path.parent().unwrap_or(Path::new("/"));
        let is_it = |at: &PathBuf| fs::metadata(at).is_ok_and(|at| at.dev() == facts.dev());
        let parent = match facts.is_dir() {
            true => own.to_path_buf(),
            false => Some(below_root(process, parent)).filter(is_it).unwrap_or(parent.into()),
        };
        let place = self.place(device, &parent);
        let is_known = self.recording.files.len() < FILES_MAX && !facts.is_dir();
        let before = is_known.then(|| state_of(own)).flatten();
        let index = self.recording.files.len();
        let born = facts.created().ok();
        let is_created = born.is_some_and(|born| born >= self.started);
        self.births.extend(born.map(|born| (index, born)));
        self.by_inode.insert((device, facts.ino()), index);
        self.recording.files.push(SeenFile {
            is_directory: facts.is_dir(),
            is_new: self.trace.is_some(),
            is_created,
            looks: 1,
            is_gone,
            before,
            seen_ns: self.trace.as_ref().map_or(0, |_| monotonic_ns()),
            ..SeenFile::named(device, facts.ino(), path, place)
        });
        index
    }

    /// The file system with this device number; `None` if it is not on a single disk, or was not
    /// known when the trace of the disks began.
    fn place(&mut self, device: DeviceNumber, directory: &Path) -> Option<usize> {
        if let Some(place) = self.places.get(&device) {
            return *place;
        }
        let found = place_of(device, directory);
        // btrfs has a device number for each subvolume.
        let same = |place: &Place, known: &Place| {
            let (new, known) = (&place.layer, &known.layer);
            let at = |layer: &Layer| layer.disks.first().map(|disk| disk.start_bytes);
            new.device == known.device && at(new) == at(known)
        };
        let known = found
            .as_ref()
            .and_then(|place| self.recording.places.iter().position(|known| same(place, known)));
        let new = found.filter(|_| known.is_none() && self.trace.is_none());
        let place = known.or(new.is_some().then_some(self.recording.places.len()));
        self.recording.places.extend(new);
        self.places.insert(device, place);
        place
    }

    /// The descriptors whose writes are traced, and whether writes to one of them are durable
    /// without a sync.
    fn writes(&self) -> (Vec<u32>, bool) {
        let current = self.recording.descriptors.iter().filter(|seen| {
            let link = self.links.get(&(seen.process, seen.number));
            !self.recording.files[seen.file].is_directory
                && link.is_some_and(|(_, file)| *file == seen.file)
        });
        let mut current: Vec<&Descriptor> = current.collect();
        current.sort_by_key(|seen| !seen.opened.durable);
        let mut numbers: Vec<u32> = current.iter().map(|seen| seen.number).collect();
        numbers.dedup();
        numbers.truncate(DESCRIPTORS_MAX);
        numbers.sort_unstable();
        numbers.dedup();
        (numbers, current.iter().any(|seen| seen.opened.durable))
    }

    fn show_writes(&mut self) -> Result<(), WatchError> {
        let writes = self.writes();
        if let (Some(trace), true) = (&mut self.trace, self.writes != writes) {
            trace.show_writes(&writes.0, writes.1)?;
            self.writes = writes;
        }
        Ok(())
    }

    /// Programs open a directory for the moment of its sync. So the names of directories come from
    /// the known files in them.
    fn add_parents(&mut self) {
        let parents: BTreeSet<(PathBuf, Option<usize>)> = self
            .recording
            .files
            .iter()
            .filter_map(|file| Some((file.path.parent()?.to_path_buf(), file.place)))
            .collect();
        for (path, place) in parents {
            let Ok(facts) = fs::metadata(&path) else { continue };
            let device = DeviceNumber::from_st_dev(facts.dev());
            if self.by_inode.contains_key(&(device, facts.ino())) {
                continue;
            }
            self.by_inode.insert((device, facts.ino()), self.recording.files.len());
            let named = SeenFile::named(device, facts.ino(), path, place);
            self.recording.files.push(SeenFile { is_directory: true, ..named });
        }
    }

    /// Notes the state of the files at the end.
    fn look_at_ends(&mut self) {
        self.add_parents();
        let by_file: HashMap<usize, (u32, u32)> =
            self.links.iter().map(|(&key, (_, file))| (*file, key)).collect();
        for (index, file) in self.recording.files.iter_mut().enumerate() {
            let is_it = |path: &Path| {
                let facts = fs::metadata(path).ok();
                facts.is_some_and(|facts| {
                    facts.ino() == file.inode
                        && DeviceNumber::from_st_dev(facts.dev()) == file.device
                })
            };
            let descriptor = by_file.get(&index);
            let named = descriptor.map_or(file.path.clone(), |&(id, _)| below_root(id, &file.path));
            let named = [named, file.path.clone()].into_iter().find(|path| is_it(path));
            file.is_gone = named.is_none();
            if file.is_directory || index >= FILES_MAX {
                continue;
            }
            let open =
                descriptor.map(|(id, number)| PathBuf::from(format!("/proc/{id}/fd/{number}")));
            let path = named.or(open.filter(|path| is_it(path)));
            file.after = path.and_then(|path| state_of(&path)).or(file.after.take());
        }
    }
}

/// All that was seen of a program.
pub struct Seen {
    /// The events, and the facts about files and disks.
    pub recording: Recording,
    /// The processes' numbers and names.
    pub processes: Vec<(u32, String)>,
    /// What limits the recording.
    pub warnings: Vec<String>,
}

/// The inodes of the namespaces whose numbers and times the kernel's events have (PROC_PID_INIT_INO
/// and PROC_TIME_INIT_INO).
const FIRST_NAMESPACES: [(&str, u64, &str); 2] =
    [("pid", 0xEFFF_FFFC, "process numbers"), ("time", 0xEFFF_FFFA, "clocks")];

/// Whether this user can see syncs here; if not, the reason.
fn can_watch() -> Result<(), String> {
    can_trace()?;
    for (name, first, what) in FIRST_NAMESPACES {
        let own = fs::metadata(format!("/proc/self/ns/{name}")).map(|facts| facts.ino());
        if own.is_ok_and(|own| own != first) {
            return Err(format!(
                "this command runs in a container with {what} of its own, and the kernel's events \
                 have the host's: run it on the host"
            ));
        }
    }
    Ok(())
}

pub(super) struct Stat {
    pub(super) name: String,
    parent: u32,
    started: u64,
    is_kernels: bool,
}

pub(super) fn stat_of(process: u32) -> Option<Stat> {
    let text = fs::read(format!("/proc/{process}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let (before, after) = text.rsplit_once(") ")?;
    let name = before.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = after.split(' ').collect();
    if matches!(fields.first(), Some(&("Z" | "X"))) {
        return None;
    }
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let is_kernels = number(6)? & PF_KTHREAD != 0;
    Some(Stat { name, parent: u32::try_from(number(1)?).ok()?, started: number(19)?, is_kernels })
}

/// The name of its program's file.
fn program_of(process: u32) -> String {
    let exe = fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
    exe.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The process of a thread.
pub(super) fn process_of(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn numbers_in(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn may_be_a_file(link: &Path) -> bool {
    let elsewhere = ["/dev", "/proc", "/sys"].iter().any(|other| link.starts_with(other));
    link.is_absolute() && (!elsewhere || link.starts_with("/dev/shm"))
}

/// The path as the links of descriptors show it.
pub(super) fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// The kernel marks the path of a file that was removed.
fn without_mark(link: &Path) -> (PathBuf, bool) {
    let text = link.to_string_lossy();
    match text.strip_suffix(" (deleted)") {
        Some(path) => (PathBuf::from(path), true),
        None => (link.to_path_buf(), false),
    }
}

/// A path in the view of the process, which may be in a container.
fn below_root(process: u32, path: &Path) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{process}/root"));
    match path.strip_prefix("/") {
        Ok(rest) if root.exists() => root.join(rest),
        _ => path.to_path_buf(),
    }
}

/// The file is open only for this moment, and the lookup writes nothing to the disk.
fn state_of(path: &Path) -> Option<FileState> {
    let file = File::open(path).ok()?;
    let len_bytes = file.metadata().ok()?.len();
    Some(FileState { len_bytes, extents: ExtentMap::as_it_is(&file, path).ok()? })
}

fn place_of(device: DeviceNumber, directory: &Path) -> Option<Place> {
    let facts = Capabilities::seen(directory).ok()?;
    let mut layer = Layer::of(&facts)?;
    if !layer.holds(device) {
        layer.also.push(device);
    }
    let disk = facts.device.as_ref()?;
    block_stat(disk.number).ok()?;
    Some(Place {
        device,
        layer,
        copy_on_write: facts.copy_on_write,
        options: facts.mount.options.clone().unwrap_or_default(),
        loop_backing: disk.loop_backing.clone(),
        memory: facts.memory_below(),
    })
}
