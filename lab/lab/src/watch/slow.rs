//! What each slow call of a program waited for, as far as events prove it.
//!
//! *Owns*: this proof. *May not touch*: collecting the events (`slow_collect`), the words
//! (`slow_report`).
//!
//! The scheduler's events split a call's time: the thread ran, waited for a processor, or slept.
//! **A sleep** was for what ended it. If the journal's thread woke it: for a commit, which whoever
//! last woke that thread had asked for. If a request's completion did, in the same context: for
//! that request, from its place in the queue on. What lies before that is a limit of the cgroup, if
//! the request was passed on by the worker that serves those limits. Everything else is not known:
//! who holds a lock, whose data made a commit long.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use inkstone_host::{Call, RequestOp, TraceEvent, TraceKind};

use crate::bill::Layer;
use crate::bill::attribution::is_worker;
use crate::bill::requests::{DeviceRequest, Pairs};

use super::recording::Recording;
use super::slow_report::{Asker, SlowCall, SlowReport, Wait, Waited};
use super::spans::{cut, length};

/// The most calls that are explained.
pub const LISTED: usize = 100;
/// A thread is woken at most this long after the completion that wakes it.
const SOON_NS: u64 = 1_000_000;
/// From this share of a wait for the device on, what else the device did is named.
const MOST: f64 = 0.5;

/// All that is needed to explain slow calls.
#[derive(Debug)]
pub struct Slow<'a> {
    /// From how many nanoseconds on a call is slow.
    pub from_ns: u64,
    /// Requests and commits on the program's disks; its threads, files and descriptors.
    pub recording: &'a Recording,
    /// What the program's threads and the journals' threads did, by time.
    pub tasks: &'a [TraceEvent],
    /// When workers passed on requests that a cgroup's limit had held back, by time.
    pub throttled: &'a [TraceEvent],
    /// Requests on the disk below a loop device, by time, and the disk's name.
    pub host: Option<(&'a [TraceEvent], &'a str)>,
    /// The journals' threads.
    pub journals: &'a HashSet<u32>,
    /// The names of the programs of those that woke a journal.
    pub names: &'a HashMap<u32, String>,
}

/// What a thread is doing.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Runs,
    Sleeps,
    Waits,
}

/// Who ended a sleep.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Woken {
    by: u32,
    by_interrupt: bool,
}

/// A part of a call, in one state.
#[derive(Debug, Clone)]
struct Part {
    span: Range<u64>,
    state: State,
    woken: Option<Woken>,
}

/// A call with its parts.
#[derive(Debug)]
struct Open {
    thread: u32,
    call: Call,
    descriptor: Option<u32>,
    span: Range<u64>,
    parts: Vec<Part>,
    reclaims: Vec<Range<u64>>,
    /// When the kernel decided to delay it.
    pauses: Vec<u64>,
}

/// A thread as its events pass by.
#[derive(Debug)]
struct Task {
    state: State,
    since_ns: u64,
    woken: Option<Woken>,
    open: Option<Open>,
}

/// A commit of a journal.
#[derive(Debug)]
struct Commit {
    span: Range<u64>,
    asker: Asked,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Asked {
    By(u32),
    Timer,
    /// While the one before was in progress.
    Before,
}

/// Explains the slowest calls.
pub fn explain(slow: &Slow<'_>) -> SlowReport {
    let (calls, mut found) = slow.calls();
    let count = found.len() as u64;
    let ns = |open: &Open| open.span.end - open.span.start;
    found.sort_by_key(|open| std::cmp::Reverse(ns(open)));
    found.truncate(LISTED);
    let proof = Proof::of(slow);
    let listed = found.iter().map(|open| SlowCall {
        at_ms: ms(open.span.start.saturating_sub(slow.recording.span_ns.start)),
        call: name(open.call).into(),
        path: slow.path(open).unwrap_or_default(),
        ms: ms(ns(open)),
        waits: proof.waits(open),
    });
    SlowReport {
        from_ms: ms(slow.from_ns),
        calls,
        slow: count,
        listed: listed.collect(),
        ..SlowReport::default()
    }
    .sum_up()
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn name(call: Call) -> &'static str {
    match call {
        Call::Fsync => "fsync",
        Call::Fdatasync => "fdatasync",
        Call::SyncFileRange => "sync_file_range",
        Call::Msync => "msync",
        Call::Syncfs => "syncfs",
        Call::Sync => "sync",
        Call::Write => "write",
    }
}

impl Slow<'_> {
    /// How many calls there were, and the slow ones with their parts.
    fn calls(&self) -> (u64, Vec<Open>) {
        let (mut calls, mut found) = (0, Vec::new());
        let mut tasks: HashMap<u32, Task> = HashMap::new();
        for event in self.tasks {
            let (now_ns, tid) = (event.time_ns, event.tid);
            match event.what {
                TraceKind::Pause { .. } => tasks.clear(),
                TraceKind::CallEnter { call, argument, .. } => {
                    let descriptor = u32::try_from(argument).ok().filter(|_| call != Call::Msync);
                    let open = Open {
                        thread: tid,
                        call,
                        descriptor,
                        span: now_ns..now_ns,
                        parts: Vec::new(),
                        reclaims: Vec::new(),
                        pauses: Vec::new(),
                    };
                    let is_file = call != Call::Write || self.path(&open).is_some();
                    let open =
                        (is_file && self.recording.threads.contains_key(&tid)).then_some(open);
                    let (state, since_ns, woken) = (State::Runs, now_ns, None);
                    tasks.insert(tid, Task { state, since_ns, woken, open });
                }
                TraceKind::CallExit { .. } => {
                    let Some(task) = tasks.get_mut(&tid) else { continue };
                    task.goes_on(now_ns, State::Runs);
                    let Some(mut open) = task.open.take() else { continue };
                    calls += 1;
                    open.span.end = now_ns;
                    if now_ns - open.span.start >= self.from_ns {
                        found.push(open);
                    }
                }
                TraceKind::Switch { from, to, sleeps } => {
                    if let Some(task) = tasks.get_mut(&from) {
                        task.goes_on(now_ns, if sleeps { State::Sleeps } else { State::Waits });
                    }
                    if let Some(task) = tasks.get_mut(&to) {
                        task.goes_on(now_ns, State::Runs);
                    }
                }
                TraceKind::Waking { thread, by_interrupt } => {
                    let task = tasks.get_mut(&thread);
                    if let Some(task) = task.filter(|task| task.state == State::Sleeps) {
                        task.woken = Some(Woken { by: tid, by_interrupt });
                        task.goes_on(now_ns, State::Waits);
                    }
                }
                TraceKind::Reclaim { begins } => {
                    let Some(open) = tasks.get_mut(&tid).and_then(|task| task.open.as_mut()) else {
                        continue;
                    };
                    match (begins, open.reclaims.last_mut()) {
                        (true, _) => open.reclaims.push(now_ns..u64::MAX),
                        (false, Some(last)) => last.end = now_ns,
                        (false, None) => open.reclaims.push(open.span.start..now_ns),
                    }
                }
                TraceKind::DirtyPause { is_asleep: true } => {
                    let open = tasks.get_mut(&tid).and_then(|task| task.open.as_mut());
                    open.into_iter().for_each(|open| open.pauses.push(now_ns));
                }
                _ => {}
            }
        }
        (calls, found)
    }

    fn path(&self, open: &Open) -> Option<String> {
        let process = *self.recording.threads.get(&open.thread)?;
        let of_it = self
            .recording
            .descriptors
            .iter()
            .filter(|seen| seen.process == process && Some(seen.number) == open.descriptor);
        let since = of_it.clone().rev().find(|seen| seen.since_ns <= open.span.start);
        let seen = since.or_else(|| of_it.clone().next())?;
        Some(self.recording.files[seen.file].path.display().to_string())
    }
}

impl Task {
    fn goes_on(&mut self, now_ns: u64, state: State) {
        if let Some(open) = &mut self.open {
            let woken = self.woken.take_if(|_| self.state == State::Sleeps);
            open.parts.push(Part { span: self.since_ns..now_ns, state: self.state, woken });
        }
        (self.state, self.since_ns) = (state, now_ns);
    }
}

/// What proves a wait, in order of time.
struct Proof<'a> {
    slow: &'a Slow<'a>,
    requests: Vec<DeviceRequest>,
    /// Of each completion: when, in which thread's context.
    ends: Vec<(u64, u32)>,
    /// For each journal's thread, its commits.
    commits: HashMap<u32, Vec<Commit>>,
    /// For each worker, when it passed on what a limit had held back.
    throttled: HashMap<u32, Vec<Range<u64>>>,
    /// When the disk below the loop device had a request.
    host: Vec<Range<u64>>,
}

impl<'a> Proof<'a> {
    fn of(slow: &'a Slow<'a>) -> Self {
        let recording = slow.recording;
        let layers: Vec<Layer> = recording.places.iter().map(|place| place.layer.clone()).collect();
        let ends = recording.events.iter().filter_map(|event| match event.what {
            TraceKind::RequestComplete { .. } => Some((event.time_ns, event.tid)),
            _ => None,
        });
        let mut throttled: HashMap<u32, Vec<Range<u64>>> = HashMap::new();
        for event in slow.throttled {
            let spans = throttled.entry(event.tid).or_default();
            match (event.what, spans.last_mut()) {
                (TraceKind::Throttled { begins: true }, _) => spans.push(event.time_ns..u64::MAX),
                (_, Some(last)) => last.end = event.time_ns,
                (_, None) => {}
            }
        }
        let mut pairs = Pairs::of(&layers);
        for event in &recording.events {
            pairs.see(event);
        }
        let requests = std::mem::take(&mut pairs.requests);
        Self {
            slow,
            requests,
            ends: ends.collect(),
            commits: commits(slow),
            throttled,
            host: slow.host.map_or_else(Vec::new, |(events, _)| busy(events)),
        }
    }

    /// What the call waited for, in order.
    fn waits(&self, open: &Open) -> Vec<Waited> {
        let mut waits: Vec<Waited> = Vec::new();
        let mut add = |wait: Wait, ns: u64| match waits.last_mut() {
            _ if ns == 0 => {}
            Some(last) if last.wait == wait => last.ms += ms(ns),
            _ => waits.push(Waited { wait, ms: ms(ns) }),
        };
        for part in &open.parts {
            let length = part.span.end - part.span.start;
            let is_in =
                |span: &&Range<u64>| span.start <= part.span.start && part.span.end <= span.end;
            let is_pause = |&&at: &&u64| (at..at + SOON_NS).contains(&part.span.start);
            match part.state {
                _ if open.reclaims.iter().any(|span| is_in(&span)) => add(Wait::Reclaim, length),
                State::Runs => add(Wait::Ran, length),
                State::Waits => add(Wait::RunQueue, length),
                State::Sleeps if open.pauses.iter().any(|at| is_pause(&at)) => {
                    add(Wait::DirtyPages, length);
                }
                State::Sleeps => {
                    for (wait, span) in self.sleep(open, part) {
                        add(wait, span.end - span.start);
                    }
                }
            }
        }
        waits
    }

    /// What a sleep was for, in order.
    fn sleep(&self, open: &Open, part: &Part) -> Vec<(Wait, Range<u64>)> {
        let span = &part.span;
        let not_known = || vec![(Wait::NotKnown, span.clone())];
        let Some(woken) = part.woken else { return not_known() };
        if !woken.by_interrupt && self.slow.journals.contains(&woken.by) {
            return vec![(Wait::Journal(self.asker(open, woken.by, span.end)), span.clone())];
        }
        // Without room in the queue it sleeps with a request that it has asked for already.
        let is_queued = self.requests.iter().any(|request| {
            let is_own = request.tid == open.thread && request.queued_ns >= open.span.start;
            is_own && request.queued_ns <= span.start && request.issue_ns >= span.end
        });
        if is_queued {
            return vec![(Wait::Queue, span.clone())];
        }
        let Some(request) = self.request(span, woken.by) else { return not_known() };
        let queued_ns = request.queued_ns.clamp(span.start, span.end);
        let issue_ns = request.issue_ns.clamp(queued_ns, span.end);
        let mut found = Vec::new();
        // What it waited for before is proven only if the request was held back until then.
        let held = self
            .throttled
            .get(&request.tid)
            .is_some_and(|spans| spans.iter().any(|span| span.contains(&request.queued_ns)));
        let before = if held { Wait::Throttled } else { Wait::NotKnown };
        found.push((before, span.start..queued_ns));
        found.push((Wait::Queue, queued_ns..issue_ns));
        found.push((self.device(open, request, issue_ns..span.end), issue_ns..span.end));
        found
    }

    /// The request whose completion, in the context of this thread, ended the sleep. A flush has
    /// two completions there: the device's own, and that of who asked for it.
    fn request(&self, span: &Range<u64>, by: u32) -> Option<&DeviceRequest> {
        let after = self.ends.partition_point(|(at_ns, _)| *at_ns <= span.end);
        let soon = self.ends[..after]
            .iter()
            .rev()
            .take_while(|(at_ns, _)| at_ns + SOON_NS > span.end && *at_ns > span.start);
        let mut ended = soon.filter(|(_, thread)| *thread == by);
        ended.find_map(|(end_ns, _)| {
            self.requests.iter().find(|request| request.complete_ns == Some(*end_ns))
        })
    }

    /// What the device did while this request was in it.
    fn device(&self, open: &Open, request: &DeviceRequest, span: Range<u64>) -> Wait {
        let most = (span.end - span.start) as f64 * MOST;
        let mut discards = Vec::new();
        let mut others: BTreeMap<String, Vec<Range<u64>>> = BTreeMap::new();
        for other in self.requests.iter().filter(|other| other.layer == request.layer) {
            let during = other.issue_ns..other.complete_ns.unwrap_or(u64::MAX);
            let is_own = self.slow.recording.threads.contains_key(&other.tid);
            if during.end <= span.start || during.start >= span.end {
                continue;
            }
            // The journal's requests are of those who asked for the commit.
            let who = match self.slow.journals.contains(&other.tid) {
                true => match self.asker(open, other.tid, other.issue_ns) {
                    Asker::Other(who) => Some(who),
                    _ => None,
                },
                false => (!is_own && !is_worker(&other.comm)).then(|| other.comm.to_string()),
            };
            match (other.flags.op, who) {
                (RequestOp::Discard, _) => discards.push(during),
                (_, Some(who)) => others.entry(who).or_default().push(during),
                (_, None) => {}
            }
        }
        let share = |spans: &[Range<u64>]| {
            let mut within: Vec<_> = spans.iter().filter_map(|one| cut(one, &span)).collect();
            length(&mut within) as f64
        };
        let beside = others.iter().map(|(who, spans)| (share(spans), who));
        let beside = beside.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(ns, _)| *ns >= most);
        match (self.slow.host, beside) {
            _ if most > 0.0 && share(&discards) >= most => Wait::Discard,
            (_, Some((_, who))) if most > 0.0 => Wait::DeviceBeside(who.clone()),
            (Some((_, disk)), _) if most > 0.0 && share(&self.host) >= most => {
                Wait::Host(disk.to_owned())
            }
            _ => Wait::Device,
        }
    }

    /// Who asked for the commit of this journal that ended last by then.
    fn asker(&self, open: &Open, journal: u32, until_ns: u64) -> Asker {
        let commits = self.commits.get(&journal).map_or(&[][..], Vec::as_slice);
        let after = commits.partition_point(|commit| commit.span.start <= until_ns);
        let Some(commit) = commits[..after].last() else { return Asker::NotKnown };
        let threads = &self.slow.recording.threads;
        match commit.asker {
            Asked::Timer => Asker::Timer,
            Asked::Before => Asker::NotKnown,
            Asked::By(thread) if thread == open.thread => Asker::Itself,
            Asked::By(thread) if threads.contains_key(&thread) => Asker::SameProgram,
            Asked::By(thread) => match self.slow.names.get(&thread) {
                Some(name) => Asker::Other(name.clone()),
                None => Asker::NotKnown,
            },
        }
    }
}

/// The commits of each journal's thread, with who woke it for each.
fn commits(slow: &Slow<'_>) -> HashMap<u32, Vec<Commit>> {
    let mut wakings: HashMap<u32, Vec<(u64, Asked)>> = HashMap::new();
    for event in slow.tasks {
        if let TraceKind::Waking { thread, by_interrupt } = event.what
            && slow.journals.contains(&thread)
        {
            let asked = if by_interrupt { Asked::Timer } else { Asked::By(event.tid) };
            wakings.entry(thread).or_default().push((event.time_ns, asked));
        }
    }
    let mut all: HashMap<u32, Vec<Commit>> = HashMap::new();
    for event in &slow.recording.events {
        let commits = all.entry(event.tid).or_default();
        match event.what {
            TraceKind::JournalCommitStart { .. } => {
                let before_ns = commits.last().map_or(0, |commit| commit.span.end);
                let woken = wakings.get(&event.tid).map_or(&[][..], Vec::as_slice);
                let after = woken.partition_point(|(at_ns, _)| *at_ns <= event.time_ns);
                let last = woken[..after].last().filter(|(at_ns, _)| *at_ns > before_ns);
                let asker = last.map_or(Asked::Before, |(_, asked)| *asked);
                commits.push(Commit { span: event.time_ns..u64::MAX, asker });
            }
            TraceKind::JournalCommitEnd { .. } => {
                if let Some(last) = commits.last_mut() {
                    last.span.end = event.time_ns;
                }
            }
            _ => {}
        }
    }
    all
}

/// When a disk had a request.
fn busy(events: &[TraceEvent]) -> Vec<Range<u64>> {
    let (mut spans, mut open): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
    for event in events {
        match event.what {
            TraceKind::RequestIssue { .. } => {
                if open == 0 {
                    spans.push(event.time_ns..u64::MAX);
                }
                open += 1;
            }
            TraceKind::RequestComplete { .. } if open > 0 => {
                open -= 1;
                if let (0, Some(last)) = (open, spans.last_mut()) {
                    last.end = event.time_ns;
                }
            }
            _ => {}
        }
    }
    spans
}
