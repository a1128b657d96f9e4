//! `watch` beside an independent count, in one run: what it says of a lone program that syncs, and
//! what the kernel's own trace, read as text by this test, says of the same disks meanwhile. Nine
//! kinds of file systems. Each row agrees, and names the cause that was constructed, or the page
//! says that it cannot tell; and no row says of a sync that it made data durable without a flush.
//! Beside neighbours on the same disk, which the text counts too, rows are the same.
//!
//! Needs root, tracefs, loop devices and the tools of the file systems. The programs are forked
//! from the one test of this file: other threads would be copied half-way. `INKSTONE_WATCH_ALL=1`
//! takes all workloads (.ci/long), and prints a line for each.

mod support;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use inkstone_host::{
    DeviceNumber, LabDirectory, LogPlace, LoopDevice, LoopOptions, Mount, WorkDir, fork_child,
    log_place, mount_points,
};
use inkstone_lab::pass::{Limits, Recorders, Writer};
use inkstone_lab::stage::{Session, stage};
use inkstone_lab::watch::cause::Cause;
use inkstone_lab::watch::collect::Target;
use inkstone_lab::watch::report::WatchReport;
use inkstone_lab::watch::{Watch, WatchOptions};
use inkstone_lab::writing::Writing;
use support::{Neighbour, can_bill, in_two_threads};

const SYNCS: u64 = 100;
const BLOCK: u64 = 4096;

/// What a program does, 100 times.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// One of the lab's ways.
    Way(&'static str),
    /// Two threads overwrite the two halves of a file.
    TwoThreads,
    /// A file is created, written, synced and removed.
    Again,
    /// The same, and then renamed over a kept one, whose directory is synced.
    Renamed,
}

/// All workloads; the first five are those of the gate.
fn workloads() -> Vec<(&'static str, Work)> {
    vec![
        ("new-fdatasync", Work::Way("new fdatasync")),
        ("reuse-fdatasync", Work::Way("reuse fdatasync")),
        ("fallocate-fdatasync", Work::Way("fallocate fdatasync")),
        ("keep-size-fdatasync", Work::Way("keep-size fdatasync")),
        ("reuse-direct-o-dsync-aio", Work::Way("reuse direct o-dsync aio")),
        ("sparse-fdatasync", Work::Way("sparse fdatasync")),
        ("zeros-fdatasync", Work::Way("zeros fdatasync")),
        ("new-fsync", Work::Way("new fsync")),
        ("reuse-fsync", Work::Way("reuse fsync")),
        ("new-o-dsync", Work::Way("new o-dsync")),
        ("reuse-o-dsync", Work::Way("reuse o-dsync")),
        ("reuse-o-sync", Work::Way("reuse o-sync")),
        ("reuse-msync", Work::Way("reuse mmap msync")),
        ("reuse-direct-o-dsync", Work::Way("reuse direct o-dsync")),
        ("reuse-direct-rwf-dsync", Work::Way("reuse direct rwf-dsync")),
        ("reuse-direct-rwf-dsync-uring", Work::Way("reuse direct rwf-dsync uring")),
        ("reuse-direct-fdatasync-linked", Work::Way("reuse direct fdatasync uring-linked")),
        ("two-threads", Work::TwoThreads),
        ("again", Work::Again),
        ("renamed", Work::Renamed),
    ]
}

/// A kind of file system: the tool's arguments before the devices, and the mount's options.
struct Kind {
    name: &'static str,
    file_system: &'static str,
    mkfs: &'static [&'static str],
    options: &'static str,
    /// A second device: for the journal, or for half of the data.
    second: Option<Second>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Second {
    Journal,
    Data,
}

const MIB: u64 = 1 << 20;
const NOT_LAZY: &str = "lazy_itable_init=0,lazy_journal_init=0";

fn kinds() -> Vec<Kind> {
    let ext4: &[&str] = &["-q", "-F", "-b", "4096", "-E", NOT_LAZY];
    let of =
        |name, file_system, mkfs, options| Kind { name, file_system, mkfs, options, second: None };
    let bare: &[&str] = &["-q", "-F", "-b", "4096", "-E", NOT_LAZY, "-O", "^has_journal"];
    let fast: &[&str] = &["-q", "-F", "-b", "4096", "-E", NOT_LAZY, "-O", "fast_commit"];
    vec![
        of("ext4", "ext4", ext4, ""),
        of("ext4 without a journal", "ext4", bare, ""),
        of("ext4 data=journal", "ext4", ext4, "data=journal"),
        of("ext4 fast_commit", "ext4", fast, ""),
        Kind { second: Some(Second::Journal), ..of("ext4 external journal", "ext4", ext4, "") },
        of("ext4 barrier=0", "ext4", ext4, "barrier=0"),
        of("xfs", "xfs", &["-q", "-f"], ""),
        of("btrfs", "btrfs", &["-q", "-f"], "nodiscard"),
        Kind {
            second: Some(Second::Data),
            ..of(
                "btrfs on two disks",
                "btrfs",
                &["-q", "-f", "-d", "raid0", "-m", "raid1"],
                "nodiscard",
            )
        },
    ]
}

/// A mounted file system; the fields go in this order.
struct Made {
    mount: Option<Mount>,
    devices: Vec<LoopDevice>,
    work: WorkDir,
}

impl Made {
    fn new(kind: &Kind) -> Self {
        let work = WorkDir::create(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("a directory");
        let mib = if kind.file_system == "xfs" { 320 } else { 192 };
        let device = |name: &str, mib: u64| {
            let path = work.path().join(name);
            File::create(&path).and_then(|file| file.set_len(mib * MIB)).expect("an image");
            LoopDevice::attach(&path, LoopOptions::default()).expect("a loop device")
        };
        let mut devices = vec![device("first", mib)];
        devices.extend(kind.second.map(|_| device("second", mib)));
        let nodes: Vec<&str> =
            devices.iter().map(|device| device.path().to_str().expect("text")).collect();
        let mut arguments: Vec<&str> = kind.mkfs.to_vec();
        let journal = format!("device={}", nodes.last().expect("a device"));
        match kind.second {
            Some(Second::Journal) => {
                tool("mke2fs", &["-q", "-F", "-b", "4096", "-O", "journal_dev", nodes[1]]);
                arguments.extend(["-J", &journal, nodes[0]]);
            }
            Some(Second::Data) | None => arguments.extend(&nodes),
        }
        tool(&format!("mkfs.{}", kind.file_system), &arguments);
        let target = work.path().join("mounted");
        fs::create_dir_all(&target).expect("a directory");
        let mount = Mount::new(devices[0].path(), &target, kind.file_system, kind.options);
        Self { mount: Some(mount.expect("mounted")), devices, work }
    }

    fn path(&self) -> &Path {
        self.mount.as_ref().expect("mounted").target()
    }

    fn remove(mut self) {
        self.mount.take().expect("mounted").unmount().expect("unmounted");
        self.devices.into_iter().for_each(|device| device.detach().expect("detached"));
        self.work.remove().expect("removed");
    }
}

fn tool(name: &str, arguments: &[&str]) {
    let output = Command::new(name).args(arguments).output().expect(name);
    assert!(output.status.success(), "{name} {arguments:?}: {output:?}");
}

/// Where tracefs is, and a mount of our own if it is nowhere.
fn tracefs(work: &Path) -> (PathBuf, Option<Mount>) {
    let points = mount_points().expect("mounts");
    if let Some(point) = points.into_iter().find(|point| point.file_system == "tracefs") {
        return (point.target, None);
    }
    let target = work.join("tracefs");
    fs::create_dir_all(&target).expect("a directory");
    let mount = Mount::new(Path::new("tracefs"), &target, "tracefs", "").expect("mounted");
    (target, Some(mount))
}

/// The kernel's trace of these disks as text: an instance of this test's own.
struct Text(PathBuf, Option<Mount>);

/// What the disks got meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Count {
    writes: f64,
    flushes: f64,
    /// Of the writes.
    journal: f64,
}

impl Text {
    fn begin(devices: &[DeviceNumber], work: &Path) -> Self {
        let name = format!("inkstone-test-{}", std::process::id());
        let (tracefs, mount) = tracefs(work);
        let path = tracefs.join("instances").join(name);
        fs::create_dir(&path).expect("an instance");
        let text = Self(path, mount);
        let each = devices.iter().map(|at| format!("dev == {}", at.to_kernel()));
        text.set("buffer_size_kb", "16384");
        text.set("events/block/block_rq_issue/filter", &each.collect::<Vec<_>>().join(" || "));
        text.set("events/block/block_rq_issue/enable", "1");
        text.set("tracing_on", "1");
        text
    }

    fn set(&self, name: &str, value: &str) {
        fs::write(self.0.join(name), value).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Counts the commands; `journal`: the device and sectors of the journal.
    fn end(self, journal: &[(DeviceNumber, std::ops::Range<u64>)]) -> Count {
        self.set("tracing_on", "0");
        let text = fs::read_to_string(self.0.join("trace")).expect("a trace");
        let mut count = Count::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            // `... block_rq_issue: 7,0 WS 4096 () 800 + 8 be,0,4 [name]`
            let (_, said) = line.split_once("block_rq_issue: ").expect(line);
            let words: Vec<&str> = said.split(' ').collect();
            let device: DeviceNumber = words[0].replace(',', ":").parse().expect(line);
            let plus = words.iter().position(|word| *word == "+").expect(line);
            let sector: u64 = words[plus - 1].parse().expect(line);
            let sectors: u64 = words[plus + 1].parse().expect(line);
            let op = words[1].trim_start_matches('F');
            if words[1].starts_with("FF") || words[1] == "F" {
                count.flushes += 1.0;
            } else if op.starts_with('W') && sectors > 0 {
                count.writes += 1.0;
                let is_it = |(of, area): &(DeviceNumber, std::ops::Range<u64>)| {
                    *of == device && area.contains(&sector)
                };
                count.journal += f64::from(u8::from(journal.iter().any(is_it)));
            }
        }
        count
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
        self.1.take().into_iter().for_each(|mount| drop(mount.unmount()));
    }
}

/// Where the journal is, in sectors.
fn journal_of(made: &Made, kind: &Kind) -> Vec<(DeviceNumber, std::ops::Range<u64>)> {
    if kind.second == Some(Second::Journal) {
        return vec![(made.devices[1].device(), 0..u64::MAX)];
    }
    let place = log_place(made.devices[0].path(), kind.file_system).expect("a layout");
    let LogPlace::Inside(areas) = place else { return Vec::new() };
    let device = made.devices[0].device();
    areas.into_iter().map(|area| (device, area.start / 512..area.end / 512)).collect()
}

/// Runs the program under `watch` and under the text's count.
fn watched(made: &Made, kind: &Kind, name: &str, work: Work) -> (WatchReport, Count) {
    let (mut told, mut go) = std::io::pipe().expect("a pipe");
    let (mut done, tell) = std::io::pipe().expect("a pipe");
    let child = fork_child(|| {
        let mut tell = tell.try_clone().expect("a pipe");
        let mut wait = || told.read_exact(&mut [0]).expect("a word");
        let mut say = || tell.write_all(b".").expect("heard");
        run(made.path(), name, work, &mut wait, &mut say);
        0
    });
    let child = child.expect("a child");
    drop((told, tell));
    done.read_exact(&mut [0]).expect("it is ready");
    let target = Target::Process(child.id());
    let options = WatchOptions { target, time: Duration::from_secs(60), slow: None };
    let numbers: Vec<DeviceNumber> = made.devices.iter().map(LoopDevice::device).collect();
    let journal = journal_of(made, kind);
    let mut watch = Watch::start(&options).expect("a trace");
    let text = Text::begin(&numbers, made.work.path());
    go.write_all(b".").expect("heard");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = done.read_exact(&mut [0]);
            stop.store(true, Ordering::Relaxed);
        });
        watch.run(&stop).expect("watched");
    });
    let count = text.end(&journal);
    let report = watch.report().expect("a trace");
    go.write_all(b".").expect("heard");
    assert_eq!(child.wait().expect("an end"), 0, "the program failed");
    (report, count)
}

/// The program: ready, waits, works, done, waits.
fn run(directory: &Path, name: &str, work: Work, wait: &mut dyn FnMut(), say: &mut dyn FnMut()) {
    let lab = LabDirectory::at(directory).expect("a directory");
    let stop = AtomicBool::new(false);
    let session = Session { directory: &lab, stop: &stop, device: None };
    let way = if let Work::Way(name) = work { name } else { "reuse fdatasync" };
    let way = Writing::named(way).expect("a way");
    let writing = Writing { file_bytes: SYNCS * BLOCK, ..way };
    let staged = stage(&session, &writing, name).expect("the claimed state");
    let mut writer = Writer::for_way(&writing).expect("an engine");
    tool("sync", &["-f", directory.to_str().expect("text")]);
    say();
    wait();
    match work {
        Work::Way(_) => {
            let (mut unused, file) = (Recorders::default(), &staged.file);
            writer.run(&session, &writing, file, Limits::NONE, &mut unused, None).expect("written");
        }
        Work::TwoThreads => in_two_threads(staged.file.std_file(), SYNCS),
        Work::Again | Work::Renamed => {
            let names = File::open(directory).expect("the directory");
            for number in 0..SYNCS {
                let path = directory.join(format!("{name}-{number}"));
                let mut file = File::create(&path).expect("a file");
                file.write_all(&[7; BLOCK as usize]).expect("written");
                file.sync_all().expect("synced");
                drop(file);
                if matches!(work, Work::Renamed) {
                    fs::rename(&path, directory.join(format!("{name}-kept"))).expect("renamed");
                    names.sync_all().expect("synced");
                } else {
                    fs::remove_file(&path).expect("removed");
                }
            }
        }
    }
    say();
    wait();
}

/// What the rows say together; `None` if one of them cannot tell, or if the page says that syncs
/// were traced in a part of the time: calls of other programs may leave no room for more.
fn said(report: &WatchReport) -> Option<Count> {
    if report.warnings.iter().any(|text| text.starts_with("there were too many events")) {
        return None;
    }
    let mut all = Count::default();
    for file in &report.files {
        let bill = file.bill?;
        let syncs = bill.syncs as f64;
        all.writes += (bill.data_writes + bill.journal_writes + bill.metadata_writes) * syncs;
        all.journal += bill.journal_writes * syncs;
        all.flushes += bill.flushes * syncs;
    }
    (!report.files.is_empty()).then_some(all)
}

/// Why the page and the count disagree.
fn differs(kind: &Kind, report: &WatchReport, count: Count) -> Option<String> {
    let said = said(report)?;
    // What the file system writes for itself in a second besides, and metadata of btrfs.
    let share = if kind.file_system == "btrfs" { 0.05 } else { 0.02 };
    let far = |said: f64, count: f64| (said - count).abs() > (count * share).max(2.0);
    let parts = [
        ("writes", said.writes, count.writes),
        ("journal writes", said.journal, count.journal),
        ("flushes", said.flushes, count.flushes),
    ];
    let wrong = parts.into_iter().find(|(_, said, count)| far(*said, *count));
    wrong.map(|(what, said, count)| format!("{said:.0} {what}, and the kernel's text {count:.0}"))
}

/// What the bar forbids: data that was promised to be durable, and neither a flush nor FUA.
fn is_forbidden(kind: &Kind, report: &WatchReport) -> bool {
    report.files.iter().filter_map(|file| file.bill).any(|bill| {
        let writes = bill.data_writes + bill.journal_writes + bill.metadata_writes;
        kind.options != "barrier=0" && writes > 0.1 && bill.flushes + bill.fua == 0.0
    })
}

/// Whether the row names another cause than the one that was constructed.
fn is_mistaken(kind: &Kind, name: &str, report: &WatchReport) -> bool {
    let cause = match name {
        "new-fdatasync" | "reuse-fdatasync" if kind.file_system == "btrfs" => Cause::CopyOnWrite,
        "reuse-fdatasync" | "zeros-fdatasync" if kind.options == "data=journal" => {
            Cause::DataInJournal
        }
        _ if kind.file_system == "btrfs" => return false,
        "new-fdatasync" | "new-fsync" | "new-o-dsync" => Cause::Grows,
        "fallocate-fdatasync" => Cause::Reserved,
        "keep-size-fdatasync" => Cause::ReservedBeyond,
        "sparse-fdatasync" => Cause::Holes,
        "reuse-fdatasync" | "zeros-fdatasync" => Cause::Overwrites,
        "again" => Cause::CreatedAgain,
        _ => return false,
    };
    let is_bare = kind.name == "ext4 without a journal";
    report.files.iter().filter(|file| file.bill.is_some()).any(|file| {
        let is_inode = is_bare && file.cause == Cause::InodeInPlace;
        file.cause != cause && !(is_inode && cause == Cause::Overwrites)
    })
}

/// Two neighbours write to the same disk and sync it: an overwrite pays what it pays alone, also
/// one whose flush a worker of the kernel sends.
fn the_rows_beside_neighbours() {
    let ext4 = kinds().remove(0);
    let made = Made::new(&ext4);
    let neighbours = Neighbour::two(made.path());
    let is_asked = |name: &str| ["reuse-fdatasync", "reuse-direct-rwf-dsync-uring"].contains(&name);
    for (name, work) in workloads().into_iter().filter(|(name, _)| is_asked(name)) {
        let (report, _) = watched(&made, &ext4, name, work);
        let [file] = &report.files[..] else { panic!("one file: {report:#?}") };
        let bill = file.bill.expect("a bill");
        let found = [bill.data_writes, bill.journal_writes, bill.metadata_writes, bill.flushes];
        let is_near = found.iter().zip([1.0, 0.0, 0.0, 1.0]).all(|(a, b)| (a - b).abs() <= 0.02);
        assert!(is_near && bill.syncs == SYNCS, "{name}: {file:#?}");
    }
    drop(neighbours);
    made.remove();
}

#[test]
#[ignore = "needs root, tracefs, mkfs.ext4, mkfs.xfs and mkfs.btrfs"]
fn each_row_is_what_the_kernels_own_text_counts_or_cannot_tell() {
    if !can_bill("each_row_is_what_the_kernels_own_text_counts_or_cannot_tell") {
        return;
    }
    let is_all = std::env::var_os("INKSTONE_WATCH_ALL").is_some();
    let few = if is_all { usize::MAX } else { 5 };
    let only = std::env::var("INKSTONE_WATCH_ONLY").unwrap_or_default();
    let (mut wrong, mut told, mut all) = (Vec::new(), 0, 0);
    for kind in kinds() {
        let made = Made::new(&kind);
        for (name, work) in workloads().into_iter().take(few) {
            if !format!("{}/{name}", kind.name).contains(&only) {
                continue;
            }
            let (report, count) = watched(&made, &kind, name, work);
            let why: Vec<&str> = report.files.iter().map(|file| file.why.as_str()).collect();
            let causes: Vec<Cause> = report.files.iter().map(|file| file.cause).collect();
            all += 1;
            told += usize::from(said(&report).is_some());
            let differs = differs(&kind, &report, count);
            if is_all {
                let line = match (said(&report), &differs) {
                    (_, Some(differs)) => format!("WRONG: {differs}"),
                    (Some(_), None) => format!("agrees, {causes:?}"),
                    (None, None) => format!("cannot tell: {why:?} {:?}", report.warnings),
                };
                let _ = writeln!(std::io::stderr(), "{} {name}: {line}", kind.name);
            }
            let is_forbidden = is_forbidden(&kind, &report);
            let is_mistaken = is_mistaken(&kind, name, &report);
            // A busy machine may keep the reader from its buffers; then there must be no bill.
            let is_bold = report.lost_events > 0 && said(&report).is_some();
            if is_bold || differs.is_some() || is_forbidden || is_mistaken {
                let WatchReport { files, warnings, .. } = &report;
                wrong.push(format!(
                    "{} {name}: {differs:?} {is_forbidden} {warnings:?} {files:#?}",
                    kind.name
                ));
            }
        }
        made.remove();
    }
    the_rows_beside_neighbours();
    let summary = format!("{told} of {all} agree, the others cannot tell");
    let _ = writeln!(std::io::stderr(), "watch beside the kernel's text: {summary}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A page that cannot tell is right, and of no use.
    assert!(!only.is_empty() || told * 10 >= all * 8, "{summary}");
}
