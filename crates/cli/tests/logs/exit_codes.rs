//! Every cell of docs/exit-codes.md, with the real program, so the page cannot be wrong.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::support::{
    damage, directory, good, inkstone, json, run, segments, side_by_side, signal, text, until,
};
use crate::tables::{Out, PAGE, Table, code, compare};

/// Compares a table, and fails if hardly any cells were run.
fn compare_all(heading: &str, found: &Table) {
    assert!(found.len() >= 40, "{} cells", found.len());
    compare(heading, found, &[]);
}

fn line(number: u64) -> String {
    format!("record {number:06} {}", "z".repeat(290))
}

fn lines(count: u64) -> Vec<u8> {
    (1..=count).flat_map(|number| format!("{}\n", line(number)).into_bytes()).collect()
}

/// A log in each state: `intact`, `torn`, `corrupt`, `corrupt before`; directories without one; and
/// `large`, which takes time to read.
fn states(at: &Path) {
    good(at, &["append", "intact", "-q", "--segment-size", "64KiB"], &lines(2000));
    good(at, &["append", "large", "-q"], &lines(60_000));
    let copy = |name: &str| {
        copy_files(&at.join("intact"), &at.join(name));
        segments(&at.join(name))
    };
    damage(&copy("corrupt before")[0], b"record 000010");
    // In the last segment, below the promise with which the log was closed.
    damage(copy("corrupt").last().expect("a segment"), b"record 001999");
    let head = copy("torn").pop().expect("a segment");
    let info = json(&good(at, &["info", "torn", "--json"], b""));
    let end = info["end"]["byte"].as_u64().expect("a byte") as usize;
    let mut bytes = std::fs::read(&head).expect("the last segment");
    // The beginning of a group: its frame's header is there, but its payload is not.
    let group =
        bytes[..end].windows(13).rposition(|window| window == b"record 002000").expect("a record");
    let torn = bytes[group - 24..group].to_vec();
    bytes[end + 48..end + 48 + torn.len()].copy_from_slice(&torn);
    std::fs::write(&head, bytes).expect("written");
    std::fs::create_dir(at.join("no log")).expect("a directory");
    std::fs::create_dir(at.join("copy not ended")).expect("a directory");
    std::fs::write(at.join("copy not ended/inkstone.incomplete"), "").expect("a mark");
    let found = |name: &str| json(&run(at, &["verify", name, "--json"]).stdout);
    assert_eq!(found("intact")["verdict"], "intact");
    assert!(found("corrupt")["intact"] == false && found("corrupt before")["intact"] == false);
    assert_eq!(found("torn")["intact"], true);
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a directory");
    for (path, bytes) in crate::support::snapshot(from) {
        std::fs::write(to.join(path.file_name().expect("a name")), bytes).expect("written");
    }
}

/// Runs it; its messages must fit the fate of its output.
fn output(at: &Path, arguments: &[&str], out: Out) -> Output {
    let mut command = inkstone();
    command
        .current_dir(at)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(out.stdout())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    // It may end before it has read it.
    let _ = std::io::Write::write_all(&mut stdin, b"one more\nand another\n");
    drop(stdin);
    let output = child.wait_with_output().expect("an end");
    let said = text(&output.stderr);
    assert!(!said.contains("panicked") && !said.contains("roken pipe"), "{arguments:?}: {said}");
    assert!(out == Out::Full || !said.contains("stdout"), "{arguments:?}: {said}");
    if out == Out::Full && output.status.code() == Some(2) && !said.contains("Usage") {
        assert!(said.contains("write stdout: No space left"), "{arguments:?}: {said}");
    }
    output
}

/// How a command is called; `LOG` is the log, `NEW` a directory that is not there.
const ON_A_LOG: &[(&str, &[&str])] = &[
    ("append", &["append", "LOG"]),
    ("cat", &["cat", "LOG"]),
    ("get", &["get", "LOG", "1"]),
    ("verify", &["verify", "LOG"]),
    ("info", &["info", "LOG"]),
    ("dump", &["dump", "LOG"]),
    ("raft", &["raft", "LOG"]),
    ("truncate --before", &["truncate", "LOG", "--before", "5"]),
    ("truncate --after", &["truncate", "LOG", "--after", "1500"]),
    ("truncate --keep-records", &["truncate", "LOG", "--keep-records", "100"]),
    ("truncate --dry-run", &["truncate", "LOG", "--keep-for", "1d", "--dry-run"]),
    ("salvage", &["salvage", "LOG", "NEW"]),
    ("copy", &["copy", "LOG", "NEW"]),
    ("tune --dry-run", &["tune", "LOG", "--dry-run"]),
];

const COLUMNS: &[(&str, &str, Out)] = &[
    ("intact", "intact", Out::Kept),
    ("torn", "torn", Out::Kept),
    ("corrupt", "corrupt", Out::Kept),
    ("corrupt before", "corrupt before", Out::Kept),
    ("missing", "missing", Out::Kept),
    ("no log", "no log", Out::Kept),
    ("copy not ended", "copy not ended", Out::Kept),
    ("reader left", "intact", Out::ReaderLeft),
    ("corrupt, reader left", "corrupt", Out::ReaderLeft),
    ("output full", "intact", Out::Full),
    ("corrupt, output full", "corrupt", Out::Full),
];

/// What a cell of a command on a log is about.
#[derive(Clone, Copy)]
enum Met {
    /// A state of the log, and where stdout goes.
    State(&'static str, Out),
    Signal,
}

#[test]
fn every_cell_of_the_commands_on_a_log() {
    let directory = directory();
    let at = directory.path();
    states(at);
    let mut cells = Vec::new();
    for &(command, arguments) in ON_A_LOG {
        let states = COLUMNS.iter().map(|&(column, state, out)| (column, Met::State(state, out)));
        let all = states.chain([("signal", Met::Signal)]);
        cells.extend(all.map(|(column, met)| (command, arguments, column, met)));
    }
    let codes = side_by_side(&cells, |&(command, arguments, column, met)| {
        let place = tempfile::tempdir_in(at).expect("a directory");
        match met {
            Met::State(state, out) => {
                if at.join(state).exists() {
                    copy_files(&at.join(state), &place.path().join("LOG"));
                }
                on_a_log(place.path(), (command, column), arguments, out)
            }
            Met::Signal => {
                copy_files(&at.join("large"), &place.path().join("LOG"));
                with_signal(place.path(), arguments)
            }
        }
    });
    let names = cells.iter().map(|(command, _, column, _)| ((*command).into(), (*column).into()));
    compare_all("Commands on a log", &names.zip(codes).collect());
}

/// The code of one cell, whose log is in `place`.
fn on_a_log(place: &Path, (command, column): (&str, &str), arguments: &[&str], out: Out) -> String {
    let output = output(place, arguments, out);
    // The change is made, although the output failed.
    if output.status.code() == Some(2) && column == "output full" && command == "append" {
        let last = json(&good(place, &["info", "LOG", "--json"], b""))["last"].as_u64();
        assert_eq!(last, Some(2002));
    }
    let new = place.join("NEW");
    assert!(!new.join("inkstone.incomplete").exists(), "{command}, {column}");
    // The whole copy, or nothing.
    if new.exists() {
        let is_made = run(place, &["verify", "NEW"]).status.code() == Some(0);
        assert_eq!(is_made, output.status.code() != Some(1), "{command}, {column}");
    }
    code(&output)
}

/// Whether the process has a file of the log open, or one that it measures with.
fn works(process: u32) -> bool {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    let mut paths = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    paths.any(|path: PathBuf| path.to_string_lossy().contains("/LOG/") || path.starts_with("/LOG/"))
}

/// The code with which it ends when SIGTERM comes while it works. (SIGINT does the same, but is
/// ignored in processes that a shell starts with `&`, and so in everything that a test starts
/// there.) If it had finished by then, it is run again; on a busy machine that may be often.
fn with_signal(at: &Path, arguments: &[&str]) -> String {
    let mut last = String::new();
    for tries in 1..=200 {
        let _ = std::fs::remove_dir_all(at.join("NEW"));
        let mut command = inkstone();
        command.current_dir(at).args(arguments).stdin(Stdio::piped());
        let mut child: Child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let mut is_over = false;
        until(|| {
            is_over = is_over || has_ended(child.id());
            is_over || works(child.id())
        });
        // A process that was not reaped can get signals, even when it has ended.
        signal(&child, "-STOP");
        let is_caught = !has_ended(child.id());
        signal(&child, "-TERM");
        signal(&child, "-CONT");
        // `append` waits for more input.
        let stdin = child.stdin.take();
        let output = wait(child);
        drop(stdin);
        if is_caught {
            last = code(&output);
        }
        if last == "130" || tries >= 25 && !last.is_empty() {
            break;
        }
    }
    last
}

fn wait(child: Child) -> Output {
    child.wait_with_output().expect("an end")
}

/// It is a zombie, or gone.
fn has_ended(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with(['Z', 'X']))
}

/// Rows of the second table; those with `true` run long enough for a signal.
fn without_a_log() -> Vec<(&'static str, Vec<&'static str>, bool)> {
    let write = "lab write --size 64KiB --rounds 1 --bill-commits 0 --quiet";
    let words = |line: &'static str| line.split(' ').collect::<Vec<_>>();
    vec![
        ("--help", words("--help"), false),
        ("--version", words("--version"), false),
        ("append --no-such-option", words("append LOG --no-such-option"), false),
        ("completions", words("completions bash"), false),
        ("man", words("man"), false),
        (
            "bench",
            words("bench --threads 1 --size 128B --seconds 1 --bill-commits 0 --quiet"),
            true,
        ),
        ("lab write", words(write), true),
        ("lab compare of the same", words("lab compare first.json first.json"), false),
        ("lab compare of a slower one", words("lab compare first.json slow.json"), false),
        ("powerloss sim", words("powerloss sim --seeds 2 --class names --all-of 4"), true),
    ]
}

#[test]
fn every_cell_of_the_commands_without_a_log() {
    let directory = directory();
    let at = directory.path();
    let measured: Vec<&str> =
        "lab write --size 64KiB --rounds 1 --bill-commits 0 --quiet --json result.json"
            .split(' ')
            .collect();
    assert!(run(at, &measured).status.success());
    let result = json(&std::fs::read(at.join("result.json")).expect("a result"));
    std::fs::write(at.join("first.json"), crate::support::with_times(result.clone(), None))
        .expect("written");
    std::fs::write(
        at.join("slow.json"),
        crate::support::with_times(result, Some("reuse fdatasync")),
    )
    .expect("written");
    let commands = without_a_log();
    let columns = [
        ("done", Some(Out::Kept)),
        ("reader left", Some(Out::ReaderLeft)),
        ("output full", Some(Out::Full)),
        ("signal", None),
    ];
    let cells: Vec<_> = commands
        .iter()
        .flat_map(|command| columns.iter().map(move |column| (command, column)))
        .collect();
    let codes = side_by_side(&cells, |((_, arguments, is_long), (_, out))| {
        let place = tempfile::tempdir_in(at).expect("a directory");
        for result in ["first.json", "slow.json"] {
            std::fs::copy(at.join(result), place.path().join(result)).expect("copied");
        }
        match out {
            Some(out) => code(&output(place.path(), arguments, *out)),
            None if *is_long => interrupted(place.path(), arguments),
            None => "-".into(),
        }
    });
    let names =
        cells.iter().map(|((command, ..), (column, _))| ((*command).into(), (*column).into()));
    let found = names.zip(codes).collect();
    compare_all("Commands without a log", &found);
}

/// The command, with a run long enough to be interrupted for sure.
fn interrupted(at: &Path, arguments: &[&str]) -> String {
    let mut arguments = arguments.to_vec();
    for (name, value) in [("--seconds", "600"), ("--rounds", "1000"), ("--seeds", "100000000")] {
        if let Some(place) = arguments.iter().position(|argument| *argument == name) {
            arguments[place + 1] = value;
        }
    }
    let mut command: Command = inkstone();
    command.current_dir(at).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command runs");
    // It has begun when its handler is in place.
    until(|| catches_the_end(child.id()));
    signal(&child, "-TERM");
    code(&wait(child))
}

/// SIGTERM is number 15: bit 14 of the signals that it catches.
fn catches_the_end(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    u64::from_str_radix(caught.trim(), 16).is_ok_and(|caught| caught & 1 << 14 != 0)
}

#[test]
fn no_command_is_missing_on_the_page() {
    let directory = directory();
    let help = text(&good(directory.path(), &["--help"], b""));
    let commands = help
        .split("Commands:")
        .nth(1)
        .and_then(|rest| rest.split("Options:").next())
        .expect("a list");
    let names: Vec<&str> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names.into_iter().filter(|name| *name != "help") {
        assert!(PAGE.contains(&format!("`{name}")), "{name} is not on the page");
    }
}
