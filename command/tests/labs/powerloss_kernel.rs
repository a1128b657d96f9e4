//! `inkstone powerloss` as people use it: what is sound is found sound on every file system, and a
//! mistake in the log is found.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[cfg(inkstone_mistakes)]
use std::path::Path;
use std::process::{Child, Output};

use crate::support::{command, directory, names, not_run, run, said, signal, text, until};
use inkstone_host::{loops_backed_under, mounts_under};
use inkstone_io::NamedChoice as _;
use inkstone_powerloss::kernel::machine::{FsKind, missing};

/// Those of `wanted` that can be created here; what is missing is said loudly.
pub(crate) fn here(test: &str, wanted: &[FsKind]) -> Vec<FsKind> {
    let mut kinds = wanted.to_vec();
    kinds.retain(|kind| {
        let why = missing().or_else(|| kind.missing());
        why.inspect(|why| not_run(test, format_args!("{kind}: {why}"))).is_none()
    });
    kinds
}

/// Whether all of them can be created here.
fn can_run(test: &str) -> bool {
    here(test, FsKind::ALL).len() == FsKind::ALL.len()
}

/// What both of its outputs say.
fn told(output: &Output) -> String {
    text(&output.stdout) + &said(output)
}

/// The command that a lab has named shows the same again, and its recording is shown and looked at.
#[cfg(inkstone_mistakes)]
fn is_shown_again(told: &str, at: &Path) {
    let again =
        told.lines().find_map(|line| line.trim().strip_prefix("again: inkstone powerloss "));
    let again = again.unwrap_or_else(|| panic!("{told}"));
    let recording = again.split(' ').nth(1).unwrap_or_else(|| panic!("{again}"));
    for (asked, code, words) in [
        (again.to_owned(), 1, "BROKEN at entry"),
        (format!("show {recording} --entries"), 0, "flush"),
        (format!("replay {recording} --entry 0 --subset all"), 2, "it was written in entries"),
        // Nothing looked at is no promise held.
        (format!("replay {recording} --states 0"), 2, "0 states"),
    ] {
        let output = run(at, format!("powerloss {asked}"));
        assert_eq!(output.status.code(), Some(code), "{asked}: {}", self::told(&output));
        assert!(self::told(&output).contains(words), "{asked}: {}", self::told(&output));
    }
}

#[test]
#[ignore = "needs root, mkfs.ext4, mkfs.xfs and mkfs.btrfs"]
fn three_hundred_mounted_states_of_five_file_systems_keep_every_promise() {
    if !can_run("three_hundred_mounted_states") {
        return;
    }
    let directory = directory();
    let at = directory.path();
    let asked = "powerloss run --mounted 66 --json result.json";
    let output = run(at, asked);
    let said = told(&output);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("every promise held").count(), 1, "{said}");
    assert!(said.lines().count() <= 10, "{said}");
    let json = std::fs::read(at.join("result.json")).unwrap();
    let results: Vec<inkstone_powerloss::result::RunResult> =
        serde_json::from_slice(&json).unwrap();
    // Where a cut has fewer states than were wanted of it, no state is looked at twice.
    let mounted = results.iter().map(|result| result.classes[0].states);
    assert!(mounted.clone().sum::<u64>() >= 300 && mounted.min() >= Some(50), "{said}");
}

#[test]
#[ignore = "needs root, mkfs.ext4, mkfs.xfs and mkfs.btrfs"]
fn ctrl_c_leaves_nothing_behind_and_what_a_kill_leaves_the_next_start_takes_away() {
    if !can_run("ctrl_c_leaves_nothing_behind") {
        return;
    }
    let directory = directory();
    let at = &directory.path().canonicalize().unwrap();
    let mounted = || mounts_under(at).unwrap().len();
    let nothing = || (mounted(), loops_backed_under(at).unwrap().len(), names(at).len());
    // A lab at work: its file system is mounted.
    let at_work = || -> Child {
        let asked = "powerloss run --fs ext4 --mounted 100000 --directory .";
        let mut child = command(at, asked).spawn().unwrap();
        until("it has mounted something", || {
            assert!(child.try_wait().unwrap().is_none(), "it ended before");
            mounted() >= 2
        });
        child
    };
    let child = at_work();
    signal("-INT", child.id());
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    assert_eq!(nothing(), (0, 0, 0));

    let mut child = at_work();
    child.kill().and_then(|()| child.wait()).unwrap();
    let output = run(at, "powerloss run --fs ext4 --mounted 3 --directory .");
    assert!(output.status.success(), "{}", told(&output));
    // The start of another lab on this machine may be at work on it still.
    until("what a killed lab left is removed", || nothing() == (0, 0, 0));
}

#[cfg(inkstone_mistakes)]
mod mistaken {
    use super::*;
    use crate::support::side_by_side;

    /// What the first run says in which something is found: what is in flight at a cut is the
    /// kernel's affair, so some find nothing.
    fn found(asked: &str, first_seed: u32, at: &Path) -> String {
        for seed in (first_seed..).step_by(10).take(6) {
            let output = run(at, format!("powerloss run {asked} --mounted 120 --seed {seed}"));
            match output.status.code() {
                Some(0) => {}
                Some(1) => return told(&output),
                _ => panic!("{}", told(&output)),
            }
        }
        panic!("{asked}: nothing is found")
    }

    #[test]
    fn a_log_that_does_not_sync_is_found_and_shown_again() {
        if !can_run("a_log_that_does_not_sync") {
            return;
        }
        let kinds = ["ext4", "ext4-nojournal", "ext4-data-journal", "xfs", "btrfs"];
        side_by_side(&kinds, |kind| {
            let directory = directory();
            let asked = format!("--fs {kind} --strategy buffered-fdatasync --mistake no-sync");
            let said = found(&asked, 1, directory.path());
            // Records that are gone, or a truncation, or bytes that were promised: which one shows
            // first is up to the kernel's timing.
            let ways = ["was acknowledged, but the last is", "the first LSN is", "does not open"];
            assert!(ways.iter().any(|way| said.contains(way)), "{kind}: {said}");
            is_shown_again(&said, directory.path());
        });
    }

    /// Only ext4 with a journal showed it: the same run saw nothing on ext4 without one, xfs and
    /// btrfs.
    #[test]
    fn a_log_that_does_not_sync_its_directory_is_found_on_ext4() {
        if !can_run("a_log_that_does_not_sync_its_directory") {
            return;
        }
        let directory = directory();
        let asked = "--fs ext4 --strategy direct-rwf-dsync";
        let said = found(&format!("{asked} --mistake no-directory-sync"), 2, directory.path());
        assert!(said.contains("BROKEN"), "{said}");
        let sound = format!("powerloss run {asked} --mounted 120 --seed 2");
        assert_eq!(run(directory.path(), sound).status.code(), Some(0));
    }
}
