//! Errors say what went wrong, once, and nothing else; and the command has no mistakes built in.

use std::process::{Command, Stdio};

use crate::support::{directory, good, text};

#[test]
fn too_many_open_files_are_called_that() {
    let directory = directory();
    let at = directory.path();
    good(at, &["append", "log", "-q"], b"a\n");
    let mut refused = 0;
    for arguments in [
        "tee logs/s.log --survive kill",
        "append log",
        "append logs/new",
        "cat log",
        "copy log copied-",
    ] {
        for limit in 3..24 {
            let line = format!(
                "ulimit -n {limit}; exec \"$I\" {arguments}{}",
                if arguments.ends_with('-') { limit.to_string() } else { String::new() }
            );
            let mut command = Command::new("bash");
            command.args(["-c", &line]).env("I", env!("CARGO_BIN_EXE_inkstone")).current_dir(at);
            let output = command.stdin(Stdio::null()).output().expect("bash runs");
            let said = text(&output.stderr);
            assert!(!said.contains("File exists"), "{arguments}, {limit} descriptors: {said}");
            // With three the loader itself may have failed.
            if output.status.code() == Some(1) && said.contains("inkstone:") {
                assert_eq!(
                    said.matches("Too many open files").count(),
                    1,
                    "{arguments}, {limit} descriptors: {said}"
                );
                refused += 1;
            }
            // What is there for the next round: a directory that cannot be opened again.
            let _ = std::fs::create_dir(at.join("logs"));
        }
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn an_input_that_cannot_be_read_is_reported_once() {
    let directory = directory();
    let at = directory.path();
    for arguments in [&["append", "log"][..], &["tee", "s.log"]] {
        let mut command = crate::support::inkstone();
        command.args(arguments).current_dir(at);
        let input = std::fs::File::open(at).expect("a directory");
        let output = command.stdin(input).output().expect("it runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said, "inkstone: read stdin: Is a directory (os error 21)\n", "{arguments:?}");
    }
}

#[test]
fn a_log_that_is_not_there_is_said_once_and_in_the_same_words_by_every_command() {
    let directory = directory();
    let at = directory.path();
    std::fs::create_dir(at.join("empty")).expect("a directory");
    for (name, what) in [("missing", "directory missing"), ("empty", "log in empty")] {
        let expected = format!(
            "inkstone: there is no {what}: check the path; `inkstone append` creates a log\n"
        );
        for arguments in [
            &["verify", name][..],
            &["info", name],
            &["cat", name],
            &["get", name, "1"],
            &["dump", name],
            &["truncate", name, "--before", "2"],
            &["salvage", name, "new"],
            &["copy", name, "new"],
        ] {
            let output = crate::support::run(at, arguments);
            assert_eq!(text(&output.stderr), expected, "{arguments:?}");
            assert!(!output.status.success(), "{arguments:?}");
        }
    }
}

/// The mistakes that the labs must catch are in the copy of the tree that `.ci/mistaken` makes, and
/// nowhere in the command that users get: not their names, not what each does. (`no-sync` is also
/// the lab's word for a way of writing.)
#[cfg(not(inkstone_mistakes))]
#[test]
fn the_command_has_no_mistakes_in_it() {
    let tree = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| std::fs::read_to_string(tree.join(name)).expect("a file of mistakes");
    let quoted = read("proof/mistakes/log/mistake.rs");
    let of_log: Vec<&str> =
        quoted.split('"').skip(1).step_by(2).filter(|text| *text != "mistake").collect();
    assert!(of_log.len() > 100 && of_log.contains(&"renamed-first"), "{of_log:?}");
    let raft = read("proof/mistakes/raft/mistake.rs");
    let of_raft = raft.lines().filter_map(|line| line.trim().strip_suffix(',')).filter(|name| {
        name.starts_with(char::is_uppercase)
            && name.len() > 10
            && name.chars().all(char::is_alphanumeric)
    });
    let names: Vec<&str> =
        of_log.into_iter().chain(of_raft).filter(|name| *name != "no-sync").collect();
    assert!(names.contains(&"CallbackOutOfOrder"), "{names:?}");
    // The first is there, so that the search is seen to find.
    let control = "Cut the power, and check what is left of a log";
    let directory = directory();
    let list = directory.path().join("names");
    std::fs::write(&list, format!("{control}\n{}\n", names.join("\n"))).expect("a list");
    let mut grep = Command::new("grep");
    grep.args(["-aoF", "-f"]).arg(&list).arg(env!("CARGO_BIN_EXE_inkstone"));
    let output = grep.output().expect("grep runs");
    let found = text(&output.stdout);
    let (there, found): (Vec<&str>, Vec<&str>) = found.lines().partition(|name| *name == control);
    assert!(!there.is_empty());
    assert!(found.is_empty(), "{found:?}");
}
