//! Many segment changes in one run, at the rate of 4 KiB commits: is a file always ready, does
//! memory stay flat?
//!
//! ```text
//! cargo run --release -p inkstone --example segment_changes -- [DIR] [CHANGES] [SEGMENT_KIB]
//! ```
//!
//! Exits with 1 when a change found no file ready. The log is removed at the end.

use std::path::PathBuf;
use std::process::ExitCode;

use inkstone::{Log, Lsn, Options, Result};

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let parent = PathBuf::from(arguments.next().unwrap_or_else(|| ".".into()));
    let mut number =
        |default| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (changes, segment_kib) = (number(10_000_u64), number(256));
    let path = parent.join(format!(".inkstone-changes-{}", std::process::id()));
    let options = Options::default().segment_bytes(segment_kib << 10).record_bytes_max(32 << 10);
    let log = Log::open(&path, options)?;
    let record = [7; 4096];
    let mut memory = Vec::new();
    while log.stats().segments < changes {
        let begun = log.stats().segments;
        while log.stats().segments == begun {
            log.append_durable(&record)?;
        }
        // Records older than a few segments are truncated, so that blocks are used again.
        let keep = 4 * (segment_kib << 10) / 4096;
        log.truncate_before(Lsn::new(log.last().get().saturating_sub(keep).max(1)))?;
        if log.stats().segments.is_multiple_of(changes.div_ceil(10)) {
            memory.push(resident_kib());
        }
    }
    let stats = log.stats();
    println!(
        "{} changes, {} records: {} recycled, {} prepared, {} fallocated; no file ready {} times",
        stats.segments,
        stats.records,
        stats.segments_recycled,
        stats.segments_prepared,
        stats.segments_fallocated,
        stats.pool_empty
    );
    println!("change: {:?}; commit: {:?}", stats.change, stats.commit);
    println!("resident memory, KiB, ten times: {memory:?}");
    log.close()?;
    let _ = std::fs::remove_dir_all(&path);
    Ok(if stats.pool_empty == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
