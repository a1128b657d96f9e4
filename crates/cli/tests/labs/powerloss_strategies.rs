//! `inkstone powerloss strategies`: under real file systems it finds losses of strategies that are
//! not durable, and of no others.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::side_by_side;
use inkstone_io::NamedChoice;
use inkstone_powerloss::kernel::machine::{FsKind, missing, missing_for};
use inkstone_powerloss::strategies::plain::{Claim, Plain};
use inkstone_powerloss::strategies::report::{Report, Verdict};

fn not_run(test: &str, why: &str) {
    // Bypasses the test harness, which hides the output of passing tests.
    let _ = std::io::stderr().write_all(format!("\nNOT RUN: {test}: {why}\n").as_bytes());
}

/// Those of `wanted` that can be created here; prints what is missing.
fn here(test: &str, wanted: &[FsKind]) -> Vec<FsKind> {
    if let Some(why) = missing() {
        not_run(test, &why);
        return Vec::new();
    }
    let mut kinds = wanted.to_vec();
    kinds.retain(|kind| missing_for(*kind).inspect(|why| not_run(test, why)).is_none());
    kinds
}

fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn strategies(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_inkstone"))
        .args(["powerloss", "strategies", "--directory"])
        .arg(directory)
        .args(arguments)
        .output()
        .unwrap()
}

fn words(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn each_that_is_not_durable_is_found_and_none_that_is() {
    let kinds =
        here("each_that_is_not_durable", &[FsKind::Ext4, FsKind::Ext4NoJournal, FsKind::Xfs]);
    side_by_side(&kinds, |&kind| {
        let place = place();
        let [json, certificate] =
            ["rows.json", "certificate.json"].map(|name| place.path().join(name));
        let files = [json.to_str().unwrap(), certificate.to_str().unwrap()];
        let arguments =
            ["--fs", kind.name(), "--states", "8", "--json", files[0], "--certificate", files[1]];
        let output = strategies(place.path(), &arguments);
        let said = words(&output);
        assert!(output.status.success(), "{said}");
        let report: Report = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!(report.rows.len(), Plain::ALL.len());
        for row in &report.rows {
            let claim = Plain::from_name(&row.strategy).unwrap().claim_on(kind).0;
            let looked = row.not_run.is_none() && row.states >= 6 && row.plainest == 4;
            let agrees = match claim {
                Claim::Durable => row.verdict == Verdict::Held,
                Claim::Nothing => row.bad_plainest > 0 && row.worst.is_some(),
                Claim::DurableNotAtomic => row.bad_plainest == 0,
                Claim::NameNotPromised => row.damaged_states == 0,
                Claim::NotPromised => true,
            };
            assert!(looked && agrees, "{row}\n{said}");
            // Article 1 says that fdatasync leaves holes without a journal: where it is asked, the
            // row has its answer.
            assert_eq!(
                row.holes.is_some(),
                row.strategy == Plain::AppendBatchFdatasync.name(),
                "{row}"
            );
            // Bytes in a buffer of the process are lost with the process; nothing else is.
            assert_eq!(row.lost_at_kill > 0, row.strategy == Plain::StdioOnly.name(), "{row}");
        }
        let certificates: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&certificate).unwrap()).unwrap();
        assert_eq!(certificates[0]["lab"], "strategies");
        assert_eq!(certificates[0]["violations"].as_array().unwrap().len(), 0);
    });
}

/// Article 1: fdatasync without a journal can leave holes, as blocks reach the medium out of order.
/// In what is not acknowledged yet it can; what is acknowledged is whole.
#[test]
fn holes_before_an_fdatasync_are_found_and_shown_again() {
    for kind in here("holes_before_an_fdatasync", &[FsKind::Ext4NoJournal]) {
        let place = place();
        let json = place.path().join("rows.json");
        let arguments = ["--strategy", "append-batch-fdatasync", "--states", "60", "--json"];
        let files = [json.to_str().unwrap(), "--keep", place.path().to_str().unwrap()];
        let arguments = [&["--fs", kind.name()][..], &arguments, &files].concat();
        let output = strategies(place.path(), &arguments);
        let said = words(&output);
        assert!(output.status.success() && said.contains("held in 60; a hole in "), "{said}");
        let report: Report = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let row = &report.rows[0];
        assert!(row.holes.unwrap() > 0 && row.verdict == Verdict::Held && row.as_claimed, "{row}");
        let command = row.command.as_ref().unwrap();
        assert!(command.ends_with(&row.hole.as_ref().unwrap().0), "{row}");
        let (code, said) = again(command);
        assert!(code == Some(1) && said.contains("a hole: block "), "{command}: {said}");
    }
}

/// Runs a command that a lab has named.
fn again(command: &str) -> (Option<i32>, String) {
    let words = command.strip_prefix("inkstone ").unwrap().split(' ');
    let output = Command::new(env!("CARGO_BIN_EXE_inkstone")).args(words).output().unwrap();
    (output.status.code(), self::words(&output))
}

#[test]
fn a_loss_is_kept_and_shown_again() {
    for kind in here("a_loss_is_kept", &[FsKind::Ext4]) {
        let place = place();
        let kept = place.path().to_str().unwrap();
        let json = place.path().join("rows.json");
        let arguments = ["--strategy", "write-only,append-fdatasync", "--states", "8", "--json"];
        let files = [json.to_str().unwrap(), "--keep", kept];
        let output =
            strategies(place.path(), &[&["--fs", kind.name()][..], &arguments, &files].concat());
        assert!(output.status.success(), "{}", words(&output));
        let report: Report = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert!(report.rows[1].command.is_none(), "nothing was lost: {}", report.rows[1]);
        let command = report.rows[0].command.as_ref().unwrap();
        let (code, said) = again(command);
        assert!(code == Some(1) && said.contains("8 lost, 0 torn, 0 garbage"), "{command}: {said}");
        let (file, _) = command.split_once(" --entry").unwrap();
        let (code, said) = again(&format!("{file} --entry 0"));
        assert!(code == Some(1) && said.contains("it was written in entries"), "{said}");
    }
}

#[test]
fn what_makes_no_sense_is_said() {
    let place = place();
    for (arguments, expected) in [
        (vec!["--strategy", "append-fsink"], "append-fsync"),
        (vec!["--fs", "fat"], "ext4-nojournal"),
    ] {
        let output = strategies(place.path(), &arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(words(&output).contains(expected), "{}", words(&output));
    }
}
