//! What the lab says when something goes wrong: what a killed lab left behind, a tool that is
//! missing. And how much memory it takes.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use crate::support::{
    WRITE, Words, directory, good, names, not_run, said, side_by_side, signal, spawn, text, until,
};

/// A run that would take minutes, after it has begun to write.
fn long_run(at: &Path, arguments: impl Words) -> Child {
    let mut child = spawn(at, arguments);
    let works =
        |name: &String| std::fs::read_dir(at.join(name)).is_ok_and(|mut all| all.next().is_some());
    until("it works", || {
        assert!(child.try_wait().expect("a state").is_none(), "it ended early");
        names(at).iter().any(works)
    });
    child
}

#[test]
fn any_lab_gives_back_what_a_killed_one_left_in_memory() {
    let name = "any_lab_gives_back_what_a_killed_one_left_in_memory";
    let Ok(made) = tempfile::tempdir_in("/dev/shm") else {
        return not_run(name, "there is no /dev/shm to write in");
    };
    std::fs::write(made.path().join("lock"), "").expect("a lock that nobody holds");
    std::fs::write(made.path().join("atlas"), vec![1; 1 << 20]).expect("a file");
    // A number that no process has. It comes as a whole: the labs of other tests remove it too.
    let left = format!("/dev/shm/.inkstone-lab-4194305-{}", std::process::id());
    std::fs::rename(made.path(), &left).expect("renamed");
    let place = directory();
    let told = text(&good(place.path(), WRITE, b""));
    let is_left = Path::new(&left).exists();
    let _ = std::fs::remove_dir_all(&left);
    assert!(!is_left, "{told}");
}

/// Loop devices and mounts that have anything to do with this directory.
fn traces_of(at: &Path) -> (usize, usize) {
    let loops = inkstone_host::loops_backed_under(at).expect("loop devices");
    (inkstone_host::mounts_under(at).expect("mounts").len(), loops.len())
}

const FILESYSTEMS: &str = "lab write --file-systems ext4 --loops direct --quiet --rounds 10000";

/// Ends a lab by this signal after this time; of a killed one, the next start removes what is left.
/// Whether that start said so: the start of another lab on this machine may have been faster.
fn nothing_stays(at: &Path, sent: &str, wait: Duration) -> bool {
    let child = long_run(at, FILESYSTEMS);
    std::thread::sleep(wait);
    signal(sent, child.id());
    let output = child.wait_with_output().expect("an end");
    let nothing = || (names(at), traces_of(at)) == (vec![], (0, 0));
    if sent != "-KILL" {
        assert_eq!(output.status.code(), Some(130), "{}", said(&output));
        assert!(nothing(), "{sent} after {wait:?}: {:?}", names(at));
        return true;
    }
    assert_eq!(output.status.signal(), Some(9));
    let told = text(&good(at, WRITE, b""));
    // The start of another lab may be at work on it still.
    until("what a killed lab left is removed", nothing);
    told.contains("a killed lab had left")
}

#[test]
#[ignore = "needs root and loop devices"]
fn what_a_killed_lab_left_the_next_start_removes_and_ctrl_c_leaves_nothing() {
    side_by_side(&[("-KILL", 0), ("-KILL", 1500), ("-INT", 0), ("-INT", 1000)], |&(sent, wait)| {
        let directory = directory();
        let at = &directory.path().canonicalize().expect("its path");
        let says = |_| nothing_stays(at, sent, Duration::from_millis(wait));
        assert!((0..5).any(says), "five starts said nothing of what they removed");
    });
}

#[test]
#[ignore = "needs root and loop devices"]
fn a_missing_tool_is_named_with_its_package() {
    let directory = directory();
    let at = &directory.path().canonicalize().expect("its path");
    // It looks where root's tools are, too: here nothing is there, in a namespace of its own.
    let hidden = "mount -t tmpfs none /usr/sbin && mount -t tmpfs none /sbin && \
                  PATH=/nowhere exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", hidden, env!("CARGO_BIN_EXE_inkstone")]).current_dir(at);
    command.args(FILESYSTEMS.replace("ext4", "xfs").words());
    let output = command.output().expect("the command runs");
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(out.contains("mkfs.xfs is not installed") && out.contains("xfsprogs"), "{out}");
    assert_eq!((names(at), traces_of(at)), (vec![], (0, 0)));
}

/// Whatever the size of the file.
#[test]
fn memory_does_not_grow_with_the_file() {
    let directory = directory();
    let mut words = WRITE.replace("--size 64KiB", "--size 128MiB --only").words();
    words.insert(5, "reuse no-sync 1MiB,reuse direct no-sync 1MiB".to_owned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut child = spawn(directory.path(), words.as_slice());
    let mut peak_kib = 0;
    while child.try_wait().expect("a state").is_none() {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        peak_kib = peak_kib.max(kib.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}{}", text(&output.stdout), said(&output));
    assert!((1000..64 << 10).contains(&peak_kib), "{peak_kib} KiB");
}
