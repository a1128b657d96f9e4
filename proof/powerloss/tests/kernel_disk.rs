//! The machine below real kernel file systems: it is taken away whole, and nobody waits for it.
//! That its disks keep what was synced, and fail as planned, the labs show
//! (`command/tests/labs/powerloss_check.rs`, `powerloss_faults.rs`).

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::fs::{self, File};
use std::path::Path;
use std::sync::Mutex;

use inkstone_host::{not_run, sweep};
use inkstone_powerloss::kernel::machine::{FsKind, Machine, missing};

/// Each test has loop devices and mounts; one at a time is enough for two processors.
static ONE: Mutex<()> = Mutex::new(());

fn can_run(test: &str) -> bool {
    let missing = missing().or_else(|| FsKind::Ext4.missing());
    if let Some(why) = &missing {
        not_run(test, why);
    }
    missing.is_none()
}

fn machine() -> Machine {
    Machine::new(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

/// A scan of all directories, or the kernel, which closes a loop device's file a little after the
/// device is detached.
#[test]
#[ignore = "needs root"]
fn a_machine_is_taken_away_though_somebody_looks_at_its_disks_for_a_moment() {
    if !can_run("a_machine_is_taken_away_though_somebody_looks_at_its_disks_for_a_moment") {
        return;
    }
    let _one = ONE.lock();
    let machine = machine();
    let disks = machine.target().parent().unwrap().join("disks");
    let looking = File::open(&disks).unwrap();
    let looks = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(looking);
    });
    machine.remove().unwrap();
    looks.join().unwrap();
    assert!(!disks.exists());
}

/// Where a victim has its machine.
const VICTIM: &str = "INKSTONE_TEST_VICTIM";

/// The victim, in a process of its own: mounts and unmounts a file system on a disk that it serves
/// itself, until it is killed.
#[test]
fn victim() {
    let Some(place) = std::env::var_os(VICTIM) else { return };
    let machine = Machine::new(Path::new(&place)).unwrap();
    let disk = machine.new_disk(FsKind::Ext4).unwrap();
    // The last thread that ends closes this, and asks the disk's server for that.
    let _open =
        File::open(machine.target().parent().unwrap().join("disks").join(disk.name())).unwrap();
    let mut number = 0_u64;
    loop {
        let running = machine.boot(&disk, FsKind::Ext4).unwrap();
        for _ in 0..20 {
            fs::write(machine.target().join("file"), number.to_le_bytes()).unwrap();
            File::open(machine.target().join("file")).unwrap().sync_all().unwrap();
            number += 1;
        }
        drop(running);
    }
}

/// This process and those that watch over a mount, with the place in the kernel where each of their
/// threads waits.
fn waits(process: u32) -> String {
    let mut all = String::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let is_victim = entry.file_name().to_str() == Some(&process.to_string());
        if !is_victim && !stat.contains("(inkstone-mount)") {
            continue;
        }
        for thread in fs::read_dir(entry.path().join("task")).into_iter().flatten().flatten() {
            let [stat, stack] = ["stat", "stack"]
                .map(|file| fs::read_to_string(thread.path().join(file)).unwrap_or_default());
            let start: String = stat.chars().take(80).collect();
            all += &format!("\n{start}\n{stack}");
        }
    }
    all
}

/// A thread that waits for the disk when the kill comes would wait for ever: the disk's server was
/// killed with it.
#[test]
#[ignore = "needs root"]
fn a_killed_process_does_not_wait_for_the_disk_that_it_served() {
    if !can_run("a_killed_process_does_not_wait_for_the_disk_that_it_served") {
        return;
    }
    let _one = ONE.lock();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for round in 0..12_u64 {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "victim"]).env(VICTIM, place).stdout(std::process::Stdio::null());
        let mut victim = command.spawn().unwrap();
        let victim_id = victim.id();
        let work = place.join(format!(".inkstone-lab-{victim_id}-0"));
        let until = |what: &str, is_so: &mut dyn FnMut() -> bool| {
            let since = std::time::Instant::now();
            while !is_so() {
                if since.elapsed() > std::time::Duration::from_secs(60) {
                    let where_it_waits = waits(victim_id);
                    // Otherwise every later use of a loop device here would hang.
                    let _ = std::process::Command::new("umount")
                        .arg("-f")
                        .arg(work.join("disks"))
                        .status();
                    std::thread::sleep(std::time::Duration::from_secs(2));
                    panic!(
                        "round {round}: {what}: {where_it_waits}\nafter the mount was aborted: {}",
                        waits(victim_id)
                    );
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        until("it did not mount its disk", &mut || {
            fs::read_to_string("/proc/self/mountinfo")
                .unwrap()
                .contains(&format!("{}/mounted ", work.display()))
        });
        std::thread::sleep(std::time::Duration::from_millis(round * 3));
        victim.kill().unwrap();
        until("it did not end", &mut || victim.try_wait().unwrap().is_some());
    }
    // The sweep of another lab on this machine may be at work on one of them still.
    let since = std::time::Instant::now();
    let ours = format!("{}/.inkstone-lab-", place.display());
    while {
        sweep(place).unwrap();
        fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&ours)
    } {
        assert!(since.elapsed() < std::time::Duration::from_secs(60), "a mount is left");
    }
}
