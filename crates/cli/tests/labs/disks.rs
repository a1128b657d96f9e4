//! `inkstone lab DIR1 DIR2`: what it says, and that memory is never recommended.

use std::io::Write as _;

use crate::support::{directory, json, run, text};

#[test]
fn memory_is_measured_and_never_recommended() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        let _ = std::io::stderr()
            .write_all(b"\nNOT RUN: memory_is_measured: there is no /dev/shm here\n");
        return;
    };
    let path = |name: &str| {
        let path = memory.path().join(name);
        std::fs::create_dir(&path).expect("a directory");
        path.display().to_string()
    };
    let (one, two) = (path("one"), path("two"));
    let directory = directory();
    let at = directory.path();
    let found = run(at, &["lab", &one, &two, "--quiet", "--json", "disks.json"]);
    assert!(found.status.success(), "{}", text(&found.stderr));
    let said = text(&found.stdout);
    let sentence = said.lines().next().expect("the answer first");
    assert!(sentence.starts_with("None of these should carry a log."), "{said}");
    for place in [&one, &two] {
        assert!(sentence.contains(&format!("Not {place}: it is memory (tmpfs)")), "{sentence}");
    }
    // A result of the lab like any other, with the answer beside it.
    let result = json(&std::fs::read(at.join("disks.json")).expect("a result"));
    assert_eq!(result["sentence"].as_str(), Some(sentence));
    let tables = result["tables"].as_array().expect("tables");
    assert_eq!(tables.len(), 2);
    let rounds = |table: &serde_json::Value| table["ways"][0]["rounds"].as_array().map(Vec::len);
    assert_eq!((rounds(&tables[0]), rounds(&tables[1])), (Some(24), Some(24)));
    let compared = run(at, &["lab", "compare", "disks.json", "disks.json"]);
    assert!(matches!(compared.status.code(), Some(0 | 4)), "{}", text(&compared.stderr));
}
