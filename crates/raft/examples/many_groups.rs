//! 1,000 raft groups in one log: each has a vote and entries of its own, all share the flushes.
//! Then the groups are opened again, and each is what it was.
//!
//! ```sh
//! cargo run --release -p inkstone-raft --example many_groups -- DIRECTORY
//! ```
//!
//! *Owns*: what a program with many groups does. *May not touch*: what is not public.

use std::env::args_os;
use std::sync::mpsc::channel;
use std::thread;

use inkstone_raft::{EntryId, Groups, Leader, NewEntry, Result, StreamsOptions, Vote};

const GROUPS: u64 = 1000;
const THREADS: u64 = 8;
const ENTRIES: u64 = 20;

/// What a node of one group does: it votes, appends, commits, and purges what a snapshot has.
fn live(groups: &Groups, id: u64) -> Result<()> {
    let raft = groups.group(id)?;
    let leader = Leader::of_term(1 + id % 3);
    raft.save_vote(&Vote::new(leader.clone()))?;
    let (told, durable) = channel();
    for index in 1..=ENTRIES {
        let payload = format!("entry {index} of group {id}");
        let entry = NewEntry { leader: &leader, index, payload: payload.as_bytes() };
        let told = told.clone();
        // None waits for the one before it: they share flushes, with those of other groups too.
        raft.append(&[entry], move |outcome| _ = told.send(outcome))?;
    }
    drop(told);
    durable.iter().collect::<Result<()>>()?;
    raft.save_committed(ENTRIES)?;
    raft.purge(&EntryId::new(leader, ENTRIES / 2))
    // The handle is dropped: a group that rests takes what its stream takes.
}

/// Whether a group has what `live` left.
fn is_whole(groups: &Groups, id: u64) -> Result<bool> {
    let raft = groups.group(id)?;
    let bounds = raft.bounds()?;
    let entries = raft.entries(bounds.first..bounds.next, usize::MAX)?;
    let last = format!("entry {ENTRIES} of group {id}");
    Ok(raft.vote()?.is_some_and(|vote| vote.leader.term == 1 + id % 3)
        && (bounds.first, bounds.next) == (ENTRIES / 2 + 1, ENTRIES + 1)
        && bounds.committed.is_some_and(|committed| committed.index == ENTRIES)
        && entries.last().is_some_and(|entry| *entry.payload == *last.as_bytes()))
}

fn main() -> Result<()> {
    let Some(directory) = args_os().nth(1) else {
        eprintln!("usage: many_groups DIRECTORY");
        std::process::exit(2);
    };
    let groups = Groups::open(&directory, StreamsOptions::new())?;
    thread::scope(|scope| {
        let groups = &groups;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let mine = (thread..GROUPS).step_by(THREADS as usize);
                    mine.into_iter().try_for_each(|id| live(groups, id))
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread panicked"))
    })?;
    let of_log = groups.group(0)?.stats();
    println!("{} records of {GROUPS} groups, in {} writes", of_log.records, of_log.groups);
    groups.close()?;

    let groups = Groups::open(&directory, StreamsOptions::new())?;
    assert_eq!(groups.ids()?.len() as u64, GROUPS);
    for id in 0..GROUPS {
        assert!(is_whole(&groups, id)?, "group {id}");
    }
    println!("{GROUPS} groups are what they were");
    groups.close()
}
