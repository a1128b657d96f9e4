//! How `inkstone tee` ends, and what is in the log then: with a service beside it, signals to both,
//! a disk that fails.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::with_tee::{said, signal, start, tee, text, wait_until};

/// Acts like a service: prints its last steps when it gets a signal. It creates the file `$1` when
/// it could print them all.
const SERVICE: &str = r#"
    steps() { for step in 1 2 3 4 5; do echo "step $step"; sleep 0.1; done; printf unfinished; : >"$1"; exit 0; }
    trap 'steps "$1"' TERM INT
    echo up
    while :; do sleep 0.02; done
"#;
const ITS_LINES: &str = "up\nstep 1\nstep 2\nstep 3\nstep 4\nstep 5\nunfinished";

/// A service and a tee in one group, as a terminal or a supervisor starts them.
fn group(directory: &Path, arguments: &[&str]) -> (Child, Child) {
    let file = directory.join("s.log");
    let mut tee = tee(&file, arguments).process_group(0).spawn().expect("inkstone");
    let pipe = tee.stdin.take().expect("a pipe");
    let service = Command::new("sh")
        .args(["-c", SERVICE, "service"])
        .arg(directory.join("done"))
        .stdin(Stdio::null())
        .stdout(pipe)
        .stderr(Stdio::null())
        .process_group(i32::try_from(tee.id()).expect("a number"))
        .spawn()
        .expect("sh");
    wait_until("the service is up", || text(&file) == "up\n");
    (tee, service)
}

fn ends_with_all_steps(directory: &Path, tee: Child, mut service: Child) {
    let ended: ExitStatus = service.wait().expect("its end");
    assert!(
        ended.success() && directory.join("done").exists(),
        "the service met a closed pipe: {ended}"
    );
    let output = tee.wait_with_output().expect("its end");
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(130), ""));
    assert_eq!(text(&directory.join("s.log")), ITS_LINES);
}

#[test]
fn a_group_that_is_signalled_has_the_services_last_lines_in_the_log() {
    for name in ["-TERM", "-INT"] {
        for survive in ["nothing", "kill"] {
            let directory = tempfile::tempdir().expect("a directory");
            let (tee, service) = group(directory.path(), &["--survive", survive, "--grace", "2m"]);
            signal(name, format_args!("-{}", tee.id()));
            ends_with_all_steps(directory.path(), tee, service);
        }
    }
}

#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    // As `timeout` sends it: to the process and to its group. Repeated if this machine is too slow
    // for the two to count as one.
    for _ in 0..20 {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut tee, mut service) = group(directory.path(), &["--grace", "2m"]);
        let since = Instant::now();
        let mut twice = Command::new("sh");
        twice.args(["-c", "kill -TERM $1; kill -TERM -$1", "sh"]);
        assert!(twice.arg(tee.id().to_string()).status().expect("sh").success());
        if since.elapsed() < Duration::from_millis(500) {
            return ends_with_all_steps(directory.path(), tee, service);
        }
        for child in [&mut tee, &mut service] {
            child.kill().and_then(|()| child.wait()).expect("killed");
        }
    }
    panic!("NOT RUN: a shell takes half a second to send two signals");
}

#[test]
fn a_service_that_ends_first_leaves_all_its_lines() {
    let directory = tempfile::tempdir().expect("a directory");
    let (tee, mut service) = group(directory.path(), &[]);
    signal("-TERM", service.id());
    assert!(service.wait().expect("its end").success());
    let output = tee.wait_with_output().expect("its end");
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
    assert_eq!(text(&directory.path().join("s.log")), ITS_LINES);
}

#[test]
fn reading_on_has_an_end_and_what_was_in_the_pipe_is_in_the_log() {
    for grace in ["0s", "300ms"] {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("s.log");
        let mut tee = start(&file, &["--grace", grace]);
        let mut stdin = tee.stdin.take().expect("a pipe");
        wait_until("the log is open", || file.exists());
        let lines: String = (0..3000).map(|line| format!("line {line}\n")).collect();
        stdin.write_all(lines.as_bytes()).expect("written");
        stdin.write_all(b"unfinished").expect("written");
        signal("-TERM", tee.id());
        let output = tee.wait_with_output().expect("its end");
        assert_eq!(output.status.code(), Some(130));
        assert!(
            text(&file) == lines.clone() + "unfinished",
            "{grace}: {} bytes",
            text(&file).len()
        );
        let told = said(&output);
        assert!(
            grace == "0s" && told.is_empty() || told.contains("SIGTERM: stdin did not end in time"),
            "{told}"
        );
        drop(stdin);
    }
}

#[test]
fn a_second_signal_ends_reading() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.log");
    let mut tee = start(&file, &["--grace", "60m"]);
    let mut stdin = tee.stdin.take().expect("a pipe");
    stdin.write_all(b"one\ntwo").expect("written");
    wait_until("a line", || text(&file) == "one\n");
    wait_until("its end", || {
        signal("-INT", tee.id());
        std::thread::sleep(Duration::from_millis(200));
        tee.try_wait().expect("asked").is_some()
    });
    let output = tee.wait_with_output().expect("its end");
    assert_eq!((output.status.code(), text(&file).as_str()), (Some(130), "one\ntwo"));
    // Nothing had run out of time: the user wanted it.
    assert_eq!(said(&output), "");
}

#[test]
fn a_terminal_had_no_time_to_run_out_of() {
    // `script` makes one; at its other end nobody types.
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.log");
    let (told, code) = (directory.path().join("told"), directory.path().join("code"));
    let line = format!(
        "trap : INT; {} tee {} 2>{}; echo $? >{}",
        env!("CARGO_BIN_EXE_inkstone"),
        file.display(),
        told.display(),
        code.display()
    );
    let mut script = Command::new("script");
    script.args(["-q", "-c", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut script = match script.spawn() {
        Ok(script) => script,
        Err(error) => {
            // Bypasses the test harness, which hides the output of passing tests.
            let why = format!("\nNOT RUN: a_terminal_had_no_time_to_run_out_of: script: {error}\n");
            return std::io::stderr().write_all(why.as_bytes()).expect("said");
        }
    };
    wait_until("the log is open", || file.exists());
    let mut keys = script.stdin.take().expect("a pipe");
    // The terminal makes a SIGINT of it.
    wait_until("its end", || {
        keys.write_all(b"\x03").expect("typed");
        std::thread::sleep(Duration::from_millis(50));
        !text(&code).is_empty()
    });
    drop(keys);
    script.wait().expect("its end");
    assert_eq!((text(&code).trim(), text(&told).as_str()), ("130", ""));
}

#[test]
fn lines_that_were_read_and_cannot_be_written_are_counted() {
    // It may end by the end of its input, or by a signal while it holds lines that there is no room
    // for.
    for is_signalled in [false, true] {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("logs/s.log");
        let mut tee = start(&file, &["--grace", "300ms", "--buffers", "64KiB"]);
        let mut stdin = tee.stdin.take().expect("a pipe");
        stdin.write_all(b"1\n2\n3\n").expect("written");
        wait_until("three lines", || text(&file) == "1\n2\n3\n");
        std::fs::remove_dir_all(directory.path().join("logs")).expect("removed");
        let lines: String = (0..60_000).map(|line| format!("line {line:08}\n")).collect();
        // There is room for the first of them, and not for all.
        let (before, behind) = lines.split_at(if is_signalled { 400_000 } else { 20_000 });
        stdin.write_all(before.as_bytes()).expect("written");
        let pipe = if is_signalled {
            let writer = std::thread::spawn({
                let behind = behind.to_owned();
                move || {
                    // It may end before it has read everything.
                    let _ = stdin.write_all(behind.as_bytes());
                    stdin
                }
            });
            signal("-TERM", tee.id());
            Some(writer)
        } else {
            drop(stdin);
            None
        };
        let output = tee.wait_with_output().expect("its end");
        drop(pipe.map(|writer| writer.join().expect("a thread")));
        let told = said(&output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        let numbers: Vec<u64> = told
            .lines()
            .find(|line| line.contains("were not written"))
            .unwrap_or_else(|| panic!("{told}"))
            .split(|other: char| !other.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .take(3)
            .collect();
        let [read, lost, bytes] = numbers[..] else { panic!("{told}") };
        assert_eq!(read - lost, 3, "{told}");
        if is_signalled {
            // Everything that was written, except what may be in the pipe.
            assert!(bytes >= 400_000 - 65_536, "{told}");
            assert_eq!(bytes.div_ceil(14), lost, "{told}");
        } else {
            assert_eq!((lost, bytes), (20_000_u64.div_ceil(14), 20_000), "{told}");
        }
    }
}

#[test]
fn nobody_who_reads_stderr_is_no_reason_to_lose_a_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.log");
    let mut tee = start(&file, &["--survive", "kill", "--flush-every", "60m", "--echo"]);
    let mut stdin = tee.stdin.take().expect("a pipe");
    stdin.write_all(b"one\n").expect("written");
    // Echoed bytes were handed to the log before.
    let mut echoed = [0; 4];
    tee.stdout.take().expect("a pipe").read_exact(&mut echoed).expect("echoed");
    tee.kill().expect("killed");
    tee.wait().expect("its end");
    // The next start must report that it wrote this line.
    let mut tee = start(&file, &["--survive", "kill"]);
    drop(tee.stderr.take());
    tee.stdin.take().expect("a pipe").write_all(b"two\n").expect("written");
    assert_eq!(tee.wait().expect("its end").code(), Some(0));
    assert_eq!(text(&file), "one\ntwo\n");
    drop(stdin);
}

#[test]
fn an_idle_tee_sleeps() {
    let ways: [&[&str]; 3] = [
        &[],
        &["--survive", "power-loss", "--rotate-every", "day", "--echo"],
        &["--survive", "kill", "--rotate-size", "1MiB", "--compress", "gzip", "--pid-file", "pid"],
    ];
    crate::support::side_by_side(&ways, |way| {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("s.log");
        let mut command = tee(&file, way);
        let mut tee = command.current_dir(directory.path()).spawn().expect("inkstone");
        let mut stdin = tee.stdin.take().expect("a pipe");
        stdin.write_all(b"one\n").expect("written");
        wait_until("a line", || text(&file) == "one\n");
        // Once a second would be three in each; what it does just after a line may be in the first
        // few.
        let window = Duration::from_secs(3);
        let mut seen = Vec::new();
        wait_until(&format!("{way:?} sleeps"), || {
            let before = switches(tee.id());
            std::thread::sleep(window);
            seen.push(switches(tee.id()) - before);
            assert!(seen.len() < 10, "{way:?}: it wakes too often, times in {window:?}: {seen:?}");
            seen.last().is_some_and(|count| *count <= 3)
        });
        drop(stdin);
        assert_eq!(tee.wait().expect("its end").code(), Some(0));
    });
}

/// How often all threads of a process have gone to sleep by themselves.
fn switches(process: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
    let of = |thread: std::fs::DirEntry| -> u64 {
        let status = std::fs::read_to_string(thread.path().join("status")).expect("its status");
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.expect("a count").trim().parse().expect("a number")
    };
    threads.map(|thread| of(thread.expect("a thread"))).sum()
}

/// This many lines of 100 bytes.
fn lines(count: usize) -> String {
    (0..count).map(|line| format!("{line:099}\n")).collect()
}

/// The lines and bytes that were not echoed, according to stderr.
fn not_echoed(told: &str) -> (usize, usize) {
    let line = told
        .lines()
        .find(|line| line.contains("were not echoed"))
        .unwrap_or_else(|| panic!("{told}"));
    let mut numbers =
        line.split(|other: char| !other.is_ascii_digit()).filter_map(|word| word.parse().ok());
    (numbers.next().expect("lines"), numbers.next().expect("bytes"))
}

#[test]
fn a_reader_of_the_echo_that_stands_still_stops_no_line_of_the_log() {
    for full in ["block", "drop-oldest", "drop-newest", "block-for"] {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("s.log");
        // With room for all of them, so that no policy drops a line for the disk's sake.
        let mut tee = start(&file, &["--echo", "--when-full", full, "--buffers", "64MiB"]);
        let all = lines(300_000);
        let (mut stdin, theirs) = (tee.stdin.take().expect("a pipe"), all.clone());
        let writer = std::thread::spawn(move || stdin.write_all(theirs.as_bytes()));
        wait_until("it reads on", || writer.is_finished());
        writer.join().expect("a thread").expect("written");
        // Nobody has read a byte of it so far.
        let mut out = tee.stdout.take().expect("a pipe");
        let output = tee.wait_with_output().expect("its end");
        assert!(text(&file) == all, "{full}: {} of {} bytes", text(&file).len(), all.len());
        let mut echoed = String::new();
        out.read_to_string(&mut echoed).expect("what is in the pipe");
        let told = said(&output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("did not keep up"), "{told}");
        let (lost, bytes) = not_echoed(&told);
        assert_eq!(echoed.bytes().filter(|byte| *byte == b'\n').count() + lost, 300_000, "{told}");
        assert_eq!(echoed.len() + bytes, all.len(), "{told}");
    }
}

#[test]
fn a_reader_of_the_echo_that_leaves_ends_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.log");
    let mut tee = start(&file, &["--echo"]);
    drop(tee.stdout.take());
    let all = lines(100_000);
    let mut stdin = tee.stdin.take().expect("a pipe");
    stdin.write_all(&all.as_bytes()[..100]).expect("written");
    wait_until("a line", || text(&file).len() == 100);
    stdin.write_all(&all.as_bytes()[100..]).expect("it reads on");
    drop(stdin);
    let output = tee.wait_with_output().expect("its end");
    assert!(text(&file) == all);
    assert_eq!(
        (output.status.code(), not_echoed(&said(&output))),
        (Some(1), (100_000, 10_000_000))
    );
    assert!(said(&output).contains("its reader closed it"), "{}", said(&output));
    // A failing output is reported as such.
    let full = std::fs::File::create("/dev/full").expect("/dev/full");
    let mut tee = tee_into(&file, full);
    tee.stdin.take().expect("a pipe").write_all(b"one\ntwo").expect("written");
    let output = tee.wait_with_output().expect("its end");
    assert!(text(&file) == all + "one\ntwo");
    assert_eq!((output.status.code(), not_echoed(&said(&output))), (Some(1), (2, 7)));
    assert!(said(&output).contains("No space left"), "{}", said(&output));
}

fn tee_into(file: &Path, stdout: std::fs::File) -> Child {
    tee(file, &["--echo"]).stdout(stdout).spawn().expect("inkstone")
}

#[test]
fn a_slow_reader_of_the_echo_gets_everything_that_fits() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.log");
    let mut tee = start(&file, &["--echo"]);
    let all = lines(20_000);
    let mut out = tee.stdout.take().expect("a pipe");
    let mut stdin = tee.stdin.take().expect("a pipe");
    stdin.write_all(all.as_bytes()).expect("written");
    let (mut echoed, mut piece) = (Vec::new(), vec![0; 50_000]);
    // The input stays open meanwhile: at its end tee would not wait for a reader that takes nothing
    // for a second.
    while echoed.len() < all.len() {
        let count = out.read(&mut piece).expect("read");
        assert!(count > 0, "it ended after {} bytes", echoed.len());
        echoed.extend_from_slice(&piece[..count]);
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(stdin);
    let output = tee.wait_with_output().expect("its end");
    assert!(output.status.success() && said(&output).is_empty(), "{output:?}");
    assert!(text(&file) == all && echoed == all.as_bytes());
}
