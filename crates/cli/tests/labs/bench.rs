//! `inkstone bench` as people use it: what it prints, how it exits, what it leaves behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn bench(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = crate::support::inkstone();
    command.current_dir(directory).arg("bench").args(arguments);
    command
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    bench(directory, arguments).output().expect("the command runs")
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the directory");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

const SMALL: &[&str] = &["--seconds", "100ms", "--bill-commits", "0", "--quiet", "--size", "128B"];

#[test]
fn json_holds_each_row_with_its_floor_and_nothing_is_left() {
    let directory = directory();
    let output =
        run(directory.path(), &[SMALL, &["--threads", "1,4,async", "--json", "-"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let tables = json["tables"].as_array().expect("tables");
    assert_eq!(tables.len(), 3);
    for table in tables {
        let [floor, log] = table["ways"].as_array().expect("ways").as_slice() else {
            panic!("{table}")
        };
        assert_eq!(log["missing"], serde_json::Value::Null, "{log}");
        let rounds = log["rounds"].as_array().expect("rounds");
        assert!(
            rounds.len() >= 5 && rounds.iter().all(|round| round["commits"].as_u64() > Some(0)),
            "{log}"
        );
        assert_eq!(floor["rounds"].as_array().map(Vec::len), Some(rounds.len()));
        assert!(log["relative"]["low"].as_f64() > Some(0.0), "{log}");
        let commits: u64 = rounds.iter().filter_map(|round| round["commits"].as_u64()).sum();
        // Each commit with a wait is timed; commits without a wait have no latency.
        let is_async = log["name"].as_str().is_some_and(|name| name.starts_with("async"));
        let timed = if is_async { None } else { Some(commits) };
        assert_eq!(log["latency"]["count"].as_u64(), timed, "{log}");
    }
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_table_has_a_line_for_each_row() {
    let directory = directory();
    let output = run(directory.path(), &[SMALL, &["--threads", "1,2"]].concat());
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));
    for word in ["1 thread, 128B", "2 threads, 128B", "log/floor"] {
        assert!(out.contains(word), "{word}: {out}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_written() {
    let directory = directory();
    for (arguments, word) in [
        (&["--threads", "0"] as &[&str], "1 to 1024"),
        (&["--threads", "many"], "1 to 1024"),
        (&["--size", "1GiB"], "256KiB"),
        (&["--seconds", "0"], "more than 0s"),
    ] {
        let output = run(directory.path(), arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(word), "{error}");
    }
    let missing = run(directory.path(), &["missing"]);
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn ctrl_c_ends_it_in_order() {
    let directory = directory();
    let mut command =
        bench(directory.path(), &["--seconds", "60", "--bill-commits", "0", "--threads", "1"]);
    let child =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the command runs");
    // It has begun when its working directory is there.
    while entries(directory.path()).is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let killed =
        Command::new("kill").arg("-INT").arg(child.id().to_string()).status().expect("kill runs");
    assert!(killed.success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
}
