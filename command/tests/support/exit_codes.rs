//! The tables of docs/exit-codes.md, and the kinds of output of a command.
//!
//! *Owns*: reading a table, comparing it with the results. *May not touch*: which commands are run,
//! and how.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Output, Stdio};

use crate::support::{Words, command, fed, good, json, run, said, with_times};

pub(crate) const PAGE: &str = include_str!("../../../docs/exit-codes.md");

/// Exit codes by command and column.
pub(crate) type Table = BTreeMap<(String, String), String>;

/// The table below this heading. Rows, and columns, of the same cells are one on the page, `a / b`.
pub(crate) fn table(heading: &str) -> Table {
    let section =
        PAGE.split("\n## ").find(|section| section.starts_with(heading)).expect("the section");
    let lines = section.lines().filter(|line| line.starts_with('|') && !line.starts_with("|--"));
    let mut rows =
        lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let columns = rows.next().expect("a table");
    let mut cells = Table::new();
    for row in rows {
        assert_eq!(row.len(), columns.len(), "{row:?}");
        let commands = row[0].replace('`', "");
        for (heads, cell) in columns.iter().zip(&row).skip(1) {
            for (command, column) in commands.split(" / ").flat_map(|command| {
                heads.split(" / ").map(move |column| (command.to_owned(), column.to_owned()))
            }) {
                cells.insert((command, column), (*cell).to_owned());
            }
        }
    }
    cells
}

/// Fails with every cell that differs, and if the page has other cells than those that were run.
/// Rows of `not_run` are left out.
pub(crate) fn compare(heading: &str, found: &Table, not_run: &[&str]) {
    let mut page = table(heading);
    page.retain(|(command, _), _| !not_run.contains(&command.as_str()));
    let of = |table: &Table, cell: &(String, String)| {
        table.get(cell).cloned().unwrap_or("nothing".into())
    };
    let cells = page.keys().chain(found.keys()).filter(|cell| page.get(*cell) != found.get(*cell));
    let wrong: Vec<String> = cells
        .map(|cell| {
            format!("{cell:?}: the page says {}, it was {}", of(&page, cell), of(found, cell))
        })
        .collect();
    assert!(wrong.is_empty() && !found.is_empty(), "{}", wrong.join("\n"));
}

/// Where stdout goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Out {
    Kept,
    ReaderLeft,
    Full,
}

impl Out {
    fn stdout(self) -> Stdio {
        match self {
            Self::Kept => Stdio::piped(),
            Self::ReaderLeft => {
                let (reader, writer) = std::io::pipe().expect("a pipe");
                drop(reader);
                writer.into()
            }
            Self::Full => {
                std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full").into()
            }
        }
    }
}

pub(crate) fn start(at: &Path, arguments: impl Words, out: Out) -> Child {
    command(at, arguments).stdout(out.stdout()).spawn().expect("the command runs")
}

/// Runs it; its messages must fit the fate of its output.
pub(crate) fn ended(at: &Path, arguments: impl Words, out: Out) -> Output {
    let words = arguments.words();
    let output = fed(start(at, arguments, out), b"one more\nand another\n");
    let told = said(&output);
    assert!(!told.contains("roken pipe"), "{words:?}: {told}");
    assert!(out == Out::Full || !told.contains("write stdout"), "{words:?}: {told}");
    output
}

/// Its exit code. Its output is shown if the test fails.
pub(crate) fn code(output: &Output) -> String {
    let told = said(output);
    assert!(!told.contains("panicked"), "{told}");
    if !output.status.success() && !told.is_empty() {
        eprintln!("{told}");
    }
    output.status.code().map_or("killed".into(), |code| code.to_string())
}

/// A way of measuring that takes no time.
pub(crate) const WRITE: &str = "lab write --size 64KiB --rounds 1 --bill-commits 0 --quiet";

/// Results of the lab: `first.json` and `slow.json`, of which one cell is slower.
pub(crate) fn results(at: &Path) {
    let ways = "--reuse new,reuse --durability fsync,fdatasync,o-dsync --json result.json";
    assert!(run(at, format!("{WRITE} {ways}")).status.success());
    let result = json(&std::fs::read(at.join("result.json")).expect("a result"));
    for (name, slowed) in [("first.json", None), ("slow.json", Some("reuse fdatasync"))] {
        std::fs::write(at.join(name), with_times(result.clone(), slowed)).expect("written");
    }
}

/// The help of each command that does something by itself, by its name.
pub(crate) fn helps(at: &Path) -> Vec<(String, String)> {
    let mut open = vec![String::new()];
    let mut found = Vec::new();
    while let Some(name) = open.pop() {
        let help = String::from_utf8(good(at, format!("{name} --help"), b"")).expect("text");
        let below = listed(&help);
        open.extend(below.iter().map(|word| format!("{name} {word}").trim().to_owned()));
        // A command that needs a subcommand does nothing by itself.
        let usage = help.lines().skip_while(|line| !line.starts_with("Usage:"));
        let mut usage = usage.take_while(|line| !line.is_empty());
        let needs_more = usage.all(|line| line.trim_end().ends_with("<COMMAND>"));
        if below.is_empty() || !needs_more {
            found.push((name, help));
        }
    }
    found
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
