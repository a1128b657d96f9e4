//! Runs rows at sizes that take a moment, and checks what holds for every experiment. *Owns*:
//! nothing that ships.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::progress::Progress;
use crate::site::OpenSite;
use crate::stage::CellError;

use super::ExperimentResult;
use super::rounds::{Pace, Rows, Scene};

pub(super) const ROUNDS: u32 = 5;

/// Reports that something did not run, bypassing the test harness, which hides the output of
/// passing tests.
pub(super) fn not_run(what: &str, why: &str) {
    let text = format!("\nNOT RUN: {what}: {why}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}

/// Beside the test's own program: /tmp may be a tmpfs, which has no cold pages.
pub(super) fn directory() -> tempfile::TempDir {
    let program = std::env::current_exe().expect("a program");
    tempfile::tempdir_in(program.parent().expect("a directory")).expect("a directory")
}

pub(super) fn run(
    rows: &Rows,
    budget: Option<Duration>,
) -> Result<Vec<ExperimentResult>, CellError> {
    let directory = directory();
    let open = OpenSite::open(directory.path(), "here", rows.room_bytes).expect("a site");
    let stop = AtomicBool::new(false);
    let session = open.site.session(&stop);
    let mut progress = Progress::silent();
    let pace = Pace { rounds: ROUNDS, budget, seed: 7 };
    let mut scene = Scene { site: &open.site, session: &session, pace, progress: &mut progress };
    let found = rows.measure(&mut scene);
    open.close().expect("closed");
    let left = std::fs::read_dir(directory.path()).expect("the directory").count();
    assert_eq!(left, 0, "something was left behind");
    found
}

/// Every row has all of its rounds, a comparison and a name of its own. A row may be invalid if
/// this machine lacks something, but then it says why.
pub(super) fn check(rows: &Rows, names: &[&str]) -> Vec<ExperimentResult> {
    // Without a limit of time: fewer rounds are no error, but here they are counted.
    let all = run(rows, None).expect("a result");
    let found: Vec<&str> = all.iter().map(|experiment| experiment.name.as_str()).collect();
    assert_eq!(found, names);
    for experiment in &all {
        let name = &experiment.name;
        assert!(rows.gives(name) && !experiment.title.is_empty(), "{name}");
        let mut seen: Vec<&str> = experiment.rows.iter().map(|row| row.name.as_str()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), experiment.rows.len(), "{name}: each row has its own name");
        for row in &experiment.rows {
            if let Some(reason) = &row.invalid {
                assert!(!reason.is_empty() && row.samples.is_empty(), "{name}: {}", row.name);
                not_run(&format!("{name}, {}", row.name), reason);
                continue;
            }
            let is_whole = row.samples.len() >= ROUNDS as usize;
            let is_sound = row.samples.iter().all(|value| value.is_finite() && *value > 0.0);
            assert!(is_whole && is_sound, "{name}: {}: {:?}", row.name, row.samples);
            let is_base = experiment.baseline.as_deref() == Some(&row.name);
            assert_eq!(row.relative.is_none(), is_base, "{name}: {}", row.name);
        }
        let reason = experiment.rows.first().and_then(|row| row.invalid.as_ref());
        assert!(experiment.rows.iter().any(|row| row.invalid.is_none()), "{name}: {reason:?}");
    }
    let json = serde_json::to_string(&all).expect("JSON");
    let again: Vec<ExperimentResult> = serde_json::from_str(&json).expect("read back");
    assert_eq!(serde_json::to_string(&again).expect("JSON"), json);
    all
}

/// A figure of a row.
pub(super) fn figure_of(row: &super::ExperimentRow, name: &str) -> Option<f64> {
    super::words::figure_of(row, name)
}
