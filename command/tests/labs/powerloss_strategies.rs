//! `inkstone powerloss strategies`: under real file systems it finds losses of strategies that are
//! not durable, and of no others.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::powerloss_faults::campaign;
use super::powerloss_kernel::here;
use crate::support::{directory, run as command, said, side_by_side, text};
use inkstone_io::NamedChoice;
use inkstone_powerloss::campaign::Campaign;
use inkstone_powerloss::kernel::machine::FsKind;
use inkstone_powerloss::result::RunResult;
use inkstone_powerloss::strategies::plain::Plain;
use inkstone_powerloss::strategies::row::{Row, Verdict};
use inkstone_powerloss::strategies::run;

fn shown(at: &Path, kind: FsKind, strategies: &[Plain], states: usize) -> (RunResult, Vec<Row>) {
    let campaign = Campaign { keep_in: Some(at.to_path_buf()), ..campaign(at, kind) };
    run(&campaign, strategies, states, &AtomicBool::new(false), &mut |_| {}).unwrap().remove(0)
}

#[test]
fn each_that_is_not_durable_is_found_and_none_that_is() {
    let kinds =
        here("each_that_is_not_durable", &[FsKind::Ext4, FsKind::Ext4NoJournal, FsKind::Xfs]);
    side_by_side(&kinds, |&kind| {
        let place = directory();
        let (result, rows) = shown(place.path(), kind, Plain::ALL, 8);
        assert!(result.is_clean(), "{result}");
        assert_eq!((result.classes.len(), rows.len()), (Plain::ALL.len(), Plain::ALL.len()));
        for row in &rows {
            let looked = row.not_run.is_none() && row.states >= 6;
            assert!(looked && row.is_as_claimed(), "{row}");
            // fdatasync may leave holes without a journal: where it is asked, the row has its
            // answer.
            assert_eq!(row.holes.is_some(), row.strategy == Plain::AppendBatchFdatasync, "{row}");
            // Bytes in a buffer of the process are lost with the process; nothing else is.
            assert_eq!(row.lost_at_kill > 0, row.strategy == Plain::StdioOnly, "{row}");
        }
    });
}

/// fdatasync without a journal can leave holes, as blocks reach the medium out of order. In what is
/// not acknowledged yet it can; what is acknowledged is whole.
#[test]
fn holes_before_an_fdatasync_are_found_and_shown_again() {
    for kind in here("holes_before_an_fdatasync", &[FsKind::Ext4NoJournal]) {
        let place = directory();
        let (result, rows) = shown(place.path(), kind, &[Plain::AppendBatchFdatasync], 60);
        let row = &rows[0];
        assert!(row.short().contains("held; a hole in "), "{result}");
        assert!(row.holes > Some(0) && row.verdict == Verdict::Held, "{row}");
        // The command that the lab names shows it again.
        let again = row.command.as_ref().unwrap();
        assert!(again.contains(" --entry "), "{row}");
        let output = command(place.path(), again.strip_prefix("inkstone ").unwrap());
        let told = text(&output.stdout) + &said(&output);
        assert_eq!(output.status.code(), Some(1), "{again}: {told}");
        assert!(told.contains("a hole: block "), "{again}: {told}");
    }
}
