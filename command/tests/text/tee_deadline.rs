//! How long `inkstone tee` takes to end after the first signal: one deadline for reading the rest,
//! a disk that fails, and the echo. And that it ends in order if no more threads can be created.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{
    code_and_words, copy_the_command, ends, fed, full_pipe, not_run, numbers, open_files, signal,
    until,
};
use crate::with_tee::{len, limited_tee, place, put, start, tee, text};

const LIMIT: u64 = 100 << 10;

/// Whether it ends soon enough at least once: this machine may be too slow to tell.
fn is_soon(within: Duration, mut run: impl FnMut() -> Duration) {
    let took: Vec<Duration> =
        (0..4).map_while(|_| Some(run()).filter(|it| *it >= within)).collect();
    assert!(took.len() < 4, "more than {within:?}: {took:?}");
}

/// After the grace there is one second for everything: Docker kills 10 s after a signal.
#[test]
fn a_full_disk_a_stuck_echo_and_a_stuck_stderr_share_one_second_behind_the_grace() {
    is_soon(Duration::from_millis(3500), || {
        let ((_one, out), (_other, told)) = (full_pipe(), full_pipe());
        let (_directory, file) = place();
        let mut tee = limited_tee(&file, &["--buffers", "64KiB", "--echo", "--grace", "2s"]);
        let mut tee = tee.stdout(out).stderr(told).spawn().expect("bash");
        let mut stdin = tee.stdin.take().expect("a pipe");
        let line = [&[b'x'; 99][..], b"\n"].concat();
        let writer = std::thread::spawn(move || while stdin.write_all(&line).is_ok() {});
        until("a full disk", || len(&file) == LIMIT);
        signal("-TERM", tee.id());
        let lasted = ends(&mut tee);
        writer.join().expect("the writer");
        assert_eq!(tee.wait().expect("its end").code(), Some(1));
        lasted
    });
}

/// It ends in order at once, and each line that it has read is in the log or counted.
#[test]
fn without_a_grace_what_was_read_and_what_waits_is_in_the_log() {
    for survive in ["nothing", "kill"] {
        let (_directory, file) = place();
        let mut tee = start(&file, &["--grace", "0s", "--survive", survive]);
        // It is stopped, so that bytes wait in the pipe; the handed-over bytes are counted.
        let line = "one of many lines\n";
        put(&mut tee, line.repeat(10_000));
        until("lines", || len(&file) > 0);
        signal("-STOP", tee.id());
        put(&mut tee, line.repeat(1000));
        signal("-TERM", tee.id());
        signal("-CONT", tee.id());
        ends(&mut tee);
        let output = tee.wait_with_output().expect("its end");
        assert_eq!(code_and_words(&output), (Some(130), String::new()));
        assert_eq!(len(&file), 11_000 * line.len() as u64);
    }
    // A full disk: nothing is retried, and everything is counted.
    let (_directory, file) = place();
    let tee = limited_tee(&file, &["--grace", "0s"]).spawn().expect("bash");
    let (code, told) = code_and_words(&fed(tee, ("x".repeat(99) + "\n").repeat(5000).as_bytes()));
    let counted = numbers(&told, "were not written");
    assert_eq!((code, counted[0]), (Some(1), 5000), "{told}");
    // A whole buffer of which the disk took a part counts as not written.
    assert!(counted[2] + len(&file) >= 500_000, "{told}");
}

/// logrotate compresses the moved file as soon as the signal is sent.
#[test]
fn a_hangup_while_the_log_is_being_closed_sends_what_is_left_to_the_new_file() {
    let (directory, file) = place();
    let moved = directory.path().join("s.log.1");
    let mut tee = limited_tee(&file, &["--grace", "10m", "--flush-every", "1h"]);
    let mut tee = tee.spawn().expect("bash");
    std::fs::write(&file, vec![b'\n'; 100 << 10]).expect("full");
    put(&mut tee, "the last words\n");
    drop(tee.stdin.take());
    let mut told = std::io::BufReader::new(tee.stderr.take().expect("a pipe"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut told, &mut line).expect("text");
    assert!(line.contains("cannot be written"), "{line}");
    std::fs::rename(&file, &moved).expect("moved");
    signal("-HUP", tee.id());
    ends(&mut tee);
    assert!(tee.wait().expect("its end").success(), "{line}");
    assert_eq!((text(&file).as_str(), len(&moved)), ("the last words\n", LIMIT));
}

#[test]
fn a_signal_ends_the_echo_also_when_the_input_and_the_log_have_ended() {
    let (_directory, file) = place();
    let mut tee = start(&file, &["--echo", "--grace", "1s"]);
    let mut out = tee.stdout.take().expect("a pipe");
    let all: String = (0..60_000).map(|line| format!("{line:099}\n")).collect();
    put(&mut tee, &all);
    drop(tee.stdin.take());
    // Slow, but alive: at this pace it would take ten minutes.
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let reader = std::thread::spawn(move || {
        let mut echoed = 0;
        while is_over.recv_timeout(Duration::from_millis(400)).is_err() {
            echoed += out.read(&mut [0; 4096]).expect("read");
        }
        echoed + out.read_to_end(&mut Vec::new()).expect("the rest")
    });
    // The log is closed: nothing but the echo is left.
    until("the log", || len(&file) == all.len() as u64 && !open_files(tee.id()).contains(&file));
    signal("-TERM", tee.id());
    assert!(ends(&mut tee) < Duration::from_secs(60));
    over.send(()).expect("it reads still");
    let echoed = reader.join().expect("the reader") as u64;
    let (code, told) = code_and_words(&tee.wait_with_output().expect("its end"));
    let is_said = told.contains("some lines were not echoed");
    assert!(code == Some(1) && is_said && echoed < all.len() as u64, "{told}");
}

#[test]
#[ignore = "needs root"]
fn it_ends_in_order_where_no_more_threads_can_be_made() {
    let name = "it_ends_in_order_where_no_more_threads_can_be_made";
    // A place that this user can reach, whatever is above the target directory.
    let (directory, file) = place();
    let at = directory.path();
    std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o777)).expect("for everybody");
    copy_the_command(&at.join("inkstone"));
    for echo in [false, true] {
        let user = ["--reuid", "54321", "--clear-groups"];
        let mut tee = Command::new("setpriv");
        tee.args(user).args(["./inkstone", "tee", "s.log", "--flush-every", "1ms"]);
        tee.args(echo.then_some("--echo")).current_dir(at);
        tee.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut tee = match tee.spawn() {
            Ok(tee) => tee,
            Err(error) => return not_run(name, format_args!("setpriv: {error}")),
        };
        let lines = "a line\n".repeat(100_000);
        put(&mut tee, &lines);
        until("lines", || len(&file) == lines.len() as u64);
        let mut limit = Command::new("setpriv");
        limit.args(user).args(["prlimit", "--nproc=1:1", "--pid", &tee.id().to_string()]);
        if !limit.status().is_ok_and(|status| status.success()) {
            tee.kill().and_then(|()| tee.wait()).expect("killed");
            return not_run(name, "prlimit does not work here");
        }
        // Nobody reads the echo before the end.
        let mut out = tee.stdout.take().expect("a pipe");
        let (code, told) = code_and_words(&fed(tee, b""));
        let mut echoed = Vec::new();
        out.read_to_end(&mut echoed).expect("what is in the pipe");
        assert!(code == Some(i32::from(echo)) && (echo || told.is_empty()), "{told}");
        assert_eq!(told.contains("some lines were not echoed"), echo, "{told}");
        assert!(lines.as_bytes().starts_with(&echoed) && echoed.is_empty() != echo);
        std::fs::remove_file(&file).expect("removed");
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

/// A pipe of that size needs rights; the end of a connection grows by itself while it is read fast.
#[test]
fn all_that_waits_is_read_last_also_where_that_is_more_than_a_mebibyte() {
    let name = "all_that_waits_is_read_last_also_where_that_is_more_than_a_mebibyte";
    let (_directory, file) = place();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut far = TcpStream::connect(address).expect("connected");
    let (near, _) = listener.accept().expect("accepted");
    let mut tee = tee(&file, &["--grace", "0s", "--buffers", "64MiB"]);
    let tee = tee.stdin(OwnedFd::from(near)).spawn().expect("inkstone");
    let piece = b"a line of the service, again and again and again\n".repeat(4000);
    (0..400).for_each(|_| far.write_all(&piece).expect("it reads"));
    let sent = 400 * piece.len() as u64;
    until("lines", || len(&file) == sent);
    signal("-STOP", tee.id());
    far.set_write_timeout(Some(Duration::from_millis(500))).expect("set");
    while far.write(&piece).is_ok() {}
    let waits = waiting(address.port());
    signal("-TERM", tee.id());
    signal("-CONT", tee.id());
    let (code, told) = code_and_words(&tee.wait_with_output().expect("its end"));
    if waits <= 1 << 20 {
        return not_run(name, format_args!("only {waits} bytes came to wait"));
    }
    let written = len(&file) - sent;
    assert_eq!(code, Some(130), "{told}");
    assert!(written >= waits, "{waits} bytes waited, {written} were read");
}
