//! Traces of this machine's kernel.

mod host_support;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use host_support::{BTRFS, EXT4, FileSystem, XFS, XFS_MIB, can_run, not_run, run};
use inkstone_host::{
    BlockTrace, DeviceNumber, RequestOp, Trace, TraceKind, block_stat, can_trace, log_area,
    monotonic_ns, mount_points,
};

fn can_run_trace(test: &str, tools: &[&str]) -> bool {
    if let Err(why) = can_trace() {
        not_run(test, &why);
        return false;
    }
    can_run(test, tools)
}

/// A file whose blocks are written and owned, with nothing left to do for the journal.
fn written_file(made: &FileSystem, bytes: usize) -> File {
    let path = made.target().join("file");
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).expect("a file");
    file.write_all(&vec![1; bytes]).expect("written");
    file.sync_all().expect("synced");
    // The whole file system, so that no timer commits in the middle of a test.
    run("sync", &["-f", made.target().to_str().expect("text")]);
    file
}

fn count(trace: &Trace, which: impl Fn(&TraceKind) -> bool) -> usize {
    trace.events.iter().filter(|event| which(&event.what)).count()
}

fn instances() -> Vec<String> {
    let entries = fs::read_dir("/sys/kernel/tracing/instances").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let ours = format!("inkstone-{}-", std::process::id());
    names.filter(|name| name.starts_with(&ours)).collect()
}

#[test]
fn twenty_overwrites_cost_twenty_flushes_and_no_journal_commit() {
    if !can_run_trace("twenty_overwrites_cost_twenty_flushes_and_no_journal_commit", &["mkfs.ext4"])
    {
        return;
    }
    let made = FileSystem::new("ext4", 64, EXT4);
    let device = made.device.device();
    let file = written_file(&made, 20 * 4096);
    let inode = file.metadata().expect("it").ino();
    let before = block_stat(device).expect("sysfs");
    let trace = BlockTrace::start(&[device]).expect("a trace");
    let start_ns = monotonic_ns();
    for index in 0..20 {
        file.write_all_at(&[2; 4096], index * 4096).expect("written");
        file.sync_data().expect("synced");
    }
    let end_ns = monotonic_ns();
    let cost = block_stat(device).expect("sysfs").since(&before);
    let trace = trace.stop().expect("a trace");
    assert_eq!(trace.lost, 0);
    eprintln!("{} events; sysfs: {cost:?}", trace.events.len());
    let flushes = count(
        &trace,
        |what| matches!(what, TraceKind::RequestIssue { flags, .. } if flags.op == RequestOp::Flush),
    );
    let completed = count(
        &trace,
        |what| matches!(what, TraceKind::RequestComplete { flags, error: 0, .. } if flags.op == RequestOp::Flush),
    );
    let writes = count(
        &trace,
        |what| matches!(what, TraceKind::RequestIssue { flags, sectors: 8, .. } if flags.op == RequestOp::Write),
    );
    let asked = count(
        &trace,
        |what| matches!(what, TraceKind::BioQueue { flags, sectors, .. } if flags.is_pure_flush(*sectors)),
    );
    let commits = count(&trace, |what| matches!(what, TraceKind::JournalCommitStart { .. }));
    let enters = count(
        &trace,
        |what| matches!(what, TraceKind::SyncEnter { inode: found, data_only: true, .. } if *found == inode),
    );
    let exits = count(&trace, |what| matches!(what, TraceKind::SyncExit { .. }));
    assert_eq!(
        (flushes, completed, writes, asked, commits, enters, exits),
        (20, 20, 20, 20, 0, 20, 20)
    );
    if let Some(by_sysfs) = cost.flushes {
        assert_eq!(by_sysfs, 20);
    }
    for pair in trace.events.windows(2) {
        assert!(pair[0].time_ns <= pair[1].time_ns);
    }
    // The trace's clock is ours.
    let inside =
        trace.events.iter().filter(|event| (start_ns..=end_ns).contains(&event.time_ns)).count();
    assert_eq!(inside, trace.events.len());
    // Our thread asked for the writes, by its own number and name.
    let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let ours = trace.events.iter().filter(|event| event.tid == tid);
    assert_eq!(ours.filter(|event| matches!(event.what, TraceKind::SyncEnter { .. })).count(), 20);
    drop(file);
    made.remove();
}

#[test]
fn an_append_writes_into_the_journal_and_only_there() {
    if !can_run_trace("an_append_writes_into_the_journal_and_only_there", &["mkfs.ext4"]) {
        return;
    }
    let made = FileSystem::new("ext4", 64, EXT4);
    let device = made.device.device();
    let mut file = written_file(&made, 4096);
    let areas = log_area(made.device.path(), "ext4").expect("a journal");
    let trace = BlockTrace::start(&[device]).expect("a trace");
    for _ in 0..5 {
        file.write_all(&[3; 4096]).expect("written");
        file.sync_data().expect("synced");
    }
    let trace = trace.stop().expect("a trace");
    assert_eq!(trace.lost, 0);
    let mut in_journal = 0;
    for event in &trace.events {
        if let TraceKind::BioQueue { sector, sectors, flags, comm, .. } = event.what
            && sectors > 0
        {
            let byte = sector * 512;
            let inside = areas.iter().any(|area| area.contains(&byte));
            assert_eq!(inside, comm.as_str().starts_with("jbd2/"), "{event:?} {areas:?}");
            in_journal += usize::from(inside);
            assert_eq!(flags.op, RequestOp::Write);
        }
    }
    let commits = count(&trace, |what| matches!(what, TraceKind::JournalCommitStart { .. }));
    let ends = count(&trace, |what| matches!(what, TraceKind::JournalCommitEnd { .. }));
    let stats: Vec<(u64, u32, u32)> = trace
        .events
        .iter()
        .filter_map(|event| match event.what {
            TraceKind::JournalStats { running_ms, blocks, blocks_logged, .. } => {
                Some((running_ms, blocks, blocks_logged))
            }
            _ => None,
        })
        .collect();
    let flushes = count(
        &trace,
        |what| matches!(what, TraceKind::RequestIssue { flags, .. } if flags.op == RequestOp::Flush),
    );
    eprintln!(
        "{commits} commits, {flushes} flushes, {in_journal} bios into the journal, stats {stats:?}"
    );
    assert_eq!((commits, ends, stats.len()), (5, 5, 5));
    assert!(flushes >= 10 && in_journal >= 10, "{flushes} {in_journal}");
    assert!(
        stats
            .iter()
            .all(|(running_ms, blocks, logged)| *running_ms < 1000 && *blocks > 0 && *logged > 0)
    );
    drop(file);
    made.remove();
}

#[test]
fn xfs_and_its_log() {
    if !can_run_trace("xfs_and_its_log", &["mkfs.xfs"]) {
        return;
    }
    let made = FileSystem::new("xfs", XFS_MIB, XFS);
    let mut file = written_file(&made, 4096);
    let inode = file.metadata().expect("it").ino();
    let areas = log_area(made.device.path(), "xfs").expect("a log");
    let trace = BlockTrace::start(&[made.device.device()]).expect("a trace");
    for _ in 0..5 {
        file.write_all(&[3; 4096]).expect("written");
        file.sync_data().expect("synced");
    }
    let trace = trace.stop().expect("a trace");
    let syncs = count(
        &trace,
        |what| matches!(what, TraceKind::XfsSync { inode: found, .. } if *found == inode),
    );
    let forces = count(&trace, |what| matches!(what, TraceKind::XfsLogForce { .. }));
    let log_writes = count(
        &trace,
        |what| matches!(what, TraceKind::XfsLogWrite { flags, .. } if flags & 3 != 0),
    );
    let in_log = count(&trace, |what| {
        matches!(what, TraceKind::BioQueue { sector, sectors: 1.., flags, .. }
            if flags.meta && areas[0].contains(&(sector * 512)))
    });
    eprintln!(
        "{syncs} syncs, {forces} log forces, {log_writes} log writes, {in_log} bios into the log"
    );
    assert_eq!((trace.lost, syncs), (0, 5));
    assert!(forces >= 5 && log_writes >= 5 && in_log >= 5, "{:#?}", trace.events);
    drop(file);
    made.remove();
}

#[test]
fn btrfs_and_only_that_of_our_device() {
    if !can_run_trace("btrfs_and_only_that_of_our_device", &["mkfs.btrfs"]) {
        return;
    }
    let made = FileSystem::new("btrfs", 192, BTRFS);
    let mut file = written_file(&made, 4096);
    let inode = file.metadata().expect("it").ino();
    let other = DeviceNumber { major: 7, minor: 1000 };
    let traces =
        [made.device.device(), other].map(|device| BlockTrace::start(&[device]).expect("a trace"));
    for _ in 0..3 {
        file.write_all(&[3; 4096]).expect("written");
        file.sync_data().expect("synced");
    }
    run("sync", &["-f", made.target().to_str().expect("text")]);
    let [trace, nothing] = traces.map(|trace| trace.stop().expect("a trace"));
    let syncs = count(
        &trace,
        |what| matches!(what, TraceKind::BtrfsSync { inode: found } if *found == inode),
    );
    let commits = count(&trace, |what| matches!(what, TraceKind::BtrfsCommit { .. }));
    let flushes = count(
        &trace,
        |what| matches!(what, TraceKind::RequestIssue { flags, .. } if flags.op == RequestOp::Flush),
    );
    eprintln!("{syncs} syncs, {commits} commits, {flushes} flushes");
    assert_eq!((trace.lost, syncs), (0, 3));
    assert!(commits >= 1 && flushes >= 3);
    assert_eq!(nothing.events, []);
    drop(file);
    made.remove();
}

#[test]
fn many_events_are_all_seen() {
    if !can_run_trace("many_events_are_all_seen", &[]) {
        return;
    }
    let made = FileSystem::new("ext4", 64, EXT4);
    let device = made.device.device();
    drop(written_file(&made, 16 << 20));
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(made.target().join("file"));
    let file = file.expect("a file");
    // Direct I/O wants an aligned buffer.
    let mut memory = vec![0u8; 2 * 4096];
    let aligned = memory.as_ptr().align_offset(4096);
    let buffer = &mut memory[aligned..aligned + 4096];
    let before = block_stat(device).expect("sysfs");
    let trace = BlockTrace::start(&[device]).expect("a trace");
    let start_ns = monotonic_ns();
    for index in 0..30_000u64 {
        file.read_exact_at(buffer, index % 4096 * 4096).expect("read");
    }
    let seconds = (monotonic_ns() - start_ns) as f64 / 1e9;
    let cost = block_stat(device).expect("sysfs").since(&before);
    let trace = trace.stop().expect("a trace");
    eprintln!(
        "{} events, {:.0} a second, {} lost",
        trace.events.len(),
        trace.events.len() as f64 / seconds,
        trace.lost
    );
    let issued = count(
        &trace,
        |what| matches!(what, TraceKind::RequestIssue { flags, .. } if flags.op == RequestOp::Read),
    );
    assert_eq!((trace.lost, issued, cost.reads), (0, 30_000, 30_000));
    drop(file);
    made.remove();
}

#[test]
fn a_dropped_trace_leaves_nothing() {
    if !can_run_trace("a_dropped_trace_leaves_nothing", &[]) {
        return;
    }
    let device = DeviceNumber { major: 7, minor: 1001 };
    let trace = BlockTrace::start(&[device]).expect("a trace");
    let (name, others) = (instances(), Path::new("/sys/kernel/tracing/instances").exists());
    drop(trace);
    if others {
        // Other tests of this process run at the same time: at least one of the names has to be
        // gone.
        assert!(name.iter().any(|name| !instances().contains(name)), "{name:?}");
    }
}

/// Sends one fsync through a ring of its own, by bare system calls: this crate's engine may not be
/// in this build.
fn fsync_by_ring(file: &File) -> std::io::Result<()> {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    let mut params = [0u32; 30]; // struct io_uring_params
    // SAFETY: the call writes one io_uring_params, of 120 bytes, to a valid pointer.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor and no other code has it.
    let ring = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).expect("a descriptor")) };
    let map = |offset: i64| {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of the ring at an address of the kernel's choice; it stays until
        // the test ends.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), 4096, access, kind, ring.as_raw_fd(), offset)
        };
        assert!(address != libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        address.cast::<u8>()
    };
    let (queue, entries) = (map(0), map(0x1000_0000));
    let (tail, array) = (params[11] as usize, params[16] as usize);
    // SAFETY: the offsets are the kernel's, within the page that is mapped; the kernel reads it
    // only in the call below. An entry has 64 bytes: opcode 3 (fsync), the descriptor at byte 4,
    // all else 0.
    unsafe {
        entries.write(3);
        entries.add(4).cast::<i32>().write(file.as_raw_fd());
        queue.add(array).cast::<u32>().write(0);
        queue.add(tail).cast::<u32>().write(1);
    }
    let none = std::ptr::null::<u8>();
    // SAFETY: submits that entry and waits for its completion; no pointer is passed.
    let done =
        unsafe { libc::syscall(libc::SYS_io_uring_enter, ring.as_raw_fd(), 1, 1, 1, none, 0) };
    if done == 1 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn an_fsync_through_a_ring_is_seen_to_be_punted() {
    let test = "an_fsync_through_a_ring_is_seen_to_be_punted";
    if !can_run_trace(test, &["mkfs.ext4"]) {
        return;
    }
    let made = FileSystem::new("ext4", 16, EXT4);
    let file = written_file(&made, 4096);
    let trace = BlockTrace::start(&[made.device.device()]).expect("a trace");
    if let Err(error) = fsync_by_ring(&file) {
        return not_run(test, &format!("no io_uring here: {error}"));
    }
    let trace = trace.stop().expect("a trace");
    let punted: Vec<_> = trace
        .events
        .iter()
        .filter(|event| matches!(event.what, TraceKind::RingPunted { .. }))
        .collect();
    eprintln!("{punted:?}");
    assert_eq!(punted.len(), 1);
    assert_eq!(punted[0].what, TraceKind::RingPunted { opcode: 3 });
    drop(file);
    made.remove();
}

const CHILD: &str = "INKSTONE_TEST_WITHOUT_TRACEFS";

/// Run by the next test in a mount namespace of its own.
#[test]
fn child_traces_without_tracefs() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let ours = || {
        let points = mount_points().expect("/proc").into_iter();
        points
            .filter(|point| point.file_system == "tracefs")
            .map(|point| point.target)
            .collect::<Vec<_>>()
    };
    assert_eq!(ours(), Vec::<std::path::PathBuf>::new(), "tracefs is still mounted here");
    can_trace().expect("it can be mounted");
    let made = FileSystem::new("ext4", 16, EXT4);
    let file = written_file(&made, 4096);
    let first = BlockTrace::start(&[made.device.device()]).expect("a trace");
    let second = BlockTrace::start(&[made.device.device()]).expect("a second trace");
    let mounted = ours();
    assert_eq!(mounted.len(), 1, "both use one mount");
    assert!(mounted[0].to_string_lossy().starts_with("/run/inkstone-tracefs-"), "{mounted:?}");
    file.write_all_at(&[2; 4096], 0).expect("written");
    file.sync_data().expect("synced");
    for trace in [first, second] {
        let trace = trace.stop().expect("a trace");
        let flushes = count(
            &trace,
            |what| matches!(what, TraceKind::RequestIssue { flags, .. } if flags.op == RequestOp::Flush),
        );
        assert_eq!((trace.lost, flushes), (0, 1));
    }
    assert_eq!(ours(), Vec::<std::path::PathBuf>::new(), "unmounted at the end");
    assert!(!mounted[0].exists());
    drop(file);
    made.remove();
    println!("child done");
}

#[test]
fn tracefs_is_mounted_privately_where_it_is_not() {
    let test = "tracefs_is_mounted_privately_where_it_is_not";
    if !can_run_trace(test, &["unshare", "umount", "mkfs.ext4"]) {
        return;
    }
    // Only this namespace's copies are unmounted: unshare makes them private first. Where the
    // machine has no tracefs mounted, one of the tests beside this one may have a private mount
    // just now, and its copy has to go too.
    let script = "while read -r _ target kind _; do \
                  if [ \"$kind\" = tracefs ]; then umount \"$target\"; fi; \
                  done < /proc/mounts; umount /sys/kernel/debug 2>/dev/null; exec \"$0\" \"$@\"";
    let exe = std::env::current_exe().expect("this test");
    let child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(exe)
        .args(["--exact", "child_traces_without_tracefs", "--nocapture"])
        .env(CHILD, "1")
        .output();
    let output = child.expect("unshare");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    if text.contains("unshare:") {
        return not_run(test, &text);
    }
    assert!(output.status.success() && text.contains("child done"), "{text}");
}
