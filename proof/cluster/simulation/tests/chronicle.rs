//! The chronicle puts the log together from what leaders sent, and notices what cannot be one log.

use bytes::Bytes;
use openraft::entry::RaftEntry;
use openraft::raft::AppendEntriesRequest;
use openraft::type_config::alias::EntryOf;
use openraft::vote::leader_id_adv::LeaderId;
use openraft::{EntryPayload, Membership};
use replicated_log::types::{LogId, Request, TypeConfig, Vote};
use replicated_log_simulation::chronicle::{Chronicle, Members, changes, differs, memberships};

fn at(term: u64, index: u64) -> LogId {
    LogId::new(LeaderId { term, node_id: 1 }, index)
}

fn put(id: LogId, value: &'static str) -> EntryOf<TypeConfig> {
    let request = Request::Put { key: "r".into(), value: Bytes::from_static(value.as_bytes()) };
    RaftEntry::new(id, EntryPayload::Normal(request))
}

fn append(id: LogId) -> EntryOf<TypeConfig> {
    let request = Request::Append { key: "k".into(), value: Bytes::from_static(b"piece") };
    RaftEntry::new(id, EntryPayload::Normal(request))
}

fn members(id: LogId, ids: &[u64]) -> EntryOf<TypeConfig> {
    let ids: std::collections::BTreeSet<u64> = ids.iter().copied().collect();
    RaftEntry::new(id, EntryPayload::Membership(Membership::new_with_defaults(vec![ids], [])))
}

fn sent(
    prev: Option<LogId>,
    entries: Vec<EntryOf<TypeConfig>>,
) -> AppendEntriesRequest<TypeConfig> {
    AppendEntriesRequest {
        vote: Vote::new_committed(1, 1),
        prev_log_id: prev,
        entries,
        leader_commit: None,
    }
}

/// Two leaders: what the first one sent at index 2 was replaced by the second.
fn two_leaders() -> Chronicle {
    let mut chronicle = Chronicle::default();
    let first = vec![members(at(1, 0), &[1, 2, 3]), put(at(1, 1), "a"), put(at(1, 2), "lost")];
    assert_eq!(chronicle.note(&sent(None, first), 5), None);
    let second = vec![append(at(2, 2)), members(at(2, 3), &[1, 2]), put(at(2, 4), "b")];
    assert_eq!(chronicle.note(&sent(Some(at(1, 1)), second), 9), None);
    assert_eq!(chronicle.note(&sent(Some(at(1, 1)), vec![append(at(2, 2))]), 11), None, "again");
    chronicle
}

#[test]
fn the_log_is_what_leads_to_its_last_entry() {
    let entries = two_leaders().up_to(at(2, 4)).unwrap();
    assert_eq!(entries.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let EntryPayload::Normal(a) = put(at(1, 1), "a").payload else { panic!("a put") };
    let found = changes(&entries);
    assert_eq!((found.keys().copied().collect::<Vec<_>>(), &found[&1]), (vec![1, 2, 4], &a));
    let of = |ids: &[u64]| Members {
        voters: vec![ids.iter().copied().collect()],
        all: ids.iter().copied().collect(),
    };
    assert_eq!(memberships(&entries), [(5, of(&[1, 2, 3])), (9, of(&[1, 2]))]);
    let other = two_leaders().up_to(at(1, 2)).unwrap();
    assert_eq!(changes(&other).len(), 2, "the log of the first leader has its own puts");
}

#[test]
fn an_entry_that_nobody_sent_is_noticed() {
    let mut chronicle = two_leaders();
    assert!(chronicle.up_to(at(2, 5)).is_err_and(|why| why.contains("no leader ever sent it")));
    assert_eq!(chronicle.note(&sent(Some(at(2, 5)), vec![put(at(2, 6), "c")]), 12), None);
    assert!(chronicle.up_to(at(2, 6)).is_err_and(|why| why.contains("T2-N1.5")), "a gap");
}

#[test]
fn one_id_has_one_entry_in_one_place() {
    let mut chronicle = two_leaders();
    let other = chronicle.note(&sent(Some(at(1, 1)), vec![put(at(2, 2), "x")]), 12);
    assert!(other.is_some_and(|why| why.contains("in two forms")));
    let elsewhere = chronicle.note(&sent(Some(at(2, 1)), vec![append(at(2, 2))]), 13);
    assert!(elsewhere.is_some_and(|why| why.contains("in two forms")));
}

#[test]
fn what_a_node_applied_is_the_log_s_entry() {
    let entries = two_leaders().up_to(at(2, 4)).unwrap();
    assert_eq!(differs(&entries, 3, at(2, 2)), None);
    assert!(
        differs(&entries, 3, at(1, 2)).is_some_and(|why| why.starts_with("node 3 has applied"))
    );
    // Entries that it applied are gone.
    assert!(differs(&entries, 3, at(2, 9)).is_some_and(|why| why.contains("and the log ends at")));
}
