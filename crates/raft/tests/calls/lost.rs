//! A raft log of which records are lost: no node comes back with it.

use std::sync::Arc;

use inkstone::Directory;
use inkstone::inspect::{salvage_in, verify_in};
use inkstone::system::seam::{File, OpenFile};
use inkstone_raft::{
    Error, Groups, Leader, NewEntry, Options, RaftLog, StreamsOptions, Vote, inspect,
};
use inkstone_sim::{DiskOptions, SimDisk};

fn log() -> inkstone::Options {
    inkstone::Options::small().own_thread(false)
}

/// One of so many bits; of `INKSTONE_BIT_STEP` in .ci/long, which takes long.
#[test]
fn a_flipped_bit_costs_a_raft_log_its_node_or_nothing() {
    let options = || Options::new().log(log()).raft_group(7);
    let directory = Arc::new(SimDisk::new(1, DiskOptions::default()).directory("/raft"));
    let raft = RaftLog::open_in(Arc::clone(&directory), options()).unwrap();
    let (first, second) = (Leader::of_term(1), Leader::of_term(2));
    raft.save_vote(&Vote::granted(first.clone())).unwrap();
    let append = |leader: &Leader, indexes: std::ops::Range<u64>| {
        for index in indexes {
            let payload = vec![index as u8; index as usize * 37 % 400];
            raft.append(&[NewEntry { leader, index, payload: &payload }], |_| {}).unwrap();
            raft.sync().unwrap();
        }
    };
    append(&first, 1..200);
    raft.truncate_from(150).unwrap();
    raft.save_vote(&Vote::granted(second.clone())).unwrap();
    append(&second, 150..300);
    raft.save_committed(250).unwrap();
    let all = raft.entries(1..300, usize::MAX).unwrap();
    let vote = raft.vote().unwrap();
    raft.close().unwrap();
    drop(raft);
    let step = std::env::var("INKSTONE_BIT_STEP").map_or(20_011, |step| step.parse().unwrap());
    let (mut whole, mut refused) = (0, 0);
    for segment in &verify_in(Arc::clone(&directory)).unwrap().segments {
        let name = segment.path.file_name().unwrap().to_string_lossy();
        let file = directory.open(&name, &OpenFile::existing()).unwrap();
        for bit in (0..segment.end * 8).step_by(step) {
            let mut byte = [0];
            file.read_at(&mut byte, bit / 8).unwrap();
            file.write_at(&[byte[0] ^ 1 << (bit % 8)], bit / 8).unwrap();
            let saved = Arc::new(SimDisk::new(2, DiskOptions::default()).directory("/saved"));
            salvage_in(Arc::clone(&directory), || Ok(Arc::clone(&saved)), &log()).unwrap();
            file.write_at(&byte, bit / 8).unwrap();
            let what = format!("{name}, bit {bit}");
            let has_gap = verify_in(Arc::clone(&saved)).unwrap().gaps().count() > 0;
            let groups =
                Groups::open_in(Arc::clone(&saved), StreamsOptions::new().log(log())).map(drop);
            assert_eq!(matches!(groups, Err(Error::Lost { .. })), has_gap, "{what}: {groups:?}");
            match RaftLog::open_in(Arc::clone(&saved), options()) {
                Ok(raft) if !has_gap => {
                    assert!(raft.entries(1..300, usize::MAX).unwrap() == all, "{what}");
                    assert_eq!(raft.vote().unwrap(), vote, "{what}");
                    whole += 1;
                }
                Err(error @ Error::Lost { .. }) if has_gap => {
                    let said = error.to_string();
                    assert!(said.ends_with("join the cluster with an empty directory"), "{said}");
                    refused += 1;
                }
                other => panic!("{what}: {other:?}"),
            }
            // Looked at, it is shown or refused, and never taken for whole.
            let looked = inspect::inspect_in(saved);
            assert!(looked.is_ok() || has_gap, "{what}: {looked:?}");
        }
    }
    assert!(whole > 0 && refused > 20, "{whole} whole, {refused} refused");
}
