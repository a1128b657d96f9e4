//! The result as a table for people.
//!
//! *Owns*: columns and words. *May not touch*: what the figures are.

use std::fmt::Write as _;

use inkstone_lab::result::Relative;

use crate::load::plan::FLOOR;
use crate::result::{Arm, LoadResult, RunResult};

const HEADS: [&str; 11] = [
    "",
    "records/s",
    "MB/s",
    "x bare",
    "x inkstone",
    "bytes",
    "writes",
    "flushes",
    "CPU us",
    "p50/p99 us",
    "checked",
];

/// The head: where and how.
pub fn head(result: &RunResult) -> String {
    let mut out = String::new();
    for line in &result.machine {
        let _ = writeln!(out, "{line}");
    }
    for line in &result.left_out {
        let _ = writeln!(out, "!! LEFT OUT: {line}");
    }
    out
}

/// One load: its arms, then what is to be known of each.
pub fn load(load: &LoadResult, seed: u64) -> String {
    let mut rows = vec![HEADS.map(str::to_owned)];
    rows.extend(load.arms.iter().filter(|arm| arm.counts()).map(|arm| row(load, arm, seed)));
    let mut out = format!("\n{}: {}\n", load.name, load.title);
    if rows.len() > 1 {
        out.push_str(&aligned(&rows));
    }
    for arm in load.arms.iter().filter(|arm| !arm.counts()) {
        let why = arm.failed.as_deref().unwrap_or("nothing was measured");
        let _ = writeln!(out, "  !! {} DOES NOT COUNT: {why}", arm.name);
    }
    for arm in load.arms.iter().filter(|arm| arm.counts() && !arm.how.is_empty()) {
        let notes = arm.notes.as_ref().map(|notes| format!("; {notes}")).unwrap_or_default();
        let _ = writeln!(out, "  {}: {}{notes}", arm.name, arm.how);
    }
    for note in &load.notes {
        let _ = writeln!(out, "  {note}");
    }
    out
}

fn row(load: &LoadResult, arm: &Arm, seed: u64) -> [String; 11] {
    let per_s = arm.per_s().unwrap_or(0.0);
    let beside = |name: &str| {
        let other = load.arm(name).filter(|other| other.name != arm.name);
        other.and_then(|other| arm.speed_over(other, seed)).map_or_else(|| "-".into(), ratio)
    };
    let device = arm.device.unwrap_or_default();
    let counted = |value: u64, digits: usize| match arm.device {
        Some(_) => format!("{:.digits$}", arm.per_commit(value)),
        None => "-".into(),
    };
    [
        arm.name.clone(),
        format!("{per_s:.0}"),
        format!("{:.1}", per_s * load.record_bytes as f64 / 1e6),
        beside(FLOOR),
        beside(if load.arm("inkstone-raft").is_some() { "inkstone-raft" } else { "inkstone" }),
        counted(device.write_bytes + device.read_bytes, 0),
        counted(device.writes.saturating_sub(device.flushes), 3),
        counted(device.flushes, 3),
        format!("{:.3}", arm.cpu_ns_per_commit() / 1000.0),
        match arm.p50_ns.zip(arm.p99_ns) {
            Some((p50, p99)) => format!("{:.0}/{:.0}", p50 as f64 / 1000.0, p99 as f64 / 1000.0),
            None => "-".into(),
        },
        arm.checked_records.map_or_else(|| "-".into(), |count| count.to_string()),
    ]
}

fn ratio(found: Relative) -> String {
    match found.interval() {
        Some((low, high)) => format!("{:.2} [{low:.2}..{high:.2}]", found.speedup),
        None => found.words(),
    }
}

/// The first column to the left, the others to the right.
fn aligned(rows: &[[String; 11]]) -> String {
    let mut widths = [0; 11];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut out = String::new();
    for row in rows {
        let _ = write!(out, "  {:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            let _ = write!(out, "  {cell:>width$}");
        }
        out.push('\n');
    }
    out
}
