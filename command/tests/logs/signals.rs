//! Signals to the command: one that was ignored at the start stays ignored, and a hangup for `tee`
//! is for `tee` alone.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::{
    behind, directory, ends, good, ignores, inkstone, listens, not_run, signal, text, until,
};

fn start(
    at: &Path,
    mut command: Command,
    line: &str,
) -> (Child, ChildStdin, BufReader<ChildStdout>) {
    let mut child =
        command.args(line.split(' ')).current_dir(at).spawn().expect("the command runs");
    let stdin = child.stdin.take().expect("a pipe");
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    (child, stdin, stdout)
}

fn line(out: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    line
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// Signals as a shell leaves them: the tests themselves may run where one is ignored.
const DEFAULT: &str = "env --default-signal=HUP,INT,TERM";
const NOHUP: &str = "env --default-signal=HUP,INT,TERM nohup";

/// Started by a shell that runs this before.
fn behind_shell(script: &str) -> Command {
    behind(&format!("{DEFAULT} sh -c"), &[&format!("{script} exec \"$0\" \"$@\"")])
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    for name in ["-HUP", "-INT", "-TERM"] {
        let ignoring = || match name {
            "-HUP" => behind(NOHUP, &[]),
            // As a shell starts a command that is followed by `&`.
            "-INT" => behind_shell("trap '' INT;"),
            _ => behind_shell("trap '' TERM;"),
        };
        let directory = directory();
        let at = directory.path();
        let (mut append, mut stdin, mut out) = start(at, ignoring(), "append log");
        stdin.write_all(b"one\n").expect("it reads");
        assert_eq!(line(&mut out), "1\n", "{name}");
        let (mut cat, _open, mut followed) = start(at, ignoring(), "cat --follow log");
        assert_eq!(line(&mut followed), "one\n", "{name}");
        let (mut tee, mut to_tee, _) = start(at, ignoring(), "tee s.log");
        until("the text log is open", || at.join("s.log").exists());
        for child in [&append, &cat, &tee] {
            signal(name, child.id());
        }
        stdin.write_all(b"two\n").expect("it reads on");
        assert_eq!((line(&mut out), line(&mut followed)), ("2\n".into(), "two\n".into()), "{name}");
        drop(stdin);
        assert_eq!(append.wait().expect("an end").code(), Some(0), "{name}");
        to_tee.write_all(b"line\n").expect("it reads on");
        drop(to_tee);
        assert_eq!(tee.wait().expect("an end").code(), Some(0), "{name}");
        assert_eq!(read(&at.join("s.log")), "line\n");
        // Any other signal ends it as usual.
        signal(if name == "-INT" { "-TERM" } else { "-INT" }, cat.id());
        assert_eq!(cat.wait().expect("an end").code(), Some(130), "{name}");
    }
}

/// strace delays the setting of each handler, so that the signal comes in the middle of it.
#[test]
#[ignore = "needs strace"]
fn a_signal_that_comes_while_handlers_are_set_up_is_not_lost() {
    let directory = directory();
    let at = directory.path();
    good(at, "append log -q", b"one\n");
    let slow = "strace -D -f -o /dev/null -e trace=rt_sigaction \
                -e inject=rt_sigaction:delay_exit=50000";
    let can_trace = behind(&format!("{slow} true"), &[]).output();
    if !can_trace.is_ok_and(|output| output.status.success()) {
        let name = "a_signal_that_comes_while_handlers_are_set_up_is_not_lost";
        return not_run(name, "strace is not there, or may not trace");
    }
    for arguments in ["cat log --follow", "tee s.log --grace 0s"] {
        let (mut child, stdin, _out) =
            start(at, behind(&format!("{slow} {DEFAULT}"), &[]), arguments);
        until("it listens", || listens(child.id()));
        signal("-TERM", child.id());
        ends(&mut child);
        assert_eq!(child.wait().expect("its end").code(), Some(130), "{arguments:?}");
        drop(stdin);
    }
}

/// A tee whose process id is in a file; returned when its handlers are set.
fn tee_with_pid_file(at: &Path, command: Command) -> (Child, ChildStdin) {
    let (tee, stdin, _) = start(at, command, "tee s.log --flush-every 1ms --pid-file s.pid");
    let number = format!("{}\n", tee.id());
    until("its process number is in the file", || read(&at.join("s.pid")) == number);
    (tee, stdin)
}

#[test]
fn the_helps_own_example_opens_the_file_again_and_ends_nothing_else() {
    let directory = directory();
    let at = directory.path();
    let help = text(&good(at, "tee --help", b""));
    // A kill by name would end every other inkstone command on this machine, so it is not run.
    assert!(["pidof", "pkill", "killall"].iter().all(|word| !help.contains(word)), "{help}");
    let example =
        help.lines().find(|line| line.trim_start().starts_with("kill -HUP")).expect("an example");
    let example = example.trim();
    assert!(example.contains("/run/service-log.pid"), "{example}");
    let example = example.replace("/run/service-log.pid", "s.pid");

    let (mut append, mut records, mut out) = start(at, inkstone(), "append log");
    records.write_all(b"one\n").expect("it reads");
    assert_eq!(line(&mut out), "1\n");
    for command in [inkstone(), behind(NOHUP, &[])] {
        let (mut tee, mut stdin) = tee_with_pid_file(at, command);
        let file = at.join("s.log");
        stdin.write_all(b"before\n").expect("it reads");
        until("a line", || read(&file) == "before\n");
        std::fs::rename(&file, at.join("moved")).expect("moved");
        let ran = Command::new("sh").args(["-c", &example]).current_dir(at).status().expect("sh");
        assert!(ran.success(), "{example}");
        until("it is opened again", || file.exists());
        stdin.write_all(b"behind\n").expect("it reads on");
        drop(stdin);
        assert_eq!(tee.wait().expect("an end").code(), Some(0));
        assert_eq!((read(&file), read(&at.join("moved"))), ("behind\n".into(), "before\n".into()));
        assert!(!at.join("s.pid").exists(), "it is removed at the end");
        std::fs::remove_file(file).expect("removed");
    }
    records.write_all(b"two\n").expect("it reads on");
    assert_eq!(line(&mut out), "2\n");
    drop(records);
    assert_eq!(append.wait().expect("an end").code(), Some(0));
}

#[test]
fn under_nohup_tee_listens_to_a_hangup_only_if_it_is_told_whom_it_is_for() {
    let directory = directory();
    let at = directory.path();
    let (mut tee, stdin) = tee_with_pid_file(at, behind(NOHUP, &[]));
    assert!(!ignores(tee.id(), 1), "somebody is meant to send it");
    drop(stdin);
    assert_eq!(tee.wait().expect("an end").code(), Some(0));
    let (mut tee, stdin, _) = start(at, behind(NOHUP, &[]), "tee other.log");
    until("the log is open", || at.join("other.log").exists());
    assert!(ignores(tee.id(), 1) && !ignores(tee.id(), 15));
    drop(stdin);
    assert_eq!(tee.wait().expect("an end").code(), Some(0));
}
