//! How much memory a raft log of many small entries behind a snapshot takes.
//!
//!     cargo run --release -p inkstone-raft --example memory -- 10000000 DIR

use std::alloc::System;
use std::path::PathBuf;

use inkstone_raft::{EntryId, Leader, NewEntry, Options, RaftLog};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn bytes_in_use() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, count, path] = &arguments[..] else {
        return Err("usage: memory ENTRIES DIR (DIR must not be there yet)".into());
    };
    let (count, path): (u64, PathBuf) = (count.parse()?, path.into());
    if path.exists() {
        return Err(format!("{} is there already", path.display()).into());
    }
    let snapshot = 1_000_000;
    let raft = RaftLog::open(&path, Options::new())?;
    raft.purge_to_snapshot(&EntryId::new(Leader::of_term(1), snapshot))?;
    let mut most = 0;
    let mut index = snapshot + 1;
    while index <= snapshot + count {
        let leader = Leader::of_term(2 + index / 1_000_000);
        let end = (index + 100).min(snapshot + count + 1);
        let entries: Vec<_> = (index..end)
            .map(|index| NewEntry { leader: &leader, index, payload: &[7; 16] })
            .collect();
        raft.append(&entries, |_| {})?;
        most = most.max(bytes_in_use());
        index = end;
    }
    raft.close()?;
    drop(raft);
    let raft = RaftLog::open(&path, Options::new())?;
    println!("next index {}: at the most {most} bytes while appending", raft.bounds()?.next);
    println!("{} bytes after opening again", bytes_in_use());
    raft.close()?;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!(
        "{}",
        status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("no peak is known here")
    );
    Ok(())
}
