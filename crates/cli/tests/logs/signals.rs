//! Signals to the command: one that was ignored at the start stays ignored, and a hangup for `tee`
//! is for `tee` alone.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{directory, good, inkstone, run, signal, text};

fn start(directory: &Path, command: &mut Command) -> (Child, ChildStdin, BufReader<ChildStdout>) {
    command
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command runs");
    let stdin = child.stdin.take().expect("a pipe");
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    (child, stdin, stdout)
}

/// The command started by another, which becomes it: `nohup`, or a shell that ignores a signal.
fn behind(words: &[&str], arguments: &[&str]) -> Command {
    // Signals as a shell leaves them: the tests themselves may run where one is ignored.
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,TERM").args(words);
    command.arg(env!("CARGO_BIN_EXE_inkstone")).args(arguments);
    command
}

fn line(out: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    line
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process ignores a signal, as the kernel sees it.
fn ignores(child: &Child, number: u32) -> bool {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("its status");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    u64::from_str_radix(mask.trim(), 16).expect("a number") >> (number - 1) & 1 == 1
}

const NOHUP: &[&str] = &["nohup"];

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let ways: [(&[&str], &str); 3] = [
        (NOHUP, "-HUP"),
        // As a shell starts a command that is followed by `&`.
        (&["sh", "-c", "trap '' INT; exec \"$0\" \"$@\""], "-INT"),
        (&["sh", "-c", "trap '' TERM; exec \"$0\" \"$@\""], "-TERM"),
    ];
    for (words, name) in ways {
        let directory = directory();
        let at = directory.path();
        let (mut append, mut stdin, mut out) = start(at, &mut behind(words, &["append", "log"]));
        stdin.write_all(b"one\n").expect("it reads");
        assert_eq!(line(&mut out), "1\n", "{name}");
        let (mut cat, _open, mut followed) =
            start(at, &mut behind(words, &["cat", "--follow", "log"]));
        assert_eq!(line(&mut followed), "one\n", "{name}");
        let (mut tee, mut to_tee, _) = start(at, &mut behind(words, &["tee", "s.log"]));
        wait_until("the text log is open", || at.join("s.log").exists());
        for child in [&append, &cat, &tee] {
            signal(child, name);
        }
        stdin.write_all(b"two\n").expect("it reads on");
        assert_eq!((line(&mut out), line(&mut followed)), ("2\n".into(), "two\n".into()), "{name}");
        drop(stdin);
        assert_eq!(append.wait().expect("an end").code(), Some(0), "{name}");
        to_tee.write_all(b"line\n").expect("it reads on");
        drop(to_tee);
        assert_eq!(tee.wait().expect("an end").code(), Some(0), "{name}");
        assert_eq!(std::fs::read_to_string(at.join("s.log")).expect("text"), "line\n");
        // Any other signal ends it as usual.
        signal(&cat, if name == "-INT" { "-TERM" } else { "-INT" });
        assert_eq!(cat.wait().expect("an end").code(), Some(130), "{name}");
    }
}

#[test]
fn a_background_job_of_a_shell_is_not_ended_by_ctrl_c() {
    let directory = directory();
    let script = "exec 3<&0; \"$0\" append log <&3 & echo $! >&2; wait $!; exit $?";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(env!("CARGO_BIN_EXE_inkstone"));
    let (mut shell, mut stdin, mut out) = start(directory.path(), &mut shell);
    let mut number = String::new();
    let mut told = BufReader::new(shell.stderr.take().expect("a pipe"));
    told.read_line(&mut number).expect("its number");
    stdin.write_all(b"one\n").expect("it reads");
    assert_eq!(line(&mut out), "1\n");
    let sent = Command::new("kill").args(["-INT", number.trim()]).status().expect("kill");
    assert!(sent.success());
    stdin.write_all(b"two\n").expect("it reads on");
    assert_eq!(line(&mut out), "2\n");
    drop(stdin);
    assert_eq!(shell.wait().expect("an end").code(), Some(0));
}

#[test]
fn without_nohup_a_hangup_ends_a_command_in_order() {
    let directory = directory();
    let mut command = inkstone();
    let (mut append, mut stdin, mut out) = start(directory.path(), command.args(["append", "log"]));
    stdin.write_all(b"one\n").expect("it reads");
    assert_eq!(line(&mut out), "1\n");
    signal(&append, "-HUP");
    assert_eq!(append.wait().expect("an end").code(), Some(130));
    assert_eq!(good(directory.path(), &["cat", "log"], b""), b"one\n");
}

/// A tee whose process id is in a file; returned when its handlers are set.
/// SIGTERM is number 15: bit 14 of the signals that it catches.
fn catches_the_end(process: u32) -> bool {
    let of =
        |name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
    let status = of("status");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    of("comm").trim() == "inkstone"
        && u64::from_str_radix(caught.trim(), 16).is_ok_and(|caught| caught & 1 << 14 != 0)
}

/// strace delays the setting of each handler, so that the signal comes in the middle of it.
#[test]
fn a_signal_that_comes_while_handlers_are_set_up_is_not_lost() {
    let directory = directory();
    let at = directory.path();
    good(at, &["append", "log", "-q"], b"one\n");
    let slow =
        "strace -D -f -o /dev/null -e trace=rt_sigaction -e inject=rt_sigaction:delay_exit=50000";
    let words: Vec<&str> =
        slow.split(' ').chain(["env", "--default-signal=HUP,INT,TERM"]).collect();
    let can_trace = Command::new("strace").args(&words[1..words.len() - 2]).arg("true").output();
    if !can_trace.is_ok_and(|output| output.status.success()) {
        let why = "\nNOT RUN: a signal while handlers are set up: strace is not there, or may not trace\n";
        let _ = std::io::stderr().write_all(why.as_bytes());
        return;
    }
    for arguments in [&["cat", "log", "--follow"][..], &["tee", "s.log", "--grace", "0s"]] {
        let (mut child, stdin, _out) = start(at, &mut behind(&words, arguments));
        wait_until("it listens", || catches_the_end(child.id()));
        signal(&child, "-TERM");
        let since = Instant::now();
        while child.try_wait().expect("asked").is_none() {
            if since.elapsed() > Duration::from_secs(60) {
                child.kill().and_then(|()| child.wait()).expect("killed");
                panic!("{arguments:?} does not hear it");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(child.wait().expect("its end").code(), Some(130), "{arguments:?}");
        drop(stdin);
    }
}

fn tee_with_pid_file(at: &Path, words: &[&str]) -> (Child, ChildStdin) {
    let arguments = ["tee", "s.log", "--flush-every", "1ms", "--pid-file", "s.pid"];
    let mut command = if words.is_empty() { inkstone() } else { behind(words, &[]) };
    let (tee, stdin, _) = start(at, command.args(arguments));
    let is_told = || {
        std::fs::read_to_string(at.join("s.pid"))
            .is_ok_and(|text| text == format!("{}\n", tee.id()))
    };
    wait_until("its number is told", is_told);
    (tee, stdin)
}

#[test]
fn the_helps_own_example_opens_the_file_again_and_ends_nothing_else() {
    let directory = directory();
    let at = directory.path();
    let help = text(&run(at, &["tee", "--help"]).stdout);
    // A kill by name would end every other inkstone command on this machine, so it is not run.
    assert!(
        !help.contains("pidof") && !help.contains("pkill") && !help.contains("killall"),
        "{help}"
    );
    let example =
        help.lines().find(|line| line.trim_start().starts_with("kill -HUP")).expect("an example");
    let example = example.trim().split_once("   ").expect("a command, and what it does").0;
    assert!(example.contains("/run/service-log.pid"), "{example}");
    let example = example.replace("/run/service-log.pid", "s.pid");

    let mut command = inkstone();
    let (mut append, mut records, mut out) = start(at, command.args(["append", "log"]));
    records.write_all(b"one\n").expect("it reads");
    assert_eq!(line(&mut out), "1\n");
    for words in [&[][..], NOHUP] {
        let (mut tee, mut stdin) = tee_with_pid_file(at, words);
        let file = at.join("s.log");
        stdin.write_all(b"before\n").expect("it reads");
        wait_until("a line", || std::fs::read_to_string(&file).unwrap_or_default() == "before\n");
        std::fs::rename(&file, at.join("moved")).expect("moved");
        let ran = Command::new("sh").args(["-c", &example]).current_dir(at).status().expect("sh");
        assert!(ran.success(), "{example}");
        wait_until("it is opened again", || file.exists());
        stdin.write_all(b"behind\n").expect("it reads on");
        drop(stdin);
        assert_eq!(tee.wait().expect("an end").code(), Some(0));
        assert_eq!(std::fs::read_to_string(&file).expect("text"), "behind\n");
        assert_eq!(std::fs::read_to_string(at.join("moved")).expect("text"), "before\n");
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
    let (tee, stdin) = tee_with_pid_file(at, NOHUP);
    assert!(!ignores(&tee, 1), "somebody is meant to send it");
    drop(stdin);
    assert_eq!(tee.wait_with_output().expect("an end").status.code(), Some(0));
    let (tee, mut stdin, _) = start(at, &mut behind(NOHUP, &["tee", "other.log"]));
    wait_until("the log is open", || at.join("other.log").exists());
    assert!(ignores(&tee, 1) && !ignores(&tee, 15));
    stdin.write_all(b"line\n").expect("it reads");
    drop(stdin);
    assert_eq!(tee.wait_with_output().expect("an end").status.code(), Some(0));
}

#[test]
fn a_pid_file_never_replaces_anything_else() {
    let directory = directory();
    let at = directory.path();
    std::fs::write(at.join("notes"), "mine\n").expect("written");
    let output = run(at, &["tee", "s.log", "--pid-file", "notes"]);
    let told = text(&output.stderr);
    assert!(
        output.status.code() == Some(1)
            && told.contains("notes")
            && told.contains("something else"),
        "{told}"
    );
    assert_eq!(std::fs::read_to_string(at.join("notes")).expect("text"), "mine\n");
    // The process id of a killed tee is replaced.
    let (mut tee, _open) = tee_with_pid_file(at, &[]);
    tee.kill().expect("killed");
    tee.wait().expect("an end");
    assert!(at.join("s.pid").exists());
    let (mut tee, stdin) = tee_with_pid_file(at, &[]);
    drop(stdin);
    let mut told = String::new();
    tee.stderr.take().expect("a pipe").read_to_string(&mut told).expect("text");
    assert!(tee.wait().expect("an end").success() && told.is_empty(), "{told}");
}

#[test]
fn a_pid_file_is_never_the_log_itself() {
    let directory = directory();
    let at = directory.path();
    std::fs::create_dir(at.join("logs")).expect("made");
    std::os::unix::fs::symlink("logs", at.join("alias")).expect("a link");
    // Missing files are not created, and existing ones are left as they are.
    for (log, pid_file) in
        [("n.log", "n.log"), ("logs/n.log", "alias/n.log"), ("new/n.log", "./new/n.log")]
    {
        let output = run(at, &["tee", log, "--pid-file", pid_file]);
        let told = text(&output.stderr);
        assert!(
            output.status.code() == Some(1)
                && told.contains("is the log itself: name another file"),
            "{told}"
        );
        assert!(!at.join(log).exists(), "{log}");
    }
    std::fs::write(at.join("old.log"), "12\n").expect("written");
    std::fs::hard_link(at.join("old.log"), at.join("hard.log")).expect("a link");
    for pid_file in ["old.log", "hard.log"] {
        let output = run(at, &["tee", "old.log", "--pid-file", pid_file]);
        assert!(
            text(&output.stderr).contains("is the log itself: name another file"),
            "{output:?}"
        );
        assert_eq!(std::fs::read_to_string(at.join(pid_file)).expect("text"), "12\n");
    }
    // Nor is a foreign file that is still empty.
    std::fs::write(at.join("empty.log"), "").expect("written");
    let output = run(at, &["tee", "n.log", "--pid-file", "empty.log"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(std::fs::read_to_string(at.join("empty.log")).expect("text"), "");
}

#[test]
fn what_a_killed_tee_has_left_of_its_pid_file_stops_no_start() {
    let directory = directory();
    let at = directory.path();
    // The shell creates what a killed process with its id would have left, and then becomes tee.
    let script = "echo $$ >s.pid.$$.new; exec \"$0\" tee s.log --pid-file s.pid";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(env!("CARGO_BIN_EXE_inkstone"));
    let (mut tee, mut stdin, _) = start(at, &mut shell);
    let _ = stdin.write_all(b"line\n");
    drop(stdin);
    let mut told = String::new();
    tee.stderr.take().expect("a pipe").read_to_string(&mut told).expect("text");
    assert!(tee.wait().expect("an end").success() && told.is_empty(), "{told}");
    assert_eq!(std::fs::read_to_string(at.join("s.log")).expect("text"), "line\n");
    assert_eq!(std::fs::read_dir(at).expect("a directory").count(), 1, "only the log is left");
}
