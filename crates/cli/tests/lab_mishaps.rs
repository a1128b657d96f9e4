//! What the lab says when something goes wrong: a disk that fills up, a directory that is not
//! there, what a killed lab left behind.

mod support;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{directory, run, text};

/// Reports that a test did not run, bypassing the test harness, which hides the output of passing
/// tests.
fn not_run(test: &str, why: &str) {
    let _ = std::io::stderr().write_all(format!("\nNOT RUN: {test}: {why}\n").as_bytes());
}

/// A tmpfs of its own, until it is dropped.
struct Memory(PathBuf);

impl Memory {
    fn mount(at: &Path, bytes: u64) -> Option<Self> {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(at)
            .status();
        mount.is_ok_and(|status| status.success()).then(|| Self(at.to_path_buf()))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_disk_that_fills_up_is_told_first_and_is_no_success() {
    const NAME: &str = "a_disk_that_fills_up_is_told_first_and_is_no_success";
    let place = directory();
    let Some(memory) = Memory::mount(place.path(), 64 << 20) else {
        return not_run(NAME, "it needs root to mount a tmpfs that can be filled");
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_inkstone"));
    command.args([
        "lab",
        "write",
        "--reuse",
        "new,reuse",
        "--size",
        "1MiB",
        "--files",
        "removed",
        "--rounds",
        "10000",
        "--quiet",
    ]);
    let child = command
        .current_dir(place.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a lab");
    // It measures, so it has checked the free space; then another process takes all of it.
    let begin = Instant::now();
    let measures = || {
        let names = std::fs::read_dir(place.path())
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        names.filter(|path| path.is_dir()).any(|path| path.join("way-00").exists())
    };
    while !measures() {
        assert!(begin.elapsed() < Duration::from_secs(120), "the lab does not begin");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut filler = std::fs::File::create(place.path().join("filler")).expect("a file");
    // Space that the lab frees between two turns is taken as well.
    let mut full = 0;
    while full < 50 && begin.elapsed() < Duration::from_secs(120) {
        full = if filler.write_all(&[1; 4096]).is_err() { full + 1 } else { 0 };
        if full > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let output = child.wait_with_output().expect("its end");
    let said = text(&output.stdout);
    drop(memory);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    let first = said
        .lines()
        .find(|line| line.contains("the disk filled up"))
        .unwrap_or_else(|| panic!("{said}"));
    let table = said.lines().position(|line| line.contains("new fdatasync")).expect("the table");
    let at = said.lines().position(|line| line == first).expect("the line");
    assert!(at < table && first.contains("ways were not measured"), "{said}");
}

#[test]
fn an_error_tells_its_cause_once_and_names_no_option_that_is_not_there() {
    let place = directory();
    for command in ["write", "read", "fallocate", "all", "e7"] {
        let output = run(place.path(), &["lab", command, "not-there"]);
        let said = text(&output.stderr);
        assert!(
            !output.status.success() && said.matches("No such file").count() == 1,
            "{command}: {said}"
        );
    }
    let output = run(place.path(), &["lab", "read", "--size", "1000TiB"]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("MiB are needed"), "{said}");
}

#[test]
fn any_lab_gives_back_what_a_killed_one_left_in_memory() {
    let memory = Path::new("/dev/shm");
    // A number that no process has.
    let left = memory.join(format!(".inkstone-lab-4194305-{}", std::process::id()));
    if std::fs::create_dir(&left).is_err() {
        return not_run(
            "any_lab_gives_back_what_a_killed_one_left_in_memory",
            "there is no /dev/shm to write in",
        );
    }
    std::fs::write(left.join("lock"), "").expect("a lock that nobody holds");
    std::fs::write(left.join("atlas"), vec![1; 1 << 20]).expect("a file");
    let place = directory();
    let output = run(
        place.path(),
        &["lab", "write", "--size", "64KiB", "--rounds", "1", "--bill-commits", "0", "--quiet"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let is_left = left.exists();
    let _ = std::fs::remove_dir_all(&left);
    assert!(!is_left, "{}", text(&output.stdout));
}
