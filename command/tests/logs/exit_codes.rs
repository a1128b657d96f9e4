//! Every cell of the tables of docs/exit-codes.md about a log and a text log, and that no command
//! is missing there. `exit_codes_lab` runs the other tables.

use std::path::Path;
use std::process::Stdio;

use crate::support::{
    command, damage, directory, fed, good, good_json, json, line, lines, names, open_files, run,
    said, segments, side_by_side, signal, signalled, snapshot, spawn, until,
};
use crate::tables::{Out, PAGE, Table, code, compare, ended, helps, table};

/// A log in each state: `intact`, `torn`, `corrupt`, `corrupt before`; directories without one; and
/// `large`, which takes time to read.
fn states(at: &Path) {
    let filler = format!(" {}", "z".repeat(290));
    good(at, "append intact -q --segment-size 64KiB", &lines(1..=2000, &filler));
    good(at, "append large -q", &lines(1..=60_000, &filler));
    let copy = |name: &str| {
        copy_files(&at.join("intact"), &at.join(name));
        segments(&at.join(name))
    };
    damage(&copy("corrupt before")[0], &line(10, ""));
    // In the last segment, below the promise with which the log was closed.
    damage(copy("corrupt").last().expect("a segment"), &line(1999, ""));
    let head = copy("torn").pop().expect("a segment");
    let info = good_json(at, "info torn --json");
    let end = info["end"]["byte"].as_u64().expect("a byte") as usize;
    let mut bytes = std::fs::read(&head).expect("the last segment");
    // The beginning of a group: its frame's header is there, but its payload is not.
    let last = line(2000, "");
    let group = bytes[..end].windows(last.len()).rposition(|window| window == last.as_bytes());
    let group = group.expect("a record");
    let torn = bytes[group - 24..group].to_vec();
    bytes[end + 48..end + 48 + torn.len()].copy_from_slice(&torn);
    std::fs::write(&head, bytes).expect("written");
    std::fs::create_dir(at.join("no log")).expect("a directory");
    std::fs::create_dir(at.join("copy not ended")).expect("a directory");
    std::fs::write(at.join("copy not ended/inkstone.incomplete"), "").expect("a mark");
    for (name, is_intact) in
        [("intact", true), ("torn", true), ("corrupt", false), ("corrupt before", false)]
    {
        let verified = json(&run(at, &["verify", name, "--json"]).stdout);
        assert_eq!(verified["intact"], is_intact, "{name}");
    }
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a directory");
    for (name, bytes) in snapshot(from) {
        std::fs::write(to.join(name), bytes).expect("written");
    }
}

/// How a command is called; `LOG` is the log, `NEW` a directory that is not there.
const ON_A_LOG: &[(&str, &str)] = &[
    ("append", "append LOG"),
    ("cat", "cat LOG"),
    ("get", "get LOG 1"),
    ("verify", "verify LOG"),
    ("info", "info LOG"),
    ("dump", "dump LOG"),
    ("raft", "raft LOG"),
    ("streams", "streams LOG"),
    ("truncate --before", "truncate LOG --before 5"),
    ("truncate --after", "truncate LOG --after 1500"),
    ("truncate --keep-records", "truncate LOG --keep-records 100"),
    ("truncate --dry-run", "truncate LOG --keep-for 1d --dry-run"),
    ("salvage", "salvage LOG NEW"),
    ("copy", "copy LOG NEW"),
];

/// A state of the log, and where stdout goes; the last column is a signal.
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
    ("signal", "large", Out::Kept),
];

#[test]
fn every_cell_of_the_commands_on_a_log() {
    let directory = directory();
    let at = directory.path();
    states(at);
    let page = table("Commands on a log");
    let row = |&command| COLUMNS.iter().map(move |column| (command, column));
    let cells: Vec<_> = ON_A_LOG.iter().flat_map(row).collect();
    let codes = side_by_side(&cells, |&((name, arguments), &(column, state, out))| {
        let place = tempfile::tempdir_in(at).expect("a directory");
        if at.join(state).exists() {
            copy_files(&at.join(state), &place.path().join("LOG"));
        }
        match column {
            "signal" => {
                let expected = &page[&(name.to_string(), column.to_owned())];
                with_signal(place.path(), arguments, expected)
            }
            _ => on_a_log(place.path(), &format!("{name}, {column}"), arguments, out),
        }
    });
    let names = cells.iter().map(|((name, _), (column, ..))| ((*name).into(), (*column).into()));
    compare("Commands on a log", &names.zip(codes).collect(), &[]);
}

/// The code of one cell, whose log is in `place`.
fn on_a_log(place: &Path, cell: &str, arguments: &str, out: Out) -> String {
    let output = ended(place, arguments, out);
    let told = said(&output);
    if out == Out::Full && output.status.code() == Some(2) {
        assert!(told.contains("write stdout: No space left"), "{cell}: {told}");
    }
    // The change is made, although the output failed.
    if cell == "append, output full" {
        assert_eq!(good_json(place, "info LOG --json")["last"], 2002);
    }
    let new = place.join("NEW");
    assert!(!new.join("inkstone.incomplete").exists(), "{cell}");
    // The whole copy, or nothing.
    if new.exists() {
        let is_made = run(place, "verify NEW").status.success();
        assert_eq!(is_made, output.status.code() != Some(1), "{cell}");
    }
    code(&output)
}

/// The code with which it ends when SIGTERM comes while it works. (SIGINT does the same, but is
/// ignored in processes that a shell starts with `&`, and so in everything that a test starts
/// there.) If it had finished by then, it is run again; on a busy machine that may be often. So it
/// is if it was caught just before its end, and gives another answer than is expected.
fn with_signal(at: &Path, arguments: &str, expected: &str) -> String {
    let (mut last, mut caught) = (String::new(), 0);
    for _ in 0..200 {
        let _ = std::fs::remove_dir_all(at.join("NEW"));
        let mut child = spawn(at, arguments);
        // It has a file of the log open, or one that it measures with.
        let works = |path: &std::path::PathBuf| path.to_string_lossy().contains("/LOG/");
        until("it works", || has_ended(child.id()) || open_files(child.id()).iter().any(works));
        // A process that was not reaped can get signals, even when it has ended.
        signal("-STOP", child.id());
        let is_caught = !has_ended(child.id());
        signal("-TERM", child.id());
        signal("-CONT", child.id());
        // `append` waits for more input.
        let stdin = child.stdin.take();
        let output = child.wait_with_output().expect("an end");
        drop(stdin);
        if is_caught {
            last = code(&output);
            caught += 1;
            let new = at.join("NEW");
            let left = if new.exists() { names(&new) } else { Vec::new() };
            let is_nothing = left.is_empty() || left == ["inkstone.lock"];
            assert!(last != "130" || is_nothing, "{arguments}: {left:?} of a stopped copy");
        }
        if last == expected && (last == "130" || caught >= 3) || caught >= 25 {
            break;
        }
    }
    last
}

/// It is a zombie, or gone.
fn has_ended(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with(['Z', 'X']))
}

#[test]
fn every_cell_of_the_text_log() {
    let directory = directory();
    let at = directory.path();
    std::fs::create_dir(at.join("directory")).expect("made");
    let mut found = Table::new();
    for name in ["tee", "tee --echo"] {
        let mut add = |column: &str, code| found.insert((name.into(), column.into()), code);
        for (column, file, out) in [
            ("done", "s.log", Out::Kept),
            ("no file", "directory", Out::Kept),
            ("reader left", "s.log", Out::ReaderLeft),
            ("output full", "s.log", Out::Full),
        ] {
            add(column, code(&ended(at, format!("{name} {file}"), out)));
        }
        let mut child = spawn(at, format!("{name} s.log --grace 100ms"));
        let stdin = child.stdin.take();
        add("signal", code(&signalled(child, "-TERM")));
        drop(stdin);
    }
    compare("The text log", &found, &[]);
}

#[test]
fn every_command_of_the_help_has_a_row_and_examples() {
    let directory = directory();
    let rows: Vec<&str> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('|').next())
        .flat_map(|row| row.split(" / "))
        .filter_map(|name| name.trim_start_matches('`').split('`').next())
        .collect();
    let helps = helps(directory.path());
    let has_row =
        |name: &str| rows.iter().any(|row| *row == name || row.starts_with(&format!("{name} -")));
    let missing: Vec<_> = helps.iter().filter(|(name, _)| !has_row(name)).collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
    assert!(helps.len() > 30, "{} commands", helps.len());
    for (name, help) in &helps {
        assert!(help.contains("Examples:\n  "), "{name} has no examples: {help}");
    }
}

/// A stdin that cannot be read, and one that is a directory, are no end of the input.
#[test]
fn an_input_that_cannot_be_read_is_reported_once() {
    let directory = directory();
    let at = directory.path();
    for arguments in ["append log", "tee s.log"] {
        let input = std::fs::File::open(at).expect("a directory");
        let child = command(at, arguments).stdin(input).stdout(Stdio::null()).spawn();
        let output = fed(child.expect("it runs"), b"");
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        assert_eq!(said(&output), "inkstone: read stdin: Is a directory (os error 21)\n");
    }
}
