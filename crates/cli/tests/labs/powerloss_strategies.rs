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
        let arguments = [
            "--fs",
            kind.name(),
            "--strategy",
            "append-batch-fdatasync",
            "--states",
            "60",
            "--json",
        ];
        let output =
            strategies(place.path(), &[&arguments[..], &[json.to_str().unwrap()]].concat());
        let said = words(&output);
        assert!(output.status.success() && said.contains("held in 60; a hole in "), "{said}");
        let report: Report = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let row = &report.rows[0];
        assert!(row.holes.unwrap() > 0 && row.verdict == Verdict::Held && row.as_claimed, "{row}");
        assert!(row.command.as_ref().unwrap().contains(&row.hole.as_ref().unwrap().0), "{row}");
    }
}

#[test]
fn one_state_is_shown_again_by_its_words() {
    for kind in here("one_state_is_shown_again", &[FsKind::Ext4]) {
        let place = place();
        let state = |strategy: &str, state: &str| {
            let output = strategies(
                place.path(),
                &["--fs", kind.name(), "--strategy", strategy, "--state", state],
            );
            (output.status.code(), words(&output))
        };
        let (code, said) = state("write-only", "ack:8/none");
        assert!(
            code == Some(1) && said.contains("8 lost, 0 torn, 0 garbage of 8 acknowledged"),
            "{said}"
        );
        let (code, said) = state("append-fdatasync", "ack:8/none");
        assert!(code == Some(0) && said.contains("held in 1 states"), "{said}");
        let (code, said) = state("append-fdatasync", "ack:9/none");
        assert!(code == Some(1) && said.contains("ack:9/none: the recording"), "{said}");
    }
}

#[test]
fn what_makes_no_sense_is_said() {
    let place = place();
    for (arguments, expected) in [
        (vec!["--strategy", "append-fsink"], "append-fsync"),
        (vec!["--fs", "fat"], "ext4-nojournal"),
        (vec!["--state", "3"], "ack:3/none"),
        (vec!["--recording", "x"], "--state"),
    ] {
        let output = strategies(place.path(), &arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(words(&output).contains(expected), "{}", words(&output));
    }
}
