//! A raft log of which records are lost: no node comes back with it. What a salvage saves is in
//! the log's tests (`gaps.rs`), that streams with a gap take no writer in those of the streams
//! (`lost.rs`).

use std::sync::Arc;

use inkstone::Directory;
use inkstone::inspect::{salvage_in, verify_in};
use inkstone::system::seam::{File, OpenFile};
use inkstone_raft::inspect::inspect_in;
use inkstone_raft::{Error, Groups, Options, RaftLog, StreamsOptions};
use inkstone_sim::{DiskOptions, SimDirectory, SimDisk};

use crate::entries::append;

fn new(name: &str) -> Arc<SimDirectory> {
    Arc::new(SimDisk::new(1, DiskOptions::default()).directory(name))
}

#[test]
fn a_salvaged_log_without_some_records_is_refused_whoever_opens_it() {
    let log = inkstone::Options::small().own_thread(false);
    let (directory, saved) = (new("/raft"), new("/saved"));
    let options = || Options::new().log(log.clone());
    let raft = RaftLog::open_in(Arc::clone(&directory), options()).unwrap();
    (1..=90).for_each(|index| append(&raft, 1, index..=index).unwrap());
    raft.close().unwrap();
    let segment = &verify_in(Arc::clone(&directory)).unwrap().segments[0];
    let name = segment.path.file_name().unwrap().to_string_lossy();
    let file = directory.open(&name, &OpenFile::existing()).unwrap();
    file.write_at(&[0xa5; 8], segment.end / 2).unwrap();
    salvage_in(Arc::clone(&directory), || Ok(Arc::clone(&saved)), &log).unwrap();
    let all = StreamsOptions::new().log(log.clone());
    for refused in [
        RaftLog::open_in(Arc::clone(&saved), options()).map(drop),
        Groups::open_in(Arc::clone(&saved), all).map(drop),
        inspect_in(Arc::clone(&saved)).map(drop),
    ] {
        let refused = refused.unwrap_err();
        let said = refused.to_string();
        assert!(matches!(refused, Error::Lost { .. }), "{said}");
        assert!(said.ends_with("join the cluster with an empty directory"), "{said}");
    }
}
