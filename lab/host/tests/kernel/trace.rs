//! Traces of this machine's kernel.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use crate::host_support::{BTRFS, EXT4, FileSystem, can_run, not_run, run, this_test};
use inkstone_host::{
    DeviceNumber, RequestOp, Trace, TraceKind, Tracer, block_stat, can_trace, mount_points,
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

/// Appends a few blocks, each with a sync.
fn appended(file: &mut File, times: usize) {
    for _ in 0..times {
        file.write_all(&[3; 4096]).expect("written");
        file.sync_data().expect("synced");
    }
}

fn count(trace: &Trace, which: impl Fn(&TraceKind) -> bool) -> usize {
    trace.events.iter().filter(|event| which(&event.what)).count()
}

/// Commands of one kind that the device got.
fn issued(trace: &Trace, op: RequestOp) -> usize {
    count(trace, |what| matches!(what, TraceKind::RequestIssue { flags, .. } if flags.op == op))
}

#[test]
#[ignore = "needs root, tracefs and mkfs.btrfs"]
fn a_trace_is_of_its_own_device_only() {
    if !can_run_trace("a_trace_is_of_its_own_device_only", &["mkfs.btrfs"]) {
        return;
    }
    let made = FileSystem::new("btrfs", 192, BTRFS);
    let mut file = written_file(&made, 4096);
    let other = DeviceNumber { major: 7, minor: 1000 };
    let traces =
        [made.device.device(), other].map(|device| Tracer::of_disks(&[device]).expect("a trace"));
    appended(&mut file, 3);
    let [trace, nothing] = traces.map(|trace| trace.stop().expect("a trace"));
    assert!(trace.lost == 0 && issued(&trace, RequestOp::Flush) >= 3);
    // btrfs's own events name no device.
    let named = |what: &TraceKind| !matches!(what, TraceKind::FileSync { device: None, .. });
    assert_eq!(count(&nothing, named), 0, "{nothing:?}");
    drop(file);
    made.remove();
}

#[test]
#[ignore = "needs root, tracefs and mkfs.ext4"]
fn many_events_are_all_seen() {
    if !can_run_trace("many_events_are_all_seen", &["mkfs.ext4"]) {
        return;
    }
    let made = FileSystem::new("ext4", 64, EXT4);
    let device = made.device.device();
    drop(written_file(&made, 16 << 20));
    let mut how = OpenOptions::new();
    how.read(true).custom_flags(libc::O_DIRECT);
    let file = how.open(made.target().join("file")).expect("a file");
    let mut buffer = inkstone_io::AlignedBuf::zeroed(4096);
    let before = block_stat(device).expect("sysfs");
    let trace = Tracer::of_disks(&[device]).expect("a trace");
    for index in 0..30_000u64 {
        file.read_exact_at(&mut buffer, index % 4096 * 4096).expect("read");
    }
    let cost = block_stat(device).expect("sysfs").since(&before);
    let trace = trace.stop().expect("a trace");
    assert_eq!((trace.lost, issued(&trace, RequestOp::Read), cost.reads), (0, 30_000, 30_000));
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
    let mounted = || -> Vec<PathBuf> {
        let points = mount_points().expect("/proc").into_iter();
        let traces = points.filter(|point| point.file_system == "tracefs");
        traces.map(|point| point.target).collect()
    };
    assert_eq!(mounted(), Vec::<PathBuf>::new(), "tracefs is still mounted here");
    can_trace().expect("it can be mounted");
    let made = FileSystem::new("ext4", 16, EXT4);
    let file = written_file(&made, 4096);
    let traces = [0; 2].map(|_| Tracer::of_disks(&[made.device.device()]).expect("a trace"));
    assert_eq!(mounted(), Vec::<PathBuf>::new(), "their mounts are in no directory");
    file.write_all_at(&[2; 4096], 0).expect("written");
    file.sync_data().expect("synced");
    for trace in traces {
        let trace = trace.stop().expect("a trace");
        assert_eq!((trace.lost, issued(&trace, RequestOp::Flush)), (0, 1));
    }
    drop(file);
    made.remove();
    println!("child done");
}

#[test]
#[ignore = "needs root, tracefs and mkfs.ext4"]
fn tracefs_is_mounted_privately_where_it_is_not() {
    let test = "tracefs_is_mounted_privately_where_it_is_not";
    if !can_run_trace(test, &["unshare", "umount", "mkfs.ext4"]) {
        return;
    }
    // Only this namespace's copies are unmounted: unshare makes them private first. Copies of other
    // tests' mounts would keep their loop devices busy.
    let script = "while read -r of target kind _; do \
                  case \"$of $kind\" in /dev/loop*|*\" tracefs\") umount \"$target\"; esac; \
                  done < /proc/mounts; umount /sys/kernel/debug 2>/dev/null; exec \"$0\" \"$@\"";
    let exe = std::env::current_exe().expect("this test");
    let apart = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script];
    let child =
        this_test(&exe, "trace::child_traces_without_tracefs", &apart).env(CHILD, "1").output();
    let child = child.expect("unshare");
    let text = format!("{child:?}");
    if text.contains("unshare:") {
        return not_run(test, &text);
    }
    assert!(child.status.success() && text.contains("child done"), "{text}");
}
