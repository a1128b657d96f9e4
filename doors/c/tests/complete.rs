//! What Rust programs can call on a log has a row in the table of README.md, and every option has
//! a setter.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A public function of the log.
struct Call {
    /// Relative to the log's sources.
    file: PathBuf,
    /// The type whose function it is; empty for a function of a module.
    of: String,
    name: String,
}

fn word(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

/// The type of a line that begins an impl block.
fn type_of(line: &str) -> Option<String> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(parameters) => parameters.split_once("> ")?.1,
        None => rest.strip_prefix(' ')?,
    };
    Some(word(rest))
}

/// The name of a line that begins a public function.
fn public_function(line: &str) -> Option<String> {
    let mut rest = line.strip_prefix("pub ")?;
    for before in ["const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(before).unwrap_or(rest);
    }
    rest.strip_prefix("fn ").map(word)
}

fn public_functions_of(root: &Path, file: &Path, calls: &mut Vec<Call>) {
    let mut of = String::new();
    let mut is_hidden = false;
    for line in std::fs::read_to_string(root.join(file)).unwrap().lines() {
        if line.starts_with('}') {
            of.clear();
        }
        let line = line.trim_start();
        if let Some(begun) = type_of(line) {
            of = begun;
        } else if let Some(name) = public_function(line)
            && !is_hidden
        {
            calls.push(Call { file: file.to_path_buf(), of: of.clone(), name });
        }
        // It is about the item after it; more attributes and comments may stand between.
        is_hidden = line == "#[doc(hidden)]"
            || (is_hidden && (line.starts_with('#') || line.starts_with("//")));
    }
}

/// The public functions in every file of the log, without those that are hidden.
fn public_functions() -> Vec<Call> {
    let root = support::root().join("../../crates/log/src");
    let (mut calls, mut directories) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(root.join(&directory)).unwrap() {
            let path = directory.join(entry.unwrap().file_name());
            if root.join(&path).is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                public_functions_of(&root, &path, &mut calls);
            }
        }
    }
    assert!(calls.len() > 90, "only {} calls were found", calls.len());
    calls
}

/// The calls that the first column of the table names, as `Log::open`. In "`Log::first`, `last`"
/// the second is the log's too.
fn rows() -> HashSet<String> {
    let page = std::fs::read_to_string(support::root().join("README.md")).unwrap();
    let (_, rest) = page.split_once("## What Rust has, and what C has").unwrap();
    let table = rest.split("\n## ").next().unwrap();
    let mut names = HashSet::new();
    for row in table.lines().filter_map(|line| line.strip_prefix("| ")) {
        let mut of = "";
        for item in row.split(" |").next().unwrap().split('`').skip(1).step_by(2) {
            let (before, name) = item.split_once("::").unwrap_or((of, item));
            of = if item.starts_with(char::is_uppercase) && before == of { item } else { before };
            names.insert(format!("{of}::{name}"));
        }
    }
    names
}

impl Call {
    /// What a row can call it: by its type, or by a module or the crate.
    fn names(&self) -> Vec<String> {
        let modules = self.file.components().map(|part| word(&part.as_os_str().to_string_lossy()));
        let places = if self.of.is_empty() {
            modules.chain(["inkstone".into()]).collect()
        } else {
            vec![self.of.clone()]
        };
        places
            .iter()
            .flat_map(|place| [format!("{place}::{}", self.name), format!("{place}::*")])
            .collect()
    }
}

#[test]
fn the_table_has_every_call_of_rust() {
    let rows = rows();
    let missing: Vec<String> = public_functions()
        .iter()
        .filter(|call| !(call.name.ends_with("_in") || call.name.ends_with("_until")))
        .filter(|call| !call.names().iter().any(|name| rows.contains(name)))
        .map(|call| format!("{}: {}", call.file.display(), call.names()[0]))
        .collect();
    assert!(missing.is_empty(), "README.md has no row of {missing:#?}");
}

#[test]
fn every_option_has_a_setter() {
    let header = std::fs::read_to_string(support::root().join("include/inkstone.h")).unwrap();
    let page = std::fs::read_to_string(support::root().join("README.md")).unwrap();
    let calls = public_functions();
    let options: Vec<&str> =
        calls.iter().filter(|call| call.of == "Options").map(|call| call.name.as_str()).collect();
    assert!(options.len() > 25, "{options:?}");
    for name in options {
        let has_setter = ["", "_us"].iter().any(|end| {
            header.contains(&format!("inkstone_options_set_{name}{end}("))
                || header.contains(&format!("// - {name}{end}: "))
        });
        let has_call = header.contains(&format!("inkstone_options_{name}("));
        assert!(
            has_setter || has_call || page.contains(&format!("`{name}`")),
            "no setter of {name}, and no word in README.md"
        );
    }
}
