//! Moving to this store: from another one, and from the store for openraft 0.9.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use inkstone_openraft::{LogStore, Options, Postcard};
use inkstone_sim::{DiskOptions, SimDisk};
use openraft::entry::RaftEntry;
use openraft::storage::{RaftLogReader, RaftLogStorage, RaftLogStorageExt};
use openraft::testing::log_id;
use openraft::type_config::alias::{EntryOf, VoteOf};
use openraft::{BasicNode, EntryPayload, Membership};
use support::Types;

fn small() -> Options {
    Options::new().log(inkstone::Options::small())
}

#[tokio::test]
async fn everything_is_copied_from_another_store() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let mut other =
        LogStore::<Types, Postcard>::open_in(Arc::new(disk.directory("/log")), small()).unwrap();
    let text = |term: u64, index: u64| {
        EntryOf::<Types>::new(
            log_id::<Types>(term, 1, index),
            EntryPayload::Normal(format!("text {index}")),
        )
    };
    other.blocking_append((0..600).map(|index| text(1 + index / 250, index))).await.unwrap();
    other.save_vote(&VoteOf::<Types>::new(9, 4)).await.unwrap();
    other.save_committed(Some(log_id::<Types>(3, 1, 510))).await.unwrap();
    other.purge(log_id::<Types>(1, 1, 100)).await.unwrap();

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut store = LogStore::<Types>::open(&path, small()).unwrap();
    store.copy_from(&mut other).await.unwrap();
    let again = store.copy_from(&mut other).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{again}");
    store.close().unwrap();
    drop(store);

    let mut store = LogStore::<Types>::open(&path, small()).unwrap();
    assert_eq!(store.get_log_state().await.unwrap(), other.get_log_state().await.unwrap());
    assert_eq!(store.read_committed().await.unwrap(), Some(log_id::<Types>(3, 1, 510)));
    let (mut reader, mut others) = (store.get_log_reader().await, other.get_log_reader().await);
    assert_eq!(reader.read_vote().await.unwrap(), Some(VoteOf::<Types>::new(9, 4)));
    let entries = reader.try_get_log_entries(..).await.unwrap();
    assert_eq!(entries.len(), 499);
    assert_eq!(entries, others.try_get_log_entries(..).await.unwrap());
}

mod of_0_9 {
    use std::io::Cursor;

    use openraft_0_9::{CommittedLeaderId, Entry, LogId};

    openraft_0_9::declare_raft_types!(
        /// Text.
        pub(super) Types
    );

    pub(super) fn entry(
        term: u64,
        index: u64,
        payload: openraft_0_9::EntryPayload<Types>,
    ) -> Entry<Types> {
        Entry { log_id: LogId::new(CommittedLeaderId::new(term, 7), index), payload }
    }
}

/// Neither openraft's types nor its serialization are on disk: the next version opens what the one
/// before has written.
#[tokio::test]
async fn a_directory_of_the_store_for_openraft_0_9_is_opened_as_it_is() {
    use openraft_0_9::storage::{RaftLogStorage as _, RaftLogStorageExt as _};

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut old = inkstone_openraft_0_9::LogStore::<of_0_9::Types>::open(&path, small()).unwrap();
    let nodes = |address: &str| [1, 2, 9].map(|node| (node, format!("{address}{node}")));
    let members = openraft_0_9::Membership::new(
        vec![[1, 2].into()],
        nodes("node")
            .map(|(node, address)| (node, openraft_0_9::BasicNode { addr: address }))
            .into_iter()
            .collect::<BTreeMap<u64, _>>(),
    );
    let entries = [
        of_0_9::entry(1, 0, openraft_0_9::EntryPayload::Membership(members)),
        of_0_9::entry(2, 1, openraft_0_9::EntryPayload::Blank),
        of_0_9::entry(2, 2, openraft_0_9::EntryPayload::Normal("text".into())),
    ];
    old.blocking_append(entries).await.unwrap();
    old.save_vote(&openraft_0_9::Vote::new_committed(2, 7)).await.unwrap();
    old.close().unwrap();
    drop(old);

    let store = LogStore::<Types>::open(&path, small()).unwrap();
    let mut reader = store.reader();
    assert_eq!(reader.read_vote().await.unwrap(), Some(VoteOf::<Types>::new_committed(2, 7)));
    let members = Membership::new(
        vec![[1, 2].into()],
        nodes("node")
            .map(|(node, addr)| (node, BasicNode { addr }))
            .into_iter()
            .collect::<BTreeMap<u64, _>>(),
    );
    let expected = [
        EntryPayload::Membership(members.unwrap()),
        EntryPayload::Blank,
        EntryPayload::Normal("text".to_owned()),
    ];
    let expected = expected.into_iter().zip([(1, 0), (2, 1), (2, 2)]);
    let expected: Vec<_> = expected
        .map(|(payload, (term, index))| {
            EntryOf::<Types>::new(log_id::<Types>(term, 7, index), payload)
        })
        .collect();
    assert_eq!(reader.try_get_log_entries(..).await.unwrap(), expected);
}
