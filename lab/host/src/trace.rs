//! A trace of what the block layer and the file systems do on chosen devices, from the kernel's own
//! trace events.
//!
//! *Owns*: one trace's life: setting up an instance, the thread that reads its buffers, counting
//! what was lost. *May not touch*: what the events mean ([`crate::trace_decode`]), and any part of
//! tracefs but its own instance.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::counters::monotonic_ns;
use crate::ring_page::PageLayout;
use crate::trace_decode::{
    CALL_EVENTS, Decoded, Decoder, EVENTS, EventSpec, SYNC_EVENTS, TASK_EVENTS, THROTTLE_EVENTS,
    THROTTLE_FILTER, WHOLE_SYNC_EVENTS,
};
use crate::trace_event::{TraceEvent, TraceKind};
use crate::trace_format::EventFormat;
use crate::tracefs::Instance;
use inkstone_io::DeviceNumber;
use inkstone_io::{Error, Result};

/// Buffer of one CPU: room for some 60,000 events, so the reader may sleep through half a second of
/// a heavy load.
const BUFFER_KB_PER_CPU: usize = 4096;
/// Buffers of all CPUs together: unswappable memory of the kernel.
const BUFFER_KB: usize = 64 * 1024;
const BUFFER_KB_PER_CPU_MIN: usize = 512;
/// How long the reader sleeps between two rounds.
const PAUSE: Duration = Duration::from_millis(4);
/// The same where a program is watched that needs the processor.
const PAUSE_BESIDE: Duration = Duration::from_millis(20);
/// Rounds without any page after which the stopped buffers are empty.
const EMPTY_ROUNDS_AT_END: u32 = 3;

/// What happened on the traced devices.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// The events by time. Of two events with the same time on different CPUs the order is not
    /// known.
    pub events: Vec<TraceEvent>,
    /// Events that are missing (at least this many): a trace with missing events can be shown, but
    /// its events cannot be counted.
    pub lost: u64,
}

/// A running trace: an instance with the thread that empties its buffers. Dropped without
/// [`stop`](Tracer::stop) it ends and leaves nothing. It attaches to nothing.
pub struct Tracer {
    stop: Arc<AtomicBool>,
    gathered: Arc<Mutex<Gathered>>,
    reader: Option<JoinHandle<Result<()>>>,
    cpus: Vec<String>,
    /// The events that are switched on, or will be after a pause.
    enabled: BTreeSet<&'static str>,
    paused_ns: Option<u64>,
    /// Removed after the reader has closed its files.
    instance: Instance,
}

#[derive(Default)]
struct Gathered {
    events: Vec<TraceEvent>,
    /// Lost according to the pages: the same events may be in the kernel's own counters.
    missed: u64,
    /// Lost here: beyond [`Tracer::EVENTS_MAX`], or in damaged pages.
    dropped: u64,
}

impl Tracer {
    /// More events than this are counted as lost: 160 MB of memory.
    pub const EVENTS_MAX: usize = 2_000_000;

    /// Starts to trace what these devices get. When it returns, the next request is seen.
    ///
    /// For a partition pass both its own number and its disk's: the block layer names the first
    /// where I/O is asked for (`BioQueue`) and the second where a command is sent. For a loop
    /// device also consider the device below its file.
    ///
    /// # Errors
    /// No device was named; not root; no tracefs in this kernel ([`can_trace`](crate::can_trace)
    /// says so in words).
    pub fn of_disks(devices: &[DeviceNumber]) -> Result<Tracer> {
        Self::of(devices, EVENTS.iter(), PAUSE)
    }

    /// The same, with the file systems' and io_uring's own events of syncs, and with the system
    /// calls by which any thread asks for durability. Any event of a system call makes each call of
    /// each thread on the machine slower. (A filter by thread would cost every switch of threads
    /// more than that.)
    ///
    /// # Errors
    /// As [`of_disks`](Self::of_disks); the kernel has no events of system calls.
    pub fn of_syncs(devices: &[DeviceNumber]) -> Result<Tracer> {
        let specs = EVENTS.iter().chain(SYNC_EVENTS).chain(CALL_EVENTS);
        let trace = Self::of(devices, specs, PAUSE_BESIDE)?;
        let calls = trace.instance.file("events/syscalls/sys_enter_fsync");
        if !fs::exists(&calls).unwrap_or(false) {
            let why = "this kernel has no events of system calls: it needs CONFIG_FTRACE_SYSCALLS";
            return Err(Error::unsupported("trace system calls", calls, why));
        }
        Ok(trace)
    }

    /// Starts to trace which files the file system of this device is asked to sync, or that it is
    /// to sync all of itself, whoever asks and by whatever call; and which threads are started. The
    /// events of btrfs name no device, but its identifier: without one those of every btrfs are
    /// seen.
    ///
    /// # Errors
    /// As [`of_disks`](Self::of_disks); the kernel has none of these events.
    pub fn of_file_syncs(device: DeviceNumber, btrfs: Option<[u8; 16]>) -> Result<Tracer> {
        let specs = EVENTS.iter().filter(|spec| spec.is_file_sync()).chain(WHOLE_SYNC_EVENTS);
        Self::start_with(PAUSE_BESIDE, |instance| {
            let (mut decoder, enabled) =
                enable_events(instance, specs, &filter_of(&[device]), |_| true)?;
            decoder.btrfs = btrfs;
            Ok((decoder, enabled))
        })
    }

    /// Starts to trace what these threads, and those that they start, wait for: their calls that
    /// sync or write, when each runs and who wakes it, and the kernel's own delays of it.
    ///
    /// # Errors
    /// As [`of_disks`](Self::of_disks).
    pub fn of_threads(threads: &[u32]) -> Result<Tracer> {
        let chosen = words(threads);
        Self::start_with(PAUSE_BESIDE, |instance| {
            instance.write("set_event_pid", &chosen)?;
            instance.write("options/event-fork", "1")?;
            let calls = CALL_EVENTS.iter().filter(|spec| spec.is_call());
            enable_events(instance, TASK_EVENTS.iter().chain(calls), "", |_| true)
        })
    }

    /// Starts to trace the moments in which the kernel passes on requests that a cgroup's limit had
    /// held back.
    ///
    /// # Errors
    /// As [`of_disks`](Self::of_disks); before Linux 6.3 the kernel cannot choose by function.
    pub fn of_throttling() -> Result<Tracer> {
        Self::start_with(PAUSE_BESIDE, |instance| {
            for spec in THROTTLE_EVENTS {
                instance.write(&format!("events/{}/filter", spec.path), THROTTLE_FILTER)?;
            }
            enable_events(instance, THROTTLE_EVENTS.iter(), "", |_| true)
        })
    }

    /// Switches these events on, those that have a device for these devices. Writes are shown
    /// when it is known which are wanted.
    fn of(
        devices: &[DeviceNumber],
        specs: impl Iterator<Item = &'static EventSpec>,
        pause: Duration,
    ) -> Result<Tracer> {
        if devices.is_empty() {
            return Err(Error::invalid("start a block trace", "", "no device was named"));
        }
        let filter = filter_of(devices);
        Self::start_with(pause, |instance| {
            enable_events(instance, specs, &filter, |spec| !spec.is_write())
        })
    }

    /// Starts an instance with the events that `choose` switches on.
    fn start_with(
        pause: Duration,
        choose: impl FnOnce(&Instance) -> Result<(Decoder, BTreeSet<&'static str>)>,
    ) -> Result<Tracer> {
        let instance = Instance::create()?;
        let cpus = cpus_of(&instance)?;
        instance.write("trace_clock", "mono")?;
        let buffer_kb =
            (BUFFER_KB / cpus.len().max(1)).clamp(BUFFER_KB_PER_CPU_MIN, BUFFER_KB_PER_CPU);
        instance.write("buffer_size_kb", &buffer_kb.to_string())?;
        let layout = page_layout(&instance)?;
        let (decoder, enabled) = choose(&instance)?;
        let pipes =
            cpus.iter().map(|cpu| open_pipe(&instance, cpu)).collect::<Result<Vec<File>>>()?;
        let stop = Arc::new(AtomicBool::new(false));
        let gathered = Arc::new(Mutex::new(Gathered::default()));
        let reader = Reader {
            pipes,
            page: vec![0; layout.page_bytes()],
            layout,
            decoder,
            stop: Arc::clone(&stop),
            gathered: Arc::clone(&gathered),
            pause,
        };
        let path = instance.file("");
        let spawned =
            thread::Builder::new().name("ink-trace".to_string()).spawn(move || reader.run());
        let reader =
            spawned.map_err(|error| Error::new("start a thread to read the trace", path, error))?;
        // From here on, dropping `trace` ends the thread.
        let trace = Tracer {
            stop,
            gathered,
            reader: Some(reader),
            cpus,
            enabled,
            paused_ns: None,
            instance,
        };
        trace.instance.write("tracing_on", "1")?;
        Ok(trace)
    }

    /// Ends the trace and returns its events. Everything that completed before this call is in it.
    ///
    /// # Errors
    /// A buffer could not be read, or the trace instance could not be removed.
    pub fn stop(mut self) -> Result<Trace> {
        if let Some(since_ns) = self.paused_ns.take() {
            self.note_pause(since_ns);
        }
        let ended = self.end();
        let lost = lost_by_kernel(&self.instance, &self.cpus);
        let removed = self.instance.remove();
        ended?;
        removed?;
        let Gathered { mut events, missed, dropped } = std::mem::take(&mut *locked(&self.gathered));
        events.sort_by_key(|event| event.time_ns);
        Ok(Trace { events, lost: lost?.max(missed).saturating_add(dropped) })
    }

    /// Traces these threads, too.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add_threads(&self, threads: &[u32]) -> Result<()> {
        match threads {
            [] => Ok(()),
            threads => self.instance.write("set_event_pid", &words(threads)),
        }
    }

    /// Shows the writes to these descriptors. With `with_ends` also when each ended, for
    /// descriptors whose writes are durable by themselves.
    ///
    /// # Errors
    /// The kernel refuses the filter.
    pub fn show_writes(&mut self, descriptors: &[u32], with_ends: bool) -> Result<()> {
        let fds: Vec<String> = descriptors.iter().map(|fd| format!("fd == {fd}")).collect();
        let fds = fds.join(" || ");
        // Ends first: a beginning is shown only if its end will be.
        for spec in CALL_EVENTS.iter().rev().filter(|spec| spec.is_write()) {
            let event = format!("events/{}", spec.path);
            if !fs::exists(self.instance.file(&event)).unwrap_or(false) {
                continue;
            }
            // A write that carries its durability is always wanted: those are rare.
            let carries = spec.path.ends_with("_pwritev2");
            let is_on = if spec.path.contains("sys_exit") {
                carries || with_ends && !fds.is_empty()
            } else {
                let filter = [carries.then_some("flags & 6"), (!fds.is_empty()).then_some(&*fds)];
                let filter: Vec<&str> = filter.into_iter().flatten().collect();
                if !filter.is_empty() {
                    self.instance.write(&format!("{event}/filter"), &filter.join(" || "))?;
                }
                !filter.is_empty()
            };
            self.switch(spec.path, is_on)?;
        }
        Ok(())
    }

    /// The events that came after the first `count`, in the order in which they were read.
    pub fn after(&self, count: usize) -> Vec<TraceEvent> {
        locked(&self.gathered).events.get(count..).unwrap_or_default().to_vec()
    }

    /// How many events there are so far. What comes beyond [`EVENTS_MAX`](Self::EVENTS_MAX) is
    /// lost.
    pub fn count(&self) -> usize {
        locked(&self.gathered).events.len()
    }

    /// Traces nothing until [`go_on`](Self::go_on), and costs nothing: an event that is only not
    /// recorded costs nearly what a recorded one does.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn pause(&mut self) -> Result<()> {
        self.instance.write("tracing_on", "0")?;
        self.paused_ns.get_or_insert(monotonic_ns());
        self.instance.write("events/enable", "0")
    }

    /// Goes on after a pause, which gets an event of its own.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn go_on(&mut self) -> Result<()> {
        let Some(since_ns) = self.paused_ns.take() else { return Ok(()) };
        for path in &self.enabled {
            self.instance.write(&format!("events/{path}/enable"), "1")?;
        }
        self.note_pause(since_ns);
        self.instance.write("tracing_on", "1")
    }

    fn switch(&mut self, path: &'static str, is_on: bool) -> Result<()> {
        let has_changed = match is_on {
            true => self.enabled.insert(path),
            false => self.enabled.remove(path),
        };
        if !has_changed || self.paused_ns.is_some() {
            return Ok(());
        }
        self.instance.write(&format!("events/{path}/enable"), if is_on { "1" } else { "0" })
    }

    fn note_pause(&self, since_ns: u64) {
        let what = TraceKind::Pause { since_ns };
        let event = TraceEvent { time_ns: monotonic_ns(), tid: 0, what };
        locked(&self.gathered).events.push(event);
    }

    fn end(&mut self) -> Result<()> {
        let off = self.instance.write("tracing_on", "0");
        // Release: pairs with the Acquire in Reader::run, after tracing_on=0.
        self.stop.store(true, Ordering::Release);
        let Some(reader) = self.reader.take() else { return off };
        reader.thread().unpark();
        let panicked = |_| {
            Err(Error::new("read the trace", "", io::Error::other("the reading thread panicked")))
        };
        reader.join().unwrap_or_else(panicked)?;
        off
    }
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer").field("enabled", &self.enabled).finish_non_exhaustive()
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Events that a panicking reader has left are still events.
fn locked(gathered: &Mutex<Gathered>) -> MutexGuard<'_, Gathered> {
    gathered.lock().unwrap_or_else(PoisonError::into_inner)
}

fn words(threads: &[u32]) -> String {
    threads.iter().map(u32::to_string).collect::<Vec<String>>().join(" ")
}

fn filter_of(devices: &[DeviceNumber]) -> String {
    let each = devices.iter().map(|device| format!("dev == {}", device.to_kernel()));
    each.collect::<Vec<String>>().join(" || ")
}

fn cpus_of(instance: &Instance) -> Result<Vec<String>> {
    let path = instance.file("per_cpu");
    let fail = |error| Error::new("list the trace buffers", &path, error);
    let mut cpus = Vec::new();
    for entry in fs::read_dir(&path).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        cpus.extend(name.to_str().filter(|name| name.starts_with("cpu")).map(str::to_string));
    }
    if cpus.is_empty() {
        return Err(fail(io::Error::other("there is none")));
    }
    Ok(cpus)
}

fn page_layout(instance: &Instance) -> Result<PageLayout> {
    let name = "events/header_page";
    PageLayout::parse(&instance.read(name)?).ok_or_else(|| {
        let what = io::Error::new(
            io::ErrorKind::InvalidData,
            "its description of a trace page is unknown",
        );
        Error::new("read", instance.file(name), what)
    })
}

/// Sets filters and switches on those of the events that this kernel has and `is_on` wants at once.
fn enable_events(
    instance: &Instance,
    specs: impl Iterator<Item = &'static EventSpec>,
    filter: &str,
    is_on: impl Fn(&EventSpec) -> bool,
) -> Result<(Decoder, BTreeSet<&'static str>)> {
    let mut decoder: Option<Decoder> = None;
    let mut enabled = BTreeSet::new();
    for spec in specs {
        let event = format!("events/{}", spec.path);
        let name = format!("{event}/format");
        let text = match instance.read(&name) {
            Ok(text) => text,
            // A file system that is not in this kernel, or a module that is not loaded.
            Err(error) if !spec.is_needed() && error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.advise("the kernel needs CONFIG_BLK_DEV_IO_TRACE")),
        };
        let unknown = |what: &str| {
            let what = io::Error::new(
                io::ErrorKind::InvalidData,
                format!("this kernel's event has no {what}"),
            );
            Error::new("read", instance.file(&name), what)
        };
        let format = EventFormat::parse(&text).ok_or_else(|| unknown("format"))?;
        if decoder.is_none() {
            decoder = Some(Decoder::new(&format).ok_or_else(|| unknown("common fields"))?);
        }
        let Some(decoder) = &mut decoder else { continue };
        match decoder.add(spec, &format) {
            Err(field) if spec.is_needed() => return Err(unknown(field)),
            Err(_) => continue,
            Ok(()) => {}
        }
        if spec.has_device() {
            instance.write(&format!("{event}/filter"), filter)?;
        }
        if is_on(spec) {
            instance.write(&format!("{event}/enable"), "1")?;
            enabled.insert(spec.path);
        }
    }
    decoder.map(|decoder| (decoder, enabled)).ok_or_else(|| {
        Error::unsupported(
            "start a block trace",
            instance.file("events"),
            "none of its events is known",
        )
    })
}

fn open_pipe(instance: &Instance, cpu: &str) -> Result<File> {
    let path = instance.file(&format!("per_cpu/{cpu}/trace_pipe_raw"));
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
    opened.map_err(|error| {
        Error::new("open", &path, error)
            .advise("a kernel locked down for confidentiality allows no tracing")
    })
}

/// The events that are lost, or still in the buffers, by the kernel's own counters: a trace whose
/// end is missing would show commits without writes.
fn lost_by_kernel(instance: &Instance, cpus: &[String]) -> Result<u64> {
    let mut lost = 0u64;
    for cpu in cpus {
        lost = lost.saturating_add(lost_in(&instance.read(&format!("per_cpu/{cpu}/stats"))?));
    }
    Ok(lost)
}

fn lost_in(stats: &str) -> u64 {
    const NOT_READ: [&str; 4] = ["entries", "overrun", "commit overrun", "dropped events"];
    let lines = stats.lines().filter_map(|line| line.split_once(':'));
    let lost = lines.filter(|(name, _)| NOT_READ.contains(&name.trim()));
    lost.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).fold(0, u64::saturating_add)
}

/// The thread that empties the buffers.
struct Reader {
    pipes: Vec<File>,
    page: Vec<u8>,
    layout: PageLayout,
    decoder: Decoder,
    stop: Arc<AtomicBool>,
    gathered: Arc<Mutex<Gathered>>,
    pause: Duration,
}

impl Reader {
    fn run(mut self) -> Result<()> {
        let mut empty_rounds_at_end = 0;
        while empty_rounds_at_end < EMPTY_ROUNDS_AT_END {
            // Acquire: pairs with the Release in Tracer::end. Loaded before the round, so that
            // a whole round is read after the buffers were switched off.
            let is_stopping = self.stop.load(Ordering::Acquire);
            let has_found = self.round()?;
            if !is_stopping {
                thread::park_timeout(self.pause);
            } else if !has_found {
                empty_rounds_at_end += 1;
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Reads all full pages of all buffers and the page after them. Returns whether there was
    /// anything.
    ///
    /// It does not read the page that is being written again and again: under load that would be
    /// one `read` for every few events, on a CPU that the measured program needs.
    fn round(&mut self) -> Result<bool> {
        let mut has_found = false;
        for pipe in &mut self.pipes {
            loop {
                let length = match pipe.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(length) => length,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(Error::new("read", "trace_pipe_raw", error)),
                };
                has_found = true;
                let page = self.page.get(..length).unwrap_or_default();
                let gathered = &mut *locked(&self.gathered);
                let taken = take_page(&self.layout, &self.decoder, gathered, page);
                if taken < length / 2 {
                    break;
                }
            }
        }
        Ok(has_found)
    }
}

/// Takes the events of a page; returns how many bytes of events it had.
fn take_page(
    layout: &PageLayout,
    decoder: &Decoder,
    gathered: &mut Gathered,
    page: &[u8],
) -> usize {
    let end = layout.read(page, |time_ns, bytes| match decoder.decode(time_ns, bytes) {
        Decoded::Event(event) if gathered.events.len() < Tracer::EVENTS_MAX => {
            gathered.events.push(event)
        }
        Decoded::NotOurs => {}
        Decoded::Event(_) | Decoded::Damaged => gathered.dropped += 1,
    });
    gathered.missed = gathered.missed.saturating_add(end.missed);
    gathered.dropped += u64::from(end.damaged);
    end.data_bytes
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn losses_in_the_kernels_counters() {
        let stats = "entries: 9\noverrun: 3\ncommit overrun: 4\nbytes: 5\n\
            oldest event ts:     0.000000\nnow ts:  1480.07\ndropped events: 5\nread events: 8\n";
        assert_eq!((lost_in(stats), lost_in("")), (21, 0));
    }

    /// Marks in a small buffer that no thread reads meanwhile.
    #[test]
    #[ignore = "needs root and tracefs"]
    fn losses_are_seen_in_pages_and_counters() {
        if let Err(why) = crate::can_trace() {
            return crate::not_run("losses_are_seen_in_pages_and_counters", why);
        }
        let mut instance = Instance::create().expect("an instance");
        instance.write("buffer_size_kb", "8").expect("a buffer");
        let cpus = cpus_of(&instance).expect("buffers");
        instance.write("tracing_on", "1").expect("on");
        let marker = OpenOptions::new().write(true).open(instance.file("trace_marker"));
        let mut marker = marker.expect("a marker");
        for _ in 0..2000 {
            marker.write_all(&[b'x'; 64]).expect("a mark");
        }
        drop(marker);
        let layout = page_layout(&instance).expect("a layout");
        let text = instance.read("events/block/block_rq_issue/format").expect("a format");
        let format = EventFormat::parse(&text).expect("a format");
        let gathered = Arc::new(Mutex::new(Gathered::default()));
        let reader = Reader {
            pipes: cpus.iter().map(|cpu| open_pipe(&instance, cpu).expect("a pipe")).collect(),
            page: vec![0; layout.page_bytes()],
            layout,
            decoder: Decoder::new(&format).expect("common fields"),
            stop: Arc::new(AtomicBool::new(true)),
            gathered: Arc::clone(&gathered),
            pause: PAUSE,
        };
        reader.run().expect("read");
        let gathered = locked(&gathered);
        let by_counters = lost_by_kernel(&instance, &cpus).expect("counters");
        assert!(gathered.missed > 0 && gathered.missed <= by_counters && by_counters < 2000);
        assert_eq!((gathered.dropped, gathered.events.len()), (0, 0));
        drop(gathered);
        instance.remove().expect("removed");
    }

    #[test]
    fn no_device_is_refused() {
        let error = Tracer::of_disks(&[]).err().map(|error| error.kind());
        assert_eq!(error, Some(io::ErrorKind::InvalidInput));
    }
}
