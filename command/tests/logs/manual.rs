//! Completions and manual pages: they know the command as it is.

use crate::support::{directory, good, text};

#[test]
fn completions_know_every_subcommand() {
    let directory = directory();
    for (shell, mark) in
        [("bash", "_inkstone()"), ("zsh", "#compdef inkstone"), ("fish", "complete -c inkstone")]
    {
        let script = text(&good(directory.path(), &["completions", shell], b""));
        for word in [
            mark,
            "append",
            "verify",
            "salvage",
            "filesystems",
            "compare",
            "powerloss",
            "file-systems",
        ] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn there_is_a_page_for_the_command_and_for_each_subcommand() {
    let directory = directory();
    let at = directory.path();
    let page = text(&good(at, "man", b""));
    assert!(page.contains(".TH inkstone 1") && page.contains("salvage"), "{page}");
    std::fs::create_dir(at.join("man1")).expect("a directory");
    good(at, "man man1", b"");
    for name in ["", "-append", "-lab", "-lab-compare", "-lab-filesystems", "-powerloss"] {
        let page = std::fs::read_to_string(at.join(format!("man1/inkstone{name}.1")));
        assert!(page.is_ok_and(|page| page.contains(".SH NAME")), "{name}");
    }
}
