//! What happens to a process that has a log open: it is stopped, it becomes another program, it
//! ends without a word.

use std::io::{BufRead, BufReader, Lines, Write as _};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use inkstone::{Access, Error, Log, Lsn, Options, Reader};
use inkstone_host::{Signal, close_standard_descriptors, signal_process};

const ROLE: &str = "INKSTONE_PROCESSES_ROLE";
const PLACE: &str = "INKSTONE_PROCESSES_PLACE";

/// This test again, in a process of its own, which does what `role` says.
fn start(test: &str, role: &str, path: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", &format!("stopped::{test}"), "--nocapture"])
        .envs([(ROLE, role), (PLACE, path.to_str().expect("plain"))])
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    (child, lines)
}

/// In the process of its own: the log, if this is one.
fn own_log() -> Option<(Log, String)> {
    let role = std::env::var(ROLE).ok()?;
    let log =
        Log::open(std::env::var_os(PLACE).expect("a place"), Options::small()).expect("opened");
    Some((log, role))
}

/// The next number that the process says was acknowledged. The test runner writes on its lines too.
fn next_ack(lines: &mut Lines<BufReader<ChildStdout>>) -> u64 {
    lines
        .map(|line| line.expect("read"))
        .find_map(|line| line.split_once("acknowledged ")?.1.parse().ok())
        .expect("it goes on")
}

fn append_for_ever(log: &Log) -> ! {
    loop {
        let lsn = log.append_durable(b"a record").expect("durable");
        println!("\nacknowledged {lsn}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn append_three(log: &Log) -> Lsn {
    let append = || log.append_durable(b"a record").expect("durable");
    (append(), append(), append()).2
}

#[test]
fn a_stopped_writer_keeps_its_lock_and_goes_on_where_it_was() {
    if let Some((log, _)) = own_log() {
        append_for_ever(&log);
    }
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("log");
    let (mut writer, mut lines) =
        start("a_stopped_writer_keeps_its_lock_and_goes_on_where_it_was", "writer", &path);
    let before = next_ack(&mut lines);
    for _ in 0..3 {
        signal_process(writer.id(), Signal::Stop).expect("stopped");
        std::thread::sleep(Duration::from_millis(200));
        assert!(matches!(Log::open(&path, Options::small()), Err(Error::Locked { .. })));
        let reader = Reader::open(&path, &Options::small()).expect("readers need no lock");
        reader.records(Lsn::FIRST).for_each(|record| drop(record.expect("read")));
        signal_process(writer.id(), Signal::Continue).expect("goes on");
        (0..20).for_each(|_| _ = next_ack(&mut lines));
    }
    let last = next_ack(&mut lines);
    signal_process(writer.id(), Signal::Kill).expect("killed");
    writer.wait().expect("ended");
    assert!(last > before + 60, "{before}, then {last}");
    let log = Log::open(&path, Options::small()).expect("opened");
    assert!(log.last() >= Lsn::new(last), "{last} was acknowledged");
}

#[test]
fn a_writer_that_becomes_another_program_gives_the_lock_back_and_loses_nothing_acknowledged() {
    if let Some((log, _)) = own_log() {
        let lsn = append_three(&log);
        drop(log.append(b"nobody waits for it"));
        println!("\nacknowledged {lsn}");
        panic!(
            "{}",
            Command::new("sh")
                .args(["-c", "echo; echo I am another program; exec sleep 60"])
                .exec()
        );
    }
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("log");
    let test =
        "a_writer_that_becomes_another_program_gives_the_lock_back_and_loses_nothing_acknowledged";
    let (mut writer, mut lines) = start(test, "writer", &path);
    let last = next_ack(&mut lines);
    // Its name in /proc would say too little: the kernel changes it first, and lets the locks go
    // when the program's first instruction is due.
    lines
        .map(|line| line.expect("read"))
        .find(|line| line == "I am another program")
        .expect("it becomes another");
    let opened = Log::open(&path, Options::small());
    let lives = writer.try_wait().expect("asked").is_none();
    signal_process(writer.id(), Signal::Kill).expect("killed");
    writer.wait().expect("ended");
    assert!(lives, "the other program was to live on");
    let log = opened.expect("the lock is free");
    assert!(log.last() >= Lsn::new(last) && log.last() <= Lsn::new(last + 1), "{}", log.last());
}

/// Records of the test of closed descriptors: several segments of them.
const MANY: u64 = 200;

/// A daemon: its stderr is closed, and some library of its has a lot to say.
fn warn_on_a_closed_stderr(role: &str) -> ! {
    let path = std::env::var_os(PLACE).expect("a place");
    // Past the page cache a warning would be refused, as no whole block.
    let open = || Log::open(&path, Options::small().access(Access::Buffered)).expect("opened");
    let early = (role == "closed before").then(close_standard_descriptors);
    let log = open();
    if early.is_none() {
        close_standard_descriptors();
    }
    for lsn in 1..=MANY {
        assert_eq!(log.append_durable(&[7; 20_000]).expect("durable"), Lsn::new(lsn));
        // Messages that no process receives.
        for _ in 0..100 {
            let said = std::io::stderr()
                .write_all(b"warning: a library has something to say, and says it on stderr\n");
            drop(said);
        }
    }
    log.close().expect("closed");
    std::process::exit(0)
}

#[test]
fn what_is_said_on_a_closed_stderr_is_written_into_no_file_of_the_log() {
    let test = "what_is_said_on_a_closed_stderr_is_written_into_no_file_of_the_log";
    if let Ok(role) = std::env::var(ROLE) {
        warn_on_a_closed_stderr(&role);
    }
    for role in ["closed before", "closed after"] {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("log");
        let (mut writer, _lines) = start(test, role, &path);
        assert!(writer.wait().expect("ended").success(), "{role}");
        let log =
            Log::open(&path, Options::small()).unwrap_or_else(|error| panic!("{role}: {error}"));
        assert_eq!(log.last(), Lsn::new(MANY));
        let reader = log.reader();
        assert!(
            reader.records(Lsn::FIRST).all(|record| record.expect("sound").bytes == [7; 20_000])
        );
        let in_files = |entry: std::io::Result<std::fs::DirEntry>| {
            let bytes = std::fs::read(entry.expect("listed").path()).expect("read");
            bytes.windows(8).any(|bytes| bytes == b"warning:")
        };
        assert!(!std::fs::read_dir(&path).expect("listed").any(in_files), "{role}");
    }
}
