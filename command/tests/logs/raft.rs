//! `inkstone raft`.

use crate::support::{directory, good, good_json, text};
use inkstone_raft::{EntryId, Leader, NewEntry, Options, RaftLog, Vote};
use serde_json::{Value, json};

#[test]
fn a_raft_log_is_shown_beside_its_writer_and_after_it() {
    let directory = directory();
    let at = directory.path();
    let raft = RaftLog::open(at.join("node"), Options::new().raft_group(9)).expect("opened");
    let (first, second) = (Leader::of_term(1), Leader::new(4, *b"n2"));
    raft.save_vote(&Vote::granted(first.clone())).expect("saved");
    let append = |leader: &Leader, index| {
        raft.append(&[NewEntry { leader, index, payload: &[b'x'; 100] }], |_| {})
            .expect("appended");
    };
    (1..=30).for_each(|index| append(&first, index));
    raft.truncate_from(26).expect("truncated");
    raft.save_vote(&Vote::new(second.clone())).expect("saved");
    (26..=40).for_each(|index| append(&second, index));
    raft.save_committed(20).expect("saved");
    raft.purge(&EntryId::new(first.clone(), 10)).expect("purged");
    let beside = shown(at);
    assert!(!beside["writer"].is_null());
    raft.close().expect("closed");
    drop(raft);
    let after = shown(at);
    assert!(after["writer"].is_null());
    assert_eq!(after["groups"], beside["groups"]);
    let after = &after["groups"][0];
    let leader = |term: u64, node: &str| json!({ "term": term, "node": node });
    let with = |mut json: Value, name: &str, value: Value| {
        json[name] = value;
        json
    };
    assert_eq!(after["raft_group"], 9);
    assert_eq!(after["vote"], with(leader(4, "6e32"), "granted", json!(false)));
    assert_eq!((&after["first"], &after["next"]), (&json!(11), &json!(41)));
    assert_eq!(after["last"], with(leader(4, "6e32"), "index", json!(40)));
    assert_eq!(after["committed"], with(leader(1, ""), "index", json!(20)));
    assert_eq!(after["purged"], with(leader(1, ""), "index", json!(10)));
    let leaders =
        [with(leader(1, ""), "from", json!(11)), with(leader(4, "6e32"), "from", json!(26))];
    assert_eq!(after["leaders"], json!(leaders));
    assert_eq!(after["payload_bytes"], 3000);

    let words = text(&good(at, "raft node", b""));
    for line in [
        "  raft group  9\n",
        "  vote        a vote for term 4 of node n2\n",
        "  entries     30 entries, 11 to 40, with ",
        "  last        entry 40 of term 4 of node n2\n",
        "  committed   entry 20 of term 1\n",
        "  purged      entry 10 of term 1\n",
    ] {
        assert!(words.contains(line), "{line} is not in:\n{words}");
    }
}

fn shown(at: &std::path::Path) -> Value {
    good_json(at, "raft node --json")
}
