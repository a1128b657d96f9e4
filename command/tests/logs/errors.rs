//! Errors say what went wrong, once, where, and what to do; nothing is begun and nothing is
//! changed. And the command has no mistakes built in.

use crate::support::{Words as _, directory, good, lines, names, run, said, segments, text};

/// Arguments, exit code, and what stderr says.
type Refused = (&'static str, i32, &'static [&'static str]);

#[test]
fn errors_name_the_path_and_what_to_do() {
    let directory = directory();
    let at = directory.path();
    std::fs::create_dir(at.join("empty")).expect("a directory");
    std::fs::write(at.join("file"), b"x").expect("a file");
    std::fs::create_dir(at.join("copied")).expect("a directory");
    std::fs::write(at.join("copied/inkstone.incomplete"), b"").expect("a mark");
    good(at, "append log -q", b"a\nb\n");
    let all: &[Refused] = &[
        ("cat copied", 1, &["an unfinished copy", "it starts over"]),
        ("cat file", 1, &["file", "not a directory"]),
        ("append file", 1, &["file"]),
        ("raft log", 1, &["log", "inkstone info"]),
        ("copy log log", 1, &["log already holds a log"]),
        ("salvage log log", 1, &["log already holds a log"]),
        ("truncate log", 2, &["--before"]),
        ("truncate log --before 1 --after 2", 2, &["cannot be used"]),
        ("truncate log --keep-for 7d --keep-bytes 1", 2, &["cannot be used"]),
        ("truncate log --keep-records 1 --after 3", 2, &["cannot be used"]),
        ("truncate log --keep-for soon", 2, &["duration"]),
        ("truncate log --dry-run", 2, &["--keep-bytes"]),
        ("truncate log --after 9", 1, &["LSN 9"]),
        ("truncate log --dry-run --before 4", 1, &["LSN 4"]),
        ("truncate log --dry-run --after 3", 1, &["LSN 3"]),
        ("get log 3", 1, &["LSN 3", "2"]),
        ("get log 0", 1, &["LSN 0"]),
        ("cat log --null --binary", 2, &["cannot be used"]),
        ("cat log --from 2 --to 1", 1, &["--to 1", "is before --from 2"]),
        ("cat log --to 0", 1, &["--to 0", "the first record of the log, 1"]),
        ("completions csh", 2, &["csh"]),
        ("man nowhere", 1, &["create it first"]),
    ];
    for (arguments, code, words) in all {
        let output = run(at, *arguments);
        let told = said(&output);
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {told}");
        assert!(words.iter().all(|word| told.contains(word)), "{arguments:?}: {told}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        let is_line = told.trim_end().lines().count() == 1;
        assert!(*code == 2 || is_line, "{arguments:?}: {told}");
        assert!(told.matches("os error").count() <= 1, "said twice: {told}");
    }
    assert_eq!(good(at, "cat log", b""), b"a\nb\n", "nothing was changed");
    assert_eq!(names(at), ["copied", "empty", "file", "log"], "nothing was begun");
    assert_eq!(names(&at.join("empty")), [""; 0], "looking creates nothing");
}

#[test]
fn a_log_that_is_not_there_is_said_once_and_in_the_same_words_by_every_command() {
    let directory = directory();
    let at = directory.path();
    std::fs::create_dir(at.join("empty")).expect("a directory");
    for (name, what) in [("missing", "directory missing"), ("empty", "log in empty")] {
        let expected = format!("inkstone: there is no {what}: check the path; ");
        for (arguments, code) in [
            ("verify LOG", 2),
            ("info LOG", 1),
            ("cat LOG", 1),
            ("get LOG 1", 1),
            ("dump LOG", 1),
            ("raft LOG", 1),
            ("truncate LOG --before 2", 1),
            ("salvage LOG new", 1),
            ("copy LOG new", 1),
        ] {
            let output = run(at, arguments.replace("LOG", name));
            let told = said(&output);
            // A raft log comes to be in another way.
            let cure = told.strip_prefix(&expected).unwrap_or_else(|| panic!("{told}"));
            let is_said = cure == "`inkstone append` creates a log\n" || arguments == "raft LOG";
            assert!(is_said && told.lines().count() == 1, "{arguments:?}: {told}");
            assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        }
    }
    assert_eq!(names(at), ["empty"]);
}

/// Whatever the limit, the command ends by itself, and no log is called damaged for it.
#[test]
fn too_many_open_files_are_called_that() {
    let directory = directory();
    let at = directory.path();
    good(at, "append log -q --segment-size 64KiB", &lines(1..=100, ""));
    let mut refused = 0;
    for line in ["verify log", "append log", "append logs/new", "copy log copied", "tee logs/s.log"]
    {
        for limit in [3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20] {
            let line = line.replace("copied", &format!("copied-{limit}"));
            let mut command = crate::support::in_bash(&format!("ulimit -n {limit}"));
            command.args(line.as_str().words()).current_dir(at);
            let output = command.output().expect("bash runs");
            let told = said(&output);
            let what = format!("{line}, {limit} descriptors: {told}");
            assert!(!told.contains("File exists"), "{what}");
            assert!(line != "verify log" || output.status.code() != Some(1), "{what}");
            // With three the loader itself may have failed.
            if output.status.code() == Some(1) && told.starts_with("inkstone:") {
                assert_eq!(told.matches("Too many open files").count(), 1, "{what}");
                refused += 1;
            }
            // What is there for the next round: a directory that cannot be opened again.
            let _ = std::fs::create_dir(at.join("logs"));
        }
    }
    assert!(refused > 10, "{refused}");
    good(at, "verify log", b"");
    assert!(!segments(&at.join("log")).is_empty());
}

/// The mistakes that the labs must catch are in the copy of the tree that `.ci/mistaken` makes, and
/// nowhere in the command that users get: not their names, not what each does. (`no-sync` is also
/// the lab's word for a way of writing.)
#[cfg(not(inkstone_mistakes))]
#[test]
fn the_command_has_no_mistakes_in_it() {
    let directory = directory();
    let arguments = "powerloss sim --seeds 1 --mistake no-sync";
    assert_eq!(run(directory.path(), arguments).status.code(), Some(2), "{arguments}");
    let tree = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
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
    let list = directory.path().join("names");
    std::fs::write(&list, format!("{control}\n{}\n", names.join("\n"))).expect("a list");
    let mut grep = std::process::Command::new("grep");
    grep.args(["-aoF", "-f"]).arg(&list).arg(env!("CARGO_BIN_EXE_inkstone"));
    let found = text(&grep.output().expect("grep runs").stdout);
    let (there, found): (Vec<&str>, Vec<&str>) = found.lines().partition(|name| *name == control);
    assert!(!there.is_empty());
    assert!(found.is_empty(), "{found:?}");
}
