//! The machinery of the torture run by itself: hosts that see each other or not, disks that lose
//! what was not synced and nothing else.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inkstone_powerloss::kernel::machine::{self, FsKind};
use replicated_log_torture::disk::NodeDisk;
use replicated_log_torture::network::{self, Hosts, Way, sweep};

/// Whether a test can run here; says loudly if not, also where cargo keeps to itself what a test
/// that passes has printed.
fn runs(test: &str, missing: Option<String>) -> bool {
    if let Some(why) = &missing {
        let _ = std::io::stderr().write_all(format!("\nNOT RUN: {test}: {why}\n").as_bytes());
    }
    missing.is_none()
}

/// Nobody waits longer for a word that is not to come.
const SILENCE: Duration = Duration::from_secs(1);
/// A word comes by then, also on a machine that others keep busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process in the namespace of node 1 says a word to the clients' host. Returns the time until
/// it arrives; `None` if it does not within `most`.
fn hears(hosts: &Hosts, listener: &TcpListener, most: Duration) -> Option<Duration> {
    let start = Instant::now();
    let address = listener.local_addr().expect("an address");
    let words = format!("exec 3<>/dev/tcp/{}/{}; echo word >&3", address.ip(), address.port());
    let mut process = Command::new("nsenter");
    process.arg(format!("--net=/run/netns/{}", hosts.namespace(1))).args(["bash", "-c", &words]);
    let mut process = process.stderr(Stdio::null()).spawn().expect("nsenter");
    let heard = loop {
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.set_nonblocking(false).expect("set");
                stream.set_read_timeout(Some(most)).expect("set");
                break stream.read_exact(&mut [0; 4]).is_ok().then(|| start.elapsed());
            }
            Err(_) if start.elapsed() > most => break None,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    process.kill().expect("killed");
    process.wait().expect("its end");
    // What comes late is not for the next one.
    while listener.accept().is_ok() {}
    heard
}

#[test]
fn hosts_hear_each_other_unless_the_wire_is_cut() {
    let missing = machine::missing().or_else(network::missing);
    if !runs("hosts_hear_each_other_unless_the_wire_is_cut", missing) {
        return;
    }
    let hosts = Hosts::make(2, 1).expect("hosts");
    let IpAddr::V4(ip) = hosts.address(1).ip() else { panic!("an IPv4 address") };
    let [a, b, c, _] = ip.octets();
    let listener = TcpListener::bind((Ipv4Addr::new(a, b, c, 100), 0)).expect("the clients' host");
    listener.set_nonblocking(true).expect("set");
    let is_heard = || hears(&hosts, &listener, PATIENCE).is_some();
    let is_silent = || hears(&hosts, &listener, SILENCE).is_none();
    let (node, clients) = (0, 2);
    assert!(is_heard(), "the wire is clear");
    for (from, to) in [(node, clients), (clients, node)] {
        hosts.switch().change(|weather| weather.way(from, to).is_cut = true);
        assert!(is_silent(), "{from} -> {to} is cut");
        hosts.switch().change(|weather| weather.clear_ways());
    }
    hosts.switch().change(|weather| weather.part(0, 1));
    assert!(is_heard(), "another way is cut");
    hosts.switch().change(|weather| {
        let late = (Duration::from_millis(60), Duration::from_millis(80));
        *weather.way(node, clients) = Way { late, twice_percent: 50, ..Way::CLEAR };
    });
    // The greeting and the word are late each.
    let time = hears(&hosts, &listener, PATIENCE).expect("it is late, not lost");
    assert!(time >= Duration::from_millis(120), "{time:?}");
    hosts.switch().change(|weather| {
        weather.clear_ways();
        weather.set_dark(node, true);
    });
    assert!(is_silent(), "without power");
    hosts.switch().change(|weather| weather.set_dark(node, false));
    hosts.set_link(1, false).expect("down");
    assert!(is_silent(), "the link is down");
    hosts.set_link(1, true).expect("up");
    assert!(is_heard(), "the link is up again");

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
fn a_power_cut_takes_what_was_not_synced_and_nothing_else() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let missing = machine::missing().or_else(|| machine::missing_for(kind));
        if !runs("a_power_cut_takes_what_was_not_synced_and_nothing_else", missing) {
            continue;
        }
        assert_eq!(cuts_that_lose(kind, true, 4), 0, "{kind}, synced");
        assert!(cuts_that_lose(kind, false, 2) > 0, "{kind}, not synced: the cut takes nothing");
    }
}

#[test]
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
