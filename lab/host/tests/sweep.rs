//! What a killed lab leaves, and that a sweep finds it.

mod host_support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use host_support::{EXT4, FileSystem, can_run, not_run, temporary};
use inkstone_host::{
    BlockTrace, can_trace, loops_backed_under, mounts_under, sweep, sweep_trace_instances,
};

const CHILD: &str = "INKSTONE_TEST_KILLED";

/// Run by the next test and killed.
#[test]
fn child_waits_to_be_killed() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let made = FileSystem::new("ext4", 16, EXT4);
    let trace = can_trace().map(|()| BlockTrace::start(&[made.device.device()]).expect("a trace"));
    fs::write(made.target().join("file"), "some data").expect("a file");
    println!("\nready {}", made.dir.path().display());
    std::io::stdout().flush().expect("a pipe");
    std::thread::sleep(std::time::Duration::from_secs(60));
    drop(trace);
}

fn trace_instances(pid: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir("/sys/kernel/tracing/instances").into_iter().flatten().flatten();
    let prefix = format!("inkstone-{pid}-");
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path())
        .collect()
}

#[test]
fn a_sweep_takes_back_what_a_killed_lab_left() {
    if !can_run("a_sweep_takes_back_what_a_killed_lab_left", &["mkfs.ext4"]) {
        return;
    }
    // Swept from another directory than the dead one's parent: it has to be found by its mount.
    let elsewhere = tempfile::tempdir_in(temporary()).expect("a directory");
    for parent in [temporary(), elsewhere.path()] {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "child_waits_to_be_killed", "--nocapture"])
            .env(CHILD, "1")
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let pid = child.id();
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let ready = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("ready ").map(PathBuf::from));
        let dir = ready.expect("the child is ready");
        // Alive, nothing of it is touched.
        let about = |words: Vec<String>| -> Vec<String> {
            words.into_iter().filter(|word| word.contains(&format!("-{pid}-"))).collect()
        };
        assert_eq!(about(sweep(parent).expect("swept")), Vec::<String>::new());
        assert_eq!(about(sweep_trace_instances()), Vec::<String>::new());
        assert_eq!(mounts_under(&dir).expect("/proc").len(), 1);
        assert_eq!(loops_backed_under(&dir).expect("sysfs").len(), 1);
        let traced = trace_instances(pid);
        child.kill().expect("killed");
        child.wait().expect("killed");
        assert_eq!(mounts_under(&dir).expect("/proc").len(), 1, "its mount outlives it");
        let words = about(sweep(parent).expect("swept"));
        eprintln!("{words:#?}");
        assert!(words.iter().any(|word| word.starts_with("unmounted ")), "{words:?}");
        assert_eq!(mounts_under(&dir).expect("/proc"), []);
        assert_eq!(loops_backed_under(&dir).expect("sysfs"), []);
        assert!(!dir.exists());
        if can_trace().is_ok() && Path::new("/sys/kernel/tracing/instances").exists() {
            assert_eq!(traced.len(), 1);
            let words = about(sweep_trace_instances());
            eprintln!("{words:#?}");
            assert_eq!(words.len(), 1);
            assert_eq!(trace_instances(pid), Vec::<PathBuf>::new());
        }
    }
}

/// Run by the next test as an ordinary user.
#[test]
fn child_sweeps_as_an_ordinary_user() {
    let Some(parent) = std::env::var_os("INKSTONE_TEST_USER") else { return };
    for word in sweep(Path::new(&parent)).expect("no error") {
        println!("\nword: {word}");
    }
    sweep_trace_instances();
    println!("\ncan trace: {:?}", can_trace());
}

#[test]
fn an_ordinary_user_sweeps_what_is_theirs_and_says_what_is_not() {
    let test = "an_ordinary_user_sweeps_what_is_theirs_and_says_what_is_not";
    if !can_run(test, &["setpriv"]) {
        return;
    }
    // A place that every user may read: the build directory may not be one.
    let parent = tempfile::tempdir().expect("a directory");
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(parent.path(), open_to_all).expect("ours");
    let exe = parent.path().join("test");
    fs::copy(std::env::current_exe().expect("this test"), &exe).expect("a copy");
    let (theirs, roots) =
        (parent.path().join(".inkstone-lab-1-1"), parent.path().join(".inkstone-lab-1-2"));
    for dir in [&theirs, &roots] {
        fs::create_dir(dir).expect("a directory");
        fs::write(dir.join("lock"), "").expect("a file");
    }
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).expect("root");
    std::os::unix::fs::chown(theirs.join("lock"), Some(65534), Some(65534)).expect("root");
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&exe)
        .args(["--exact", "child_sweeps_as_an_ordinary_user", "--nocapture"])
        .env("INKSTONE_TEST_USER", parent.path())
        .output()
        .expect("setpriv");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    if text.contains("setpriv:") {
        return not_run(test, &text);
    }
    assert!(output.status.success(), "{text}");
    eprintln!("{text}");
    assert!(text.contains(&format!("word: removed {}", theirs.display())), "{text}");
    assert!(text.contains(&format!("word: left {}", roots.display())), "{text}");
    assert!(!theirs.exists() && roots.exists());
}
