//! Runs trials at sizes that take a moment, and checks what holds for every experiment. *Owns*:
//! nothing that ships.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(super) use inkstone_host::not_run;

use crate::progress::Progress;
use crate::result::Table;
use crate::rounds::{Pace, Scene, Trial};
use crate::site::Site;
use crate::stage::WayError;

pub(super) const ROUNDS: u32 = 5;

/// Beside the test's own program: /tmp may be a tmpfs, which has no cold pages.
pub(super) fn directory() -> tempfile::TempDir {
    let program = std::env::current_exe().expect("a program");
    tempfile::tempdir_in(program.parent().expect("a directory")).expect("a directory")
}

pub(super) fn run(trial: &Trial, budget: Option<Duration>) -> Result<Table, WayError> {
    let directory = directory();
    let site = Site::open(directory.path(), "here", trial.room_bytes).expect("a site");
    let stop = AtomicBool::new(false);
    let session = site.session(&stop);
    let mut progress = Progress::silent();
    let pace = Pace { rounds: ROUNDS, budget };
    let scene = Scene { site: &site, session: &session };
    let found = trial.measure(&scene, &pace, &mut progress);
    site.close().expect("closed");
    let left = std::fs::read_dir(directory.path()).expect("the directory").count();
    assert_eq!(left, 0, "something was left behind");
    found
}

/// Every way has all of its rounds, a comparison and a name of its own. A way may be missing if
/// this machine lacks something, but then it says why.
pub(super) fn check(trial: &Trial) -> Table {
    // Without a limit of time: fewer rounds are no error, but here they are counted.
    let table = run(trial, None).expect("a result");
    let name = &table.name;
    assert!(name == trial.name && !table.title.is_empty(), "{name}");
    let mut seen: Vec<&str> = table.ways.iter().map(|way| way.name.as_str()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), table.ways.len(), "{name}: each way has its own name");
    for way in table.ways.iter().filter(|way| way.facts.is_empty()) {
        if let Some(reason) = &way.missing {
            assert!(!reason.is_empty() && way.rounds.is_empty(), "{name}: {}", way.name);
            not_run(&format!("{name}, {}", way.name), reason);
            continue;
        }
        let is_whole = way.rounds.len() >= ROUNDS as usize;
        let is_sound = way.rounds.iter().all(|round| round.value(table.unit) > 0.0);
        assert!(is_whole && is_sound, "{name}: {}: {:?}", way.name, way.rounds);
        let is_base = table.baseline.as_deref() == Some(&way.name);
        assert_eq!(way.relative.is_none(), is_base, "{name}: {}", way.name);
    }
    let reason = table.ways.first().and_then(|way| way.missing.as_ref());
    assert!(table.has_content(), "{name}: {reason:?}");
    let json = serde_json::to_string(&table).expect("JSON");
    let again: Table = serde_json::from_str(&json).expect("read back");
    assert_eq!(serde_json::to_string(&again).expect("JSON"), json);
    table
}
