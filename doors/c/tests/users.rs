//! Each function of the header has a user: an example, or the Go package. One that nobody uses
//! goes.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::path::{Path, PathBuf};

/// Where users are. The tests beside the Go package are none.
const PLACES: [&str; 4] = ["examples/c", "examples/cpp", "examples/zig", "doors/go"];

/// The functions that the header declares, in its order.
fn functions() -> Vec<String> {
    let header = std::fs::read_to_string(support::root().join("include/inkstone.h")).unwrap();
    let (_, body) = header.split_once("extern \"C\" {").unwrap();
    let names: Vec<String> = body
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("inkstone_"))
        .map(ToString::to_string)
        .collect();
    assert!(names.len() > 60, "{names:?}");
    names
}

fn is_a_user(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["c", "cpp", "go", "h", "py", "zig"].iter().any(|end| path.extension() == Some(end.as_ref()))
        && !name.ends_with("_test.go")
}

/// The users, each with its text without comments that begin a line.
fn users() -> Vec<(PathBuf, String)> {
    let root = support::root().join("../..");
    let mut users = Vec::new();
    for place in PLACES {
        for entry in std::fs::read_dir(root.join(place)).unwrap() {
            let path = entry.unwrap().path();
            if !is_a_user(&path) {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text
                .lines()
                .filter(|line| !["//", "/*", " *", "#"].iter().any(|sign| line.starts_with(sign)));
            users.push((path, code.collect::<Vec<_>>().join("\n")));
        }
    }
    assert!(users.len() > 15, "{} users were found", users.len());
    users
}

/// Whether the text has this name, and not as a part of a longer one.
fn has(text: &str, name: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part)
    })
}

#[test]
fn each_function_names_its_user() {
    let users = users();
    let mut without = Vec::new();
    for name in functions() {
        match users.iter().find(|(_, text)| has(text, &name)) {
            Some((user, _)) => {
                println!("{name}: {}", user.file_name().unwrap().to_string_lossy());
            }
            None => without.push(name),
        }
    }
    assert!(
        without.is_empty(),
        "neither an example nor the Go package uses {without:#?}: add an example, or drop them"
    );
}

#[test]
fn a_name_that_is_part_of_another_is_no_use() {
    assert!(has("x = inkstone_keep(a)", "inkstone_keep"));
    assert!(!has("x = inkstone_keep_bytes(a)", "inkstone_keep"));
    assert!(!has("x = go_inkstone_keep(a)", "inkstone_keep"));
}
