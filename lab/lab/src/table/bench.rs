//! A bench of the log: a row for each load and record size, its floor beside it.
//!
//! *Owns*: the columns. *May not touch*: figures.

use super::grid::{Grid, paragraph};
use super::numbers::{US, bytes, sig3};
use super::ways::{figures, latencies};
use super::{closing, place_lines, render_warnings};
use crate::bench::beside::FLOOR;
use crate::result::{LabResult, Table, Way};

/// The whole bench: the table, the notes of each row, warnings.
pub fn render_bench(result: &LabResult, width: usize) -> String {
    let mut out = String::new();
    paragraph(&mut out, width, "", "The log beside a bare overwrite of a written file");
    match result.tables.first() {
        Some(table) => {
            place_lines(&table.place, width, &mut out);
            rows(&result.tables, width, &mut out);
        }
        None => paragraph(&mut out, width, "  ", "Nothing was measured."),
    }
    out.push('\n');
    out.push_str(&render_warnings(result, width));
    closing(result, width, &mut out);
    out
}

fn rows(tables: &[Table], width: usize, out: &mut String) {
    let log = |table: &Table| table.ways.iter().find(|way| way.name != FLOOR).cloned();
    let logs: Vec<Way> = tables.iter().map(|table| log(table).unwrap_or_default()).collect();
    let mut grid = Grid::new("load", logs.iter().map(|log| log.name.clone()));
    let mut column = |head: &str, rank, cell: &dyn Fn(&Table, &Way) -> Option<String>| {
        let cells = tables.iter().zip(&logs);
        grid.column(head, rank, cells.map(|(table, log)| cell(table, log).unwrap_or_default()));
    };
    column("commits/s", 0, &|table, log| table.median(log).map(sig3));
    column("floor/s", 2, &|table, _| table.median(table.way(FLOOR)?).map(sig3));
    column("of", 6, &|table, _| table.way(FLOOR)?.figure("bytes per write").map(bytes));
    column("log/floor", 0, &|_, log| log.relative.as_ref().map(|found| found.words()));
    latencies(&logs, US, [1, 4, 3, 31], &mut grid);
    figures(&logs, "/commit", &mut grid);
    for (index, log) in logs.iter().enumerate() {
        if let Some(reason) = &log.missing {
            grid.reason(index, reason);
        }
    }
    let dropped = grid.render(width, out);
    let text = "log/floor: the log's rate divided by that of bare overwrites of as many bytes as \
                its groups have, interleaved, with its 95% interval; each of these counts as many \
                records as a group of the log. ~: of the whole device, with all processes.";
    paragraph(out, width, "  ", text);
    if !dropped.is_empty() {
        let text = format!("not shown: {} (--json has them)", dropped.join(", "));
        paragraph(out, width, "  ", &text);
    }
    for (table, log) in tables.iter().zip(&logs) {
        for note in table.notes.iter().skip(1) {
            paragraph(out, width, "  ", &format!("{}: {note}", log.name));
        }
    }
}
