//! The machinery of the torture run by itself: hosts that see each other or not, disks that lose
//! what was not synced and nothing else.

use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use inkstone_powerloss::kernel::machine::{self, FsKind};
use replicated_log_torture::disk::NodeDisk;
use replicated_log_torture::network::{self, Hosts, sweep};

/// Whether a test can run here; says loudly if not, also where cargo keeps to itself what a test
/// that passes has printed.
fn runs(test: &str, missing: Option<String>) -> bool {
    if let Some(why) = &missing {
        inkstone_host::not_run(test, why);
    }
    missing.is_none()
}

/// Nobody waits longer for an answer that is not to come, in seconds.
const SILENCE: &str = "1";
/// An answer comes by then, also on a machine that others keep busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Calls a port of a host, from the namespace of a node or from the clients' host, and waits for so
/// long. Nobody listens at the port: the kernel of a host that hears the call refuses it.
fn hears(hosts: &Hosts, from: Option<usize>, to: IpAddr, seconds: &str) -> bool {
    let net = from.map(|node| format!("--net=/run/netns/{}", hosts.namespace(node)));
    let mut call = Command::new(if net.is_some() { "nsenter" } else { "env" });
    let words = format!("exec 3<>/dev/tcp/{to}/7");
    call.args(net).args(["timeout", seconds, "bash", "-c", &words]).env("LC_ALL", "C");
    let said = call.stdin(Stdio::null()).output().expect("it runs").stderr;
    String::from_utf8_lossy(&said).contains("Connection refused")
}

#[test]
#[ignore = "needs root and network namespaces"]
fn hosts_hear_each_other_unless_they_are_parted() {
    let missing = machine::missing().or_else(network::missing);
    if !runs("hosts_hear_each_other_unless_they_are_parted", missing) {
        return;
    }
    let hosts = Hosts::make(3).expect("hosts");
    let [one, two, three] = [1, 2, 3].map(|node| hosts.address(node).ip());
    let IpAddr::V4(ip) = one else { panic!("an IPv4 address") };
    let [a, b, c, _] = ip.octets();
    let clients = IpAddr::V4(Ipv4Addr::new(a, b, c, 100));
    // A kernel that has asked in vain where a host is says for a moment that there is none.
    let heard = |from, to| {
        let begun = std::time::Instant::now();
        while !hears(&hosts, from, to, "5") {
            assert!(begun.elapsed() < PATIENCE, "{from:?} does not reach {to}");
        }
    };
    let silent = |from, to| assert!(!hears(&hosts, from, to, SILENCE), "{from:?} reaches {to}");
    let all_are_heard = || {
        let calls = [(Some(1), two), (Some(2), three), (Some(1), clients), (None, one)];
        calls.into_iter().for_each(|(from, to)| heard(from, to));
    };
    all_are_heard();
    hosts.part(&[1], &[2, 3]).expect("parted");
    [(1, two), (1, three), (2, one), (3, one)]
        .into_iter()
        .for_each(|(from, to)| silent(Some(from), to));
    [(Some(2), three), (Some(1), clients), (None, two)]
        .into_iter()
        .for_each(|(from, to)| heard(from, to));
    hosts.heal().expect("healed");
    all_are_heard();
    hosts.set_ports(&[1, 2], false).expect("down");
    [(Some(1), two), (Some(3), one), (None, two)]
        .into_iter()
        .for_each(|(from, to)| silent(from, to));
    hosts.set_ports(&[1, 2], true).expect("up");
    all_are_heard();
    hosts.set_link(1, false).expect("down");
    [(Some(1), two), (Some(3), one), (None, one)]
        .into_iter()
        .for_each(|(from, to)| silent(from, to));
    hosts.set_link(1, true).expect("up");
    all_are_heard();

    // What a killed run has left is removed, and what a living one has is not. No process has this
    // number: 2^22 is the most.
    let is_there = |name: &str| Path::new("/run/netns").join(name).exists();
    let (left, ours) = ("ink9999999zn1", hosts.namespace(1));
    let add = Command::new("ip").args(["netns", "add", left]).status().expect("ip");
    assert!(add.success());
    sweep().expect("swept");
    assert!(!is_there(left) && is_there(&ours));
    drop(hosts);
    assert!(!is_there(&ours));
}

/// Appends lines to a file, each synced or not, until the disk refuses or `stop` is set.
fn write_lines(path: &Path, syncs: bool, acknowledged: &AtomicU64, stop: &AtomicBool) {
    let mut file = File::options().create(true).append(true).open(path).expect("the file");
    // Without syncs the kernel notices the dead disk half a minute later.
    while !stop.load(Ordering::Relaxed) {
        let number = acknowledged.load(Ordering::Relaxed) + 1;
        let written = file.write_all(format!("{number:08}\n").as_bytes());
        if written.and_then(|()| if syncs { file.sync_data() } else { Ok(()) }).is_err() {
            return;
        }
        acknowledged.store(number, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(if syncs { 0 } else { 500 }));
    }
}

/// Cuts the power of a writer on new disks, so many times; returns how many cuts lost a line that
/// was acknowledged.
fn cuts_that_lose(kind: FsKind, syncs: bool, cuts: u64) -> usize {
    let loses = |cut: &u64| {
        let mut disk = NodeDisk::make(&std::env::temp_dir(), kind).expect("a disk");
        let path = disk.directory().join("lines");
        let made = File::create(&path).and_then(|file| file.sync_all());
        made.and_then(|()| File::open(disk.directory())?.sync_all()).expect("an empty file");
        let (acknowledged, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counter, place, told) = (Arc::clone(&acknowledged), path.clone(), Arc::clone(&stop));
        let writer = std::thread::spawn(move || write_lines(&place, syncs, &counter, &told));
        while acknowledged.load(Ordering::Relaxed) < 20 + cut {
            std::thread::sleep(Duration::from_micros(100));
        }
        disk.cut();
        // On a busy machine the writer may tell late of a sync that ended before the cut. Without
        // syncs the count never stands still.
        let mut before = 0;
        while before != acknowledged.load(Ordering::Relaxed) {
            before = acknowledged.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(150));
            stop.store(!syncs, Ordering::Relaxed);
        }
        disk.release();
        writer.join().expect("it ends");
        let after = acknowledged.load(Ordering::Relaxed);
        assert!(!syncs || after == before, "a sync after the cut succeeded");
        disk.boot_after(*cut).expect("this machine").expect("the file system comes up");
        let found = std::fs::read(&path).unwrap_or_default();
        let is_whole = |(line, number): &(&[u8], u64)| *line == format!("{number:08}\n").as_bytes();
        let there = found.chunks(9).zip(1_u64..).take_while(is_whole).count();
        disk.remove().expect("removed");
        (there as u64) < before
    };
    (0..cuts).filter(loses).count()
}

#[test]
#[ignore = "needs root, /dev/fuse and the tools of the file systems"]
fn a_power_cut_takes_what_was_not_synced_and_nothing_else() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let missing = machine::missing().or_else(|| kind.missing());
        if !runs("a_power_cut_takes_what_was_not_synced_and_nothing_else", missing) {
            continue;
        }
        assert_eq!(cuts_that_lose(kind, true, 4), 0, "{kind}, synced");
        assert!(cuts_that_lose(kind, false, 2) > 0, "{kind}, not synced: the cut takes nothing");
    }
}

#[test]
#[ignore = "needs root, /dev/fuse and mkfs.ext4"]
fn a_full_disk_is_full_and_has_room_again() {
    if !runs("a_full_disk_is_full_and_has_room_again", machine::missing()) {
        return;
    }
    let disk = NodeDisk::make(&std::env::temp_dir(), FsKind::Ext4).expect("a disk");
    let path = disk.directory().join("file");
    disk.fill().expect("filled");
    let refused = std::fs::write(&path, vec![1; 1 << 20]).expect_err("it is full");
    assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
    disk.free().expect("room");
    std::fs::write(&path, vec![1; 1 << 20]).expect("it has room");
    disk.remove().expect("removed");
}
