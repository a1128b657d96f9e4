//! The lab as an ordinary user, without any rights.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{WRITE, Words, copy_the_command, names, not_run, said, text};

/// As nobody, in a directory of its own; `None` where that cannot be had.
pub(crate) fn as_nobody(at: &Path, arguments: impl Words) -> Option<Output> {
    let given = Command::new("chown").arg("65534:65534").arg(at).status().ok()?;
    let own = at.join("inkstone");
    copy_the_command(&own);
    let mut command = Command::new("setpriv");
    command.args("--reuid=65534 --regid=65534 --clear-groups --inh-caps=-all".words()).arg(&own);
    let output = command.args(arguments.words()).current_dir(at).env("LC_ALL", "C.UTF-8").output();
    std::fs::remove_file(own).ok()?;
    given.success().then_some(output.ok()?)
}

#[test]
#[ignore = "needs root, to become an ordinary user"]
fn an_ordinary_user_gets_counters_and_is_told_what_root_would_add() {
    let name = "an_ordinary_user_gets_counters_and_is_told_what_root_would_add";
    // Not below the build: an ordinary user may not be let in there.
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    // Another user's lab that lives is not called a killed one.
    let theirs = inkstone_host::WorkDir::create(at).expect("a work directory");
    let Some(output) = as_nobody(at, WRITE) else {
        return not_run(name, "setpriv is not installed (util-linux)");
    };
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}{}", said(&output));
    assert!(out.contains("as root the lab traces"), "{out}");
    // What labs elsewhere have left it may remove.
    let place = at.to_string_lossy();
    let is_called_killed = |line: &str| line.contains("killed lab") && line.contains(&*place);
    assert!(!out.lines().any(is_called_killed), "{out}");
    theirs.remove().expect("it lived all the time");
    let asked = "lab write --file-systems ext4 --loops direct --quiet";
    let refused = as_nobody(at, asked).expect("it ran before");
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("needs root"), "{}", said(&refused));
    assert_eq!(names(at), [""; 0]);
    // A directory in which it may not write.
    std::fs::create_dir(at.join("closed")).expect("a directory");
    let refused = as_nobody(at, "lab closed").expect("it ran before");
    let told = said(&refused);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("closed") && told.contains("ermission denied"), "{told}");
}
