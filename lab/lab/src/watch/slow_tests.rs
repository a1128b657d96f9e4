//! What slow calls waited for, of events that are made by hand. `.ci/watch-slow` makes real ones.

use std::collections::{HashMap, HashSet};

use inkstone_host::{Call, Comm, DeviceNumber, RequestFlags, TraceEvent, TraceKind};

use super::recording::Recording;
use super::slow::{Slow, explain};
use super::slow_report::{Asker, SlowCall, SlowReport, Wait, Waited};
use super::tests;

const THREAD: u32 = 101;
const JOURNAL: u32 = 50;
const OTHER: u32 = 60;
const WORKER: u32 = 70;
const INTERRUPTED: u32 = 80;
const DISK: DeviceNumber = DeviceNumber { major: 7, minor: 0 };
const MS: u64 = 1_000_000;

fn event(at_ms: u64, tid: u32, what: TraceKind) -> TraceEvent {
    TraceEvent { time_ns: at_ms * MS, tid, what }
}

/// The thread sleeps from one time to another, when `by` wakes it, and runs at once.
fn sleeps(from_ms: u64, to_ms: u64, by: u32, by_interrupt: bool) -> Vec<TraceEvent> {
    vec![
        event(from_ms, THREAD, TraceKind::Switch { from: THREAD, to: 0, sleeps: true }),
        event(to_ms, by, TraceKind::Waking { thread: THREAD, by_interrupt }),
        event(to_ms, 0, TraceKind::Switch { from: 0, to: THREAD, sleeps: false }),
    ]
}

fn flags(rwbs: &str) -> RequestFlags {
    RequestFlags::parse(rwbs.as_bytes())
}

/// A request: asked for, issued, completed in the context of the interrupted thread.
fn request(times: [u64; 3], tid: u32, comm: &str, sector: u64, rwbs: &str) -> Vec<TraceEvent> {
    let (device, sectors, flags, comm) = (DISK, 8, flags(rwbs), Comm::new(comm.as_bytes()));
    let issue = TraceKind::RequestIssue { device, sector, sectors, flags, comm };
    vec![
        event(times[0], tid, TraceKind::BioQueue { device, sector, sectors, flags, comm }),
        event(times[1], tid, issue),
        event(times[2], INTERRUPTED, TraceKind::RequestComplete { device, sector, flags }),
    ]
}

fn wakes(at_ms: u64, by: u32, by_interrupt: bool) -> TraceEvent {
    event(at_ms, by, TraceKind::Waking { thread: JOURNAL, by_interrupt })
}

fn commit(from_ms: u64, to_ms: u64) -> Vec<TraceEvent> {
    let (device, transaction) = (DISK, 1);
    vec![
        event(from_ms, JOURNAL, TraceKind::JournalCommitStart { device, transaction }),
        event(to_ms, JOURNAL, TraceKind::JournalCommitEnd { device, transaction }),
    ]
}

#[derive(Default)]
struct Case {
    tasks: Vec<TraceEvent>,
    disk: Vec<TraceEvent>,
    throttled: Vec<TraceEvent>,
    host: Vec<TraceEvent>,
}

/// The report of an fdatasync from 100 to 200 ms.
fn report(case: Case) -> SlowReport {
    let call = Call::Fdatasync;
    let enter = TraceKind::CallEnter { call, argument: 5, bytes: None, flags: 0 };
    let mut tasks = vec![event(100, THREAD, enter)];
    tasks.extend(case.tasks);
    tasks.push(event(200, THREAD, TraceKind::CallExit { call, result: 0 }));
    tasks.sort_by_key(|event| event.time_ns);
    let mut recording: Recording = tests::recording(None, None);
    recording.events = case.disk;
    recording.events.sort_by_key(|event| event.time_ns);
    let has_host = !case.host.is_empty();
    explain(&Slow {
        from_ns: 10 * MS,
        recording: &recording,
        tasks: &tasks,
        throttled: &case.throttled,
        host: has_host.then_some((&case.host, "vda")),
        journals: &HashSet::from([JOURNAL]),
        names: &HashMap::from([(OTHER, "containerd".to_owned())]),
    })
}

/// The longest wait, and how long it was.
fn longest(case: Case) -> (Wait, f64) {
    let report = report(case);
    let [call] = &report.listed[..] else { panic!("one call: {report:?}") };
    let sum: f64 = call.waits.iter().map(|part| part.ms).sum();
    assert!((sum - 100.0).abs() < 0.01 && call.ms == 100.0, "all of its time: {call:?}");
    let wait = call.longest();
    let ms = call.waits.iter().filter(|part| part.wait == wait).map(|part| part.ms).sum();
    (wait, ms)
}

#[test]
fn the_processor_memory_and_written_pages() {
    let ran = longest(Case::default());
    assert_eq!(ran, (Wait::Ran, 100.0));
    let switch = |at, from, to| event(at, 0, TraceKind::Switch { from, to, sleeps: false });
    let tasks = vec![switch(110, THREAD, OTHER), switch(190, OTHER, THREAD)];
    assert_eq!(longest(Case { tasks, ..Case::default() }), (Wait::RunQueue, 80.0));
    let reclaim = |at, begins| event(at, THREAD, TraceKind::Reclaim { begins });
    let mut tasks = sleeps(120, 170, 1, true);
    tasks.extend([reclaim(110, true), reclaim(180, false)]);
    tasks.sort_by_key(|event| event.time_ns);
    assert_eq!(longest(Case { tasks, ..Case::default() }).0, Wait::Reclaim);
    let mut tasks = vec![event(120, THREAD, TraceKind::DirtyPause { is_asleep: true })];
    tasks.extend(sleeps(120, 190, 1, true));
    assert_eq!(longest(Case { tasks, ..Case::default() }), (Wait::DirtyPages, 70.0));
    // Somebody with a lock let it go on.
    let tasks = sleeps(110, 190, OTHER, false);
    assert_eq!(longest(Case { tasks, ..Case::default() }), (Wait::NotKnown, 80.0));
    // An interrupt without a completion: a timer.
    let tasks = sleeps(110, 190, INTERRUPTED, true);
    assert_eq!(longest(Case { tasks, ..Case::default() }), (Wait::NotKnown, 80.0));
}

#[test]
fn a_commit_is_blamed_on_who_woke_the_journal_for_it_and_on_nobody_else() {
    let of = |woken: Vec<TraceEvent>, commits: Vec<TraceEvent>| {
        let tasks = [woken, sleeps(110, 190, JOURNAL, false)].concat();
        longest(Case { tasks, disk: commits, ..Case::default() }).0
    };
    let whose = |by, by_interrupt| of(vec![wakes(90, by, by_interrupt)], commit(91, 190));
    assert_eq!(whose(OTHER, false), Wait::Journal(Asker::Other("containerd".into())));
    assert_eq!(whose(THREAD, false), Wait::Journal(Asker::Itself));
    assert_eq!(whose(INTERRUPTED, true), Wait::Journal(Asker::Timer));
    assert_eq!(whose(999, false), Wait::Journal(Asker::NotKnown), "no name");
    // Asked for while the one before was in progress: nobody had to wake it.
    let before = [commit(60, 100), commit(101, 190)].concat();
    assert_eq!(of(vec![wakes(59, OTHER, false)], before), Wait::Journal(Asker::NotKnown));
    // Its own requests wake it within a commit; they ask for nothing.
    let woken = vec![wakes(90, OTHER, false), wakes(120, INTERRUPTED, true)];
    assert_eq!(of(woken, commit(91, 190)), Wait::Journal(Asker::Other("containerd".into())));
}

#[test]
fn a_request_waits_for_a_limit_in_the_queue_and_in_the_device() {
    let of = |times, tid, comm: &str, more: Vec<TraceEvent>, throttled, host| {
        let disk = [request(times, tid, comm, 800, "WS"), more].concat();
        longest(Case { tasks: sleeps(110, 190, INTERRUPTED, true), disk, throttled, host })
    };
    let none = Vec::new;
    let own = |times, more| of(times, THREAD, "db", more, none(), none());
    assert_eq!(own([110, 110, 190], none()), (Wait::Device, 80.0));
    assert_eq!(own([110, 180, 190], none()), (Wait::Queue, 70.0));
    // It was woken for room, by the completion of another one.
    let full = request([100, 110, 190], OTHER, "dd", 5000, "W");
    assert_eq!(own([109, 191, 199], full), (Wait::Queue, 80.0));
    // Before that there is no proof, but for a limit.
    let late = |throttled| of([180, 180, 190], WORKER, "kworker/0:1", none(), throttled, none());
    assert_eq!(late(none()), (Wait::NotKnown, 70.0));
    let pass = |at, begins| event(at, WORKER, TraceKind::Throttled { begins });
    assert_eq!(late(vec![pass(179, true), pass(181, false)]), (Wait::Throttled, 70.0));
    // Another's requests in the device, or discards, most of the time, or some of it.
    let neighbour = |to| request([100, 110, to], OTHER, "dd", 5000, "W");
    assert_eq!(own([110, 110, 190], neighbour(170)).0, Wait::DeviceBeside("dd".into()));
    assert_eq!(own([110, 110, 190], neighbour(130)).0, Wait::Device);
    let journals = request([100, 110, 170], JOURNAL, "jbd2/loop0-8", 5000, "WS");
    assert_eq!(own([110, 110, 190], journals).0, Wait::Device, "whose commit is not known");
    let discard = request([100, 110, 170], OTHER, "fstrim", 5000, "DS");
    assert_eq!(own([110, 110, 190], discard).0, Wait::Discard);
    let below = request([111, 112, 189], WORKER, "kworker/0:1", 70, "W");
    let host = of([110, 110, 190], THREAD, "db", none(), none(), below);
    assert_eq!(host.0, Wait::Host("vda".into()));
    // It was woken long after the completion, or by something else.
    assert_eq!(own([110, 110, 150], none()), (Wait::NotKnown, 80.0));
}

/// Seen on a busy machine: "191 ms a processor, then 106 ms a processor".
#[test]
fn a_moment_that_is_left_out_does_not_split_a_wait() {
    let waited = |(wait, ms)| Waited { wait, ms };
    let waits = [(Wait::RunQueue, 190.0), (Wait::Device, 4.0), (Wait::RunQueue, 106.0)];
    let waits = waits.map(waited).into();
    let call = SlowCall { call: "fsync".into(), ms: 300.0, waits, ..SlowCall::default() };
    assert_eq!(call.words(), "fsync of an unknown file, 300 ms: 296 ms a processor");
}

#[test]
fn the_sum_is_one_sentence() {
    let woken = vec![wakes(90, OTHER, false)];
    let tasks = [woken, sleeps(110, 190, JOURNAL, false)].concat();
    let report = report(Case { tasks, disk: commit(91, 190), ..Case::default() });
    assert_eq!((report.calls, report.slow), (1, 1));
    let wanted = "Of 1 calls of 10.0 ms or more, 1 waited for a journal commit that containerd \
                  asked for.";
    assert_eq!(report.finding, wanted);
    let line = report.listed[0].words();
    let wanted = "fdatasync of /data/wal, 100 ms: 10.0 ms its own work in the kernel, then 80.0 ms \
                  a journal commit that containerd asked for, then 10.0 ms its own work in the \
                  kernel";
    assert_eq!(line, wanted);
}
