//! The table of a run: a row for each cell, in the order measured.
//!
//! *Owns*: the columns, their content, and which of them are dropped first if the terminal is too
//! narrow. *May not touch*: how columns are aligned (`grid`), what a bill means (`bill` of the
//! lab).
//!
//! By importance, the last being dropped first: way and per commit (always shown); the speedup
//! (first without its interval); durable; flush and FUA, data, journal (with shared counters:
//! writes); the speedup's interval; p99; the bar; commits/s; bytes; p50; page faults; other writes;
//! max; reads; p99.9; write p50; sync p50. Counts that are 0 in every row are dropped before any of
//! these; reads and other writes that belong to the commits (1 in 20 or more) stay as long as the
//! journal.

use super::TableStyle;
use super::grid::{Align, Column, Grid, Text};
use super::numbers::{NOTHING, TimeUnit, bytes, per, ratio, sig3};
use super::text::{Tint, cut_middle, paragraph};
use crate::result::{
    Bill, BillSource, CellResult, DurableFinding, Histogram, LayerBill, Measured, Outcome,
    Relative, Run, Tally, Verdict,
};
use crate::stage::DISK_FULL;
use crate::stats;

/// Widths of the bar, and of its shorter form.
const BAR: [usize; 2] = [12, 6];
/// Added to the rank of a column of zeros.
const ZEROS: u32 = 100;
/// A request in one commit of twenty is not chance: from there on reads and other writes matter.
const EACH: f64 = 0.05;
/// The rank of such a column.
const EACH_RANK: u32 = 7;
/// A name takes at most this share of the width.
const NAME_PART: usize = 3;

/// Appends the table of `run`, and the notes that it needs, to `out`.
pub(super) fn table(run: &Run, style: &TableStyle, out: &mut String) {
    let view = View::of(run);
    let mut grid = Grid::new(run.cells.len(), 2);
    let name_max = (style.columns() / NAME_PART).max(20);
    let names = view.map(|row| match row.measured {
        Some(_) => Text::new(row.tint, &cut_middle(style, &row.cell.name, name_max)),
        None => Text::default(),
    });
    grid.push(Column::new("way", Align::Left, 0, names));
    times(&view, &mut grid);
    relatives(&view, style, &mut grid);
    bills(&view, &mut grid);
    rest(&view, &mut grid);
    for (index, row) in view.rows.iter().enumerate() {
        let said = match &row.cell.outcome {
            Outcome::Measured(_) => continue,
            Outcome::Invalid { reason } if reason.starts_with(DISK_FULL) => {
                Text::new(Tint::Bad, reason)
            }
            Outcome::Invalid { reason } => {
                Text::new(Tint::Bad, &format!("cannot do this here: {reason}"))
            }
            Outcome::NotRun => Text::new(Tint::Dim, "not run: the run ended before"),
        };
        grid.span(index, &row.cell.name, said);
    }
    if view.rows.iter().all(|row| row.measured.is_none()) {
        paragraph(out, style, "  ", "No way was measured.", Tint::Plain);
    }
    let dropped = grid.render(style, out);
    notes(&view, style, &dropped, out);
}

/// A row with the data of its columns.
struct Row<'a> {
    cell: &'a CellResult,
    measured: Option<&'a Measured>,
    per_commit_ns: Option<f64>,
    tint: Tint,
}

struct View<'a> {
    run: &'a Run,
    rows: Vec<Row<'a>>,
    /// The time of a full bar: that of the fastest cell whose durability holds, or of the fastest
    /// cell if there is none.
    full_ns: Option<f64>,
    unit: TimeUnit,
}

impl<'a> View<'a> {
    fn of(run: &'a Run) -> Self {
        let rows = run.cells.iter().map(|cell| {
            let measured = cell.outcome.measured();
            Row {
                cell,
                measured,
                per_commit_ns: measured.and_then(stats::per_commit_ns),
                tint: Tint::Plain,
            }
        });
        let mut rows: Vec<Row> = rows.collect();
        let fastest = |rows: &[Row], wanted: &dyn Fn(&Row) -> bool| {
            let times = rows.iter().filter(|row| wanted(row)).filter_map(|row| row.per_commit_ns);
            times.min_by(f64::total_cmp)
        };
        let best_ns =
            fastest(&rows, &|row| row.measured.is_some_and(|measured| holds(&measured.durable)));
        let best = run.finding.as_ref().and_then(|finding| finding.best.as_ref());
        for row in rows.iter_mut().filter(|row| Some(&row.cell.name) == best) {
            row.tint = Tint::Good;
        }
        let full_ns = best_ns.or(fastest(&rows, &|_| true));
        let unit = TimeUnit::of(rows.iter().filter_map(|row| row.per_commit_ns));
        Self { run, rows, full_ns, unit }
    }

    fn map<'b>(
        &'b self,
        cell: impl Fn(&'b Row<'a>) -> Text + 'b,
    ) -> impl Iterator<Item = Text> + 'b {
        self.rows.iter().map(cell)
    }

    /// A cell for each measured row; empty in the others.
    fn measured<'b>(
        &'b self,
        cell: impl Fn(&'b Measured) -> Text + 'b,
    ) -> impl Iterator<Item = Text> + 'b {
        self.map(move |row| row.measured.map(&cell).unwrap_or_default())
    }
}

/// Whether a cell claims durability and no observation contradicts it.
fn holds(durable: &DurableFinding) -> bool {
    !matches!(durable, DurableFinding::NotClaimed | DurableFinding::NotCovered { .. })
}

fn times(view: &View, grid: &mut Grid) {
    let unit = view.unit;
    let group = [unit.name.to_owned()];
    let per_commit = view.map(|row| match (row.measured, row.per_commit_ns) {
        (Some(_), Some(ns)) => Text::new(row.tint, &unit.show(ns)),
        (Some(_), None) => NOTHING.into(),
        (None, _) => Text::default(),
    });
    grid.push(Column::new("per commit", Align::Point, 0, per_commit).group(&group));
    let mut latency =
        |head: &str, rank: u32, of: fn(&Measured) -> &Histogram, pick: fn(&Histogram) -> u64| {
            let cells = view.measured(|measured| match of(measured) {
                histogram if histogram.count == 0 => Text::default(),
                histogram => unit.show(pick(histogram) as f64).into(),
            });
            grid.push(Column::new(head, Align::Point, rank, cells).group(&group));
        };
    latency("p50", 14, |m| &m.commit, |h| h.p50_ns);
    latency("p99", 9, |m| &m.commit, |h| h.p99_ns);
    latency("p99.9", 20, |m| &m.commit, |h| h.p999_ns);
    latency("max", 18, |m| &m.commit, |h| h.max_ns);
    latency("write p50", 21, |m| &m.write, |h| h.p50_ns);
    latency("sync p50", 22, |m| &m.sync, |h| h.p50_ns);
    let rate = view.map(|row| match (row.measured, row.per_commit_ns) {
        (Some(_), Some(ns)) => sig3(1e9 / ns).into(),
        (Some(_), None) => NOTHING.into(),
        (None, _) => Text::default(),
    });
    grid.push(Column::new("commits/s", Align::Right, 12, rate));
}

fn relatives(view: &View, style: &TableStyle, grid: &mut Grid) {
    if view.run.baseline.is_some()
        || view.rows.iter().any(|row| row.measured.is_some_and(|m| m.relative.is_some()))
    {
        let column = |full: bool| view.map(move |row| relative_text(view, row, full));
        let short = Column::new("speedup", Align::Left, 1, column(false));
        // The short form is added early; the interval replaces it if more important columns leave
        // room.
        grid.push(Column::new("speedup [95%]", Align::Left, 8, column(true)).instead(short));
    }
    let bar = |width: usize| view.map(move |row| bar(view, row, style, width));
    let short = Column::new("speed", Align::Left, 10, bar(BAR[1]));
    grid.push(Column::new("speed", Align::Left, 10, bar(BAR[0])).instead(short));
}

fn relative_text(view: &View, row: &Row, full: bool) -> Text {
    let Some(measured) = row.measured else { return Text::default() };
    let is_base = view.run.baseline.as_deref() == Some(row.cell.name.as_str());
    match measured.relative {
        None if is_base => Text::new(Tint::Dim, if full { "1.00 (base)" } else { "(base)" }),
        None => Text::new(Tint::Dim, NOTHING),
        Some(relative) => speedup(&relative, full),
    }
}

fn speedup(relative: &Relative, full: bool) -> Text {
    let tint = match relative.verdict {
        Verdict::Faster | Verdict::Slower => Tint::Plain,
        Verdict::Tie | Verdict::CannotTell | Verdict::Unknown => Tint::Dim,
    };
    if full {
        return Text::new(tint, &relative.column(ratio));
    }
    Text::new(tint, &format!("{}{}", ratio(relative.speedup), relative.verdict.mark()))
}

/// The cell's speed as a part of the fastest's; a faster cell that is not durable gets a full bar.
fn bar(view: &View, row: &Row, style: &TableStyle, width: usize) -> Text {
    let (Some(full), Some(own)) = (view.full_ns, row.per_commit_ns) else { return Text::default() };
    let part = (full / own).clamp(0.0, 1.0) * width as f64;
    let eighths = ((part * 8.0).round() as usize).max(1);
    let (block, beyond) = if style.unicode { ("█", "»") } else { ("#", ">") };
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let text = match own < full {
        true => format!("{}{beyond}", block.repeat(width - 1)),
        false if style.unicode => format!("{}{}", block.repeat(eighths / 8), EIGHTHS[eighths % 8]),
        false => block.repeat((part.round() as usize).max(1)),
    };
    Text::new(row.tint, &text)
}

/// A cell's bill at the file system's own device.
fn own_layer(measured: &Measured) -> Option<(&Bill, &LayerBill)> {
    let bill = measured.bill.as_ref().filter(|bill| bill.commits > 0)?;
    Some((bill, bill.layers.first()?))
}

/// Our writes that are neither the file's data nor the journal's. Writes of unknown origin occur on
/// shared devices; they are in the bill only.
fn other_writes(layer: &LayerBill) -> [Tally; 3] {
    [layer.metadata_writes, layer.zeroing, layer.discards]
}

/// The journal's writes. On a shared file system those that no commit of ours waited for are in the
/// bill only.
fn journal_writes(layer: &LayerBill) -> [Tally; 3] {
    if layer.shared {
        return [layer.journal_writes, Tally::default(), Tally::default()];
    }
    [layer.journal_writes, layer.timer_journal_writes, layer.other_journal_writes]
}

fn requests(tallies: &[Tally]) -> u64 {
    tallies.iter().map(|tally| tally.requests).sum()
}

fn bytes_of(tallies: &[Tally]) -> u64 {
    tallies.iter().map(|tally| tally.bytes).sum()
}

type Count = fn(&LayerBill, BillSource) -> Option<u64>;

fn bills(view: &View, grid: &mut Grid) {
    let bills: Vec<_> =
        view.rows.iter().filter_map(|row| row.measured.and_then(own_layer)).collect();
    let Some((_, layer)) = bills.first() else { return };
    let long = format!("requests per commit at {}", layer.device);
    let group =
        [long, "requests per commit".to_owned(), "per commit".to_owned(), layer.device.clone()];
    let mut count = |head: &str, rank: u32, count: Count| {
        let most = bills.iter().map(|(bill, layer)| {
            let count = count(layer, bill.source).unwrap_or(0);
            count as f64 / bill.commits as f64
        });
        let most = most.fold(0.0, f64::max);
        let cells = || {
            view.measured(|measured| match own_layer(measured) {
                Some((bill, layer)) => match count(layer, bill.source) {
                    Some(count) => tilde(bill, per(count as f64 / bill.commits as f64)),
                    None => Text::default(),
                },
                None => NOTHING.into(),
            })
        };
        let rank = match most {
            0.0 => rank + ZEROS,
            most if most >= EACH => rank.min(EACH_RANK),
            _ => rank,
        };
        let column = |head: &str| Column::new(head, Align::Right, rank, cells()).group(&group);
        grid.push(match head {
            "journal" => column(head).instead(column("jrnl")),
            head => column(head),
        });
    };
    if bills.iter().any(|(bill, _)| bill.source == BillSource::Trace) {
        count("data", 5, |l, s| (s == BillSource::Trace).then_some(l.data_writes.requests));
        count("journal", 6, |l, s| (s == BillSource::Trace).then(|| requests(&journal_writes(l))));
        count("other", 17, |l, s| (s == BillSource::Trace).then(|| requests(&other_writes(l))));
    }
    if bills.iter().any(|(bill, _)| bill.source == BillSource::SharedCounters) {
        count("writes", 5, |l, s| {
            (s == BillSource::SharedCounters).then_some(l.all_writes.requests)
        });
    }
    count("reads", 19, |l, s| {
        Some(match s {
            BillSource::Trace => l.data_reads.requests + l.other_reads.requests,
            BillSource::SharedCounters => l.all_reads.requests,
        })
    });
    count("flush", 4, |l, _| Some(l.flushes));
    if bills.iter().any(|(_, layer)| layer.fua_writes > 0) {
        count("FUA", 4, |l, s| (s == BillSource::Trace).then_some(l.fua_writes));
    }
    let sizes = view.measured(|measured| {
        own_layer(measured).map_or_else(|| NOTHING.into(), |(b, l)| sizes(b, l))
    });
    grid.push(Column::new("bytes", Align::Right, 13, sizes).group(&group));
}

/// Bytes written per commit: the file's data, plus everything else.
fn sizes(bill: &Bill, layer: &LayerBill) -> Text {
    let each = |total: u64| bytes(total as f64 / bill.commits as f64);
    if bill.source == BillSource::SharedCounters {
        return tilde(bill, each(layer.all_writes.bytes));
    }
    match bytes_of(&journal_writes(layer)) + bytes_of(&other_writes(layer)) {
        0 => tilde(bill, each(layer.data_writes.bytes)),
        more => tilde(bill, format!("{}+{}", each(layer.data_writes.bytes), each(more))),
    }
}

/// Marks a count that is not this cell's alone.
fn tilde(bill: &Bill, text: String) -> Text {
    match bill.source {
        BillSource::Trace => text.into(),
        BillSource::SharedCounters => format!("~{text}").into(),
    }
}

fn rest(view: &View, grid: &mut Grid) {
    let faults = view.measured(|measured| match measured.faults_per_write {
        Some((minor, major)) => format!("{}+{}", per(minor), per(major)).into(),
        None => Text::default(),
    });
    let group = ["minor+major per write".to_owned(), "per write".to_owned()];
    grid.push(Column::new("faults", Align::Right, 15, faults).group(&group));
    let durable = view.measured(|measured| durable(&measured.durable));
    grid.push(Column::new("durable", Align::Left, 3, durable));
}

fn durable(finding: &DurableFinding) -> Text {
    match finding {
        DurableFinding::NotClaimed => Text::new(Tint::Dim, "no"),
        DurableFinding::Seen { .. } => "yes".into(),
        DurableFinding::Consistent { .. } => "likely".into(),
        DurableFinding::NotCovered { .. } => Text::new(Tint::Bad, "NO"),
        DurableFinding::NotVisible { .. } => "claimed".into(),
    }
}

/// Each reason once, with the cells it is about: `new fsync`, or `new fsync and 11 others`.
fn by_reason<'a>(cells: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<(&'a str, String)> {
    let mut reasons: Vec<(&str, &str, u32)> = Vec::new();
    for (name, reason) in cells {
        match reasons.iter_mut().find(|(known, ..)| *known == reason) {
            Some((_, _, others)) => *others += 1,
            None => reasons.push((reason, name, 0)),
        }
    }
    let words = |(reason, first, others): (&'a str, &str, u32)| match others {
        0 => (reason, first.to_owned()),
        1 => (reason, format!("{first} and another")),
        others => (reason, format!("{first} and {others} others")),
    };
    reasons.into_iter().map(words).collect()
}

/// One line for the words of the ways in this table that say nothing by themselves.
pub(crate) fn explained(run: &Run) -> Option<String> {
    let names: Vec<&str> = run.cells.iter().flat_map(|cell| cell.name.split(' ')).collect();
    let known = WORDS.iter().filter(|(word, _)| names.contains(word));
    let said: Vec<String> = known.map(|(word, means)| format!("{word}: {means}")).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

const WORDS: [(&str, &str); 5] = [
    ("reuse", "blocks of an old file are written again"),
    ("zeros", "written into a new file before"),
    ("direct", "past the page cache"),
    ("o-dsync", "each write is durable when it returns"),
    ("rwf-dsync", "the same, asked for with the write"),
];

/// Explains the table's abbreviations, if it uses them.
fn notes(view: &View, style: &TableStyle, dropped: &[String], out: &mut String) {
    let measured =
        || view.rows.iter().filter_map(|row| row.measured.map(|measured| (row.cell, measured)));
    if measured().any(|(_, m)| m.relative.is_some_and(|relative| relative.interval().is_some())) {
        let text = "its intervals hold all at once in 95 of 100 runs; tie: the whole interval is within 10% of 1; cannot tell: the \
                    interval is wider";
        paragraph(out, style, "  speedup  ", text, Tint::Dim);
    }
    if let Some(words) = explained(view.run) {
        paragraph(out, style, "  ways  ", &words, Tint::Dim);
    }
    let not_covered = measured().filter_map(|(cell, measured)| match &measured.durable {
        DurableFinding::NotCovered { reason } => Some((cell.name.as_str(), reason.as_str())),
        _ => None,
    });
    for (reason, cells) in by_reason(not_covered) {
        paragraph(out, style, "  NO  ", &format!("{cells}: {reason}"), Tint::Bad);
    }
    let not_visible = measured().filter_map(|(cell, measured)| match &measured.durable {
        DurableFinding::NotVisible { reason } => Some((cell.name.as_str(), reason.as_str())),
        _ => None,
    });
    for (reason, cells) in by_reason(not_visible) {
        paragraph(
            out,
            style,
            "  claimed  ",
            &format!("not seen here ({cells}): {reason}"),
            Tint::Dim,
        );
    }
    if measured().any(|(_, m)| matches!(m.durable, DurableFinding::Consistent { .. })) {
        let text = "the device counted at least one flush per commit: consistent with the claim, but no proof";
        paragraph(out, style, "  likely  ", text, Tint::Dim);
    }
    let shared = |bill: &Bill| bill.source == BillSource::SharedCounters;
    if measured().any(|(_, m)| m.bill.as_ref().is_some_and(shared)) {
        let text = "from the device's counters, which include requests of other processes and count an empty flush as a write";
        paragraph(out, style, "  ~  ", text, Tint::Dim);
    }
    let lost: u64 =
        measured().filter_map(|(_, m)| m.bill.as_ref()).map(|bill| bill.lost_events).sum();
    if lost > 0 {
        let text =
            format!("{lost} trace events were lost: requests per commit are too low by that much");
        paragraph(out, style, "  ! ", &text, Tint::Bad);
    }
    if !dropped.is_empty() {
        let text = format!("{} (a wider terminal, --csv and --json have them)", dropped.join(", "));
        paragraph(out, style, "  not shown: ", &text, Tint::Dim);
    }
}
