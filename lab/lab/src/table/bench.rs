//! A bench of the log: a row for each load and record size, its floor beside it, and the pair that
//! changes segments.
//!
//! *Owns*: the columns, and in which order they are dropped if there is no room. *May not touch*:
//! figures.

use super::TableStyle;
use super::grid::{Align, Column, Grid, Text};
use super::numbers::{NOTHING, bytes, per, ratio, sig3, time};
use super::text::{Tint, paragraph};
use crate::bench::result::{BenchResult, BenchRow, ChangePair, LogBill};
use crate::cell::size_name;
use crate::result::{BillSource, FEW_ROUNDS, Relative, Round};
use crate::stats::{PAIRS_MIN, median};

/// The whole bench: the table, the requests apart from commits, the pair, warnings.
pub fn render_bench(result: &BenchResult, style: &TableStyle) -> String {
    let mut out = String::new();
    paragraph(
        &mut out,
        style,
        "",
        "The log beside a bare overwrite of a written file",
        Tint::Strong,
    );
    super::place_lines(&result.place, style, &mut out);
    if let Some(row) = result.rows.iter().find(|row| !row.strategy.is_empty()) {
        paragraph(&mut out, style, "  ", &row.strategy, Tint::Plain);
    }
    out.push('\n');
    if result.rows.is_empty() {
        paragraph(&mut out, style, "  ", "Nothing was measured.", Tint::Plain);
    } else {
        let dropped = rows(result, style, &mut out);
        legend(result, &dropped, style, &mut out);
    }
    if result.rows.iter().any(|row| row.bill.as_ref().is_some_and(is_traced)) {
        out.push('\n');
        apart(result, style, &mut out);
    }
    if let Some(pair) = &result.changes {
        out.push('\n');
        changes(pair, style, &mut out);
    }
    out.push('\n');
    if result.preamble.interrupted {
        let text = "The run was stopped early: this is what was measured until then.";
        paragraph(&mut out, style, "! ", text, Tint::Bad);
    }
    super::finding::warnings(&result.warnings, style, &mut out);
    out
}

fn is_traced(bill: &LogBill) -> bool {
    bill.source == BillSource::Trace
}

/// Commits or writes per second: the median of the rounds.
fn per_s(rounds: &[Round]) -> f64 {
    let rates: Vec<f64> = rounds
        .iter()
        .filter(|round| round.commits > 0 && round.total_ns > 0)
        .map(|round| 1e9 / round.per_commit_ns())
        .collect();
    median(&rates).unwrap_or(f64::NAN)
}

fn interval(relative: Option<&Relative>) -> String {
    relative.map_or_else(|| NOTHING.into(), |relative| relative.column(ratio))
}

fn name(row: &BenchRow) -> String {
    format!("{}, {}", row.load, size_name(row.record_bytes))
}

fn rows(result: &BenchResult, style: &TableStyle, out: &mut String) -> Vec<String> {
    let all = &result.rows;
    let mut grid = Grid::new(all.len(), 2);
    let cells = |cell: &dyn Fn(&BenchRow) -> String| {
        all.iter().map(|row| Text::from(cell(row))).collect::<Vec<_>>().into_iter()
    };
    let measured = |row: &BenchRow, value: f64, show: &dyn Fn(f64) -> String| {
        if row.commits() == 0 { NOTHING.to_owned() } else { show(value) }
    };
    let us = |row: &BenchRow, ns: u64| {
        if row.latency.count == 0 { NOTHING.to_owned() } else { sig3(ns as f64 / 1e3) }
    };
    grid.push(Column::new("", Align::Left, 0, cells(&name)));
    let rate = cells(&|row| measured(row, per_s(&row.rounds), &sig3));
    grid.push(Column::new("commits/s", Align::Right, 0, rate));
    let group = ["latency, us".to_owned(), "us".to_owned()];
    let p50 = cells(&|row| us(row, row.latency.p50_ns));
    grid.push(Column::new("p50", Align::Right, 1, p50).group(&group));
    let p99 = cells(&|row| us(row, row.latency.p99_ns));
    grid.push(Column::new("p99", Align::Right, 4, p99).group(&group));
    let p999 = cells(&|row| us(row, row.latency.p999_ns));
    grid.push(Column::new("p99.9", Align::Right, 3, p999).group(&group));
    let floor = cells(&|row| {
        row.floor.as_ref().map_or_else(|| NOTHING.into(), |floor| sig3(per_s(&floor.rounds)))
    });
    grid.push(Column::new("floor/s", Align::Right, 2, floor));
    let size = cells(&|row| {
        row.floor.as_ref().map_or_else(|| NOTHING.into(), |floor| bytes(floor.write_bytes as f64))
    });
    grid.push(Column::new("of", Align::Right, 6, size));
    let beside = cells(&|row| interval(row.floor.as_ref().and_then(|floor| floor.ratio.as_ref())));
    grid.push(Column::new("log/floor", Align::Left, 0, beside));
    let shared =
        cells(&|row| measured(row, row.commits() as f64 / row.log.groups.max(1) as f64, &sig3));
    grid.push(Column::new("per group", Align::Right, 3, shared));
    let cpu =
        cells(&|row| measured(row, row.cpu_ns as f64 / 1e3 / row.commits().max(1) as f64, &sig3));
    grid.push(Column::new("CPU us", Align::Right, 4, cpu));
    bill_columns(&mut grid, all);
    for (index, row) in all.iter().enumerate() {
        if let Some(reason) = &row.failed {
            grid.span(index, &name(row), Text::new(Tint::Bad, reason));
        }
    }
    grid.render(style, out)
}

/// The bill per commit; `~` before counts of the whole device.
fn bill_columns(grid: &mut Grid, all: &[BenchRow]) {
    type Count = fn(&LogBill) -> u64;
    let group = ["requests per commit".to_owned(), "per commit".to_owned()];
    let columns: [(&str, u32, bool, Count); 4] = [
        ("writes", 2, true, |bill| bill.data_writes.requests),
        ("flushes", 2, true, |bill| bill.flushes),
        ("journal", 5, false, |bill| bill.journal_writes.requests + bill.metadata_writes.requests),
        ("reads", 5, true, |bill| bill.reads.requests),
    ];
    for (head, rank, by_counters, count) in columns {
        let cell = |row: &BenchRow| match &row.bill {
            Some(bill) if is_traced(bill) => per(count(bill) as f64 / bill.commits.max(1) as f64),
            Some(bill) if by_counters => {
                format!("~{}", per(count(bill) as f64 / bill.commits.max(1) as f64))
            }
            _ => NOTHING.into(),
        };
        let cells = all.iter().map(|row| Text::from(cell(row)));
        grid.push(Column::new(head, Align::Right, rank, cells).group(&group));
    }
}

fn legend(result: &BenchResult, dropped: &[String], style: &TableStyle, out: &mut String) {
    let mut text = "log/floor: the log's rate divided by that of bare overwrites of as many bytes, interleaved, with its \
     95% interval; the rate is of commits with 1 thread, of groups otherwise."
        .to_owned();
    let ratios = || result.rows.iter().filter_map(|row| row.floor.as_ref()?.ratio.as_ref());
    if ratios().any(|ratio| ratio.interval().is_none()) {
        text.push_str(&format!(" few rounds: {FEW_ROUNDS} ({PAIRS_MIN} make one)."));
    }
    let pool_empty: u64 = result.rows.iter().map(|row| row.log.pool_empty).sum();
    let changes: u64 = result.rows.iter().map(|row| row.log.segments).sum();
    text.push_str(&format!(
        " {changes} segment changes, {pool_empty} of them found no file ready."
    ));
    let all = || result.rows.iter().map(|row| &row.log);
    let (sleeps, rested_us): (u64, u64) =
        (all().map(|log| log.sleeps_at_once).sum(), all().map(|log| log.rested_us).sum());
    if sleeps > 0 {
        let seconds = sig3(rested_us as f64 / 1e6);
        text.push_str(&format!(
            " Yielding did not pay for {seconds} s, in which waiting threads slept at once, {sleeps} times."
        ));
    }
    if !dropped.is_empty() {
        text.push_str(&format!(
            " Columns that did not fit: {} (they are in --json).",
            dropped.join(", ")
        ));
    }
    paragraph(out, style, "  ", &text, Tint::Dim);
}

/// The traced bills in full: requests of commits, and requests apart from them.
fn apart(result: &BenchResult, style: &TableStyle, out: &mut String) {
    paragraph(out, style, "", "Bills by trace, in passes of their own", Tint::Strong);
    for row in &result.rows {
        let Some(bill) = row.bill.as_ref().filter(|bill| is_traced(bill)) else { continue };
        paragraph(out, style, "  ", &format!("{}: {}", name(row), bill_text(bill)), Tint::Plain);
    }
}

/// One bill as a sentence.
pub fn bill_text(bill: &LogBill) -> String {
    let apart = &bill.apart;
    let mut text = format!(
        "{} commits, {} segment changes: {} data writes, {} flushes, {} journal writes waited for, {} metadata writes, \
         {} reads; apart: {} data writes ({}B), {} flushes, {} journal writes by timers, {} other, {} metadata writes, \
         {} reads, {} zeroing or discards",
        bill.commits,
        bill.changes,
        bill.data_writes.requests,
        bill.flushes,
        bill.journal_writes.requests,
        bill.metadata_writes.requests,
        bill.reads.requests,
        apart.data_writes.requests,
        bytes(apart.data_writes.bytes as f64),
        apart.flushes,
        apart.timer_journal_writes.requests,
        apart.other_journal_writes.requests,
        apart.metadata_writes.requests,
        apart.reads.requests,
        apart.zeroing.requests,
    );
    if let Some(check) = bill.cross_check {
        text.push_str(&format!(
            "; the device counted {} flushes and {} sectors written, the trace {} and {}",
            check.counted_flushes,
            check.counted_write_sectors,
            check.traced_flushes,
            check.traced_write_sectors
        ));
    }
    if bill.lost_events > 0 {
        text.push_str(&format!("; {} events lost, so counts are too low", bill.lost_events));
    }
    text
}

fn changes(pair: &ChangePair, style: &TableStyle, out: &mut String) {
    paragraph(
        out,
        style,
        "",
        "Segment changes: a lone writer whose segment changes, beside one whose segment never does",
        Tint::Strong,
    );
    if let Some(reason) = &pair.failed {
        return paragraph(out, style, "  ", reason, Tint::Bad);
    }
    if pair.changing.is_empty() {
        return paragraph(out, style, "  ", "Nothing was measured.", Tint::Plain);
    }
    let text = format!(
        "{} records, segments of {}B: a change every {} ({} changes, {} without a file ready; the other had {})",
        size_name(pair.record_bytes),
        bytes(pair.segment_bytes as f64),
        time(pair.every_ns as f64),
        pair.changes,
        pair.pool_empty,
        pair.changes_of_steady,
    );
    paragraph(out, style, "  ", &text, Tint::Plain);
    let text = format!(
        "throughput {} of the other's; p99.9 of a round {} times the other's ({} and {} over all)",
        interval(pair.throughput.as_ref()),
        interval(pair.p999.as_ref()),
        time(pair.changing_latency.p999_ns as f64),
        time(pair.steady_latency.p999_ns as f64),
    );
    paragraph(out, style, "  ", &text, Tint::Plain);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::Floor;

    fn result() -> BenchResult {
        let round =
            |number| Round { number, commits: 1000, total_ns: 100_000_000, ..Round::default() };
        let row = BenchRow {
            load: "1 thread".into(),
            threads: 1,
            record_bytes: 128,
            rounds: (0..5).map(round).collect(),
            floor: Some(Floor {
                write_bytes: 4096,
                rounds: (0..5).map(round).collect(),
                ratio: crate::stats::relative(
                    &(0..5).map(round).collect::<Vec<_>>(),
                    &(0..5).map(round).collect::<Vec<_>>(),
                    1,
                ),
                ..Floor::default()
            }),
            bill: Some(LogBill {
                data_writes: crate::result::Tally { requests: 101, bytes: 101 * 4096 },
                flushes: 100,
                ..LogBill::empty(BillSource::Trace, 100, 1)
            }),
            ..BenchRow::default()
        };
        let failed = BenchRow {
            failed: Some("no room".into()),
            load: "8 threads".into(),
            ..BenchRow::default()
        };
        BenchResult { rows: vec![row, failed], ..BenchResult::default() }
    }

    #[test]
    fn rates_ratios_and_bills_stand_in_their_row() {
        let text = render_bench(&result(), &TableStyle { width: 140, ..TableStyle::default() });
        let line = text.lines().find(|line| line.contains("1 thread, 128B")).expect("the row");
        for word in ["10,000", "1.00 [1.00..1.00]", "1.01", "1.00"] {
            assert!(line.contains(word), "{word}: {line}");
        }
        assert!(
            text.contains("no room") && text.contains("100 commits, 1 segment changes"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 140), "{text}");
    }

    #[test]
    fn counts_of_the_whole_device_are_marked() {
        let mut result = result();
        let bill = result.rows[0].bill.as_mut().expect("a bill");
        bill.source = BillSource::SharedCounters;
        let text = render_bench(&result, &TableStyle { width: 140, ..TableStyle::default() });
        assert!(text.contains("~1.01") && !text.contains("Bills by trace"), "{text}");
    }
}
