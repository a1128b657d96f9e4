//! The lab as people use it. What it refuses: `cases/lab.txt`; what an experiment
//! computes is tested in `lab/lab`.

use crate::support::{directory, good, json, names, not_run, said, signal, spawn, text, until};

#[test]
fn all_of_it_ended_by_ctrl_c_keeps_what_there_is() {
    let directory = directory();
    let at = directory.path();
    let child = spawn(at, "lab all --quiet --json -");
    // The first part has begun to make its files.
    let makes = |name: &String| {
        let work = std::fs::read_dir(at.join(name)).into_iter().flatten().flatten();
        work.into_iter().any(|file| file.file_name().to_string_lossy().starts_with("way-"))
    };
    until("it works", || names(at).iter().any(makes));
    signal("-INT", child.id());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    let found = json(&output.stdout);
    assert_eq!(found["interrupted"], true);
    assert_eq!(found["tables"].as_array().map(Vec::len), Some(1));
    assert_eq!(names(at), [""; 0]);
}

/// The tables and the answers of its statements, in one result.
#[test]
fn an_experiment_of_the_articles_has_its_tables_and_its_statements() {
    let directory = directory();
    let at = directory.path();
    let said =
        text(&good(at, "lab experiment 5 --rounds 1 --time 50ms --quiet --json e5.json", b""));
    for word in ["blocks reserved ahead, or not", "fallocate-ten-percent"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(said.lines().all(|line| line.chars().count() <= 120), "{said}");
    let found = json(&std::fs::read(at.join("e5.json")).expect("a result"));
    assert!(found["command"].as_str().is_some_and(|line| line.ends_with("e5.json")), "{found}");
    assert_eq!(found["statements"][0]["id"], "fallocate-ten-percent");
    good(at, "lab report e5.json", b"");
}

#[test]
fn memory_is_measured_and_never_recommended() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return not_run("memory_is_measured", "there is no /dev/shm here");
    };
    let places = ["one", "two"].map(|name| memory.path().join(name));
    places.iter().for_each(|place| std::fs::create_dir(place).expect("a directory"));
    let [one, two] = places.map(|place| place.display().to_string());
    let directory = directory();
    let at = directory.path();
    let said = text(&good(at, &["lab", &one, &two, "--quiet", "--json", "disks.json"], b""));
    let sentence = said.lines().next().expect("the answer first");
    assert!(sentence.starts_with("None of these should carry a log."), "{said}");
    for place in [&one, &two] {
        assert!(sentence.contains(&format!("Not {place}: it is memory (tmpfs)")), "{sentence}");
    }
    // A result of the lab like any other, with the answer beside it.
    let result = json(&std::fs::read(at.join("disks.json")).expect("a result"));
    assert_eq!(result["sentence"].as_str(), Some(sentence));
    assert_eq!(result["tables"].as_array().map(Vec::len), Some(2));
}
