//! `inkstone powerloss strategies`: under real file systems it finds losses of strategies that are
//! not durable, and of no others.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::path::Path;
use std::process::Output;

use super::powerloss_kernel::here;
use crate::support::{directory, run, said, side_by_side, text};
use inkstone_io::NamedChoice;
use inkstone_powerloss::kernel::machine::FsKind;
use inkstone_powerloss::strategies::plain::{Claim, Plain};
use inkstone_powerloss::strategies::report::{Report, Verdict};

/// What the command says, and its rows.
fn strategies(at: &Path, kind: FsKind, more: &str) -> (String, Report) {
    let asked = format!("powerloss strategies --directory . --fs {} --json rows.json", kind.name());
    let output = run(at, format!("{asked} {more}"));
    let said = told(&output);
    assert!(output.status.success(), "{said}");
    (said, serde_json::from_slice(&std::fs::read(at.join("rows.json")).unwrap()).unwrap())
}

fn told(output: &Output) -> String {
    text(&output.stdout) + &said(output)
}

/// Runs a command that the lab has named; it shows a loss again.
fn shown_again(at: &Path, command: &str) -> String {
    let output = run(at, command.strip_prefix("inkstone ").unwrap());
    let said = told(&output);
    assert_eq!(output.status.code(), Some(1), "{command}: {said}");
    said
}

#[test]
fn each_that_is_not_durable_is_found_and_none_that_is() {
    let kinds =
        here("each_that_is_not_durable", &[FsKind::Ext4, FsKind::Ext4NoJournal, FsKind::Xfs]);
    side_by_side(&kinds, |&kind| {
        let place = directory();
        let (said, report) =
            strategies(place.path(), kind, "--states 8 --certificate certificate.json");
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
        let certificates = std::fs::read(place.path().join("certificate.json")).unwrap();
        let certificates = crate::support::json(&certificates);
        assert_eq!(certificates[0]["lab"], "strategies");
        assert_eq!(certificates[0]["violations"].as_array().unwrap().len(), 0);
    });
}

/// Article 1: fdatasync without a journal can leave holes, as blocks reach the medium out of order.
/// In what is not acknowledged yet it can; what is acknowledged is whole.
#[test]
fn holes_before_an_fdatasync_are_found_and_shown_again() {
    for kind in here("holes_before_an_fdatasync", &[FsKind::Ext4NoJournal]) {
        let place = directory();
        let more = "--strategy append-batch-fdatasync --states 60 --keep .";
        let (said, report) = strategies(place.path(), kind, more);
        assert!(said.contains("held in 60; a hole in "), "{said}");
        let row = &report.rows[0];
        assert!(row.holes.unwrap() > 0 && row.verdict == Verdict::Held && row.as_claimed, "{row}");
        let command = row.command.as_ref().unwrap();
        assert!(command.ends_with(&row.hole.as_ref().unwrap().0), "{row}");
        assert!(shown_again(place.path(), command).contains("a hole: block "), "{command}");
    }
}
