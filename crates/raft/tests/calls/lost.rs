//! A raft log of which records are lost: no node comes back with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use inkstone::inspect::{salvage_in, verify_in};
use inkstone::system::seam::{File, OpenFile};
use inkstone::{Directory, Lsn, Reader};
use inkstone_raft::{
    Bounds, Entry, Error, Groups, Leader, NewEntry, Options, RaftLog, StreamsOptions, Vote, inspect,
};
use inkstone_sim::{DiskOptions, SimDirectory, SimDisk};

fn log() -> inkstone::Options {
    inkstone::Options::small().own_thread(false)
}

/// Flips one of so many bits (of `INKSTONE_BIT_STEP` in .ci/long, which takes long), salvages the
/// log, and shows what was salvaged, and whether it has a gap.
fn flips(
    directory: &Arc<SimDirectory>,
    step: usize,
    mut check: impl FnMut(&str, &Arc<SimDirectory>, bool),
) {
    let step = std::env::var("INKSTONE_BIT_STEP").map_or(step, |step| step.parse().unwrap());
    let (all, mut count, mut with_gap) = (records(directory), 0, 0);
    for segment in &verify_in(Arc::clone(directory)).unwrap().segments {
        let name = segment.path.file_name().unwrap().to_string_lossy();
        let file = directory.open(&name, &OpenFile::existing()).unwrap();
        for bit in (0..segment.end * 8).step_by(step) {
            let mut byte = [0];
            file.read_at(&mut byte, bit / 8).unwrap();
            file.write_at(&[byte[0] ^ 1 << (bit % 8)], bit / 8).unwrap();
            let saved = Arc::new(SimDisk::new(2, DiskOptions::default()).directory("/saved"));
            salvage_in(Arc::clone(directory), || Ok(Arc::clone(&saved)), &log()).unwrap();
            file.write_at(&byte, bit / 8).unwrap();
            let what = format!("{name}, bit {bit}");
            let gaps: Vec<_> = verify_in(Arc::clone(&saved)).unwrap().gaps().collect();
            let is_lost = |lsn: Lsn| gaps.iter().any(|gap| (gap.first..=gap.last).contains(&lsn));
            let mut left = all.clone();
            left.retain(|lsn, _| !is_lost(*lsn));
            assert!(records(&saved) == left, "{what}: {gaps:?}");
            assert!(gaps.len() <= 1, "{what}: {gaps:?}");
            check(&what, &saved, !gaps.is_empty());
            (count, with_gap) = (count + 1, with_gap + usize::from(!gaps.is_empty()));
        }
    }
    let path = directory.path().display();
    println!("{count} bits flipped in {path}: {with_gap} cost records");
}

/// The records of the log below, with its own of groups and of tables.
fn records(directory: &Arc<SimDirectory>) -> BTreeMap<Lsn, Vec<u8>> {
    let reader = Reader::open_in(Arc::clone(directory), inkstone::Options::new()).unwrap();
    let all = (reader.first().get()..=reader.durable().get()).map(Lsn::new);
    let found = all.map(|lsn| (lsn, reader.get(lsn)));
    let found = found.filter(|(_, record)| !matches!(record, Err(inkstone::Error::Lost { .. })));
    found.map(|(lsn, record)| (lsn, record.unwrap())).collect()
}

fn append(raft: &RaftLog, leader: &Leader, indexes: std::ops::Range<u64>) {
    for index in indexes {
        let payload = vec![index as u8; index as usize * 37 % 400];
        raft.append(&[NewEntry { leader, index, payload: &payload }], |_| {}).unwrap();
        raft.sync().unwrap();
    }
}

/// Groups that were cut, purged, removed and moved, in one log.
#[test]
fn a_flipped_bit_costs_all_groups_of_a_log_their_node_or_nothing() {
    let options = || {
        let options = StreamsOptions::new().log(log()).section_bytes(16 << 10);
        options.own_mover(false).size_multiple(2)
    };
    let directory = Arc::new(SimDisk::new(1, DiskOptions::default()).directory("/groups"));
    let groups = Groups::open_in(Arc::clone(&directory), options()).unwrap();
    let rafts: Vec<_> = (0..8).map(|id| groups.group(id).unwrap()).collect();
    let leader = |id: usize| Leader::of_term(id as u64 + 1);
    for (id, raft) in rafts.iter().enumerate() {
        raft.save_vote(&Vote::granted(leader(id))).unwrap();
    }
    for from in (1..90).step_by(10) {
        for (id, raft) in rafts.iter().enumerate() {
            append(raft, &leader(id), from..from + 10);
            raft.save_committed(from + 5).unwrap();
        }
        while groups.move_some().unwrap() {}
    }
    rafts[1].truncate_from(87).unwrap();
    append(&rafts[1], &leader(9), 87..95);
    let purged = rafts[2].entry(50).unwrap().unwrap().id;
    rafts[2].purge(&purged).unwrap();
    groups.remove(3).unwrap();
    groups.close().unwrap();
    let state = |directory: &Arc<SimDirectory>| -> Result<Vec<Group>, Error> {
        let groups = Groups::open_in(Arc::clone(directory), options())?;
        let ids = groups.ids()?.into_iter();
        let found = ids.map(|id| {
            let raft = groups.group(id)?;
            let bounds = raft.bounds()?;
            let entries = raft.entries(bounds.first..bounds.next, usize::MAX)?;
            Ok((id, bounds, raft.vote()?, entries))
        });
        found.collect()
    };
    let before = state(&directory).unwrap();
    assert_eq!(before.len(), 7);
    let (mut whole, mut refused) = (0, 0);
    flips(&directory, 30_011, |what, saved, has_gap| {
        match state(saved) {
            Ok(after) if !has_gap => {
                assert!(after == before, "{what}");
                whole += 1;
            }
            Err(Error::Lost { .. }) if has_gap => {
                let alone = RaftLog::open_in(Arc::clone(saved), Options::new().log(log()));
                let said = alone.unwrap_err().to_string();
                assert!(said.ends_with("join the cluster with an empty directory"), "{said}");
                refused += 1;
            }
            other => panic!("{what}: {other:?}"),
        }
        // Looked at, it is shown or refused, and never taken for whole.
        let looked = inspect::inspect_in(Arc::clone(saved));
        assert!(looked.is_ok() || has_gap, "{what}: {looked:?}");
    });
    assert!(whole > 0 && refused > 10, "{whole} whole, {refused} refused");
}

/// A group: its id, its bounds, its vote, its entries.
type Group = (u64, Bounds, Option<Vote>, Vec<Entry>);
