//! The tables of docs/exit-codes.md, and the kinds of output of a command.
//!
//! *Owns*: reading a table, comparing it with the results. *May not touch*: which commands are run,
//! and how.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::collections::BTreeMap;
use std::process::{Output, Stdio};

use crate::support::text;

pub(crate) const PAGE: &str = include_str!("../../../../docs/exit-codes.md");

/// Exit codes by command and column.
pub(crate) type Table = BTreeMap<(String, String), String>;

/// The table below this heading.
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
        for (column, cell) in columns.iter().zip(&row).skip(1) {
            cells.insert((row[0].replace('`', ""), (*column).to_owned()), (*cell).to_owned());
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
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Where stdout goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Out {
    Kept,
    ReaderLeft,
    Full,
}

impl Out {
    pub(crate) fn stdout(self) -> Stdio {
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

/// Its exit code. Its output is shown if the test fails.
pub(crate) fn code(output: &Output) -> String {
    let said = text(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    if !output.status.success() && !said.is_empty() {
        eprintln!("{said}");
    }
    output.status.code().map_or("killed".into(), |code| code.to_string())
}
