//! `inkstone bench` as people use it: what it prints, how it exits, what it leaves behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

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
    assert_eq!(json["schema_version"], 1);
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert_eq!(row["failed"], serde_json::Value::Null, "{row}");
        let rounds = row["rounds"].as_array().expect("rounds");
        assert!(
            rounds.len() >= 5 && rounds.iter().all(|round| round["commits"].as_u64() > Some(0)),
            "{row}"
        );
        assert_eq!(row["floor"]["rounds"].as_array().map(Vec::len), Some(rounds.len()));
        assert!(row["floor"]["ratio"]["low"].as_f64() > Some(0.0), "{row}");
        assert!(row["cpu_ns"].as_u64() > Some(0));
        let commits: u64 = rounds.iter().filter_map(|round| round["commits"].as_u64()).sum();
        // Each commit with a wait is timed; commits without a wait have no latency.
        let timed = if row["threads"] == 0 { 0 } else { commits };
        assert_eq!(row["latency"]["count"].as_u64(), Some(timed), "{row}");
        assert_eq!(row["log"]["records"].as_u64(), Some(commits), "the log counts the same");
    }
    let changes = &json["changes"];
    assert!(
        changes["failed"].is_null() && changes["changing"][0]["commits"].as_u64() > Some(0),
        "{changes}"
    );
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_table_has_a_line_for_each_row() {
    let directory = directory();
    let output = run(directory.path(), &[SMALL, &["--threads", "1,2", "--no-changes"]].concat());
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));
    for word in ["1 thread, 128B", "2 threads, 128B", "log/floor"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    assert!(!out.contains("Segment changes:"), "{out}");
}

/// Processes whose parent is this one.
fn children_of(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc").filter_map(|entry| {
        let process: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let ppid: u32 = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        (ppid == parent).then_some(process)
    });
    processes.collect()
}

/// Whether a process runs or waits: one that has ended, and that nobody has waited for yet, does
/// not.
fn lives(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| {
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    })
}

#[test]
fn each_load_is_also_run_beside_company_and_followers_see_every_record() {
    let directory = directory();
    let company = ["--busy", "1,2", "--followers", "2", "--tail", "1", "--no-changes"];
    let output = run(
        directory.path(),
        &[SMALL, &company, &["--threads", "2,async", "--json", "-"]].concat(),
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["failed"], serde_json::Value::Null, "{row}");
        let alone = row["rounds"].as_array().map(Vec::len);
        let all = row["beside"].as_array().expect("company");
        let names: Vec<_> = all
            .iter()
            .map(|beside| (beside["company"].as_str(), beside["count"].as_u64()))
            .collect();
        let expected = [("busy", 1), ("busy", 2), ("followers", 2), ("tail", 1)];
        assert_eq!(names, expected.map(|(name, count)| (Some(name), Some(count))), "{row}");
        for beside in all {
            assert_eq!(beside["failed"], serde_json::Value::Null, "{beside}");
            let rounds = beside["rounds"].as_array().expect("rounds");
            assert_eq!(Some(rounds.len()), alone, "{beside}");
            assert!(beside["ratio"]["low"].as_f64() > Some(0.0), "{beside}");
            let commits: u64 = rounds.iter().filter_map(|round| round["commits"].as_u64()).sum();
            let followed = &beside["followed"];
            if beside["company"] == "busy" {
                assert!(followed.is_null() && beside["spun_ns"].as_u64() > Some(0), "{beside}");
                continue;
            }
            let each = beside["count"].as_u64().expect("a number");
            assert_eq!(followed["records"].as_u64(), Some(commits * each), "{beside}");
            let timed = followed["latency"]["count"].as_u64().expect("a number");
            let is_async = row["threads"] == 0;
            assert!(
                if is_async { timed <= commits * each / 32 } else { timed >= commits * each },
                "{beside}"
            );
            assert!(followed["cpu_ns"].as_u64() > Some(0), "{beside}");
        }
    }
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_table_has_a_part_for_each_company() {
    let directory = directory();
    let company =
        ["--threads", "1", "--no-changes", "--busy", "1", "--followers", "1", "--tail", "2"];
    let output = run(directory.path(), &[SMALL, &company].concat());
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));
    for head in [
        "Beside 1 process that spins",
        "Beside 1 follower in the same process",
        "Beside 2 other processes that tail the log",
    ] {
        let part = out.lines().skip_while(|line| line.trim() != head).skip(1);
        let part: Vec<_> = part.take_while(|line| !line.trim().is_empty()).collect();
        let rows = part.iter().filter(|line| line.trim().starts_with("1 thread, 128B"));
        assert_eq!(rows.count(), 1, "{head}: {out}");
    }
}

/// A process that spins for ever, or follows a log that is gone, is worse than a directory that is
/// left.
#[test]
fn a_killed_bench_takes_its_processes_with_it() {
    for company in [&["--busy", "3"][..], &["--tail", "2"]] {
        let directory = directory();
        let arguments =
            [&["--seconds", "600", "--bill-commits", "0", "--threads", "1"], company].concat();
        let mut command = bench(directory.path(), &arguments);
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command runs");
        let count = company[1].parse::<usize>().expect("a number");
        let children = loop {
            let children = children_of(child.id());
            if children.len() == count {
                break children;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        child.kill().expect("SIGKILL");
        child.wait().expect("its end");
        // The kernel kills them when the bench ends; they die a moment later.
        let until = Instant::now() + Duration::from_secs(60);
        while children.iter().any(|&process| lives(process)) {
            assert!(Instant::now() < until, "{company:?}: {children:?} live on");
            std::thread::sleep(Duration::from_millis(5));
        }
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
        (&["--busy", "0"], "1..=64"),
        (&["--followers", "65"], "1..=64"),
        (&["--tail", "many"], "invalid"),
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
