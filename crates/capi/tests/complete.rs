//! What Rust programs can call on a log has a row in the table of docs/c.md, and every option has a setter.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

/// The public functions of the impl blocks of a file of the log, without those that are hidden or `_in` a directory of traits.
fn public_functions(file: &str) -> Vec<String> {
    let source = std::fs::read_to_string(support::root().join("../log/src").join(file)).unwrap();
    let mut names = Vec::new();
    let mut is_hidden = false;
    for line in source.lines().map(str::trim_start) {
        if line.starts_with("#[doc(hidden)]") || line.starts_with("#[cfg(feature") {
            is_hidden = true;
        } else if let Some(rest) = line.strip_prefix("pub async fn ").or_else(|| line.strip_prefix("pub fn "))
        {
            let name: String =
                rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
            if !std::mem::take(&mut is_hidden) {
                names.push(name);
            }
        }
    }
    names
}

#[test]
fn the_table_has_every_call_of_rust() {
    let page = std::fs::read_to_string(support::root().join("../../docs/c.md")).unwrap();
    let (_, table) = page.split_once("## What Rust has, and what C has").unwrap();
    let words: std::collections::HashSet<&str> =
        table.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).collect();
    let mut count = 0;
    let files = [
        "log.rs",
        "log/close.rs",
        "log/parts.rs",
        "append.rs",
        "watermarks.rs",
        "read/reader.rs",
        "read/cursor.rs",
    ];
    for file in files.iter().chain(&["inspect/mod.rs", "inspect/copy.rs", "inspect/retention.rs"]) {
        for name in public_functions(file) {
            let is_a_form = name.ends_with("_in") || name.ends_with("_until");
            assert!(is_a_form || words.contains(name.as_str()), "docs/c.md has no row of {file}: {name}");
            count += 1;
        }
    }
    assert!(count > 50, "only {count} calls were found");
}

#[test]
fn every_option_has_a_setter() {
    let header = std::fs::read_to_string(support::root().join("include/inkstone.h")).unwrap();
    let page = std::fs::read_to_string(support::root().join("../../docs/c.md")).unwrap();
    let options = public_functions("options.rs");
    assert!(options.len() > 25, "{options:?}");
    for name in options {
        let has_setter =
            ["", "_us"].iter().any(|end| header.contains(&format!("inkstone_options_set_{name}{end}(")));
        let has_call = header.contains(&format!("inkstone_options_{name}("));
        assert!(
            has_setter || has_call || page.contains(&format!("`{name}`")),
            "no setter of {name}, and no word in docs/c.md"
        );
    }
}
