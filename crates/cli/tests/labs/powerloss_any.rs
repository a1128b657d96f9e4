//! `inkstone powerloss any`, with shell scripts as writers and readers: logs that hold, logs that
//! do not, and commands that cannot be used.

use std::path::Path;
use std::process::Output;

use crate::support::{directory, json, run, text};

/// Durable enough for a kill: each line is written before it is reported. A line that a kill has
/// cut is removed first.
const WRITER: &str = "cd {dir}; touch f; grep -x 'item [0-9]*!' f > g || true; mv g f; n=$(wc -l < f); \
    while :; do n=$((n+1)); echo \"item $n!\" >> f; echo \"item $n!\"; done";
/// Shows whole lines only.
const READER: &str = "cd {dir}; touch f; grep -x 'item [0-9]*!' f || true";

fn any(directory: &Path, writer: &str, reader: &str, more: &[&str]) -> Output {
    run(directory, &[&["powerloss", "any", "--writer", writer, "--reader", reader], more].concat())
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("the directory");
    entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn a_log_that_holds() {
    let directory = directory();
    let more = ["--rounds", "20", "--lives", "4", "--certificate", "any.json"];
    let output = any(directory.path(), WRITER, READER, &more);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let certificate =
        &json(&std::fs::read(directory.path().join("any.json")).expect("a certificate"))[0];
    assert_eq!(certificate["classes"][0]["name"], "killed with SIGKILL");
    assert_eq!(certificate["classes"][0]["states"], 20);
    assert!(
        certificate["not_run"][0].as_str().expect("words").contains("page cache"),
        "{certificate}"
    );
    let told = text(&output.stdout);
    assert!(told.starts_with("20 kills; ") && !told.contains(" 0 lines acknowledged"), "{told}");
    assert_eq!(names(directory.path()), ["any.json"]);
}

#[test]
fn each_way_not_to_hold_is_found_and_kept() {
    let told_first = WRITER.replace(
        r#"echo "item $n!" >> f; echo "item $n!""#,
        r#"echo "item $n!"; echo "item $n!" >> f"#,
    );
    let from_one = WRITER.replace("n=$(wc -l < f)", "n=0");
    let forgets = WRITER.replace("n=$(wc -l < f)", "rm f; n=0");
    assert!(told_first != WRITER && from_one != WRITER && forgets != WRITER);
    let twice = format!("{READER}; tail -n 1 f");
    let reversed = READER.replace("grep -x", "tac f | grep -hx").replace(" f ||", " ||");
    let gives_up = format!("{READER}; echo 'cannot read that' >&2; exit 4");
    for (writer, reader, words) in [
        (&*told_first, READER, "it was acknowledged, but only"),
        (&from_one, READER, "line "),
        // The message depends on which of its lines the second writer has reached when it is
        // killed.
        (&forgets, READER, "an earlier reading showed it|it was acknowledged"),
        (WRITER, &*twice, "is there twice"),
        (WRITER, &reversed, "instead of \"item 1!\""),
        (
            WRITER,
            &gives_up,
            "the reader failed: exit status: 4, with the message \"cannot read that\"",
        ),
        (
            &WRITER.replace("cd {dir}", "cd {dir}; [ ! -e f ] || exit 5"),
            READER,
            "the writer could not continue",
        ),
    ] {
        let directory = directory();
        let output = any(directory.path(), writer, reader, &["--rounds", "200"]);
        let told = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{writer}: {told}{}", text(&output.stderr));
        let says_so = words.split('|').any(|words| told.contains(words));
        assert!(told.contains("BROKEN") && says_so, "{writer} and {reader}, {words:?}: {told}");
        let kept = names(directory.path());
        assert!(
            kept.len() == 1 && kept[0].starts_with("inkstone-any-broken-seed-1-round-"),
            "{kept:?}"
        );
    }
}

#[test]
fn a_command_that_is_none_is_an_error_that_says_which() {
    let unfinished = format!("{READER}; printf end");
    for (writer, reader, words) in [
        ("nonesuch-writer {dir}", READER, "--writer \"nonesuch-writer {dir}\" cannot be started"),
        (WRITER, "nonesuch-reader {dir}", "--reader \"nonesuch-reader {dir}\" cannot be started"),
        ("echo 1", READER, "has no place for the directory"),
        (WRITER, "echo 1", "has no place for the directory"),
        ("exit 3 # {dir}", READER, "it had acknowledged nothing"),
        ("true # {dir}", READER, "acknowledged no line"),
        ("sleep 1000 # {dir}", READER, "has printed nothing for 300ms"),
        ("echo 'item 1!' > {dir}/f; echo 'item 1!'", &unfinished, "ends inside line 2"),
    ] {
        let directory = directory();
        let output = any(directory.path(), writer, reader, &["--rounds", "3", "--limit", "300ms"]);
        let told = text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{writer} and {reader}: {}{told}",
            text(&output.stdout)
        );
        assert!(told.contains(words), "{writer} and {reader}: {told}");
        assert!(names(directory.path()).is_empty());
    }
}
