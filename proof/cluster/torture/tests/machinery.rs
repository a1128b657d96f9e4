//! The machinery of the torture run by itself: hosts that see each other or not, disks that lose
//! what was not synced and nothing else.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inkstone_powerloss::kernel::machine::{self, FsKind};
use replicated_log_torture::disk::NodeDisk;
use replicated_log_torture::network::{self, Hosts, Way, sweep};

/// Says that a test did not run; also where cargo keeps to itself what a test that passes has
/// printed.
fn not_run(test: &str, why: &str) {
    let _ = std::io::stderr().write_all(format!("\nNOT RUN: {test}: {why}\n").as_bytes());
}

/// Whether hosts can be made here; says it loudly if not.
fn has_hosts(test: &str) -> bool {
    match machine::missing().or_else(network::missing) {
        Some(why) => not_run(test, &why),
        None => return true,
    }
    false
}

/// A process in the namespace of node 1 that says a word to the clients' host.
fn speak(hosts: &Hosts, port: u16) -> Child {
    let mut address = hosts.address(1);
    address.set_ip(clients_ip(hosts));
    let words = format!("exec 3<>/dev/tcp/{}/{port}; echo word >&3", address.ip());
    let mut process = Command::new("nsenter");
    process.arg(format!("--net=/run/netns/{}", hosts.namespace(1))).args(["bash", "-c", &words]);
    process.stderr(Stdio::null()).spawn().expect("nsenter")
}

fn clients_ip(hosts: &Hosts) -> std::net::IpAddr {
    match hosts.address(1).ip() {
        std::net::IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            std::net::Ipv4Addr::new(a, b, c, 100).into()
        }
        other => other,
    }
}

/// Nobody waits longer for a word that is not to come.
const SILENCE: Duration = Duration::from_secs(1);
/// A word comes by then, also on a machine that others keep busy.
const PATIENCE: Duration = Duration::from_secs(30);

fn is_silent(hosts: &Hosts, listener: &TcpListener) -> bool {
    hears(hosts, listener, SILENCE).is_none()
}

/// The time until the word arrives; `None` if it does not within `most`.
fn hears(hosts: &Hosts, listener: &TcpListener, most: Duration) -> Option<Duration> {
    let start = Instant::now();
    let mut process = speak(hosts, listener.local_addr().expect("an address").port());
    let heard = loop {
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.set_nonblocking(false).expect("set");
                stream.set_read_timeout(Some(most)).expect("set");
                let mut word = [0; 4];
                break stream.read_exact(&mut word).is_ok().then(|| start.elapsed());
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
    if !has_hosts("hosts_hear_each_other_unless_the_wire_is_cut") {
        return;
    }
    let hosts = Hosts::make(2, 1).expect("hosts");
    let listener = TcpListener::bind((clients_ip(&hosts), 0)).expect("the clients' address");
    listener.set_nonblocking(true).expect("set");
    let (node, clients) = (0, 2);
    assert!(hears(&hosts, &listener, PATIENCE).is_some(), "the wire is clear");
    for (from, to) in [(node, clients), (clients, node)] {
        hosts.switch().change(|weather| weather.way(from, to).is_cut = true);
        assert!(is_silent(&hosts, &listener), "{from} -> {to} is cut");
        hosts.switch().change(|weather| weather.clear_ways());
    }
    hosts.switch().change(|weather| weather.part(0, 1));
    assert!(hears(&hosts, &listener, PATIENCE).is_some(), "another way is cut");
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
    assert!(is_silent(&hosts, &listener), "without power");
    hosts.switch().change(|weather| weather.set_dark(node, false));
    hosts.set_link(1, false).expect("down");
    assert!(is_silent(&hosts, &listener), "the link is down");
    hosts.set_link(1, true).expect("up");
    assert!(hears(&hosts, &listener, PATIENCE).is_some(), "the link is up again");
    let (late, lost) = (&hosts.switch().carried().late, &hosts.switch().carried().lost);
    assert!(late.load(Ordering::Relaxed) >= 2 && lost.load(Ordering::Relaxed) >= 2);
    let name = hosts.namespace(1);
    drop(hosts);
    assert!(!std::path::Path::new("/run/netns").join(name).exists());
}

#[test]
fn what_a_killed_run_has_left_is_removed() {
    if !has_hosts("what_a_killed_run_has_left_is_removed") {
        return;
    }
    // No process has this number: 2^22 is the most.
    let name = "ink9999999zn1";
    let add = Command::new("ip").args(["netns", "add", name]).status().expect("ip");
    assert!(add.success());
    let living = Hosts::make(1, 1).expect("hosts");
    sweep().expect("swept");
    assert!(!std::path::Path::new("/run/netns").join(name).exists());
    assert!(
        std::path::Path::new("/run/netns").join(living.namespace(1)).exists(),
        "its owner lives"
    );
}

/// Appends lines to a file, each synced or not, until the disk refuses or `stop` is set.
fn write_lines(path: &std::path::Path, syncs: bool, acknowledged: &AtomicU64, stop: &AtomicBool) {
    let Ok(mut file) = File::options().create(true).append(true).open(path) else { return };
    // Without syncs the kernel notices the dead disk half a minute later.
    while !stop.load(Ordering::Relaxed) {
        let number = acknowledged.load(Ordering::Relaxed) + 1;
        let written = file.write_all(format!("{number:08}\n").as_bytes());
        let done = written.and_then(|()| if syncs { file.sync_data() } else { Ok(()) });
        if done.is_err() {
            return;
        }
        acknowledged.store(number, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(if syncs { 0 } else { 500 }));
    }
}

/// The count, when it stands still: on a busy machine the writer may tell late of a sync that ended
/// before the cut. Without syncs it never stands still.
fn still(count: &AtomicU64, stands: bool) -> u64 {
    loop {
        let seen = count.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(if stands { 150 } else { 20 }));
        let now = count.load(Ordering::Relaxed);
        if now == seen || !stands {
            return now;
        }
    }
}

/// Cuts the power of a writer so many times; returns how many cuts lost a line that was
/// acknowledged.
fn cuts_that_lose(kind: FsKind, syncs: bool, cuts: u64) -> u64 {
    let mut disk = NodeDisk::make(&std::env::temp_dir(), kind).expect("a disk");
    let path = disk.directory().join("lines");
    let mut losses = 0;
    for cut in 0..cuts {
        let found = std::fs::read(&path).unwrap_or_default();
        let whole =
            found.chunks(9).take_while(|line| line.len() == 9 && line[8] == b'\n').count() as u64;
        File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .and_then(|file| {
                file.set_len(whole * 9)?;
                file.sync_all()
            })
            .and_then(|()| File::open(disk.directory())?.sync_all())
            .expect("cut back to whole lines");
        let acknowledged = Arc::new(AtomicU64::new(whole));
        let stop = Arc::new(AtomicBool::new(false));
        let (counter, place, told) = (Arc::clone(&acknowledged), path.clone(), Arc::clone(&stop));
        let writer = std::thread::spawn(move || write_lines(&place, syncs, &counter, &told));
        while acknowledged.load(Ordering::Relaxed) < whole + 20 + cut {
            std::thread::sleep(Duration::from_micros(100));
        }
        disk.cut();
        let before = still(&acknowledged, syncs);
        disk.release();
        stop.store(!syncs, Ordering::Relaxed);
        writer.join().expect("it ends");
        assert!(
            !syncs || acknowledged.load(Ordering::Relaxed) == before,
            "a sync after the cut succeeded"
        );
        disk.boot_after(cut).expect("this machine").expect("the file system comes up");
        let found = std::fs::read(&path).unwrap_or_default();
        let there = found
            .chunks(9)
            .zip(1_u64..)
            .take_while(|(line, number)| *line == format!("{number:08}\n").as_bytes());
        losses += u64::from((there.count() as u64) < before);
    }
    disk.remove().expect("removed");
    losses
}

#[test]
fn a_power_cut_takes_what_was_not_synced_and_nothing_else() {
    if let Some(why) = machine::missing() {
        return not_run("a_power_cut_takes_what_was_not_synced_and_nothing_else", &why);
    }
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        if let Some(why) = machine::missing_for(kind) {
            not_run("a_power_cut_takes_what_was_not_synced_and_nothing_else", &why);
            continue;
        }
        assert_eq!(cuts_that_lose(kind, true, 5), 0, "{kind}, synced");
        assert!(
            cuts_that_lose(kind, false, 3) > 0,
            "{kind}, not synced: a cut that takes nothing shows nothing"
        );
    }
}

#[test]
fn a_full_disk_is_full_and_has_room_again() {
    if let Some(why) = machine::missing() {
        return not_run("a_power_cut_takes_what_was_not_synced_and_nothing_else", &why);
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
