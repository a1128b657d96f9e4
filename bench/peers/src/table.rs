//! The result as a table for people.
//!
//! *Owns*: columns and words. *May not touch*: what the figures are.

use std::fmt::Write as _;

use inkstone_lab::result::Relative;
use inkstone_lab::stats::median;

use crate::load::plan::FLOOR;
use crate::result::{Arm, LoadResult, RunResult, Unit};

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
    let mut rows = match load.unit {
        Unit::RecordsPerS => vec![HEADS.map(str::to_owned).to_vec()],
        unit => vec![figure_heads(unit)],
    };
    rows.extend(load.arms.iter().filter(|arm| arm.counts()).map(|arm| match load.unit {
        Unit::RecordsPerS => row(load, arm, seed),
        unit => figure_row(load, arm, unit, seed),
    }));
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

/// The ratio of an arm to another one.
fn beside(load: &LoadResult, arm: &Arm, name: &str, seed: u64) -> String {
    let other = load.arm(name).filter(|other| other.name != arm.name);
    other.and_then(|other| arm.speed_over(other, seed)).map_or_else(|| "-".into(), ratio)
}

fn figure_heads(unit: Unit) -> Vec<String> {
    let median = if unit == Unit::Mib { "MiB" } else { "ms" };
    ["", median, "least..most", "inkstone has 1 of", "checked"].map(str::to_owned).to_vec()
}

/// Where each round has one figure, and less is better.
fn figure_row(load: &LoadResult, arm: &Arm, unit: Unit, seed: u64) -> Vec<String> {
    let shown = |value: f64| match unit {
        Unit::Mib => format!("{:.1}", value / f64::from(1 << 20)),
        _ => format!("{:.1}", value / 1e6),
    };
    let figures: Vec<f64> = arm.figures().into_iter().map(|value| value as f64).collect();
    let range = figures.first().zip(figures.last());
    let own = load.arm("inkstone").filter(|own| own.name != arm.name);
    vec![
        arm.name.clone(),
        median(&figures).map(shown).unwrap_or_default(),
        range.map_or_else(String::new, |(least, most)| {
            format!("{}..{}", shown(*least), shown(*most))
        }),
        own.and_then(|own| own.speed_over(arm, seed)).map_or_else(|| "-".into(), ratio),
        arm.checked_records.map_or_else(|| "-".into(), |count| count.to_string()),
    ]
}

fn row(load: &LoadResult, arm: &Arm, seed: u64) -> Vec<String> {
    let per_s = arm.per_s().unwrap_or(0.0);
    let own = if load.arm("inkstone-raft").is_some() { "inkstone-raft" } else { "inkstone" };
    let device = arm.device.unwrap_or_default();
    let counted = |value: u64, digits: usize| match arm.device {
        Some(_) => format!("{:.digits$}", arm.per_commit(value)),
        None => "-".into(),
    };
    vec![
        arm.name.clone(),
        format!("{per_s:.0}"),
        format!("{:.1}", per_s * load.record_bytes as f64 / 1e6),
        beside(load, arm, FLOOR, seed),
        beside(load, arm, own, seed),
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

/// A ratio with its interval.
pub fn ratio(found: Relative) -> String {
    match found.interval() {
        Some((low, high)) => format!("{:.2} [{low:.2}..{high:.2}]", found.speedup),
        None => found.words(),
    }
}

/// The first column to the left, the others to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let mut widths = vec![0; rows.first().map_or(0, Vec::len)];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut out = String::new();
    for row in rows {
        let _ = write!(out, "  {:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(out, "  {cell:>width$}");
        }
        out.push('\n');
    }
    out
}
