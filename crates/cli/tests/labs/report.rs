//! `inkstone lab report` as people use it: from a result to a page, and its errors for other files.

use std::path::Path;
use std::process::{Command, Output};

fn run(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_inkstone"))
        .current_dir(directory)
        .args(arguments)
        .output()
        .expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_page_from_a_result_beside_it() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    // A directory may have any name; the page shows it and is not changed by it.
    let place = directory.path().join("<img src=x onerror=alert(1)> &amp; <b>bold");
    std::fs::create_dir(&place).expect("a directory with a nasty name");
    let place = place.to_str().expect("UTF-8");
    let measured = run(
        directory.path(),
        &[
            "lab",
            "write",
            place,
            "--size",
            "64KiB",
            "--rounds",
            "5",
            "--bill-commits",
            "0",
            "--quiet",
            "--reuse",
            "new,reuse",
            "--json",
            "out.json",
        ],
    );
    assert!(measured.status.success(), "{}", text(&measured.stderr));
    let drawn = run(directory.path(), &["lab", "report", "out.json"]);
    assert!(drawn.status.success(), "{}", text(&drawn.stderr));
    assert!(text(&drawn.stdout).starts_with("out.html ("), "{}", text(&drawn.stdout));
    let page = std::fs::read_to_string(directory.path().join("out.html")).expect("the page");
    assert!(page.starts_with("<!doctype html>") && page.len() <= 1 << 20, "{}", page.len());
    assert!(!page.contains("<img") && !page.contains("<b>"), "a name became markup");
    assert!(page.contains("\"slowest_ns\":"), "what the chart over time shows is missing");
    let to_stdout = run(directory.path(), &["lab", "report", "out.json", "-o", "-"]);
    assert_eq!(text(&to_stdout.stdout), page);
}

#[test]
fn what_cannot_be_drawn_is_said_and_nothing_is_written() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let write = |name: &str, content: &str| {
        std::fs::write(directory.path().join(name), content).expect("a file")
    };
    write("later.json", r#"{"schema_version": 9, "inkstone_version": "3.0.0", "tables": []}"#);
    write("old.json", r#"{"schema_version": 1, "rows": []}"#);
    write("half.json", r#"{"schema_version": 3, "tables": ["#);
    write("same.html", r#"{"schema_version": 3, "tables": []}"#);
    for (name, said) in [
        ("later.json", "schema_version is 9"),
        ("old.json", "schema_version is 1"),
        ("half.json", "not JSON"),
        ("missing.json", "missing.json"),
        ("same.html", "another name"),
    ] {
        let output = run(directory.path(), &["lab", "report", name]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(error.contains(said) && error.contains(name), "{name}: {error}");
    }
    let mut names: Vec<String> = std::fs::read_dir(directory.path())
        .expect("the directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["half.json", "later.json", "old.json", "same.html"]);
}
