//! `include/inkstone.h` is what the functions of this crate make, and the shared library exports these functions and no others.
//!
//! After a change of a function: `INKSTONE_HEADER=write cargo test -p inkstone-capi --test header`.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// In the order in which a reader needs them.
const SOURCES: [&str; 8] = ["version", "error", "text", "options", "log", "append", "read", "inspect"];

fn made() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES.iter().chain(&["event"]) {
        builder = builder.with_src(root.join(format!("src/{source}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

fn written() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("include/inkstone.h")).unwrap()
}

/// The functions that a header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let code = without_comments(header);
    let names = code.match_indices('(').filter_map(|(at, _)| {
        let before = code[..at].trim_end();
        let start =
            before.rfind(|letter: char| !(letter.is_alphanumeric() || letter == '_')).map_or(0, |at| at + 1);
        let name = &before[start..];
        name.starts_with("inkstone_").then(|| name.to_string())
    });
    names.collect()
}

/// The header behind what holds for every function, without comments.
fn without_comments(header: &str) -> String {
    let (_, body) = header.split_once("*/").expect("the head of the header");
    body.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_header_is_what_the_functions_make() {
    let made = made();
    if std::env::var("INKSTONE_HEADER").as_deref() == Ok("write") {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/inkstone.h");
        std::fs::write(path, &made).unwrap();
    }
    let written = written();
    let differs = made.lines().zip(written.lines()).find(|(made, written)| made != written);
    assert!(
        made == written,
        "include/inkstone.h is not current: INKSTONE_HEADER=write cargo test -p inkstone-capi --test header\n{differs:?}"
    );
}

#[test]
fn the_shared_library_exports_the_functions_of_the_header_and_no_others() {
    let Some(nm) = support::tool("nm") else { return };
    let output =
        Command::new(nm).args(["-D", "--defined-only"]).arg(support::shared_library()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let symbols = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<String> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .filter(|name| !name.starts_with("rust_eh_personality"))
        .map(ToString::to_string)
        .collect();
    assert_eq!(exported, declared(&made()));
    assert!(exported.len() > 60, "{}", exported.len());
}

#[test]
fn every_function_says_which_threads_may_call_it_and_who_owns_what_it_gives() {
    let header = made();
    let (_, body) = header.split_once("*/").unwrap();
    let functions = declared(&header);
    assert!(functions.len() > 60, "{}", functions.len());
    for name in functions {
        let at = body
            .lines()
            .position(|line| !line.trim_start().starts_with("//") && line.contains(&format!("{name}(")))
            .unwrap();
        let lines: Vec<&str> = body.lines().collect();
        let text: Vec<&str> =
            lines[..at].iter().rev().take_while(|line| line.starts_with("//")).copied().collect();
        let says = |what: &str| text.iter().any(|line| line.contains(what));
        assert!(says("Threads: "), "{name} does not say which threads may call it");
        let signature = lines[at..].iter().take_while(|line| !line.is_empty()).copied().collect::<String>();
        let gives =
            ["char **", "_bytes *bytes", "inkstone_log **", "inkstone_reader **", "inkstone_cursor **"];
        if (gives.iter().any(|out| signature.contains(out)) || signature.starts_with("const char *"))
            && !name.ends_with("_free")
        {
            assert!(says("Owner: "), "{name} does not say who owns what it gives");
        }
    }
}
