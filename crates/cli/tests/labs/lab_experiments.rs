//! The lab's experiments as people run them: what they print, how they exit, what they leave
//! behind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{directory, good, json, run, signal, spawn, text};
use inkstone_lab::experiment::list::named;

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the directory");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn all_of_it_ended_by_ctrl_c_keeps_what_there_is() {
    let directory = directory();
    let child = spawn(directory.path(), &["lab", "all", "--quiet", "--json", "-"]);
    // The first part has begun to make its files.
    let has_begun = || {
        let work = entries(directory.path()).into_iter().find(|path| path.is_dir());
        work.is_some_and(|work| {
            std::fs::read_dir(work).is_ok_and(|mut files| {
                files.any(|file| {
                    file.is_ok_and(|file| file.file_name().to_string_lossy().starts_with("way-"))
                })
            })
        })
    };
    while !has_begun() {
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(&child, "-INT");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let found = json(&output.stdout);
    assert_eq!(found["interrupted"], true);
    assert_eq!(found["tables"].as_array().map(Vec::len), Some(1));
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
}

/// The tables and the answers of its statements, in one result.
#[test]
fn an_experiment_of_the_articles_has_its_tables_and_its_statements() {
    let directory = directory();
    let at = directory.path();
    let words = ["lab", "e6", "--rounds", "1", "--time", "50ms", "--quiet", "--json", "e6.json"];
    let said = text(&good(at, &words, b""));
    for word in ["reuse fsync", "half reads and half durable", "lseek-write-race"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(said.lines().all(|line| line.chars().count() <= 120), "{said}");
    let found = json(&std::fs::read(at.join("e6.json")).expect("a result"));
    let line = found["command"].as_str();
    assert_eq!(line.map(|line| line.ends_with("e6.json")), Some(true), "{found}");
    let names = |list: &str, key: &str| -> Vec<String> {
        let list = found[list].as_array().expect("a list");
        list.iter().map(|one| one[key].as_str().expect("a name").to_owned()).collect()
    };
    assert!(names("tables", "name").contains(&"e6".to_owned()));
    assert!(names("tables", "name").contains(&"mixed".to_owned()));
    let statements = named("e6").expect("known").statements.iter().map(|one| one.id);
    assert_eq!(names("claims", "id"), statements.collect::<Vec<_>>());
    // Two threads on one descriptor, counted: it needs neither root nor a quiet machine.
    let answer = |id: &str| {
        let claims = found["claims"].as_array().expect("claims");
        claims.iter().find(|claim| claim["id"] == id).expect("the claim")["verdict"].clone()
    };
    let both = (answer("lseek-write-race"), answer("pwrite-no-race"));
    assert_eq!(both, ("confirmed".into(), "confirmed".into()));
    good(at, &["lab", "report", "e6.json"], b"");
    let listed = text(&good(at, &["lab", "e6", "--list"], b""));
    assert!(listed.contains("pwrite-no-race\n") && listed.contains("article 5"), "{listed}");
}

#[test]
fn a_result_that_cannot_be_written_is_shown() {
    let directory = directory();
    let at = directory.path();
    std::fs::create_dir(at.join("out.json")).expect("a directory");
    let arguments =
        ["lab", "read", "--seconds", "1s", "--rounds", "1", "--quiet", "--json", "out.json"];
    let output = run(at, &arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("write out.json"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("read"), "the table: {}", text(&output.stdout));
}
