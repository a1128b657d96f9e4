//! How long `inkstone tee` takes to end after the first signal: one deadline for reading the rest,
//! a disk that fails, and the echo.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use crate::support::{code_and_words, ends, fed, full_pipe, numbers, open_files, signal, until};
use crate::with_tee::{len, limited_tee, place, put, start};

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

/// Nothing is retried, and everything is counted.
#[test]
fn without_a_grace_what_a_full_disk_does_not_take_is_counted_at_once() {
    let (_directory, file) = place();
    let tee = limited_tee(&file, &["--grace", "0s"]).spawn().expect("bash");
    let (code, told) = code_and_words(&fed(tee, ("x".repeat(99) + "\n").repeat(5000).as_bytes()));
    let counted = numbers(&told, "were not written");
    assert_eq!((code, counted[0]), (Some(1), 5000), "{told}");
    // A whole buffer of which the disk took a part counts as not written.
    assert!(counted[2] + len(&file) >= 500_000, "{told}");
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
