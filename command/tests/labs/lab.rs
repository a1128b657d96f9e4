//! The lab as people use it: what it prints, what it refuses, what it leaves behind. What an
//! experiment computes is tested in `lab/lab`.

use crate::support::{
    directory, good, good_json, json, names, not_run, refused, run, said, signal, spawn, text,
    until,
};
use crate::tables::{WRITE, results};

#[test]
fn a_table_and_a_sentence_and_nothing_left() {
    let directory = directory();
    let at = directory.path();
    let write = WRITE.replace("--rounds 1", "--rounds 5");
    let out = text(&good(at, format!("{write} --reuse new,reuse --csv out.csv"), b""));
    assert!(out.contains("new fdatasync") && out.contains("reuse fdatasync"), "{out}");
    assert!(out.contains("this disk") || out.contains("this file system"), "{out}");
    assert!(!out.contains('\u{1b}'), "colours where there is no terminal");
    let csv = std::fs::read_to_string(at.join("out.csv")).expect("the CSV");
    assert_eq!(csv.lines().count(), 3, "a row for each way: {csv}");
    assert_eq!(names(at), ["out.csv"]);
    let json = good_json(at, format!("{WRITE} --reuse new,reuse --json -"));
    assert_eq!(json["schema_version"], 3);
    assert!(json["machine"]["kernel"].as_str().is_some_and(|kernel| !kernel.is_empty()));
    let ways = json["tables"][0]["ways"].as_array().expect("ways");
    assert_eq!(ways.len(), 2);
    let buckets = ways[0]["latency"]["buckets"].as_array().expect("raw buckets");
    let count: u64 = buckets.iter().map(|bucket| bucket[1].as_u64().expect("a count")).sum();
    assert_eq!(count, 16);
    assert_eq!(names(at), ["out.csv"]);
}

#[test]
fn bad_input_gets_a_clear_error_and_leaves_nothing() {
    let directory = directory();
    let at = directory.path();
    for (arguments, word, code) in [
        ("lab missing", "missing", 1),
        ("lab write --durability fdatasink", "fdatasync", 2),
        ("lab write --write-size 3000", "power of two", 1),
        ("lab write --size 5000", "multiple", 1),
        ("lab write --size 1000TiB", "MiB are needed, but", 1),
        ("lab write --baseline nwe-fdatasync", "new fdatasync", 1),
        ("lab write --json no/such/place.json", "no directory", 1),
        ("lab write --json - --csv -", "both write to stdout", 1),
        ("lab read --order sideways", "sequential", 2),
        ("lab read --size 5000", "multiple of 4KiB", 2),
        ("lab read --size 1000TiB", "MiB are needed", 1),
        ("lab all --quick --full", "--full", 2),
        ("lab wrtie", "no command \"wrtie\": `inkstone lab write` is one", 1),
        ("lab claims --only nonsense", "no claim is called \"nonsense\"", 2),
        ("lab report missing.json", "missing.json", 1),
        ("lab compare missing.json missing.json", "missing.json: ", 1),
    ] {
        let output = run(at, arguments);
        let told = said(&output);
        assert!(told.contains(word), "{arguments:?}: {told}");
        // Which of the two it is for an unknown name is the parser's affair.
        let is_code = output.status.code() == Some(code) || arguments.contains("nonsense");
        assert!(is_code && !output.status.success(), "{arguments:?}: {:?}", output.status);
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        assert_eq!(names(at), [""; 0], "{arguments:?}");
    }
    // The system's reason once.
    for command in ["write", "read", "fallocate", "all", "e7"] {
        let told = refused(at, &["lab", command, "not-there"], 1, "No such file");
        assert_eq!(told.matches("No such file").count(), 1, "{command}: {told}");
    }
    // The table, although its result could not be kept.
    std::fs::create_dir(at.join("out.json")).expect("a directory");
    let output = run(at, "lab read --seconds 1s --rounds 1 --quiet --json out.json");
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("write out.json"), "{}", said(&output));
    assert!(text(&output.stdout).contains("read"), "{}", text(&output.stdout));
}

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
    let said = text(&good(at, "lab e5 --rounds 1 --time 50ms --quiet --json e5.json", b""));
    for word in ["raw floor", "blocks reserved ahead, or not", "fallocate-ten-percent"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(said.lines().all(|line| line.chars().count() <= 120), "{said}");
    let found = json(&std::fs::read(at.join("e5.json")).expect("a result"));
    assert!(found["command"].as_str().is_some_and(|line| line.ends_with("e5.json")), "{found}");
    assert_eq!(found["claims"][0]["id"], "fallocate-ten-percent");
    good(at, "lab report e5.json", b"");
    let listed = text(&good(at, "lab e5 --list", b""));
    assert!(listed.contains("fallocate-ten-percent\n") && listed.contains("article 3"), "{listed}");
    let listed = text(&good(at, "lab claims --list", b""));
    assert!(listed.contains("overwrite-twice\n") && listed.contains("source: "), "{listed}");
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

#[test]
fn a_page_from_a_result_beside_it_and_what_cannot_be_drawn_is_said() {
    let directory = directory();
    let at = directory.path();
    results(at);
    assert!(text(&good(at, "lab report result.json", b"")).starts_with("result.html ("));
    let page = std::fs::read_to_string(at.join("result.html")).expect("the page");
    assert!(page.starts_with("<!doctype html>") && page.len() <= 1 << 20, "{}", page.len());
    assert!(page.contains("\"slowest_ns\":"), "what the chart over time shows is missing");
    assert_eq!(text(&good(at, "lab report result.json -o -", b"")), page);
    for (name, content, words) in [
        ("later.json", r#"{"schema_version": 9, "tables": []}"#, "schema_version is 9"),
        ("old.json", r#"{"schema_version": 1, "rows": []}"#, "schema_version is 1"),
        ("half.json", r#"{"schema_version": 3, "tables": ["#, "not JSON"),
        ("same.html", r#"{"schema_version": 3, "tables": []}"#, "another name"),
    ] {
        std::fs::write(at.join(name), content).expect("written");
        let before = names(at);
        let told = refused(at, &["lab", "report", name], 1, words);
        assert!(told.contains(name), "{told}");
        assert_eq!(names(at), before, "nothing is written");
    }
    std::fs::write(at.join("none.json"), "{}").expect("written");
    refused(at, "lab compare none.json none.json", 1, "none.json: it is not a result");
    // One measured round is too little for a verdict.
    assert_eq!(run(at, "lab compare result.json result.json").status.code(), Some(4));
    let slow = json(&run(at, "lab compare first.json slow.json --json").stdout);
    let lines = slow["lines"].as_array().expect("lines").iter();
    let slower = lines.filter(|line| line["change"] == "slower").map(|line| &line["name"]);
    assert_eq!(slower.collect::<Vec<_>>(), ["reuse fdatasync"]);
}
