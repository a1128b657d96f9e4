//! Collects what explains slow calls, beside the trace of `collect`: what the program's threads and
//! the journals' threads do, limits of cgroups, and the disk below a loop device.
//!
//! *Owns*: these traces from start to end. *May not touch*: the program, and what events mean
//! (`slow`).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::Duration;

use inkstone_host::{Trace, TraceKind, Tracer};
use inkstone_io::{Capabilities, Result};

use crate::bill::Layer;

use super::collect::{process_of, stat_of};
use super::recording::Recording;
use super::slow::{Slow, explain};
use super::slow_report::SlowReport;

/// The traces that explain slow calls.
pub(super) struct SlowWatch {
    from: Duration,
    tasks: Tracer,
    /// Linux before 6.3 cannot show it.
    throttle: Option<Tracer>,
    host: Option<(Tracer, String)>,
    followed: HashSet<u32>,
    journals: HashSet<u32>,
    names: HashMap<u32, String>,
    seen_events: usize,
}

impl SlowWatch {
    /// Starts them for the program of this recording.
    ///
    /// # Errors
    /// It cannot be traced.
    pub(super) fn start(from: Duration, recording: &Recording) -> Result<Self> {
        let journals = journals(recording);
        let followed: HashSet<u32> = recording.threads.keys().chain(&journals).copied().collect();
        let threads: Vec<u32> = followed.iter().copied().collect();
        Ok(Self {
            from,
            tasks: Tracer::of_threads(&threads)?,
            throttle: Tracer::of_throttling().ok(),
            host: host(recording)?,
            followed,
            journals,
            names: HashMap::new(),
            seen_events: 0,
        })
    }

    /// Follows the program's new threads, and learns the names of those that woke a journal.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn follow(&mut self, recording: &Recording) -> Result<()> {
        let threads = recording.threads.keys().copied();
        let new: Vec<u32> = threads.filter(|thread| self.followed.insert(*thread)).collect();
        self.tasks.add_threads(&new)?;
        let events = self.tasks.after(self.seen_events);
        self.seen_events += events.len();
        for event in events {
            let TraceKind::Waking { thread, by_interrupt: false } = event.what else { continue };
            if self.journals.contains(&thread) && !self.names.contains_key(&event.tid) {
                let program = process_of(event.tid).and_then(stat_of);
                self.names.extend(program.map(|program| (event.tid, program.name)));
            }
        }
        Ok(())
    }

    /// All of them.
    pub(super) fn traces(&mut self) -> impl Iterator<Item = &mut Tracer> {
        let host = self.host.as_mut().map(|(trace, _)| trace);
        std::iter::once(&mut self.tasks).chain(&mut self.throttle).chain(host)
    }

    /// Ends them and explains the slow calls of this recording; with what limits the answer.
    ///
    /// # Errors
    /// A trace could not be read or removed.
    pub(super) fn finish(mut self, recording: &Recording) -> Result<(SlowReport, Option<String>)> {
        self.follow(recording)?;
        let tasks = self.tasks.stop()?;
        let throttled = self.throttle.map(Tracer::stop).transpose()?.unwrap_or_default();
        let host = self.host.map(|(trace, disk)| Ok((trace.stop()?, disk))).transpose()?;
        let lost = |trace: &Trace| trace.lost;
        let lost = lost(&tasks) + lost(&throttled) + host.as_ref().map_or(0, |(one, _)| one.lost);
        if lost + recording.lost > 0 {
            let finding = "What slow calls waited for is not known: events were lost.".into();
            // Of the recording's own the report has a warning.
            let why = || format!("{lost} events about threads were lost: watch for a shorter time");
            let warning = (lost > 0).then(why);
            return Ok((SlowReport { finding, ..SlowReport::default() }, warning));
        }
        let report = explain(&Slow {
            from_ns: self.from.as_nanos() as u64,
            recording,
            tasks: &tasks.events,
            throttled: &throttled.events,
            host: host.as_ref().map(|(trace, disk)| (&*trace.events, &**disk)),
            journals: &self.journals,
            names: &self.names,
        });
        Ok((report, None))
    }
}

/// The threads of the journals on the program's disks.
fn journals(recording: &Recording) -> HashSet<u32> {
    let prefix = |place: &super::recording::Place| format!("jbd2/{}", place.layer.device);
    let prefixes: Vec<String> = recording.places.iter().map(prefix).collect();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        prefixes.iter().any(|prefix| name.starts_with(prefix))
    })
    .collect()
}

/// A trace of the disk that holds the file of a loop device.
fn host(recording: &Recording) -> Result<Option<(Tracer, String)>> {
    let backing = recording.places.iter().find_map(|place| place.loop_backing.as_ref());
    let facts = backing.and_then(|file| Capabilities::seen(file.parent()?).ok());
    let Some(layer) = facts.and_then(|facts| Layer::of(&facts)) else {
        return Ok(None);
    };
    let numbers: Vec<_> = layer.disks.iter().flat_map(|disk| disk.numbers.clone()).collect();
    Ok(Some((Tracer::of_disks(&numbers)?, layer.device)))
}
