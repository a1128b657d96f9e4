//! Completions and manual pages: they know the command as it is.

use crate::support::{directory, good, run, text};

#[test]
fn completions_know_every_subcommand() {
    let directory = directory();
    for (shell, mark) in
        [("bash", "_inkstone()"), ("zsh", "#compdef inkstone"), ("fish", "complete -c inkstone")]
    {
        let script = text(&good(directory.path(), &["completions", shell], b""));
        assert!(script.contains(mark), "{shell}");
        for name in [
            "append",
            "verify",
            "salvage",
            "tune",
            "filesystems",
            "compare",
            "powerloss",
            "--file-systems",
        ] {
            let name = if shell == "fish" { name.trim_start_matches("--") } else { name };
            assert!(script.contains(name), "{shell}: {name}");
        }
    }
    let unknown = run(directory.path(), &["completions", "csh"]);
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn there_is_a_page_for_the_command_and_for_each_subcommand() {
    let directory = directory();
    let at = directory.path();
    let page = text(&good(at, &["man"], b""));
    assert!(page.contains(".TH inkstone 1") && page.contains("tune"), "{page}");
    std::fs::create_dir(at.join("man1")).expect("a directory");
    good(at, &["man", "man1"], b"");
    for name in [
        "inkstone",
        "inkstone-append",
        "inkstone-lab",
        "inkstone-lab-compare",
        "inkstone-lab-filesystems",
        "inkstone-powerloss",
    ] {
        let path = at.join(format!("man1/{name}.1"));
        let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".SH NAME"), "{name}");
    }
    let missing = run(at, &["man", "nowhere"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("create it first"), "{}", text(&missing.stderr));
}
