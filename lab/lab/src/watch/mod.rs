//! `inkstone watch`: what one sync of a running program costs on its disk, why, and what would make
//! it cheaper.
//!
//! *Owns*: the order of the steps, and the report's sentences. *May not touch*: the terminal.
//!
//! [`collect`] watches and makes a [`recording::Recording`]. The rest is computed from that alone:
//! [`syncs`] (which syncs), [`tally`](mod@tally) (their bills), [`cause`](mod@cause) (why). Then
//! [`advice`](mod@advice) names a setting, and [`page`] prints. Beside that, [`slow`] explains the
//! slowest calls.

pub mod advice;
pub mod cause;
pub mod collect;
pub mod page;
pub mod recording;
pub mod report;
mod rows;
pub mod slow;
mod slow_collect;
pub mod slow_report;
#[cfg(test)]
mod slow_tests;
mod spans;
pub mod syncs;
pub mod tally;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use inkstone_host::Tracer;

use advice::{Asked, advice};
use cause::{cause, why};
use collect::{Seen, Target, WatchError, Watched};
use recording::{Place, Recording, SeenFile};
use report::{Calls, DiskReport, FileReport, WATCH_SCHEMA_VERSION, WatchReport};
use rows::Row;
use slow_collect::SlowWatch;
use syncs::{How, Sync, Syncs, syncs_of};
use tally::{Tallied, tally};

/// How to watch.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// What to watch.
    pub target: Target,
    /// How long to watch.
    pub time: Duration,
    /// From how long on a call is slow and is explained; `None` explains none.
    pub slow: Option<Duration>,
}

/// The most files that are listed.
const FILES_LISTED: usize = 16;
/// With more than one of so many syncs not covered by a flush, a part of the bill is missing.
const UNCOVERED_MAX: u64 = 50;
/// How often to look up the files of new syncs, since files may be removed soon.
const TICK: Duration = Duration::from_millis(20);
/// How often to look for new threads whose calls may be slow.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// So many events a second are recorded, since each costs the watched program some time. Calls of
/// other programs cost it none, and do not count.
const EVENTS_PER_SECOND: f64 = 40_000.0;
/// In the whole time this share of all events for which there is room is recorded.
const ROOM: f64 = 0.85 * Tracer::EVENTS_MAX as f64;
/// How far ahead of the time the count may run before the trace pauses.
const AHEAD: f64 = 60_000.0;

/// Watches a program and reports.
///
/// # Errors
/// [`WatchError`]: there is no such program, or it cannot be traced.
pub fn watch(options: &WatchOptions, stop: &AtomicBool) -> Result<WatchReport, WatchError> {
    let mut watch = Watch::start(options)?;
    watch.run(stop)?;
    watch.report()
}

/// A program that is being watched.
pub struct Watch<'a> {
    options: &'a WatchOptions,
    watched: Watched,
    slow: Option<SlowWatch>,
    is_paused: bool,
}

impl<'a> Watch<'a> {
    /// Begins.
    ///
    /// # Errors
    /// As [`watch()`].
    pub fn start(options: &'a WatchOptions) -> Result<Self, WatchError> {
        let watched = Watched::start(options.target.clone())?;
        let slow = options.slow.map(|from| SlowWatch::start(from, watched.recording()));
        let slow = slow.transpose()?;
        Ok(Self { options, watched, slow, is_paused: false })
    }

    /// Watches until the time is over, `stop` is set or the program has ended.
    ///
    /// # Errors
    /// As [`watch()`].
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), WatchError> {
        let (begun, mut followed) = (Instant::now(), Instant::now());
        while begun.elapsed() < self.options.time && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(TICK.min(self.options.time.saturating_sub(begun.elapsed())));
            if !self.watched.look_again()? {
                break;
            }
            if let Some(slow) = self.slow.as_mut().filter(|_| followed.elapsed() >= FOLLOW_EVERY) {
                slow.follow(self.watched.recording())?;
                followed = Instant::now();
            }
            self.sample(begun.elapsed().as_secs_f64())?;
        }
        Ok(())
    }

    /// Pauses the traces while they are ahead of the time with their events.
    fn sample(&mut self, elapsed_s: f64) -> Result<(), WatchError> {
        let others = self.watched.calls_of_others();
        let slow = self.slow.iter_mut().flat_map(SlowWatch::traces);
        let traces = || std::iter::once(self.watched.trace_of_syncs()).chain(slow);
        let mut traces: Vec<&mut Tracer> = traces().collect();
        let all = traces.iter().map(|trace| trace.count()).max().unwrap_or(0);
        let own = traces.iter().skip(1).map(|trace| trace.count());
        let own = own.chain([traces[0].count().saturating_sub(others)]).max().unwrap_or(0);
        let ahead = ahead(own as f64, all as f64, elapsed_s, self.options.time.as_secs_f64());
        if !self.is_paused && ahead > AHEAD {
            traces.iter_mut().try_for_each(|trace| trace.pause())?;
            self.is_paused = true;
        } else if self.is_paused && ahead < 0.0 {
            traces.iter_mut().try_for_each(|trace| trace.go_on())?;
            self.is_paused = false;
        }
        Ok(())
    }

    /// Ends it, and reports.
    ///
    /// # Errors
    /// As [`watch()`].
    pub fn report(self) -> Result<WatchReport, WatchError> {
        let seen = self.watched.finish()?;
        let mut report = report_of(self.options, &seen);
        if let Some(slow) = self.slow {
            let (explained, warning) = slow.finish(&seen.recording)?;
            report.slow = Some(explained);
            report.warnings.extend(warning);
        }
        Ok(report)
    }
}

/// By how many events a trace is ahead of the time, of the program's own or of all: these may fill
/// half of the room at once, since other programs work in bursts.
fn ahead(own: f64, all: f64, elapsed_s: f64, time_s: f64) -> f64 {
    let part = elapsed_s / time_s;
    let due = (ROOM * part).min(EVENTS_PER_SECOND * elapsed_s);
    (own - due).max(all - ROOM * (1.0 + part) / 2.0)
}

/// The report of all that was seen.
pub fn report_of(options: &WatchOptions, seen: &Seen) -> WatchReport {
    let recording = &seen.recording;
    let syncs = syncs_of(recording);
    let tallied = tally(recording, &syncs);
    let seconds = recording.seconds();
    let mut by_file: BTreeMap<usize, Vec<&Sync>> = BTreeMap::new();
    let is_wanted = |file: usize| match &options.target {
        Target::Path(path) => syncs.files[file].path.starts_with(collect::absolute(path)),
        _ => true,
    };
    for sync in syncs.syncs.iter().filter(|sync| is_wanted(sync.file)) {
        by_file.entry(sync.file).or_default().push(sync);
    }
    let program = seen.processes.first().map_or_else(String::new, |(_, name)| name.clone());
    let mut files: Vec<(u64, FileReport)> = rows::rows(&by_file, &syncs, &tallied)
        .into_iter()
        .map(|row| {
            let all_ns = row.syncs.iter().map(|sync| sync.end_ns - sync.start_ns).sum();
            let (syncs, tallied) = (&syncs, &tallied);
            let one = One { seen, recording, syncs, tallied, row, seconds };
            (all_ns, one.report())
        })
        .collect();
    files.sort_by_key(|(all_ns, _)| std::cmp::Reverse(*all_ns));
    let mut warnings = seen.warnings.clone();
    if recording.lost > 0 {
        warnings.push(format!(
            "the kernel lost {} events: there is no bill, and counts of calls are too low. Watch \
             for a shorter time (--seconds 2)",
            recording.lost
        ));
    }
    let span_s = recording.span_ns.end.saturating_sub(recording.span_ns.start) as f64 / 1e9;
    if seconds < 0.99 * span_s {
        warnings.push(format!(
            "there were too many events to trace them all: syncs were traced in {:.0}% of the \
             time, and all figures are of these",
            seconds / span_s * 100.0
        ));
    }
    let files_left_out = files.len().saturating_sub(FILES_LISTED);
    let used: Vec<String> = files.iter().map(|(_, file)| file.device.clone()).collect();
    let files: Vec<FileReport> =
        files.into_iter().take(FILES_LISTED).map(|(_, file)| file).collect();
    let mut report = WatchReport {
        schema_version: WATCH_SCHEMA_VERSION,
        program: match &options.target {
            Target::Process(id) if !program.is_empty() => format!("{program} (process {id})"),
            target => target.words(),
        },
        seconds,
        finding: String::new(),
        files,
        files_left_out,
        slow: None,
        disks: disks(recording, &tallied)
            .into_iter()
            .filter(|disk| used.is_empty() || used.contains(&disk.device))
            .collect(),
        warnings,
        lost_events: recording.lost,
    };
    report.warnings.extend(place_warnings(recording, &used));
    if syncs.unnamed > 0 {
        report.warnings.push(format!(
            "{} calls synced what has no row: all files (`sync`, `syncfs`), a device, or a file \
             that was open for reading only",
            syncs.unnamed
        ));
    }
    report.finding = finding(&report, seen, &options.target, syncs.unnamed == 0);
    report
}

fn finding(report: &WatchReport, seen: &Seen, target: &Target, is_all: bool) -> String {
    match (report.files.first(), target) {
        (Some(file), _) => format!("{}.", file.why),
        (None, Target::Path(path)) if seen.processes.is_empty() => {
            format!(
                "No program had a file below {} open. One in a container that mounts only a part of \
                 it has names of its own: watch it by its number.",
                collect::absolute(path).display()
            )
        }
        (None, _) if seen.processes.is_empty() => "No such process was seen.".into(),
        (None, _) if !is_all => "Whether this program syncs its files could not be seen.".into(),
        (None, _) => format!(
            "This program asked for nothing to be durable in {:.1} s. What it writes is durable \
             when the kernel gets to it: by default within half a minute.",
            report.seconds
        ),
    }
}

fn place_warnings(recording: &Recording, used: &[String]) -> Vec<String> {
    let mut warnings = Vec::new();
    for place in recording.places.iter().filter(|place| used.contains(&place.layer.device)) {
        let device = &place.layer.device;
        if let Some(backing) = &place.loop_backing {
            warnings.push(format!(
                "{device} is the file {}: each of its flushes costs a sync of that file, which is \
                 not in the bill",
                backing.display()
            ));
        }
        if let Some(memory) = &place.memory {
            warnings.push(format!("{device} is memory ({memory}): nothing there is durable"));
        }
        warnings.extend(place.layer.notes.iter().map(|note| format!("{device}: {note}")));
    }
    warnings
}

fn disks(recording: &Recording, tallied: &Tallied) -> Vec<DiskReport> {
    let disk = |(place, &busy): (&Place, &f64)| DiskReport {
        device: place.layer.device.clone(),
        file_system: match place.is_bare() {
            true => "ext4 without a journal".into(),
            false => place.layer.file_system.clone(),
        },
        mounted: place.target().display().to_string(),
        options: place.options.clone(),
        volatile_cache: place.layer.volatile_cache(),
        fua: place.has_fua(),
        busy,
    };
    recording.places.iter().zip(&tallied.busy).map(disk).collect()
}

/// One row's report.
struct One<'a> {
    seen: &'a Seen,
    recording: &'a Recording,
    syncs: &'a Syncs,
    tallied: &'a Tallied,
    row: Row<'a>,
    seconds: f64,
}

impl One<'_> {
    fn report(&self) -> FileReport {
        let files: Vec<&SeenFile> =
            self.row.files.iter().map(|&file| &self.syncs.files[file]).collect();
        let place = files[0].place.map(|place| &self.recording.places[place]);
        let mut by_how: BTreeMap<How, Vec<&Sync>> = BTreeMap::new();
        for sync in &self.row.syncs {
            by_how.entry(sync.how).or_default().push(sync);
        }
        let how = by_how.iter().max_by_key(|(_, all)| all.len()).map_or(How::Fsync, |(h, _)| *h);
        let no_bill = self.no_bill(files[0].place, how);
        let bill = no_bill.is_none().then_some(self.row.tally.bill);
        let cause = match bill {
            Some(_) => cause(&files, place, &self.row.tally, how),
            None => cause::Cause::Unknown,
        };
        let path = self.row.path.clone();
        let name = path.rsplit_once('/').map_or(path.as_str(), |(_, name)| name);
        let why = match (&bill, no_bill) {
            (_, Some(reason)) => format!("{name}: there is no bill, since {reason}"),
            (Some(bill), None) => why(name, how, bill, cause, place),
            (None, None) => String::new(),
        };
        FileReport {
            advice: self.advice(cause),
            device: place.map_or_else(String::new, |place| place.layer.device.clone()),
            more_files: self.row.files.len() - 1,
            calls: by_how.iter().map(|(how, all)| (*how, self.calls(all))).collect(),
            bytes_between: self.bytes_between(),
            bill,
            time: bill.map(|_| self.row.tally.time),
            slowest: self.row.tally.slowest.filter(|_| bill.is_some()),
            cause,
            why,
            path,
        }
    }

    fn advice(&self, cause: cause::Cause) -> Option<advice::Advice> {
        let process = *self.syncs.threads.get(&self.row.syncs.first()?.thread)?;
        let by_first = self.row.syncs.iter().filter(|sync| sync.thread == process).count() as f64;
        let seconds = self.seconds.max(1e-9);
        let (_, program) = self.seen.processes.iter().find(|(id, _)| *id == process)?;
        let of = |&file: &usize| {
            advice(&Asked {
                program,
                root: Path::new(&format!("/proc/{process}/root")),
                path: &self.syncs.files[file].path,
                cause,
                first_thread_per_second: by_first / seconds,
                others_per_second: (self.row.syncs.len() as f64 - by_first) / seconds,
            })
        };
        self.row.files.iter().find_map(of)
    }

    fn calls(&self, all: &[&Sync]) -> Calls {
        let mut us: Vec<f64> =
            all.iter().map(|sync| (sync.end_ns - sync.start_ns) as f64 / 1000.0).collect();
        us.sort_unstable_by(f64::total_cmp);
        let at = |q: f64| us[((us.len() - 1) as f64 * q).ceil() as usize];
        Calls {
            calls: all.len() as u64,
            failed: all.iter().filter(|sync| sync.failed).count() as u64,
            per_second: all.len() as f64 / self.seconds.max(1e-9),
            p50_us: at(0.5),
            p99_us: at(0.99),
            max_us: at(1.0),
        }
    }

    /// Of the syncs of each file from its first traced write on: writes through a descriptor are
    /// traced only after it was seen.
    fn bytes_between(&self) -> Option<u64> {
        let mut traced: HashMap<usize, (u64, u64)> =
            self.row.files.iter().map(|&file| (file, (u64::MAX, 0))).collect();
        for write in &self.syncs.writes {
            if let Some((from_ns, bytes)) = traced.get_mut(&write.file) {
                *from_ns = write.start_ns.min(*from_ns);
                *bytes += write.bytes?;
            }
        }
        let is_after = |sync: &&&Sync| sync.start_ns >= traced[&sync.file].0;
        let syncs = self.row.syncs.iter().filter(is_after).count() as u64;
        traced.values().map(|(_, bytes)| bytes).sum::<u64>().checked_div(syncs)
    }

    /// Why there is no bill, if there is none: it could not be seen, or what was seen contradicts
    /// what the syncs promise.
    fn no_bill(&self, place: Option<usize>, how: How) -> Option<String> {
        let tally = &self.row.tally;
        let said = |reason: &str| Some(reason.to_owned());
        if self.recording.lost > 0 {
            return said("events were lost");
        }
        let Some(at) = place else {
            return said(
                "its file system is on no single disk, or none of its files was open when the \
                 watch began (then watch again)",
            );
        };
        if self.tallied.is_passed_on[at] {
            return said(
                "its disk has no queue of its own and passes requests on (device mapper, md, zram)",
            );
        }
        let bill = &tally.bill;
        let wrote = how.is_write() || self.bytes_between().is_some_and(|bytes| bytes > 0);
        if bill.data_writes == 0.0 && wrote {
            return said("the program wrote, and no write of its data was seen on the disk");
        }
        let has_barriers = self.recording.places[at].layer.has_barriers;
        (has_barriers && tally.uncovered * UNCOVERED_MAX > bill.syncs).then(|| {
            format!(
                "{} of its {} syncs ended before a flush that was seen covered what they had \
                 written: a part of what they pay is not in the trace",
                tally.uncovered, bill.syncs
            )
        })
    }
}
