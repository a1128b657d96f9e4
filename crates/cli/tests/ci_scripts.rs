//! The long scripts of `.ci`: a signal ends the whole script, and nothing of it is left.
//!
//! *Owns*: how they end. *May not touch*: what they measure: `cargo` and `inkstone` are stand-ins
//! here.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::{directory, signal, until};

/// Runs until a signal comes, and ends as the real one does: with 130.
const HANGS: &str = "#!/usr/bin/env bash
trap 'exit 130' INT TERM
echo $$ >>started
while :; do sleep 0.02; done
";
/// As above, but quick while nobody is busy.
const HANGS_WITH_NEIGHBOURS: &str = "#!/usr/bin/env bash
trap 'exit 130' INT TERM
if ls -d engines-ten.* >/dev/null 2>&1; then
    echo $$ >>started
    while :; do sleep 0.02; done
fi
while [ $# -gt 1 ]; do shift; done
echo '{}' >\"$1\"
";

fn executable(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
}

/// The script in a tree of its own, as the leader of a group, as a terminal has it.
fn started(at: &Path, script: &str, inkstone: &str) -> Child {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci");
    for name in ["notebook", "engines-ten", "read-ten"] {
        let text = fs::read_to_string(source.join(name)).expect("a script");
        executable(&at.join(".ci").join(name), &text);
    }
    executable(&at.join("bin/cargo"), "#!/bin/sh\n");
    executable(&at.join("target/debug/inkstone"), inkstone);
    let path =
        format!("{}:{}", at.join("bin").display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", "bash", &format!(".ci/{script}")]);
    command
        .current_dir(at)
        .env("PATH", path)
        .env("PROFILE", "dev")
        .env("COUNT", "1")
        .process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("it starts");
    until(|| !begun(at).is_empty());
    child
}

/// The stand-ins that hang or have hung, by their id.
fn begun(at: &Path) -> Vec<String> {
    let text = fs::read_to_string(at.join("started")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn is_gone(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[test]
fn a_signal_ends_a_script_and_what_it_runs() {
    for script in ["notebook", "engines-ten", "read-ten"] {
        for (name, code) in [("-INT", 130), ("-TERM", 143)] {
            let directory = directory();
            let at = directory.path();
            let mut child = started(at, script, HANGS);
            if name == "-INT" {
                // Ctrl-C is for the whole group.
                let group = format!("-{}", child.id());
                assert!(
                    Command::new("kill")
                        .args([name, "--", &group])
                        .status()
                        .expect("kill")
                        .success()
                );
            } else {
                signal(&child, name);
            }
            // The old notebook continued with the next step.
            until(|| begun(at).len() > 1 || child.try_wait().expect("a state").is_some());
            let steps = begun(at);
            let left: Vec<&String> = steps.iter().filter(|id| !is_gone(id)).collect();
            for id in &left {
                let _ = Command::new("kill").args(["-KILL", id]).status();
            }
            let _ = child.kill();
            let status = child.wait().expect("an end");
            assert!(left.is_empty(), "{script} {name}: {left:?} still run");
            assert_eq!(steps.len(), 1, "{script} {name}: the next step began");
            assert_eq!(status.code(), Some(code), "{script} {name}: {status}");
        }
    }
}

#[test]
fn neighbours_end_with_a_script_that_was_killed() {
    let directory = directory();
    let at = directory.path();
    let mut child = started(at, "engines-ten", HANGS_WITH_NEIGHBOURS);
    child.kill().expect("killed");
    let status = child.wait().expect("an end");
    for id in begun(at) {
        let _ = Command::new("kill").args(["-KILL", &id]).status();
    }
    assert_eq!(status.signal(), Some(9));
    let beside = || {
        let names =
            fs::read_dir(at).expect("the tree").map(|entry| entry.expect("an entry").file_name());
        names.filter(|name| name.to_string_lossy().starts_with("engines-ten.")).count()
    };
    // The last thing that a neighbour does.
    until(|| beside() == 0);
}
