//! `inkstone powerloss` as people use it: what is sound is found sound on every file system, and a
//! mistake in the log is found.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use inkstone_host::{loops_backed_under, mounts_under};

fn inkstone(arguments: &[&str], directory: &Path) -> Output {
    let mut command = crate::support::inkstone();
    let output = command.arg("powerloss").args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.code().is_some(), "{output:?}");
    output
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// Whether anything can run here; what cannot is said loudly.
fn can_run(test: &str) -> bool {
    let kinds = ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"];
    let rights = ["/dev/fuse", "/dev/loop-control"];
    let open = |path: &&str| std::fs::OpenOptions::new().read(true).write(true).open(path).is_err();
    let tool = |name: &&str| {
        !["/usr/sbin", "/sbin", "/usr/bin"].iter().any(|at| Path::new(at).join(name).exists())
    };
    let missing: Vec<_> = rights
        .iter()
        .filter(|path| open(path))
        .chain(kinds.iter().filter(|name| tool(name)))
        .collect();
    let root = inkstone_io::is_root();
    if !missing.is_empty() || !root {
        // Past the test harness, which hides what a passing test prints.
        let why = format!("\nNOT RUN: {test}: root: {root}, missing: {missing:?}\n");
        let _ = std::io::stderr().write_all(why.as_bytes());
    }
    missing.is_empty() && root
}

#[test]
fn three_hundred_mounted_states_of_five_file_systems_keep_every_promise() {
    if !can_run("three_hundred_mounted_states") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let run =
        ["run", "--mounted", "66", "--projected", "3000", "--certificate", "certificate.json"];
    let output = inkstone(&run, directory.path());
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("every promise held").count(), 5, "{said}");
    let shown = inkstone(&["show", "certificate.json"], directory.path());
    assert!(shown.status.success() && said.contains(text(&shown).trim()), "{}", text(&shown));
    let json = std::fs::read_to_string(directory.path().join("certificate.json")).unwrap();
    let certificates: Vec<inkstone_powerloss::certificate::Certificate> =
        serde_json::from_str(&json).unwrap();
    // Where a cut has fewer states than were wanted of it, no state is looked at twice.
    let mounted = certificates.iter().map(|certificate| certificate.classes[0].states);
    assert!(mounted.clone().sum::<u64>() >= 300 && mounted.min() >= Some(50), "{said}");
    for certificate in certificates {
        if ["ext4", "ext4-nojournal", "xfs"].contains(&certificate.file_system.as_str()) {
            let projected = (certificate.classes[2].states, certificate.classes[3].states);
            assert!(projected.0 >= 1000 && projected.1 > 0, "{certificate}");
        }
    }
}

/// The raft log, and the log's mistakes in `.ci/mistaken` show that the same lab can say no.
#[test]
fn a_raft_log_keeps_every_promise_too() {
    if !can_run("a_raft_log_keeps_every_promise") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let list = "ext4,ext4-nojournal,xfs,btrfs";
    let output = inkstone(&["run", "--raft", "--fs", list, "--mounted", "24"], directory.path());
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("every promise held").count(), 4, "{said}");
    assert_eq!(said.matches("calls of a raft log").count(), 4, "{said}");
    let output =
        inkstone(&["record", "raft.log-writes", "--raft", "--length", "6"], directory.path());
    assert!(output.status.success(), "{}", text(&output));
    let output =
        inkstone(&["replay", "raft.log-writes", "--states", "1", "--again"], directory.path());
    assert!(output.status.success() && text(&output).contains("subject=raft"), "{}", text(&output));
}

#[test]
fn a_recording_is_made_shown_and_looked_at() {
    if !can_run("a_recording_is_made") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let output = inkstone(&["record", "a.log-writes", "--length", "6"], directory.path());
    assert!(output.status.success(), "{}", text(&output));
    let output = inkstone(&["show", "a.log-writes", "--entries"], directory.path());
    assert!(text(&output).contains("mark  done 5 "), "{}", text(&output));
    let output = inkstone(&["record", "a.log-writes"], directory.path());
    assert!(text(&output).contains("overwrites nothing"), "{}", text(&output));
    let output = inkstone(&["replay", "a.log-writes", "--states", "1"], directory.path());
    assert!(output.status.success(), "{}", text(&output));
    let output = inkstone(&["replay", "a.log-writes", "--entry", "0"], directory.path());
    assert!(text(&output).contains("it was written in entries"), "{}", text(&output));
}

#[test]
fn what_is_no_recording_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("foreign"), vec![7; 5000]).unwrap();
    for command in ["show", "replay"] {
        let output = inkstone(&[command, "foreign"], directory.path());
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output).contains("not a recording of dm-log-writes"), "{}", text(&output));
    }
    let output = inkstone(&["run", "--fs", "ext3"], directory.path());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}

/// A lab at work in `directory`: its file system is mounted when this returns.
fn at_work(directory: &Path) -> std::process::Child {
    let mut command = crate::support::inkstone();
    command
        .args(["powerloss", "run", "--fs", "ext4", "--mounted", "100000", "--directory"])
        .arg(directory);
    let mut child =
        command.stderr(Stdio::null()).stdout(Stdio::null()).current_dir(directory).spawn().unwrap();
    while mounted_in(directory) < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it had mounted anything");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

fn mounted_in(directory: &Path) -> usize {
    mounts_under(directory).unwrap().len()
}

#[test]
fn ctrl_c_leaves_nothing_behind_and_what_a_kill_leaves_the_next_start_takes_away() {
    if !can_run("ctrl_c_leaves_nothing_behind") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let nothing = || (mounted_in(&path), loops_backed_under(&path).unwrap().len());
    let mut child = at_work(&path);
    crate::support::signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(nothing(), (0, 0));
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);

    let mut child = at_work(&path);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(mounted_in(&path) > 0, "a kill takes nothing away");
    let arguments =
        ["run", "--fs", "ext4", "--mounted", "3", "--projected", "0", "--directory", "."];
    let output = inkstone(&arguments, &path);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(nothing(), (0, 0));
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
}

#[cfg(inkstone_mistakes)]
mod mistaken {
    use super::*;

    /// The first run in which something is found: what is in flight at a cut is the kernel's
    /// affair, so some find nothing.
    fn found(run: &[&str], first_seed: u32, directory: &Path) -> Output {
        for seed in (first_seed..).step_by(10).take(6) {
            let output = inkstone(&[run, &["--seed", &seed.to_string()]].concat(), directory);
            match output.status.code() {
                Some(0) => {}
                Some(1) => return output,
                _ => panic!("{}", text(&output)),
            }
        }
        panic!("{run:?}: nothing is found")
    }

    /// A raft log on a log that does not sync.
    #[test]
    fn a_raft_log_that_loses_what_it_acknowledged_is_found_and_shown_again() {
        if !can_run("a_raft_log_that_loses") {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let run = [
            "run",
            "--raft",
            "--fs",
            "ext4",
            "--strategy",
            "buffered-fdatasync",
            "--mistake",
            "no-sync",
        ];
        let output = found(&[&run[..], &["--mounted", "120"]].concat(), 1, directory.path());
        let said = text(&output);
        assert!(said.contains("which is none of") || said.contains("does not open"), "{said}");
        let again = said
            .lines()
            .find_map(|line| line.trim().strip_prefix("again: inkstone powerloss "))
            .unwrap();
        let output = inkstone(&again.split(' ').collect::<Vec<_>>(), directory.path());
        assert_eq!(output.status.code(), Some(1), "{again}: {}", text(&output));
        assert!(text(&output).contains("BROKEN at entry"), "{again}: {}", text(&output));
    }

    #[test]
    fn a_log_that_does_not_sync_is_found_and_shown_again() {
        if !can_run("a_log_that_does_not_sync") {
            return;
        }
        let kinds = ["ext4", "ext4-nojournal", "ext4-data-journal", "xfs", "btrfs"];
        crate::support::side_by_side(&kinds, |kind| {
            let directory = tempfile::tempdir().unwrap();
            let mistake =
                ["run", "--fs", kind, "--strategy", "buffered-fdatasync", "--mistake", "no-sync"];
            let mounted = [&mistake[..], &["--mounted", "120", "--projected", "0"]].concat();
            let output = found(&mounted, 1, directory.path());
            let said = text(&output);
            // Records that are gone, or a truncation, or bytes that were promised: which one shows
            // first is up to the kernel's timing.
            let ways = ["was acknowledged, but the last is", "the first LSN is", "does not open"];
            assert!(ways.iter().any(|way| said.contains(way)), "{kind}: {said}");
            // The command that it names shows the same.
            let again = said
                .lines()
                .find_map(|line| line.trim().strip_prefix("again: inkstone powerloss "))
                .unwrap();
            let output = inkstone(&again.split(' ').collect::<Vec<_>>(), directory.path());
            assert_eq!(output.status.code(), Some(1), "{kind}: {again}");
            assert!(
                text(&output).contains("BROKEN at entry"),
                "{kind}: {again}: {}",
                text(&output)
            );
        });
    }

    /// Only ext4 with a journal showed it: the same run saw nothing on ext4 without one, xfs and
    /// btrfs.
    #[test]
    fn a_log_that_does_not_sync_its_directory_is_found_on_ext4() {
        if !can_run("a_log_that_does_not_sync_its_directory") {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let run = ["run", "--fs", "ext4", "--strategy", "direct-rwf-dsync", "--projected", "0"];
        let mistake = ["--mounted", "120", "--mistake", "no-directory-sync"];
        let output = found(&[&run[..], &mistake].concat(), 2, directory.path());
        assert!(text(&output).contains("BROKEN"), "{}", text(&output));
        let sound =
            inkstone(&[&run[..], &mistake[..2], &["--seed", "2"]].concat(), directory.path());
        assert_eq!(sound.status.code(), Some(0), "{}", text(&sound));
    }
}
