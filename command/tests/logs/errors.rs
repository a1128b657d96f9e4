//! Too few descriptors are called that; and the command has no mistakes built in. What other errors
//! say: `cases/errors.txt`.

use crate::support::{Words as _, directory, good, lines, run, said, segments, text};

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
