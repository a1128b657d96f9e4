//! `inkstone tee` beside others on the same file: one of them at a time reads and writes, the
//! others wait or are refused.
//!
//! A few rounds; as many as asked: `INKSTONE_TEE_ROUNDS=300 cargo test --release -p inkstone-cli
//! --test text -- tee_alone:: --nocapture`

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use crate::with_tee::{said, signal, start, text, wait_until};

const ROUNDS: &str = "INKSTONE_TEE_ROUNDS";
const LINES: u64 = 400;

/// What a tee was given, and how it ended.
struct Ended {
    name: String,
    output: Output,
}

impl Ended {
    fn is_refused(&self) -> bool {
        said(&self.output).contains("another writer has it open")
    }
}

/// Gives a tee its lines, and ends it by the end of its input or by a signal besides.
fn feed(mut child: Child, name: String, is_signalled: bool) -> Ended {
    let mut stdin = child.stdin.take().expect("a pipe");
    let lines: String = (0..LINES).map(|number| format!("{name} {number}\n")).collect();
    // A tee that is refused closes its pipe.
    let _ = stdin.write_all(lines.as_bytes());
    if is_signalled {
        // Before that a signal ends it as any program, with nothing read.
        let status = format!("/proc/{}/status", child.id());
        let caught = || {
            text(Path::new(&status))
                .lines()
                .find_map(|line| u64::from_str_radix(line.strip_prefix("SigCgt:")?.trim(), 16).ok())
        };
        wait_until("its handlers", || caught().is_some_and(|caught| caught & 1 << 14 != 0));
        signal("-TERM", child.id());
    }
    drop(stdin);
    Ended { name, output: child.wait_with_output().expect("its end") }
}

/// How often each line is in the log, rotated files and compressed ones included.
fn lines_of(file: &Path) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(file.parent().expect("a directory")).expect("listed").flatten() {
        let path = entry.path();
        let text = if path.extension().is_some_and(|extension| extension == "gz") {
            let output = Command::new("gzip").arg("-dc").arg(&path).output().expect("gzip");
            assert!(output.status.success(), "{}: {}", path.display(), said(&output));
            // The compressed form counts only once its plain one is gone.
            if path.with_extension("").exists() {
                continue;
            }
            String::from_utf8(output.stdout).expect("text")
        } else {
            text(&path)
        };
        for line in text.lines() {
            *found.entry(line.to_owned()).or_insert(0) += 1;
        }
    }
    found
}

/// Two, three and four at once, with rotation and compression, and restarted again and again. Each
/// line that was read is in the log once; a tee that was refused had read none.
#[test]
fn of_several_on_one_file_each_has_all_its_lines_in_the_log_or_was_refused_before_it_read() {
    let rounds: u32 =
        std::env::var(ROUNDS).map_or(4, |rounds| rounds.parse().expect("a number of rounds"));
    let (mut written, mut refused) = (0, 0);
    for round in 0..rounds {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let file = directory.path().join("a.log");
        let survive = ["nothing", "kill"][round as usize % 2];
        // Long enough for all of them, and too short for those that come last.
        let grace = if round % 3 == 2 { "0s" } else { "60s" };
        let arguments = ["--rotate-size", "4KiB", "--compress", "gzip", "--flush-every", "1ms"];
        let arguments = [&arguments[..], &["--survive", survive, "--grace", grace]].concat();
        let tees: Vec<_> = (0..2 + round % 3)
            .map(|number| {
                let child = start(&file, &arguments);
                let name = format!("{round}-{number}");
                // One keeps its input open for longer than another that has no grace waits.
                let hold = if grace == "0s" && number == 0 { 4000 } else { fastrand::u64(..20) };
                std::thread::sleep(Duration::from_millis(fastrand::u64(..5)));
                let is_signalled = fastrand::bool() && grace != "0s";
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(hold));
                    feed(child, name, is_signalled)
                })
            })
            .collect();
        let mut ended: Vec<Ended> = tees.into_iter().map(|tee| tee.join().expect("fed")).collect();
        // A restart, which finds the log free.
        ended.push(feed(start(&file, &arguments), format!("{round}-last"), false));
        let found = lines_of(&file);
        for ended in &ended {
            let of = |count: u32| {
                let lines = (0..LINES).map(|number| format!("{} {number}", ended.name));
                lines.filter(|line| found.get(line).copied().unwrap_or(0) == count).count() as u64
            };
            let told = said(&ended.output);
            if ended.is_refused() && ended.output.status.code() == Some(1) {
                refused += 1;
                assert_eq!(of(0), LINES, "{}: refused, and yet it read: {told}", ended.name);
            } else {
                written += 1;
                assert!(
                    matches!(ended.output.status.code(), Some(0 | 130)),
                    "{}: {told}",
                    ended.name
                );
                let ends = (of(0), of(1));
                assert_eq!(ends, (0, LINES), "{}: missing, once: {told}", ended.name);
            }
        }
        assert_eq!(found.len() as u64 % LINES, 0, "other lines: {round}");
    }
    println!(
        "{rounds} rounds: {written} tees wrote all their lines, {refused} were refused before they read"
    );
}

/// The second one says that it waits, takes nothing from its pipe, and is refused with words when
/// the grace is over.
#[test]
fn a_second_one_waits_for_the_grace_and_is_refused_with_words() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("a.log");
    let mut first = start(&file, &["--flush-every", "1ms"]);
    first.stdin.as_mut().expect("a pipe").write_all(b"one\n").expect("written");
    wait_until("the first line", || text(&file) == "one\n");
    // A second name of the file is no other log.
    let link = directory.path().join("link.log");
    std::fs::hard_link(&file, &link).expect("linked");
    for name in [&file, &link] {
        let since = Instant::now();
        let mut second = start(name, &["--grace", "300ms"]);
        let _ = second.stdin.take().expect("a pipe").write_all(b"two\n");
        let output = second.wait_with_output().expect("its end");
        let told = said(&output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(since.elapsed() >= Duration::from_millis(300), "{told}");
        assert!(
            told.contains("waiting for another writer") && told.contains("end that one first"),
            "{told}"
        );
        assert_eq!(text(&file), "one\n");
    }
    // One that comes while the first ends has the log then.
    let second = start(&file, &[]);
    std::thread::sleep(Duration::from_millis(100));
    drop(first.stdin.take());
    assert!(first.wait().expect("its end").success());
    let second = feed(second, "second".to_owned(), false);
    assert!(second.output.status.success(), "{}", said(&second.output));
    assert_eq!(text(&file).lines().count() as u64, 1 + LINES);
}

/// Lines of a killed tee whose directory is another one now: the next start says whose they are,
/// and the commands list and append them.
#[test]
fn lines_that_wait_are_told_listed_and_brought_back_or_discarded() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("NOT RUN: lines that wait: there is no /dev/shm");
    };
    let made = tempfile::tempdir().expect("a directory");
    let (logs, file) = (made.path().join("logs"), made.path().join("logs/a.log"));
    let stages = ["--stage-directory", memory.path().to_str().expect("text")];
    let arguments = [&stages[..], &["--survive", "kill", "--buffers", "64KiB"]].concat();
    let ask = |more: &[&str]| {
        start(&file, &[&stages[..], more].concat()).wait_with_output().expect("its end")
    };
    for command in ["--bring-back", "--discard"] {
        let mut killed = start(&file, &[&arguments[..], &["--flush-every", "1h"]].concat());
        killed.stdin.as_mut().expect("a pipe").write_all(b"one\ntwo\n").expect("written");
        let holds = |bytes: &[u8]| bytes.windows(8).any(|found| found == b"one\ntwo\n");
        let stage = || {
            let own = std::fs::read_dir(memory.path()).ok()?.flatten().next()?.path();
            let mut stages = std::fs::read_dir(own).ok()?.flatten().map(|stage| stage.path());
            stages.find(|stage| std::fs::read(stage).is_ok_and(|bytes| holds(&bytes)))
        };
        wait_until("its lines in a stage", || stage().is_some());
        killed.kill().and_then(|()| killed.wait()).expect("killed");
        std::fs::remove_dir_all(&logs).expect("removed");
        std::fs::create_dir(&logs).expect("made");
        let next = feed(start(&file, &arguments), "next".to_owned(), false);
        let told = said(&next.output);
        let stage = stage().expect("it stays").display().to_string();
        assert!(told.contains("2 lines (8 bytes)") && told.contains(&stage), "{told}");
        let listed = ask(&["--waiting"]);
        assert!(String::from_utf8_lossy(&listed.stdout).contains(&stage), "{listed:?}");
        let done = ask(&[command, &stage]);
        assert!(done.status.success(), "{done:?}");
        let is_back = text(&file).ends_with("\none\ntwo\n");
        assert_eq!(is_back, command == "--bring-back", "{done:?}");
        assert!(!std::path::Path::new(&stage).exists());
        let listed = ask(&["--waiting"]);
        assert!(String::from_utf8_lossy(&listed.stdout).contains("no lines"), "{listed:?}");
        assert_eq!(ask(&[command, &stage]).status.code(), Some(1));
        std::fs::remove_file(&file).expect("removed");
    }
}
