//! How long a raft log of many entries takes to open.
//!
//!     cargo run --release -p inkstone-raft --example reopen -- 1000000 128 DIR

use std::path::PathBuf;
use std::time::Instant;

use inkstone_raft::{Leader, NewEntry, Options, RaftLog};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, count, bytes, path] = &arguments[..] else {
        return Err("usage: reopen ENTRIES BYTES DIR (DIR must not be there yet)".into());
    };
    let (count, bytes, path): (u64, usize, PathBuf) = (count.parse()?, bytes.parse()?, path.into());
    if path.exists() {
        return Err(format!("{} is there already", path.display()).into());
    }
    let raft = RaftLog::open(&path, Options::new())?;
    let payload = vec![7; bytes];
    let mut index = 1;
    while index <= count {
        let leader = Leader::of_term(index / 10_000);
        let end = (index + 100).min(count + 1);
        let entries: Vec<_> = (index..end)
            .map(|index| NewEntry { leader: &leader, index, payload: &payload })
            .collect();
        raft.append(&entries, |_| {})?;
        index = end;
    }
    raft.close()?;
    drop(raft);
    for _ in 0..5 {
        let begun = Instant::now();
        let raft = RaftLog::open(&path, Options::new())?;
        let took = begun.elapsed();
        println!("opened in {took:?}, next index {}", raft.bounds()?.next);
        raft.close()?;
    }
    Ok(())
}
