//! `include/inkstone.h` is what the functions of this crate make, and the shared library exports
//! these functions and no others.
//!
//! After a change of a function: `INKSTONE_HEADER=write cargo test -p inkstone-capi --test header`.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What most programs need, which comes first.
const COMMON: [&str; 18] = [
    "inkstone_open",
    "inkstone_append_durable",
    "inkstone_append",
    "inkstone_wait",
    "inkstone_append_unwaited",
    "inkstone_sync",
    "inkstone_truncate_before",
    "inkstone_close",
    "inkstone_log_free",
    "inkstone_reader_of",
    "inkstone_reader_get",
    "inkstone_bytes_free",
    "inkstone_cursor_new",
    "inkstone_cursor_next",
    "inkstone_cursor_free",
    "inkstone_reader_free",
    "inkstone_error_message",
    "inkstone_error_free",
];

/// The order of all others.
const SOURCES: [&str; 14] = [
    "log",
    "call",
    "pointers",
    "append",
    "read",
    "streams",
    "batch",
    "streams_read",
    "options",
    "inspect",
    "event",
    "error",
    "text",
    "version",
];

/// What stands after the includes: the version of this package, and the warning about a code that
/// is ignored.
fn macros() -> String {
    format!(
        r#"
// The version that this header belongs to; inkstone_version() is that of the library that runs.
#define INKSTONE_VERSION "{version}"
#define INKSTONE_VERSION_MAJOR {major}
#define INKSTONE_VERSION_MINOR {minor}
#define INKSTONE_VERSION_PATCH {patch}
// It rises with each version: `#if INKSTONE_VERSION_NUMBER >= 1002000` is "1.2.0 or later".
#define INKSTONE_VERSION_NUMBER \
    (INKSTONE_VERSION_MAJOR * 1000000 + INKSTONE_VERSION_MINOR * 1000 + INKSTONE_VERSION_PATCH)

// A call whose code must not be ignored. A program that defines it as nothing, before it includes
// this header, gets no warnings.
#ifndef INKSTONE_MUST_USE
#ifdef __GNUC__
#define INKSTONE_MUST_USE __attribute__((warn_unused_result))
#else
#define INKSTONE_MUST_USE
#endif
#endif
"#,
        version = env!("CARGO_PKG_VERSION"),
        major = env!("CARGO_PKG_VERSION_MAJOR"),
        minor = env!("CARGO_PKG_VERSION_MINOR"),
        patch = env!("CARGO_PKG_VERSION_PATCH"),
    )
}

fn made() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    config.after_includes = Some(macros());
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(root.join(format!("src/{source}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    let header = without_tags(String::from_utf8(text).unwrap());
    let (types, rest) = header.split_once("extern \"C\" {\n#endif // __cplusplus\n\n").unwrap();
    let (functions, end) = rest.split_once("\n\n#ifdef __cplusplus\n}").unwrap();
    format!(
        "{types}extern \"C\" {{\n#endif // __cplusplus\n\n{}\n\n#ifdef __cplusplus\n}}{end}",
        common_first(functions)
    )
}

/// In C before C23 an enumeration has the name of a type alone: C++ has one space for tags and
/// types (-Wc++-compat).
fn without_tags(mut header: String) -> String {
    const HAS_BASE: &str = "#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L";
    for name in ["inkstone_code", "inkstone_event_kind"] {
        let end = HAS_BASE.replacen("#if", "#endif //", 1);
        let tagged = format!("enum {name}\n{HAS_BASE}\n  : int32_t\n{end}\n {{");
        assert!(header.contains(&tagged), "{tagged}");
        header = header.replace(
            &tagged,
            &format!("{HAS_BASE}\nenum {name} : int32_t\n#else\nenum\n#endif\n{{"),
        );
    }
    header
}

/// The functions in the order in which a reader needs them. Those with a place for an error must
/// not be ignored.
fn common_first(functions: &str) -> String {
    let mut functions: Vec<(String, String)> = functions
        .split("\n\n")
        .map(|function| {
            let name = names(function).next().unwrap();
            let at = function
                .lines()
                .filter(|line| line.starts_with("//"))
                .map(|line| line.len() + 1)
                .sum();
            let (text, signature) = function.split_at(at);
            let can_fail = signature.contains("inkstone_error **error");
            (
                name,
                format!("{text}{}{signature}", if can_fail { "INKSTONE_MUST_USE\n" } else { "" }),
            )
        })
        .collect();
    let place =
        |name: &str| COMMON.iter().position(|common| *common == name).unwrap_or(COMMON.len());
    functions.sort_by_key(|(name, _)| place(name));
    assert!(
        functions[..COMMON.len()].iter().map(|(name, _)| name).eq(COMMON),
        "a common call is missing"
    );
    let all: Vec<String> = functions.into_iter().map(|(_, function)| function).collect();
    let (common, others) = all.split_at(COMMON.len());
    format!(
        "// ---- The calls that most programs need ----\n\n{}\n\n// ---- All others ----\n\n{}",
        common.join("\n\n"),
        others.join("\n\n")
    )
}

fn written() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("include/inkstone.h"))
        .unwrap()
}

/// The functions that a header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let (_, body) = header.split_once("*/").expect("the head of the header");
    names(body).collect()
}

/// The names before parentheses, outside of comments.
fn names(body: &str) -> impl Iterator<Item = String> {
    let code: Vec<&str> =
        body.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let names: Vec<String> = code
        .match_indices('(')
        .map(|(at, _)| {
            let before = code[..at].trim_end();
            let start = before
                .rfind(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
                .map_or(0, |at| at + 1);
            before[start..].to_string()
        })
        .filter(|name| name.starts_with("inkstone_"))
        .collect();
    names.into_iter()
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
        "include/inkstone.h is not current: INKSTONE_HEADER=write cargo test -p inkstone-capi \
         --test header\n{differs:?}"
    );
}

#[test]
#[ignore = "needs nm"]
fn the_shared_library_exports_the_functions_of_the_header_and_no_others() {
    let Some(nm) = support::tool("nm") else { return };
    let output = Command::new(nm)
        .args(["-D", "--defined-only"])
        .arg(support::shared_library())
        .output()
        .unwrap();
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
    let (head, body) = header.split_once("*/").unwrap();
    assert!(head.contains(" * SETTERS. One thread at a time"));
    let functions = declared(&header);
    assert!(functions.len() > 60, "{}", functions.len());
    for name in functions {
        let at = body
            .lines()
            .position(|line| {
                !line.trim_start().starts_with("//") && line.contains(&format!("{name}("))
            })
            .unwrap();
        let lines: Vec<&str> = body.lines().collect();
        let text: Vec<&str> = lines[..at]
            .iter()
            .rev()
            .skip_while(|line| **line == "INKSTONE_MUST_USE")
            .take_while(|line| line.starts_with("//"))
            .copied()
            .collect();
        let says = |what: &str| text.iter().any(|line| line.contains(what));
        // The head says it of all setters at once.
        let is_setter = name.starts_with("inkstone_options_set");
        assert_ne!(
            says("Threads: "),
            is_setter,
            "{name}: which threads may call it is said here or in the head"
        );
        let signature =
            lines[at..].iter().take_while(|line| !line.is_empty()).copied().collect::<String>();
        let gives = [
            "char **",
            "_bytes *bytes",
            "inkstone_log **",
            "inkstone_reader **",
            "inkstone_cursor **",
            "inkstone_streams **",
            "inkstone_streams_reader **",
            "inkstone_streams_cursor **",
        ];
        if (gives.iter().any(|out| signature.contains(out))
            || signature.starts_with("const char *"))
            && !name.ends_with("_free")
        {
            assert!(says("Owner: "), "{name} does not say who owns what it gives");
        }
    }
}
