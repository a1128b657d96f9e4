//! `inkstone lab compare` as scripts use it.

use crate::support::{directory, json, run, text, with_times};

/// Six ways, so that their median is a level.
const WRITE: &str = "lab write --reuse new,reuse --durability fsync,fdatasync,o-dsync --size 64KiB --rounds 1 --bill-commits 0 --quiet --json result.json";

#[test]
fn a_result_is_the_same_as_itself_and_one_slow_cell_is_named() {
    let directory = directory();
    let at = directory.path();
    let measured = run(at, &WRITE.split(' ').collect::<Vec<_>>());
    assert!(measured.status.success(), "{}", text(&measured.stderr));
    let result = json(&std::fs::read(at.join("result.json")).expect("a result"));
    std::fs::write(at.join("first.json"), with_times(result.clone(), None)).expect("written");
    std::fs::write(at.join("slow.json"), with_times(result, Some("reuse fdatasync")))
        .expect("written");
    let same = run(at, &["lab", "compare", "first.json", "first.json"]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stdout));
    assert!(text(&same.stdout).starts_with("Nothing became slower: "), "{}", text(&same.stdout));
    let slow = run(at, &["lab", "compare", "first.json", "slow.json", "--json"]);
    assert_eq!(slow.status.code(), Some(3), "{}", text(&slow.stdout));
    let found = json(&slow.stdout);
    let lines = found["lines"].as_array().expect("lines").iter();
    let slower: Vec<_> =
        lines.filter(|line| line["change"] == "slower").map(|line| &line["name"]).collect();
    assert_eq!(slower, ["reuse fdatasync"]);
    let back = run(at, &["lab", "compare", "slow.json", "first.json"]);
    assert_eq!(back.status.code(), Some(0), "{}", text(&back.stdout));
    // One measured round is too little for a verdict.
    assert_eq!(run(at, &["lab", "compare", "result.json", "result.json"]).status.code(), Some(4));
}

#[test]
fn what_is_no_result_is_named() {
    let directory = directory();
    let at = directory.path();
    std::fs::write(at.join("none.json"), "{}").expect("written");
    for (file, word) in
        [("none.json", "none.json: it is not a result"), ("missing.json", "missing.json: ")]
    {
        let refused = run(at, &["lab", "compare", file, file]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains(word), "{}", text(&refused.stderr));
    }
}
