//! What a killed lab leaves, and that a sweep finds it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::host_support::{EXT4, FileSystem, can_run, not_run, temporary, this_test};
use inkstone_host::{
    Tracer, can_trace, loops_backed_under, mounts_under, sweep, sweep_trace_instances,
};

const CHILD: &str = "INKSTONE_TEST_KILLED";
const USER: &str = "INKSTONE_TEST_USER";

/// Run by the next test and killed.
#[test]
fn child_waits_to_be_killed() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let made = FileSystem::new("ext4", 16, EXT4);
    let trace = can_trace().map(|()| Tracer::of_disks(&[made.device.device()]).expect("a trace"));
    fs::write(made.target().join("file"), "some data").expect("a file");
    println!("\nready {}", made.dir.path().display());
    std::io::stdout().flush().expect("a pipe");
    std::thread::sleep(Duration::from_secs(60));
    drop(trace);
}

/// Kills a lab and sweeps; whether it was this sweep that took back what the lab had left, and not
/// that of another lab on this machine. What is left then is the same.
fn takes_back(parent: &Path) -> bool {
    let exe = std::env::current_exe().expect("this test");
    let mut child = this_test(&exe, "sweep::child_waits_to_be_killed", &[]);
    let mut child = child.env(CHILD, "1").stdout(Stdio::piped()).spawn().expect("a child");
    let pid = child.id();
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut lines = lines.map_while(Result::ok);
    let ready = lines.find_map(|line| line.strip_prefix("ready ").map(PathBuf::from));
    let dir = ready.expect("the child is ready");
    let about = |words: Vec<String>| -> Vec<String> {
        words.into_iter().filter(|word| word.contains(&format!("-{pid}-"))).collect()
    };
    // Alive, nothing of it is touched.
    assert_eq!(about(sweep(parent).expect("swept")), Vec::<String>::new());
    assert_eq!(about(sweep_trace_instances()), Vec::<String>::new());
    assert_eq!(mounts_under(&dir).expect("/proc").len(), 1);
    assert_eq!(loops_backed_under(&dir).expect("sysfs").len(), 1);
    child.kill().expect("killed");
    child.wait().expect("killed");
    let mut words = about(sweep(parent).expect("swept"));
    words.append(&mut about(sweep_trace_instances()));
    // The other sweep may be at work still; the directory goes last.
    let since = Instant::now();
    while dir.exists() && since.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(mounts_under(&dir).expect("/proc"), []);
    assert_eq!(loops_backed_under(&dir).expect("sysfs"), []);
    assert!(!dir.exists());
    assert_eq!(about(sweep_trace_instances()), Vec::<String>::new());
    let says = |what: &str| words.iter().any(|word| word.starts_with(what));
    says("unmounted ") && says("removed trace instance") == can_trace().is_ok()
}

#[test]
#[ignore = "needs root and mkfs.ext4"]
fn a_sweep_takes_back_what_a_killed_lab_left() {
    if !can_run("a_sweep_takes_back_what_a_killed_lab_left", &["mkfs.ext4"]) {
        return;
    }
    // Swept from another directory than the dead one's parent: it has to be found by its mount.
    let elsewhere = tempfile::tempdir_in(temporary()).expect("a directory");
    for parent in [temporary(), elsewhere.path()] {
        assert!((0..5).any(|_| takes_back(parent)), "five sweeps have found nothing of a dead lab");
    }
}

/// Run by the next test as an ordinary user.
#[test]
fn child_sweeps_as_an_ordinary_user() {
    let Some(parent) = std::env::var_os(USER) else { return };
    for word in sweep(Path::new(&parent)).expect("no error") {
        println!("\nword: {word}");
    }
    sweep_trace_instances();
}

#[test]
#[ignore = "needs root and setpriv"]
fn an_ordinary_user_sweeps_what_is_theirs_and_says_what_is_not() {
    let test = "an_ordinary_user_sweeps_what_is_theirs_and_says_what_is_not";
    if !can_run(test, &["setpriv"]) {
        return;
    }
    // A place that every user may read: the build directory may not be one.
    let parent = tempfile::tempdir().expect("a directory");
    fs::set_permissions(parent.path(), PermissionsExt::from_mode(0o777)).expect("ours");
    let exe = parent.path().join("test");
    fs::copy(std::env::current_exe().expect("this test"), &exe).expect("a copy");
    let [theirs, roots] = [1, 2].map(|n| parent.path().join(format!(".inkstone-lab-1-{n}")));
    for (dir, user) in [(&theirs, 65534), (&roots, 0)] {
        fs::create_dir(dir).expect("a directory");
        fs::write(dir.join("lock"), "").expect("a file");
        for place in [dir, &dir.join("lock")] {
            chown(place, Some(user), Some(user)).expect("root");
        }
    }
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut child = this_test(&exe, "sweep::child_sweeps_as_an_ordinary_user", &nobody);
    let output = child.env(USER, parent.path()).output().expect("setpriv");
    let text = format!("{output:?}");
    if text.contains("setpriv:") {
        return not_run(test, &text);
    }
    assert!(output.status.success(), "{text}");
    assert!(text.contains(&format!("word: removed {}", theirs.display())), "{text}");
    assert!(text.contains(&format!("word: left {}", roots.display())), "{text}");
    assert!(!theirs.exists() && roots.exists());
}
