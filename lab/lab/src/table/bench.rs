//! A bench of the log: a row for each load and record size, its floor beside it.
//!
//! *Owns*: the columns, and in which order they are dropped if there is no room. *May not touch*:
//! figures.

use super::grid::{Align, Column, Grid, Text};
use super::numbers::{NOTHING, ratio, sig3};
use super::text::{Tint, paragraph};
use super::ways::shown;
use super::{TableStyle, closing, place_lines, render_warnings};
use crate::bench::beside::FLOOR;
use crate::result::{FEW_ROUNDS, Histogram, LabResult, Relative, Table, Way};
use crate::stats::PAIRS_MIN;

/// The whole bench: the table, the notes of each row, warnings.
pub fn render_bench(result: &LabResult, style: &TableStyle) -> String {
    let mut out = String::new();
    let title = "The log beside a bare overwrite of a written file";
    paragraph(&mut out, style, "", title, Tint::Strong);
    if let Some(table) = result.tables.first() {
        place_lines(&table.place, style, &mut out);
        out.push('\n');
        rows(&result.tables, style, &mut out);
        for table in &result.tables {
            for note in table.notes.iter().skip(1) {
                let name = log_of(table).map_or("", |way| way.name.as_str());
                paragraph(&mut out, style, "  ", &format!("{name}: {note}"), Tint::Dim);
            }
        }
    } else {
        paragraph(&mut out, style, "  ", "Nothing was measured.", Tint::Plain);
    }
    out.push('\n');
    out.push_str(&render_warnings(result, style));
    closing(result, style, &mut out);
    out
}

fn log_of(table: &Table) -> Option<&Way> {
    table.ways.iter().find(|way| way.name != FLOOR)
}

fn rows(tables: &[Table], style: &TableStyle, out: &mut String) {
    let mut grid = Grid::new(tables.len(), 2);
    let mut column = |head: &str, align, rank, cell: &dyn Fn(&Table, &Way) -> Option<String>| {
        let text = |table: &Table| {
            let way = log_of(table).filter(|way| way.is_measured());
            Text::from(way.and_then(|way| cell(table, way)).unwrap_or_else(|| NOTHING.into()))
        };
        grid.push(Column::new(head, align, rank, tables.iter().map(text)));
    };
    let floor = |table: &Table, of: &dyn Fn(&Way) -> Option<f64>| of(table.way(FLOOR)?);
    column("", Align::Left, 0, &|_, log| Some(log.name.clone()));
    column("commits/s", Align::Right, 0, &|table, log| table.median(log).map(sig3));
    let us = |log: &Way, pick: fn(&Histogram) -> u64| {
        log.latency.as_ref().map(|latency| sig3(pick(latency) as f64 / 1e3))
    };
    column("p50 us", Align::Right, 1, &|_, log| us(log, |latency| latency.p50_ns));
    column("p99 us", Align::Right, 4, &|_, log| us(log, |latency| latency.p99_ns));
    column("p99.9 us", Align::Right, 3, &|_, log| us(log, |latency| latency.p999_ns));
    column("floor/s", Align::Right, 2, &|table, _| {
        floor(table, &|way| table.median(way)).map(sig3)
    });
    column("of", Align::Right, 6, &|table, _| {
        floor(table, &|way| way.figure("bytes per write")).map(super::numbers::bytes)
    });
    column("log/floor", Align::Left, 0, &|_, log| {
        log.relative.as_ref().map(|relative| relative.column(ratio))
    });
    let mut known: Vec<&str> = Vec::new();
    for figure in tables.iter().filter_map(log_of).flat_map(|way| &way.figures) {
        if !known.contains(&figure.name.as_str()) {
            known.push(&figure.name);
        }
    }
    for (index, name) in known.into_iter().enumerate() {
        let head = match name {
            "CPU time" => "CPU us",
            "records per flush" => "per group",
            "data writes" => "data",
            "journal writes" => "journal",
            "flushes" => "flush",
            name => name,
        };
        column(head, Align::Right, 3 + index as u32, &|_, log| {
            let figure = log.figures.iter().find(|figure| figure.name == name)?;
            Some(shown(figure.unit, figure.value))
        });
    }
    for (index, table) in tables.iter().enumerate() {
        if let Some((way, reason)) =
            log_of(table).and_then(|way| Some((way, way.missing.as_ref()?)))
        {
            grid.span(index, &way.name, Text::new(Tint::Bad, reason));
        }
    }
    let dropped = grid.render(style, out);
    let mut text = "log/floor: the log's rate divided by that of bare overwrites of as many bytes \
     as its groups have, \
         interleaved, with its 95% interval; each of these counts as many records as a group of the log. ~: of the whole \
         device, with all processes."
        .to_owned();
    let relatives: Vec<&Relative> =
        tables.iter().filter_map(log_of).filter_map(|way| way.relative.as_ref()).collect();
    if relatives.iter().any(|relative| relative.interval().is_none()) {
        text.push_str(&format!(" few rounds: {FEW_ROUNDS} ({PAIRS_MIN} make one)."));
    }
    if !dropped.is_empty() {
        let dropped = dropped.join(", ");
        text.push_str(&format!(" Columns that did not fit: {dropped} (they are in --json)."));
    }
    paragraph(out, style, "  ", &text, Tint::Dim);
}
