//! Prints the answer of `inkstone lab DIR1 DIR2 ...`.
//!
//! *Owns*: the answer and the table of directories. *May not touch*: the tables of each run
//! (`inkstone_lab::table`).

use inkstone_lab::disks::{Disk, DisksResult};

use crate::columns::table;

/// The answer first, then the directories, best first.
pub(crate) fn text(found: &DisksResult) -> String {
    let rows: Vec<_> = found.disks.iter().map(row).collect();
    let heading =
        ["directory", "device", "us per commit", "best way", "against the best (95%)", ""];
    format!("{}\n\n{}\n", found.sentence, table(&heading, &rows))
}

fn row(disk: &Disk) -> Vec<String> {
    let against = disk.relative.map_or_else(String::new, |found| found.words());
    let none = || "-".to_owned();
    vec![
        disk.directory.clone(),
        disk.device.clone().unwrap_or_else(none),
        disk.per_commit_ns.map_or_else(none, |ns| format!("{:.0}", ns / 1000.0)),
        disk.best.clone().unwrap_or_else(none),
        against,
        if disk.refused.is_some() { "NOT for a log".into() } else { String::new() },
    ]
}
