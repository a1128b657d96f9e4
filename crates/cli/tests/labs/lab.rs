//! The command as people use it: what it prints, how it exits, what it leaves behind.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{copy_the_command, directory, inkstone, run, side_by_side, signal, text};

/// Reports that a test did not run, bypassing the test harness, which hides the output of passing
/// tests.
fn not_run(test: &str, why: &str) {
    let _ = std::io::stderr().write_all(format!("\nNOT RUN: {test}: {why}\n").as_bytes());
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory)
        .expect("the directory")
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

const SMALL: &[&str] =
    &["lab", "write", "--size", "64KiB", "--rounds", "5", "--bill-commits", "0", "--quiet"];

fn small(more: &[&'static str]) -> Vec<&'static str> {
    SMALL.iter().chain(more).copied().collect()
}

#[test]
fn a_table_and_a_sentence_and_nothing_left() {
    let directory = directory();
    let output = run(directory.path(), &small(&["--reuse", "new,reuse"]));
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}{}", text(&output.stderr));
    assert!(out.contains("new fdatasync") && out.contains("reuse fdatasync"), "{out}");
    assert!(out.contains("this disk") || out.contains("this file system"), "{out}");
    assert!(!out.contains('\u{1b}'), "colours where there is no terminal");
    assert_eq!(text(&output.stderr), "", "progress where there is no terminal");
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn json_holds_everything_and_csv_a_row_for_each_way() {
    let directory = directory();
    let output =
        run(directory.path(), &small(&["--reuse", "new,reuse", "--json", "-", "--csv", "out.csv"]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!(json["schema_version"], 3);
    assert!(json["machine"]["kernel"].as_str().is_some_and(|kernel| !kernel.is_empty()));
    let ways = json["tables"][0]["ways"].as_array().expect("ways");
    assert_eq!(ways.len(), 2);
    let buckets = ways[0]["latency"]["buckets"].as_array().expect("raw buckets");
    let count: u64 = buckets.iter().map(|bucket| bucket[1].as_u64().expect("a count")).sum();
    assert_eq!(count, 16 * 5);
    let csv = std::fs::read_to_string(directory.path().join("out.csv")).expect("the CSV");
    assert_eq!(csv.lines().count(), 3, "{csv}");
}

#[test]
fn bad_input_gets_a_clear_error_and_leaves_nothing() {
    let directory = directory();
    let full: &[(&[&str], &str, i32)] = &[
        (&["lab", "missing"], "missing", 1),
        (&["lab", "write", "--durability", "fdatasink"], "fdatasync", 2),
        (&["lab", "write", "--write-size", "3000"], "power of two", 1),
        (&["lab", "write", "--size", "5000"], "multiple", 1),
        (&["lab", "write", "--size", "1000TiB"], "MiB are needed, but", 1),
        (&["lab", "write", "--only", "reuse fdatasink"], "\"reuse fdatasync\"", 1),
        (&["lab", "write", "--baseline", "nwe fdatasync"], "\"new fdatasync\"", 1),
        (&["lab", "write", "--json", "no/such/place.json"], "no directory", 1),
        (&["lab", "write", "--json", "-", "--csv", "-"], "both write to stdout", 1),
        (&["lab", "read", "--order", "sideways"], "sequential", 2),
        (&["lab", "read", "--size", "5000"], "multiple of 4KiB", 2),
        (&["lab", "all", "--quick", "--full"], "--full", 2),
        (&["lab", "wrtie"], "no command \"wrtie\": `inkstone lab write` is one", 1),
    ];
    for (arguments, word, code) in full {
        let output = run(directory.path(), arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        assert_eq!(entries(directory.path()), Vec::<PathBuf>::new(), "{arguments:?}");
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let directory = directory();
    let mut child = inkstone()
        .current_dir(directory.path())
        .args(small(&["--reuse", "new,reuse"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(text(&output.stderr), "");
}

/// A run that would take minutes, after it has begun to write.
fn long_run(directory: &Path, arguments: &[&str]) -> Child {
    let mut child = inkstone()
        .current_dir(directory)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let begin = Instant::now();
    let working =
        |entries: Vec<PathBuf>| entries.iter().any(|entry| !self::entries(entry).is_empty());
    while !working(entries(directory)) {
        assert!(child.try_wait().expect("a state").is_none(), "it ended early");
        assert!(begin.elapsed() < Duration::from_secs(60), "it never began");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

#[test]
fn ctrl_c_ends_in_order_with_what_was_measured() {
    let directory = directory();
    let arguments = [
        "lab",
        "write",
        "--reuse",
        "new,reuse",
        "--size",
        "64MiB",
        "--rounds",
        "1000",
        "--bill-commits",
        "0",
    ];
    let child = long_run(directory.path(), &arguments);
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, "-INT");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
}

fn is_root() -> bool {
    inkstone_io::is_root()
}

/// Loop devices and mounts that have anything to do with this directory.
fn traces_of(directory: &Path) -> Vec<String> {
    let name = directory.to_string_lossy().into_owned();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let mut found: Vec<String> =
        mounts.lines().filter(|line| line.contains(&name)).map(str::to_owned).collect();
    let loops = inkstone_host::loops_backed_under(directory).expect("loop devices");
    found.extend(loops.into_iter().map(|(device, _)| device.display().to_string()));
    found
}

const FILESYSTEMS: &[&str] = &[
    "lab",
    "filesystems",
    "--file-systems",
    "ext4",
    "--loops",
    "direct",
    "--image-size",
    "336MiB",
    "--quiet",
];

#[test]
fn what_a_killed_lab_left_the_next_start_removes() {
    let test = "what_a_killed_lab_left_the_next_start_removes";
    if !is_root() {
        return not_run(test, "it needs root");
    }
    let long: Vec<&str> = FILESYSTEMS.iter().chain(&["--rounds", "10000"]).copied().collect();
    side_by_side(&[0, 700, 1500], |&wait_ms| {
        let directory = directory();
        let mut child = long_run(directory.path(), &long);
        std::thread::sleep(Duration::from_millis(wait_ms));
        signal(&child, "-KILL");
        assert_eq!(child.wait().expect("an end").signal(), Some(9));
        assert!(!entries(directory.path()).is_empty(), "a killed lab cannot clean up");
        let output = run(directory.path(), &small(&["--reuse", "new"]));
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("a killed lab had left"), "it says what it removed");
        assert_eq!(entries(directory.path()), Vec::<PathBuf>::new(), "after {wait_ms} ms");
        assert_eq!(traces_of(directory.path()), Vec::<String>::new(), "after {wait_ms} ms");
    });
}

#[test]
fn ctrl_c_in_the_middle_of_filesystems_leaves_nothing() {
    let test = "ctrl_c_in_the_middle_of_filesystems_leaves_nothing";
    if !is_root() {
        return not_run(test, "it needs root");
    }
    let directory = directory();
    let long: Vec<&str> = FILESYSTEMS.iter().chain(&["--rounds", "10000"]).copied().collect();
    for wait_ms in [0, 1000] {
        let child = long_run(directory.path(), &long);
        std::thread::sleep(Duration::from_millis(wait_ms));
        signal(&child, "-INT");
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
        assert_eq!(traces_of(directory.path()), Vec::<String>::new());
    }
}

#[test]
fn a_missing_tool_is_a_row_that_names_its_package() {
    let test = "a_missing_tool_is_a_row_that_names_its_package";
    if !is_root() {
        return not_run(test, "it needs root");
    }
    let directory = directory();
    // Not with `env`, which would not be found either.
    let output = Command::new(env!("CARGO_BIN_EXE_inkstone"))
        .current_dir(directory.path())
        .env("PATH", "/nowhere")
        .args([
            "lab",
            "filesystems",
            "--file-systems",
            "xfs",
            "--loops",
            "direct",
            "--image-size",
            "336MiB",
            "--quiet",
        ])
        .output()
        .expect("the command runs");
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(out.contains("mkfs.xfs is not installed") && out.contains("xfsprogs"), "{out}");
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
    assert_eq!(traces_of(directory.path()), Vec::<String>::new());
}

/// As a user without any rights, in a directory of its own.
fn as_nobody(directory: &Path, arguments: &[&str]) -> Option<Output> {
    let made = Command::new("chown").arg("65534:65534").arg(directory).status().ok()?;
    let own = directory.join("inkstone");
    copy_the_command(&own);
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"])
        .arg(&own)
        .args(arguments)
        .current_dir(directory)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .ok()?;
    std::fs::remove_file(own).ok()?;
    made.success().then_some(output)
}

/// Another user's lab that lives is not called a killed one.
#[test]
fn another_users_living_lab_is_not_called_killed() {
    let test = "another_users_living_lab_is_not_called_killed";
    if !is_root() {
        return not_run(test, "it needs root to become somebody else");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let theirs = inkstone_host::WorkDir::create(directory.path()).expect("a work directory");
    let Some(output) = as_nobody(directory.path(), &small(&["--reuse", "new,reuse"])) else {
        return not_run(test, "setpriv is not installed (util-linux)");
    };
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}{}", text(&output.stderr));
    assert!(!out.contains("killed lab"), "{out}");
    theirs.remove().expect("it lived all the time");
}

#[test]
fn an_ordinary_user_gets_counters_and_is_told_what_root_would_add() {
    let test = "an_ordinary_user_gets_counters_and_is_told_what_root_would_add";
    if !is_root() {
        return not_run(test, "it needs root to become somebody else");
    }
    // Not below the build: an ordinary user may not be let in there.
    let directory = tempfile::tempdir().expect("a directory");
    let Some(output) = as_nobody(directory.path(), &small(&["--reuse", "new,reuse"])) else {
        return not_run(test, "setpriv is not installed (util-linux)");
    };
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}{}", text(&output.stderr));
    assert!(out.contains("as root the lab traces"), "{out}");
    let output = as_nobody(directory.path(), FILESYSTEMS).expect("it ran before");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("needs root"), "{}", text(&output.stderr));
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_directory_that_may_not_be_written_is_refused() {
    let test = "a_directory_that_may_not_be_written_is_refused";
    if !is_root() {
        return not_run(test, "it needs root to become somebody else");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let closed = directory.path().join("closed");
    std::fs::create_dir(&closed).expect("a directory");
    let Some(output) = as_nobody(directory.path(), &["lab", "closed"]) else {
        return not_run(test, "setpriv is not installed (util-linux)");
    };
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("closed") && said.contains("ermission denied"), "{said}");
}

/// At most 256 MiB whatever the size: watched while it runs with a file of 1 GiB.
#[test]
fn memory_does_not_grow_with_the_file() {
    let directory = directory();
    let arguments = [
        "lab",
        "write",
        "--reuse",
        "reuse",
        "--access",
        "buffered,direct",
        "--durability",
        "none",
        "--size",
        "128MiB",
        "--write-size",
        "1MiB",
        "--rounds",
        "1",
        "--bill-commits",
        "0",
        "--quiet",
    ];
    let mut child = inkstone()
        .current_dir(directory.path())
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut peak_kib = 0;
    while child.try_wait().expect("a state").is_none() {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        peak_kib = peak_kib.max(kib.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(5));
    }
    let out =
        BufReader::new(child.stdout.take().expect("its output")).lines().map_while(Result::ok);
    assert!(child.wait().expect("an end").success(), "{}", out.collect::<Vec<_>>().join("\n"));
    assert!(peak_kib > 1000, "it was never seen");
    assert!(peak_kib < 64 << 10, "{peak_kib} KiB");
}
