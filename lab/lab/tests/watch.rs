//! What `inkstone watch` says of programs whose bill is known by construction: ten set-ups on four
//! file systems, beside a neighbour that writes and syncs. Needs root, tracefs and loop devices;
//! where those are missing it prints loudly that it did not run. Each file system's programs are
//! forked from the one test of this file: other threads of the test would be copied half-way.

mod support;

use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use inkstone_host::{ForkedChild, LabDirectory, Signal, WorkDir, fork_child, signal_process};
use inkstone_io::{Access, Durability, EngineKind, Preparation, Reuse, Strategy};
use inkstone_lab::image::{IMAGE_BYTES_MIN, Image, ImageKind, LoopMode};
use inkstone_lab::pass::{Limits, Recorders, Writer};
use inkstone_lab::stage::{Session, incompressible, stage};
use inkstone_lab::watch::cause::Cause;
use inkstone_lab::watch::collect::{Target, Watched};
use inkstone_lab::watch::report::{FileReport, WatchReport};
use inkstone_lab::watch::syncs::How;
use inkstone_lab::watch::{WatchOptions, report_of};
use inkstone_lab::writing::Writing;
use support::{can_bill, in_two_threads};

/// Syncs of each set-up: 2% is one of them.
const SYNCS: u64 = 50;
const BLOCK: u64 = 4096;

/// What the program does to its file.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// One of the lab's ways, from front to back.
    Way(Strategy),
    /// Two threads overwrite the two halves of a written file.
    TwoThreads,
}

/// A set-up with what must be found.
struct SetUp {
    name: &'static str,
    work: Work,
    how: How,
    /// Which blocks it writes.
    blocks: Cause,
}

fn set_ups() -> Vec<SetUp> {
    let of = |preparation, reuse, access, durability, engine| {
        Work::Way(Strategy { preparation, reuse, access, durability, engine })
    };
    let new = |preparation| {
        let (access, engine) = (Access::Buffered, EngineKind::Caller);
        of(preparation, Reuse::New, access, Durability::Fdatasync, engine)
    };
    let old = |access, durability, engine| {
        of(Preparation::None, Reuse::Reuse, access, durability, engine)
    };
    let (buffered, caller) = (Access::Buffered, EngineKind::Caller);
    let set_up = |name, work, how, blocks| SetUp { name, work, how, blocks };
    vec![
        set_up("new", new(Preparation::None), How::Fdatasync, Cause::Grows),
        set_up("fallocate", new(Preparation::Fallocate), How::Fdatasync, Cause::Reserved),
        set_up("keep-size", new(Preparation::KeepSize), How::Fdatasync, Cause::ReservedBeyond),
        set_up("zeros", new(Preparation::Zeros), How::Fdatasync, Cause::Overwrites),
        set_up(
            "reuse",
            old(buffered, Durability::Fdatasync, caller),
            How::Fdatasync,
            Cause::Overwrites,
        ),
        set_up("mmap", old(Access::Mmap, Durability::Msync, caller), How::Msync, Cause::Overwrites),
        set_up(
            "o-dsync",
            old(buffered, Durability::ODsync, caller),
            How::DsyncWrite,
            Cause::Overwrites,
        ),
        set_up(
            "io_uring",
            old(Access::Direct, Durability::Fdatasync, EngineKind::UringLinked),
            How::RingFsync,
            Cause::Overwrites,
        ),
        set_up("two-threads", Work::TwoThreads, How::Fdatasync, Cause::Overwrites),
    ]
}

/// A program that has its file in the claimed state, and waits.
struct Program {
    child: Option<ForkedChild>,
    go: std::io::PipeWriter,
    done: std::io::PipeReader,
}

impl Program {
    fn start(directory: &Path, name: &str, work: Work) -> Self {
        let (mut told, go) = std::io::pipe().expect("a pipe");
        let (mut done, tell) = std::io::pipe().expect("a pipe");
        let child = fork_child(|| {
            let mut tell = tell.try_clone().expect("a pipe");
            let mut wait = || told.read_exact(&mut [0]).expect("a word");
            let mut say = || tell.write_all(b".").expect("heard");
            run(directory, name, work, &mut wait, &mut say);
            0
        });
        let child = Some(child.expect("a child"));
        drop((told, tell));
        done.read_exact(&mut [0]).expect("it is ready");
        Self { child, go, done }
    }

    fn id(&self) -> u32 {
        self.child.as_ref().expect("a child").id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.go.write_all(b"..");
        let code = self.child.take().expect("a child").wait();
        if !std::thread::panicking() {
            assert_eq!(code.expect("an end"), 0, "the program failed");
        }
    }
}

/// The program: ready, waits, writes and syncs, done, waits.
fn run(directory: &Path, name: &str, work: Work, wait: &mut dyn FnMut(), say: &mut dyn FnMut()) {
    let stop = AtomicBool::new(false);
    let directory = LabDirectory::at(directory).expect("a directory");
    let session = Session { directory: &directory, stop: &stop, device: None };
    let strategy = match work {
        Work::Way(strategy) => strategy,
        Work::TwoThreads => Strategy {
            preparation: Preparation::None,
            reuse: Reuse::Reuse,
            access: Access::Buffered,
            durability: Durability::Fdatasync,
            engine: EngineKind::Caller,
        },
    };
    let writing = Writing { file_bytes: SYNCS * BLOCK, ..Writing::of(strategy) };
    let payload = incompressible(1 << 20, 1);
    let staged = stage(&session, &writing, name, &payload).expect("the claimed state");
    let mut writer = Writer::for_way(&writing, &payload).expect("an engine");
    assert!(Command::new("sync").status().expect("sync").success());
    say();
    wait();
    match work {
        Work::Way(_) => {
            let mut unused = Recorders::default();
            let file = &staged.file;
            writer.run(&session, &writing, file, Limits::NONE, &mut unused, None).expect("written");
        }
        Work::TwoThreads => in_two_threads(staged.file.std_file(), SYNCS),
    }
    say();
    wait();
    drop(Arc::clone(&staged.file));
}

fn options(target: Target) -> WatchOptions {
    WatchOptions { target, time: Duration::from_secs(60), slow: None }
}

/// Watches the program while it works.
fn watched(program: &mut Program) -> WatchReport {
    let options = options(Target::Process(program.id()));
    let mut watched = Watched::start(options.target.clone()).expect("a trace");
    program.go.write_all(b".").expect("heard");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &mut program.done;
        let stop = &stop;
        scope.spawn(move || {
            let _ = done.read_exact(&mut [0]);
            stop.store(true, Ordering::Relaxed);
        });
        watched.watch(Instant::now() + options.time, stop).expect("watched");
    });
    report_of(&options, &watched.finish().expect("a trace"))
}

fn file_named<'a>(report: &'a WatchReport, name: &str) -> &'a FileReport {
    let found = report.files.iter().find(|file| file.path.ends_with(&format!("/{name}")));
    found.unwrap_or_else(|| panic!("{name} is not in {report:#?}"))
}

/// What one sync pays by construction: data writes, journal writes, metadata writes, flushes, each
/// with the most that is right. How often a neighbour's sync pays for a part of ours, or makes us
/// pay for a flush more, is up to the machine.
fn known(kind: ImageKind, blocks: Cause, is_alone: bool) -> [(f64, f64); 4] {
    let is_over = blocks == Cause::Overwrites;
    let exactly = |count: f64| (count, count);
    match (kind, is_over) {
        // The inode, whenever a time stamp in it changed.
        (ImageKind::Ext4NoJournal, true) => [exactly(1.0), exactly(0.0), (0.0, 1.0), exactly(1.0)],
        // The inode, and a block of the extent tree once the file has more than four pieces.
        (ImageKind::Ext4NoJournal, false) => [exactly(1.0), exactly(0.0), (1.0, 2.0), exactly(1.0)],
        // A sync that finds its log tree in a neighbour's commit of the log sends nothing itself.
        (ImageKind::Btrfs, _) => [exactly(1.0), exactly(0.0), (2.0, 20.0), (1.0, 2.0)],
        (_, true) => [exactly(1.0), exactly(0.0), exactly(0.0), exactly(1.0)],
        // ext4: a descriptor with the blocks, and the commit record.
        (ImageKind::Ext4, false) if is_alone => {
            [exactly(1.0), exactly(2.0), exactly(0.0), exactly(2.0)]
        }
        (_, false) if is_alone => [exactly(1.0), exactly(1.0), exactly(0.0), exactly(2.0)],
        // A neighbour's sync may commit the transaction. Then ours sends a flush of its own,
        // besides the two of the commit or, if that had ended before, in place of them.
        (ImageKind::Ext4, false) => [exactly(1.0), (1.8, 2.0), exactly(0.0), (1.9, 3.0)],
        // xfs: it may write our part of the log before we ask for it.
        (_, false) => [exactly(1.0), (0.9, 1.0), exactly(0.0), (1.9, 3.0)],
    }
}

/// The error: beside a neighbour too many syncs found a part of theirs done, which is up to the
/// machine.
fn check(
    kind: ImageKind,
    set_up: &SetUp,
    report: &WatchReport,
    is_alone: bool,
) -> Result<(), String> {
    let SetUp { name, how, blocks, work } = set_up;
    let file = file_named(report, name);
    let seen = format!("{kind} {name}: {file:#?}\n{:?}", report.warnings);
    assert_eq!(report.lost_events, 0, "{seen}");
    assert_eq!(file.calls.get(how).map(|calls| calls.calls), Some(SYNCS), "{seen}");
    let cause = match (kind, *blocks) {
        (ImageKind::Btrfs, _) => vec![Cause::CopyOnWrite],
        (ImageKind::Ext4NoJournal, Cause::Overwrites) => {
            vec![Cause::Overwrites, Cause::InodeInPlace]
        }
        (_, cause) => vec![cause],
    };
    assert!(cause.contains(&file.cause), "{seen}");
    let bill = file.bill.expect("a bill");
    let found = [bill.data_writes, bill.journal_writes, bill.metadata_writes, bill.flushes];
    if kind == ImageKind::Ext4 && *blocks != Cause::Overwrites {
        // However many of them had to wait, each of those pays two.
        assert!((bill.journal_writes - 2.0 * bill.waited).abs() <= 0.04, "{seen}");
    }
    assert!(file.why.starts_with(&format!("each {} of {name} pays ", how.words())), "{seen}");
    for (index, (found, (low, high))) in
        found.into_iter().zip(known(kind, *blocks, is_alone)).enumerate()
    {
        // Two threads share flushes, and their writes may be merged.
        let low = match (work, index) {
            (Work::TwoThreads, 0) => 0.8,
            (Work::TwoThreads, _) => 0.0,
            _ => low,
        };
        let (least, most) = (low - 0.02 * low.max(1.0), high + 0.02 * high.max(1.0));
        let why = format!("{index}: {found} {low} {high} {seen}");
        assert!(found <= most + 1e-9, "{why}");
        if found < least {
            assert!(low < high, "{why}");
            return Err(why);
        }
    }
    Ok(())
}

/// A neighbour on the same file system: it overwrites, changes a time stamp and syncs all of it, so
/// that the journal has something to do, without a new block that would lie between the program's.
struct Neighbour(Option<ForkedChild>);

impl Neighbour {
    fn start(directory: &Path) -> Self {
        std::fs::create_dir_all(directory).expect("a directory");
        std::fs::write(directory.join("neighbour"), [1; 64 * BLOCK as usize]).expect("a file");
        // So that its inode is in another block than the program's: without a journal, whoever
        // syncs first writes that block for both.
        for filler in 0..64 {
            std::fs::write(directory.join(filler.to_string()), "").expect("a file");
        }
        let file = std::fs::File::options().write(true).open(directory.join("neighbour"));
        let file = file.expect("a file");
        let child = fork_child(|| {
            loop {
                for block in 0..64 {
                    file.write_all_at(&[3; BLOCK as usize], block * BLOCK).expect("written");
                    file.set_modified(std::time::SystemTime::now()).expect("a time");
                    file.sync_all().expect("synced");
                }
            }
        });
        Self(Some(child.expect("a child")))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let child = self.0.take().expect("a child");
        let _ = signal_process(child.id(), Signal::Kill);
        let _ = child.wait();
    }
}

#[test]
#[ignore = "needs root and tracefs"]
fn the_bill_and_the_cause_are_those_that_were_constructed() {
    if !can_bill("the_bill_and_the_cause_are_those_that_were_constructed") {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let work = WorkDir::create(directory.path()).expect("a directory");
    for kind in [ImageKind::Ext4, ImageKind::Ext4NoJournal, ImageKind::Xfs, ImageKind::Btrfs] {
        let image = Image::make(work.path(), kind, LoopMode::Buffered, IMAGE_BYTES_MIN);
        let image = image.unwrap_or_else(|error| panic!("{kind}: {error}"));
        for set_up in set_ups().into_iter().take(2) {
            let name = if set_up.name == "new" { "new-alone" } else { "fallocate-alone" };
            let set_up = SetUp { name, ..set_up };
            let mut program = Program::start(image.path(), set_up.name, set_up.work);
            check(kind, &set_up, &watched(&mut program), true).expect("nobody is beside it");
        }
        let neighbour = Neighbour::start(&image.path().join("beside"));
        for set_up in set_ups() {
            let mut tries = 0..3;
            loop {
                let place = image.path().join(tries.next().expect("a try").to_string());
                std::fs::create_dir_all(&place).expect("a directory");
                let mut program = Program::start(&place, set_up.name, set_up.work);
                let report = watched(&mut program);
                let shares = check(kind, &set_up, &report, false);
                let beside = &file_named(&report, set_up.name).beside;
                assert!(!beside.is_empty(), "{kind} {}: the neighbour was not seen", set_up.name);
                match shares {
                    Ok(()) => break,
                    Err(why) => assert!(!tries.is_empty(), "{why}"),
                }
            }
        }
        drop(neighbour);
        // The tenth: two processes on one disk, each with its own bill.
        let reuse = set_ups().remove(4);
        let mut other = Program::start(image.path(), "other", reuse.work);
        other.go.write_all(b".").expect("heard");
        let mut program = Program::start(image.path(), reuse.name, reuse.work);
        check(kind, &reuse, &watched(&mut program), false).expect("both overwrite");
        drop((program, other));
        image.remove().expect("removed");
    }
}
