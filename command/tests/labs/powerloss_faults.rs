//! Faults below the file system: each comes to pass, the log keeps its promises, and a log that
//! does not is found out.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::powerloss_kernel::here;
use crate::support::side_by_side;
use inkstone_io::NamedChoice;
use inkstone_powerloss::campaign::Campaign;
use inkstone_powerloss::faults::plan::Fault;
use inkstone_powerloss::faults::{Told, Wanted, run};
use inkstone_powerloss::kernel::machine::FsKind;
use inkstone_powerloss::process::Program;
use inkstone_powerloss::words::Way;
#[cfg(inkstone_mistakes)]
use inkstone_subject::mistake::Mistake;

/// The settings of a lab on one file system.
pub(crate) fn campaign(parent: &Path, kind: FsKind) -> Campaign {
    Campaign {
        kinds: vec![kind],
        seed: 1,
        parent: parent.to_path_buf(),
        keep_in: None,
        command: "a test".into(),
        program: Program {
            path: env!("CARGO_BIN_EXE_inkstone").into(),
            arguments: ["powerloss", "writer"].map(String::from).to_vec(),
        },
        mistake: None,
    }
}

fn wanted(faults: &[Fault], ways: &[Way], rounds: u64) -> Wanted {
    Wanted { faults: faults.to_vec(), ways: ways.to_vec(), rounds, sampled: 2 }
}

fn shown(campaign: &Campaign, wanted: &Wanted) -> Told {
    let mut shown = run(campaign, wanted, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(shown.len(), 1);
    shown.remove(0)
}

#[test]
#[ignore = "needs root, /dev/fuse and the tools of the file systems"]
fn twelve_faults_on_each_file_system_break_no_promise() {
    let kinds = here("twelve_faults", FsKind::ALL);
    let directory = tempfile::tempdir().unwrap();
    side_by_side(&kinds, |kind| twelve_faults_on(*kind, directory.path()));
}

fn twelve_faults_on(kind: FsKind, parent: &Path) {
    // ext4 twice, since its journal makes it the one that most differs with what was hit.
    let rounds = if kind == FsKind::Ext4 { 2 } else { 1 };
    let wanted = wanted(Fault::ALL, Way::ALL, rounds);
    let (result, tallies) = shown(&campaign(parent, kind), &wanted);
    assert!(result.is_clean(), "{result}");
    assert_eq!(tallies.len(), Fault::ALL.len());
    let mut poisoned = 0;
    for (fault, tally) in &tallies {
        // A fault that never came to pass would be no evidence; nor would a log that was not in
        // use. Elsewhere may be: data=journal reads nothing back, and btrfs writes each block to a
        // new place.
        let can_pass_by = match fault {
            Fault::ReadData => true,
            Fault::WriteData | Fault::WriteDataForEver => kind == FsKind::Btrfs,
            _ => false,
        };
        assert!(tally.fired == rounds || can_pass_by, "{kind}, {fault}: {result}");
        // A fault that passed by is no evidence.
        let looked = tally.states == 3 * tally.fired;
        assert!(looked && tally.counts.of("acknowledged") >= rounds, "{kind}, {fault}: {result}");
        // One that copies what is overwritten may refuse that, which poisons; the others have a
        // round less.
        let is_left_behind = tally.counts.of("refused, then continued") > 0;
        let is_asked = *fault == Fault::FileSystemFull && kind == FsKind::Ext4;
        assert!(!is_asked || is_left_behind, "{result}");
        poisoned += tally.counts.of("poisoned");
    }
    assert!(poisoned >= 6 * rounds, "{result}");
}

#[cfg(inkstone_mistakes)]
mod mistaken {
    use super::*;

    #[test]
    #[ignore = "needs root, /dev/fuse and the tools of the file systems"]
    fn a_log_that_tries_a_sync_again_or_makes_none_is_found_out() {
        if here("mistakes", &[FsKind::Ext4]).is_empty() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        for (mistake, fault) in
            [(Mistake::RetriesSync, Fault::WriteData), (Mistake::NoSync, Fault::Dead)]
        {
            let base = campaign(directory.path(), FsKind::Ext4);
            let wanted = wanted(&[fault], &[Way::BufferedFdatasync], 3);
            let (sound, _) = shown(&base, &wanted);
            assert!(sound.is_clean(), "{sound}");
            let is_loss = |what: &str| {
                what.contains("was acknowledged, but the last is")
                    || what.contains("the first LSN is")
                    || what.contains("promised to be durable")
            };
            // What a round shows depends on what was in flight when the disk failed, which is the
            // machine's: one in two or so does.
            let found = (0..8).any(|more| {
                let wrong =
                    Campaign { mistake: Some(mistake), seed: base.seed + 3 * more, ..base.clone() };
                shown(&wrong, &wanted).0.violations.iter().any(|found| is_loss(&found.what))
            });
            assert!(found, "{mistake} is not found");
        }
    }
}
