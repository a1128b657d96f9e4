//! How long `inkstone tee` takes to end after the first signal: one deadline for reading the rest,
//! a disk that fails, and the echo. And that it ends in order if no more threads can be created.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{copy_the_command, directory, inkstone, signal, text, until};

/// Prints loudly that a test did not run, past the test harness, which hides what a passing test
/// prints.
fn not_run(test: &str, why: &str) {
    let _ = std::io::stderr().write_all(format!("\nNOT RUN: {test}: {why}\n").as_bytes());
}

fn len(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |facts| facts.len())
}

/// The numbers in a message on stderr.
fn numbers(told: &str, about: &str) -> Vec<u64> {
    let line = told.lines().find(|line| line.contains(about)).unwrap_or_else(|| panic!("{told}"));
    line.split(|other: char| !other.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// Waits for its end, and returns how long that took.
fn end(child: &mut Child) -> Duration {
    let since = Instant::now();
    until(|| child.try_wait().expect("asked").is_some());
    since.elapsed()
}

/// A tee that reads more than its disk accepts, and gets a signal: how long it took to end, and
/// what is left.
fn end_on_a_full_disk(
    at: &Path,
    arguments: &[&str],
    stdout: Stdio,
    stderr: Stdio,
) -> (Duration, Child) {
    // No more than 100 KiB go into a file: a disk that is full.
    let mut tee = Command::new("bash");
    tee.args([
        "-c",
        "trap '' XFSZ; ulimit -f 100; exec \"$@\"",
        "bash",
        "env",
        "--default-signal=TERM",
    ]);
    tee.arg(env!("CARGO_BIN_EXE_inkstone"))
        .args(["tee", "s.log", "--buffers", "64KiB"])
        .args(arguments);
    let tee = tee.current_dir(at).stdin(Stdio::piped()).stdout(stdout).stderr(stderr);
    let mut tee = tee.spawn().expect("bash");
    let mut stdin = tee.stdin.take().expect("a pipe");
    let write = move || while stdin.write_all(&[b'x'; 99]).and(stdin.write_all(b"\n")).is_ok() {};
    let writer = std::thread::spawn(write);
    until(|| len(&at.join("s.log")) == 100 << 10);
    signal(&tee, "-TERM");
    let lasted = end(&mut tee);
    writer.join().expect("the writer");
    (lasted, tee)
}

#[test]
fn a_disk_that_fails_gets_what_reading_on_has_left_of_the_deadline() {
    let grace = Duration::from_secs(6);
    let mut took = Vec::new();
    // Repeated if this machine is too slow to distinguish once from twice.
    for _ in 0..3 {
        let directory = directory();
        let (lasted, mut tee) = end_on_a_full_disk(
            directory.path(),
            &["--grace", "6s"],
            Stdio::inherit(),
            Stdio::piped(),
        );
        let mut told = String::new();
        tee.stderr.take().expect("a pipe").read_to_string(&mut told).expect("text");
        assert_eq!(tee.wait().expect("its end").code(), Some(1), "{told}");
        assert!(numbers(&told, "were not written")[1] > 0, "{told}");
        if lasted < grace.mul_f64(1.8) {
            return;
        }
        took.push(lasted);
    }
    panic!("with a grace of {grace:?} it took {took:?}");
}

/// A full pipe; its reader is open and does not read.
fn full_pipe() -> (std::io::PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(&vec![b'x'; 64 << 10]).expect("a pipe holds that");
    (reader, writer.into())
}

/// After the grace there is one second for everything: Docker kills 10 s after a signal.
#[test]
fn a_full_disk_a_stuck_echo_and_a_stuck_stderr_share_one_second_behind_the_grace() {
    let grace = Duration::from_secs(2);
    let mut took = Vec::new();
    // Repeated if this machine is too slow to distinguish one second from two.
    for _ in 0..4 {
        let directory = directory();
        let ((_one, out), (_other, told)) = (full_pipe(), full_pipe());
        let (lasted, mut tee) =
            end_on_a_full_disk(directory.path(), &["--echo", "--grace", "2s"], out, told);
        assert_eq!(tee.wait().expect("its end").code(), Some(1));
        if lasted < grace + Duration::from_millis(1500) {
            return;
        }
        took.push(lasted);
    }
    panic!("with a grace of {grace:?} it took {took:?}");
}

/// It ends in order at once, and each line that it has read is in the log or counted.
#[test]
fn without_a_grace_what_was_read_and_what_waits_is_in_the_log() {
    for survive in ["nothing", "kill"] {
        let directory = directory();
        let mut command = inkstone();
        command.current_dir(directory.path()).args([
            "tee",
            "s.log",
            "--grace",
            "0s",
            "--survive",
            survive,
        ]);
        let mut tee =
            command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("inkstone");
        let mut stdin = tee.stdin.take().expect("a pipe");
        // It is stopped, so that bytes wait in the pipe; the handed-over bytes are counted.
        let file = directory.path().join("s.log");
        let line = b"one of many lines\n";
        (0..10_000).for_each(|_| stdin.write_all(line).expect("it reads"));
        until(|| len(&file) > 0);
        signal(&tee, "-STOP");
        (0..1000).for_each(|_| stdin.write_all(line).expect("a pipe holds that"));
        signal(&tee, "-TERM");
        signal(&tee, "-CONT");
        let lasted = end(&mut tee);
        drop(stdin);
        let output = tee.wait_with_output().expect("its end");
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), told.as_str()), (Some(130), ""));
        assert_eq!(len(&file), 11_000 * line.len() as u64, "{lasted:?}");
    }
    // A full disk: nothing is retried, and everything is counted.
    let directory = directory();
    let mut tee = Command::new("bash");
    tee.args([
        "-c",
        "trap '' XFSZ; ulimit -f 100; exec \"$@\"",
        "bash",
        env!("CARGO_BIN_EXE_inkstone"),
    ]);
    tee.args(["tee", "s.log", "--grace", "0s"]).current_dir(directory.path());
    let mut tee = tee.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bash");
    let mut stdin = tee.stdin.take().expect("a pipe");
    stdin
        .write_all(&b"x".repeat(99).iter().chain(b"\n").copied().collect::<Vec<u8>>().repeat(5000))
        .expect("it reads");
    drop(stdin);
    end(&mut tee);
    let output = tee.wait_with_output().expect("its end");
    let counted = numbers(&text(&output.stderr), "were not written");
    assert_eq!((output.status.code(), counted[0]), (Some(1), 5000), "{}", text(&output.stderr));
    // A whole buffer of which the disk took a part counts as not written.
    assert!(
        counted[2] + len(&directory.path().join("s.log")) >= 500_000,
        "{}",
        text(&output.stderr)
    );
}

/// logrotate compresses the moved file as soon as the signal is sent.
#[test]
fn a_hangup_while_the_log_is_being_closed_sends_what_is_left_to_the_new_file() {
    let directory = directory();
    let (file, moved) = (directory.path().join("s.log"), directory.path().join("s.log.1"));
    let mut tee = Command::new("bash");
    // A disk that is full until the limit is raised.
    tee.args([
        "-c",
        "trap '' XFSZ; ulimit -S -f 100; exec \"$@\"",
        "bash",
        "env",
        "--default-signal=HUP",
    ]);
    tee.arg(env!("CARGO_BIN_EXE_inkstone")).args([
        "tee",
        "s.log",
        "--grace",
        "10m",
        "--flush-every",
        "1h",
    ]);
    let mut tee = tee
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bash");
    let mut stdin = tee.stdin.take().expect("a pipe");
    std::fs::write(&file, vec![b'\n'; 100 << 10]).expect("full");
    stdin.write_all(b"the last words\n").expect("it reads");
    drop(stdin);
    let mut told = std::io::BufReader::new(tee.stderr.take().expect("a pipe"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut told, &mut line).expect("text");
    assert!(line.contains("cannot be written"), "{line}");
    std::fs::rename(&file, &moved).expect("moved");
    signal(&tee, "-HUP");
    until(|| file.exists() || tee.try_wait().expect("asked").is_some());
    let ended = tee.wait().expect("its end");
    assert!(ended.success(), "{line}");
    assert_eq!(std::fs::read_to_string(&file).expect("made anew"), "the last words\n");
    assert_eq!(len(&moved), 100 << 10);
}

#[test]
fn a_signal_ends_the_echo_also_when_the_input_and_the_log_have_ended() {
    let directory = directory();
    let file = directory.path().join("s.log");
    let mut command = inkstone();
    command.current_dir(directory.path()).args(["tee", "s.log", "--echo", "--grace", "1s"]);
    let mut tee = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("inkstone");
    let mut out = tee.stdout.take().expect("a pipe");
    let all: String = (0..60_000).map(|line| format!("{line:099}\n")).collect();
    tee.stdin.take().expect("a pipe").write_all(all.as_bytes()).expect("it reads");
    // Slow, but alive: at this pace it would take ten minutes.
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let reader = std::thread::spawn(move || {
        let mut echoed = 0;
        loop {
            let wait = is_over.recv_timeout(Duration::from_millis(400));
            let count = out.read(&mut [0; 4096]).expect("read");
            echoed += count;
            if count == 0 {
                return echoed;
            }
            if wait.is_ok() {
                return echoed + out.read_to_end(&mut Vec::new()).expect("the rest");
            }
        }
    });
    // The log is closed: nothing but the echo is left.
    until(|| len(&file) == all.len() as u64 && !has_open(tee.id(), &file));
    signal(&tee, "-TERM");
    let lasted = end(&mut tee);
    over.send(()).expect("it reads still");
    let echoed = reader.join().expect("the reader");
    assert!(lasted < Duration::from_secs(60), "{lasted:?}");
    let mut told = String::new();
    tee.stderr.take().expect("a pipe").read_to_string(&mut told).expect("text");
    let missing = numbers(&told, "were not echoed");
    assert_eq!(
        (tee.wait().expect("its end").code(), missing[1] + echoed as u64),
        (Some(1), all.len() as u64),
        "{told}"
    );
}

fn has_open(process: u32, file: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    let mut paths = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    paths.any(|path| path == file)
}

#[test]
fn it_ends_in_order_where_no_more_threads_can_be_made() {
    let name = "it_ends_in_order_where_no_more_threads_can_be_made";
    if !inkstone_io::is_root() {
        return not_run(name, "root alone can be another user, whose threads are counted");
    }
    // A place that this user can reach, whatever is above the target directory.
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o777)).expect("for everybody");
    copy_the_command(&at.join("inkstone"));
    for echo in [false, true] {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            "54321",
            "--clear-groups",
            "./inkstone",
            "tee",
            "s.log",
            "--flush-every",
            "1ms",
        ]);
        command.args(echo.then_some("--echo")).current_dir(at);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut tee = match command.spawn() {
            Ok(tee) => tee,
            Err(error) => return not_run(name, &format!("setpriv: {error}")),
        };
        let mut stdin = tee.stdin.take().expect("a pipe");
        let lines = b"a line\n".repeat(100_000);
        stdin.write_all(&lines).expect("it reads");
        until(|| len(&at.join("s.log")) == lines.len() as u64);
        let mut limit = Command::new("setpriv");
        limit.args(["--reuid", "54321", "--clear-groups", "prlimit", "--nproc=1:1"]);
        let limit = limit.args(["--pid", &tee.id().to_string()]).status();
        if !limit.is_ok_and(|status| status.success()) {
            tee.kill().and_then(|()| tee.wait()).expect("killed");
            return not_run(name, "prlimit does not work here");
        }
        drop(stdin);
        // Nobody reads the echo before the end.
        let mut out = tee.stdout.take().expect("a pipe");
        let output = tee.wait_with_output().expect("its end");
        let told = text(&output.stderr);
        let mut echoed = Vec::new();
        out.read_to_end(&mut echoed).expect("what is in the pipe");
        assert_eq!(output.status.code(), Some(i32::from(echo)), "{told}");
        let missing = if echo { numbers(&told, "were not echoed")[1] } else { 0 };
        assert_eq!(
            echoed.len() as u64 + missing,
            if echo { lines.len() as u64 } else { 0 },
            "{told}"
        );
        assert!(echo || told.is_empty(), "{told}");
        std::fs::remove_file(at.join("s.log")).expect("removed");
    }
}

/// Bytes that wait to be read at the end of a connection that has this local port.
fn waiting(port: u16) -> u64 {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = words.get(1)?.ends_with(&format!(":{port:04X}")) && *words.get(3)? == "01";
        u64::from_str_radix(words.get(4)?.split(':').nth(1)?, 16).ok().filter(|_| is_it)
    };
    table.lines().filter_map(of).max().unwrap_or(0)
}

#[test]
fn all_that_waits_is_read_last_also_where_that_is_more_than_a_mebibyte() {
    // A pipe of that size needs rights; the end of a connection grows by itself while it is read
    // fast.
    let name = "all_that_waits_is_read_last_also_where_that_is_more_than_a_mebibyte";
    let directory = directory();
    let file = directory.path().join("s.log");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut far =
        TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    let (near, _) = listener.accept().expect("accepted");
    let port = near.local_addr().expect("an address").port();
    let mut command = inkstone();
    command.current_dir(directory.path()).args([
        "tee",
        "s.log",
        "--grace",
        "0s",
        "--buffers",
        "64MiB",
    ]);
    let tee = command.stdin(OwnedFd::from(near)).stderr(Stdio::piped()).spawn().expect("inkstone");
    let piece = b"a line of the service, again and again and again\n".repeat(4000);
    let mut sent = 0;
    for _ in 0..400 {
        far.write_all(&piece).expect("it reads");
        sent += piece.len();
    }
    until(|| len(&file) == sent as u64);
    signal(&tee, "-STOP");
    far.set_write_timeout(Some(Duration::from_millis(500))).expect("set");
    while far.write(&piece).is_ok() {}
    let waits = waiting(port);
    signal(&tee, "-TERM");
    signal(&tee, "-CONT");
    let output = tee.wait_with_output().expect("its end");
    let written = len(&file) - sent as u64;
    if waits <= 1 << 20 {
        return not_run(name, &format!("only {waits} bytes came to wait"));
    }
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(written >= waits, "{waits} bytes waited, {written} were read");
}
