//! Every cell of the tables of docs/exit-codes.md that are about measuring, cutting the power, and
//! the text log; and that no command is missing there. The tables about a log are run by
//! `exit_codes`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Mutex;

use crate::support::{directory, good, inkstone, json, run, side_by_side, signal, text, until};
use crate::tables::{Out, PAGE, Table, code, compare};
use inkstone_powerloss::kernel::machine::{FsKind, missing, missing_for};

/// A command in the forms that its cells need; one that is empty has no such cell.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    done: &'static str,
    missing: &'static str,
    unreadable: &'static str,
    /// As `done`, but long enough that a signal finds it at work.
    long: &'static str,
    /// It needs root, and whatever the kernel labs need.
    needs_root: bool,
}

const fn row(
    name: &'static str,
    done: &'static str,
    missing: &'static str,
    long: &'static str,
) -> Row {
    Row { name, done, missing, unreadable: "", long, needs_root: false }
}

const fn root(
    name: &'static str,
    done: &'static str,
    missing: &'static str,
    long: &'static str,
) -> Row {
    Row { needs_root: true, ..row(name, done, missing, long) }
}

const fn of_file(
    name: &'static str,
    done: &'static str,
    missing: &'static str,
    unreadable: &'static str,
) -> Row {
    Row { unreadable, ..row(name, done, missing, "") }
}

const LAB: &[Row] = &[
    row("lab", "", "lab nowhere", "lab"),
    row(
        "lab bill",
        "lab bill --commits 1 --size 64KiB --durability fdatasync --reuse reuse",
        "lab bill nowhere",
        "lab bill --commits 1000000 --size 64KiB",
    ),
    row(
        "lab fallocate",
        "lab fallocate --size 1MiB",
        "lab fallocate nowhere",
        "lab fallocate --size 4GiB",
    ),
    root(
        "lab filesystems",
        "lab filesystems --file-systems ext4 --loops buffered --rounds 5 --size 64KiB --bill-commits 0 --durability fdatasync --reuse reuse",
        "lab filesystems nowhere",
        "lab filesystems --file-systems ext4 --loops buffered --rounds 1000 --size 64KiB --bill-commits 0",
    ),
    row(
        "lab claims",
        "lab claims --only overwrite-twice --rounds 5 --time 1s",
        "lab claims nowhere",
        "lab claims --rounds 1000 --time 200min",
    ),
    of_file(
        "lab compare",
        "lab compare first.json first.json",
        "lab compare first.json nowhere",
        "lab compare first.json notes",
    ),
    row("lab all", "", "lab all nowhere", "lab all"),
    of_file(
        "lab report",
        "lab report first.json",
        "lab report nowhere",
        "lab report notes -o page.html",
    ),
    of_file(
        "lab report -o -",
        "lab report first.json -o -",
        "lab report nowhere -o -",
        "lab report notes -o -",
    ),
    row(
        "lab read",
        "lab read --seconds 1s --rounds 1",
        "lab read nowhere",
        "lab read --seconds 600s",
    ),
    row("lab e10", "lab e10 --rounds 1 --time 10ms", "lab e10 nowhere", "lab e10"),
];

const POWERLOSS: &[Row] = &[
    root(
        "powerloss run",
        "powerloss run --fs ext4 --strategy buffered-fdatasync --mounted 1 --projected 10",
        "powerloss run --fs ext4 --directory nowhere",
        "powerloss run --fs ext4 --mounted 100000 --projected 100000",
    ),
    root(
        "powerloss strategies",
        "powerloss strategies --fs ext4 --strategy append-fdatasync --states 1",
        "powerloss strategies --fs ext4 --directory nowhere",
        "powerloss strategies --fs ext4 --states 100000",
    ),
    root(
        "powerloss record",
        "powerloss record record-again --length 4",
        "powerloss record nowhere/file",
        "",
    ),
    Row {
        unreadable: "powerloss replay notes",
        ..root(
            "powerloss replay",
            "powerloss replay recording --entry 40 --states 1",
            "powerloss replay nowhere",
            "powerloss replay recording --states 100000",
        )
    },
    Row {
        unreadable: "powerloss show notes",
        ..root("powerloss show", "powerloss show recording", "powerloss show nowhere", "")
    },
    root(
        "powerloss faults",
        "powerloss faults --fs ext4 --fault write-nth --strategy buffered-fdatasync --rounds 1 --states 1",
        "powerloss faults --fs ext4 --directory nowhere",
        "powerloss faults --fs ext4 --rounds 100000",
    ),
    row(
        "powerloss kill",
        "powerloss kill --rounds 2",
        "powerloss kill nowhere",
        "powerloss kill --rounds 1000000",
    ),
    row(
        "powerloss kill --lie",
        "powerloss kill --rounds 50 --lie early",
        "powerloss kill nowhere --lie early",
        "",
    ),
    row(
        "powerloss any",
        "powerloss any --rounds 1 --writer WRITER --reader READER",
        "powerloss any --in nowhere --writer WRITER --reader READER",
        "powerloss any --rounds 1000000 --writer WRITER --reader READER",
    ),
];

/// Prints what it has appended, and continues after what is there.
const WRITER: &str = "n=$(cat {dir}/f 2>/dev/null | wc -l); while :; do n=$((n+1)); echo $n >>{dir}/f; sync {dir}/f; echo $n; done";
const READER: &str = "cat {dir}/f 2>/dev/null; exit 0";

fn words(line: &'static str) -> Vec<&'static str> {
    line.split(' ')
        .map(|word| match word {
            "WRITER" => WRITER,
            "READER" => READER,
            word => word,
        })
        .collect()
}

fn start(at: &Path, arguments: &[&str], out: Out) -> Child {
    let mut command = inkstone();
    command
        .current_dir(at)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(out.stdout())
        .stderr(Stdio::piped());
    command.spawn().expect("the command runs")
}

fn ended(at: &Path, arguments: &[&str], out: Out) -> String {
    let mut child = start(at, arguments, out);
    drop(child.stdin.take());
    code(&child.wait_with_output().expect("an end"))
}

/// The exit code with one SIGTERM as soon as its handler is set.
fn signalled(at: &Path, arguments: &[&str]) -> String {
    let child = start(at, arguments, Out::Kept);
    until(|| catches_the_end(child.id()));
    signal(&child, "-TERM");
    code(&child.wait_with_output().expect("an end"))
}

/// SIGTERM is number 15: bit 14 of the signals that it catches.
fn catches_the_end(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    u64::from_str_radix(caught.trim(), 16).is_ok_and(|caught| caught & 1 << 14 != 0)
}

/// The code of one cell, in a directory of its own with a result, a recording if there is one, and
/// a file that is neither.
fn cell(made: &Path, row: &Row, column: &str) -> String {
    let line = match column {
        "missing" => row.missing,
        "unreadable" => row.unreadable,
        "signal" => row.long,
        _ => row.done,
    };
    if line.is_empty() {
        return "-".into();
    }
    // Those that make file systems come one after the other, as elsewhere in the tests.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = row.needs_root.then(|| ONE.lock());
    let place = tempfile::tempdir_in(made).expect("a directory");
    for name in ["first.json", "recording", "notes"] {
        if made.join(name).exists() {
            std::fs::copy(made.join(name), place.path().join(name)).expect("copied");
        }
    }
    let arguments = words(line);
    match column {
        "signal" => signalled(place.path(), &arguments),
        "reader left" => ended(place.path(), &arguments, Out::ReaderLeft),
        "output full" => ended(place.path(), &arguments, Out::Full),
        _ => ended(place.path(), &arguments, Out::Kept),
    }
}

const COLUMNS: &[&str] = &["done", "missing", "unreadable", "reader left", "output full", "signal"];

/// Every cell of these rows.
fn cells(made: &Path, rows: &[&Row]) -> Table {
    let jobs: Vec<_> =
        rows.iter().flat_map(|row| COLUMNS.iter().map(move |column| (*row, *column))).collect();
    let codes = side_by_side(&jobs, |(row, column)| cell(made, row, column));
    let names = jobs.iter().map(|(row, column)| (row.name.to_owned(), (*column).to_owned()));
    names.zip(codes).collect()
}

/// Runs the rows that can be run here, prints loudly which cannot, and compares.
fn every_cell(test: &str, heading: &str, rows: &[Row]) {
    let directory = directory();
    let at = directory.path();
    let measured = "lab write --reuse new,reuse --durability fsync,fdatasync,o-dsync --size 64KiB --rounds 1 --bill-commits 0 --quiet --json first.json";
    assert!(run(at, &words(measured)).status.success());
    let mut result = json(&std::fs::read(at.join("first.json")).expect("a result"));
    // The result must not depend on other work of this machine.
    forget_warnings(&mut result);
    std::fs::write(
        at.join("first.json"),
        crate::support::with_times(result, Some("new fdatasync")),
    )
    .expect("written");
    std::fs::write(at.join("notes"), "of somebody\n").expect("written");
    let why = missing().or_else(|| missing_for(FsKind::Ext4));
    if let Some(why) = &why {
        let names: Vec<&str> =
            rows.iter().filter(|row| row.needs_root).map(|row| row.name).collect();
        let _ = std::io::stderr()
            .write_all(format!("\nNOT RUN: {test}: {names:?}: {why}\n").as_bytes());
    } else if rows.iter().any(|row| row.done.contains("recording")) {
        good_or_said(at, "powerloss record recording --length 4");
    }
    let (left_out, rows): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row.needs_root && why.is_some());
    let left_out: Vec<&str> = left_out.iter().map(|row| row.name).collect();
    compare(heading, &cells(at, &rows), &left_out);
}

/// Removes warnings: on a busy machine they would suppress advice.
fn forget_warnings(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            if let Some(warnings) = fields.get_mut("warnings") {
                *warnings = serde_json::json!([]);
            }
            fields.values_mut().for_each(forget_warnings);
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(forget_warnings),
        _ => {}
    }
}

fn good_or_said(at: &Path, line: &'static str) {
    let output = run(at, &words(line));
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
}

#[test]
fn every_cell_of_the_lab() {
    every_cell("every_cell_of_the_lab", "Measuring", LAB);
}

#[test]
fn every_cell_of_powerloss() {
    every_cell("every_cell_of_powerloss", "Cutting the power", POWERLOSS);
}

#[test]
fn every_cell_of_the_text_log() {
    let directory = directory();
    let at = directory.path();
    std::fs::create_dir(at.join("directory")).expect("made");
    let mut found = Table::new();
    for (name, arguments) in [("tee", &["tee"][..]), ("tee --echo", &["tee", "--echo"])] {
        for (column, file, out) in [
            ("done", "s.log", Out::Kept),
            ("no file", "directory", Out::Kept),
            ("reader left", "s.log", Out::ReaderLeft),
            ("output full", "s.log", Out::Full),
        ] {
            let mut child = start(at, &[arguments, &[file]].concat(), out);
            // It may end before it has read it.
            let _ = child.stdin.take().expect("a pipe").write_all(b"one\ntwo\n");
            let code = code(&child.wait_with_output().expect("an end"));
            found.insert((name.into(), column.into()), code);
        }
        let mut child = start(at, &[arguments, &["s.log", "--grace", "100ms"]].concat(), Out::Kept);
        let stdin = child.stdin.take();
        until(|| catches_the_end(child.id()));
        signal(&child, "-TERM");
        found.insert(
            (name.into(), "signal".into()),
            code(&child.wait_with_output().expect("an end")),
        );
        drop(stdin);
    }
    compare("The text log", &found, &[]);
}

/// The names of the subcommands in a help's list.
fn listed(help: &str) -> Vec<String> {
    let list = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    list.lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_of_the_help_has_a_row() {
    let directory = directory();
    let names: Vec<&str> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(['`', '|']).next())
        .collect();
    let mut open: Vec<Vec<String>> = vec![Vec::new()];
    let (mut seen, mut missing) = (0, Vec::new());
    while let Some(path) = open.pop() {
        let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
        arguments.push("--help");
        let help = text(&good(directory.path(), &arguments, b""));
        let below = listed(&help);
        open.extend(below.iter().map(|name| [&path[..], std::slice::from_ref(name)].concat()));
        // A command that needs a subcommand does nothing by itself.
        let usage: Vec<&str> =
            help.lines().skip_while(|line| !line.starts_with("Usage:")).collect();
        let usage = usage.split(|line| line.is_empty()).next().unwrap_or_default();
        let is_group =
            !below.is_empty() && usage.iter().all(|line| line.trim_end().ends_with("<COMMAND>"));
        if is_group {
            continue;
        }
        seen += 1;
        let name = path.join(" ");
        if !names.iter().any(|row| *row == name || row.starts_with(&format!("{name} -"))) {
            missing.push(name);
        }
    }
    assert!(missing.is_empty(), "not on the page: {missing:?}");
    assert!(seen > 30, "{seen} commands");
}
