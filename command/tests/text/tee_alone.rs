//! `inkstone tee` beside others on the same file: one of them at a time reads and writes, the
//! others wait or are refused.
//!
//! A few rounds; as many as asked: `INKSTONE_TEE_ROUNDS=300 cargo test --release -p inkstone-cli
//! --test text -- tee_alone:: --nocapture`

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use crate::support::{code_and_words, fed, inkstone, listens, said, signal, until};
use crate::with_tee::{all_text, place, put, start, text};

const LINES: u64 = 2000;

fn lines_of(name: &str) -> impl Iterator<Item = String> {
    (0..LINES).map(move |number| format!("{name} {number}"))
}

/// Gives a tee its lines, and ends it by the end of its input or by a signal besides.
fn feed(mut tee: Child, name: &str, is_signalled: bool) -> Output {
    let lines: String = lines_of(name).map(|line| line + "\n").collect();
    // A tee that is refused closes its pipe.
    let _ = tee.stdin.as_mut().expect("a pipe").write_all(lines.as_bytes());
    if is_signalled {
        // Before that a signal ends it as any program, with nothing read.
        until("its handlers", || listens(tee.id()));
        signal("-TERM", tee.id());
    }
    fed(tee, b"")
}

/// Two, three and four at once, with rotation and compression, and restarted again and again. Each
/// line that was read is in the log once; a tee that was refused had read none.
#[test]
fn of_several_on_one_file_each_has_all_its_lines_in_the_log_or_was_refused_before_it_read() {
    let rounds: u32 =
        std::env::var("INKSTONE_TEE_ROUNDS").map_or(4, |rounds| rounds.parse().expect("a number"));
    let (mut written, mut refused) = (0, 0);
    for round in 0..rounds {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let file = directory.path().join("a.log");
        let survive = ["nothing", "kill"][round as usize % 2];
        // Long enough for all of them, and too short for those that come last.
        let grace = if round % 3 == 2 { "0s" } else { "60s" };
        let arguments = ["--rotate-size", "16KiB", "--compress", "gzip", "--flush-every", "1ms"];
        let arguments = [&arguments[..], &["--survive", survive, "--grace", grace]].concat();
        let mut ended: Vec<(String, Output)> = std::thread::scope(|scope| {
            let tees = (0..2 + round % 3).map(|number| {
                let tee = start(&file, &arguments);
                let name = format!("{round}-{number}");
                // One keeps its input open for longer than another that has no grace waits.
                let hold = if grace == "0s" && number == 0 { 4000 } else { fastrand::u64(..20) };
                std::thread::sleep(Duration::from_millis(fastrand::u64(..5)));
                let is_signalled = fastrand::bool() && grace != "0s";
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(hold));
                    let output = feed(tee, &name, is_signalled);
                    (name, output)
                })
            });
            let tees: Vec<_> = tees.collect();
            tees.into_iter().map(|tee| tee.join().expect("fed")).collect()
        });
        // A restart, which finds the log free.
        let last = format!("{round}-last");
        ended.push((last.clone(), feed(start(&file, &arguments), &last, false)));
        let mut found = BTreeMap::<String, u32>::new();
        for line in all_text(&file).concat().lines() {
            *found.entry(line.to_owned()).or_default() += 1;
        }
        for (name, output) in &ended {
            let times = |line: String| found.get(&line).copied().unwrap_or(0);
            let (code, told) = code_and_words(output);
            let is_refused = told.contains("another writer has it open") && code == Some(1);
            (written, refused) =
                (written + u32::from(!is_refused), refused + u32::from(is_refused));
            assert!(is_refused || matches!(code, Some(0 | 130)), "{name}: {told}");
            let expected = u32::from(!is_refused);
            assert!(lines_of(name).map(times).all(|times| times == expected), "{name}: {told}");
        }
        assert_eq!(found.len() as u64 % LINES, 0, "other lines: {round}");
    }
    println!("{rounds} rounds: {written} wrote all their lines, {refused} were refused before");
}

/// The second one says that it waits, takes nothing from its pipe, and is refused with words when
/// the grace is over.
#[test]
fn a_second_one_waits_for_the_grace_and_is_refused_with_words() {
    let (directory, file) = place();
    let mut first = start(&file, &["--flush-every", "1ms"]);
    put(&mut first, "one\n");
    until("the first line", || text(&file) == "one\n");
    // A second name of the file is no other log.
    let link = directory.path().join("link.log");
    fs::hard_link(&file, &link).expect("linked");
    for name in [&file, &link] {
        let since = Instant::now();
        let (code, told) = code_and_words(&fed(start(name, &["--grace", "300ms"]), b"two\n"));
        assert!(code == Some(1) && since.elapsed() >= Duration::from_millis(300), "{told}");
        for words in ["waiting for another writer", "end that one first"] {
            assert!(told.contains(words), "{told}");
        }
        assert_eq!(text(&file), "one\n");
    }
    // One that comes while the first ends has the log then.
    let second = start(&file, &[]);
    std::thread::sleep(Duration::from_millis(100));
    assert!(fed(first, b"").status.success());
    let output = feed(second, "second", false);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(text(&file).lines().count() as u64, 1 + LINES);
}

/// Lines of a killed tee whose directory is another one now: the next start says whose they are,
/// and `--recover` lists them, and prints them once.
#[test]
fn lines_that_wait_are_told_listed_and_printed() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("NOT RUN: lines that wait: there is no /dev/shm");
    };
    let made = tempfile::tempdir().expect("a directory");
    let (logs, file) = (made.path().join("logs"), made.path().join("logs/a.log"));
    let stages = ["--stage-directory", memory.path().to_str().expect("text")];
    let kept = [&stages[..], &["--survive", "kill!", "--buffers", "64KiB"]].concat();
    let recover = |stage: &[&str]| {
        let mut recover = inkstone();
        recover.arg("tee").args(stages).arg("--recover").args(stage);
        recover.output().expect("inkstone")
    };
    let listed = || String::from_utf8(recover(&[]).stdout).expect("text");
    assert!(listed().starts_with("no lines"));
    let mut killed = start(&file, &[&kept[..], &["--flush-every", "1h"]].concat());
    put(&mut killed, "one\ntwo\n");
    let stage = || Some(fs::read_dir(memory.path()).ok()?.flatten().next()?.path());
    let holds = |bytes: Vec<u8>| bytes.windows(8).any(|found| found == b"one\ntwo\n");
    until("its lines in a stage", || stage().is_some_and(|stage| fs::read(stage).is_ok_and(holds)));
    killed.kill().and_then(|()| killed.wait()).expect("killed");
    fs::remove_dir_all(&logs).expect("removed");
    fs::create_dir(&logs).expect("made");
    let told = said(&feed(start(&file, &kept), "next", false));
    let stage = stage().expect("it stays").display().to_string();
    assert!(told.contains("2 lines (8 bytes)") && told.contains(&stage), "{told}");
    assert!(listed().contains(&stage));
    // What cannot be printed stays.
    let mut full = inkstone();
    full.arg("tee").args(stages).args(["--recover", &stage]);
    let full = full.stdout(fs::File::create("/dev/full").expect("a device")).output();
    assert_eq!(full.expect("inkstone").status.code(), Some(1));
    assert_eq!(recover(&[&stage]).stdout, b"one\ntwo\n");
    assert!(!Path::new(&stage).exists() && listed().starts_with("no lines"));
    assert_eq!(recover(&[&stage]).status.code(), Some(1));
}
