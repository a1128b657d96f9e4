//! The table of ways side by side: a row for each, in the order measured.
//!
//! *Owns*: the columns, their content, and which of them are dropped first if the terminal is too
//! narrow. *May not touch*: how columns are aligned (`grid`), what a bill means (`bill` of the
//! lab).
//!
//! By importance, the last being dropped first: way and value (always shown); what is best, and the
//! comparison (first without its interval); durable; flush and FUA, data, journal (with shared
//! counters: writes); the interval; p99; the bar; commits/s; bytes; p50; further figures; other
//! writes; p99.9; max; reads. Counts that are 0 in every row are dropped before any of these; reads
//! and other writes that belong to the commits (1 in 20 or more) stay as long as the journal.

use super::grid::{Align, Column, Grid, Text};
use super::numbers::{NOTHING, TimeUnit, bytes, per, ratio, sig3};
use super::style::TableStyle;
use super::text::{Tint, cut_middle, paragraph};
use crate::experiment::words::{best, not_behind};
use crate::finding::holds;
use crate::result::{
    Bill, BillSource, DurableFinding, FEW_ROUNDS, Figure, Histogram, Kind, LayerBill, Relative,
    Table, Tally, Unit, Verdict, Way,
};
use crate::stats::PAIRS_MIN;

/// Widths of the bar, and of its shorter form.
const BAR: [usize; 2] = [12, 6];
/// Added to the rank of a column of zeros.
const ZEROS: u32 = 100;
/// A request in one commit of twenty is not chance: from there on reads and other writes matter.
const EACH: f64 = 0.05;
/// The rank of such a column.
const EACH_RANK: u32 = 7;
/// The rank of the first further figure; the first stay longest.
const FIGURES_RANK: u32 = 15;
/// A name takes at most this share of the width.
const NAME_PART: usize = 3;

/// Appends the ways of a table, and the notes that they need, to `out`.
pub(super) fn ways(table: &Table, style: &TableStyle, out: &mut String) {
    let view = View::of(table);
    let mut grid = Grid::new(table.ways.len(), 2);
    let name_max = (style.columns() / NAME_PART).max(20);
    let names = view.each(|way| Text::new(view.tint(way), &cut_middle(style, &way.name, name_max)));
    grid.push(Column::new("way", Align::Left, 0, names));
    values(&view, &mut grid);
    relatives(&view, style, &mut grid);
    bills(&view, &mut grid);
    figures(&view, &mut grid);
    grid.push(Column::new("durable", Align::Left, 3, view.each(durable)));
    for (index, way) in table.ways.iter().enumerate() {
        if let Some(reason) = &way.missing {
            grid.span(index, &way.name, Text::new(Tint::Bad, reason));
        }
    }
    if !table.has_content() {
        paragraph(out, style, "  ", "No way was measured.", Tint::Plain);
    }
    let dropped = grid.render(style, out);
    notes(&view, style, &dropped, out);
}

struct View<'a> {
    table: &'a Table,
    /// The unit of its times.
    unit: TimeUnit,
    /// The way that stands out.
    best: Option<&'a str>,
    /// The value of a full bar: that of the best way whose durability holds, or of the best way if
    /// there is none.
    full: Option<f64>,
}

impl<'a> View<'a> {
    fn of(table: &'a Table) -> Self {
        let values = |wanted: &dyn Fn(&&Way) -> bool| -> Vec<f64> {
            table.ways.iter().filter(wanted).filter_map(|way| table.median(way)).collect()
        };
        let top = |values: Vec<f64>| match table.unit.is_time() {
            true => values.into_iter().min_by(f64::total_cmp),
            false => values.into_iter().max_by(f64::total_cmp),
        };
        let all = values(&|way| way.is_measured());
        let unit = TimeUnit::of(all.iter().copied());
        let full = top(values(&|way| way.is_measured() && holds(way))).or_else(|| top(all));
        // Of ways of writing the finding names the best; elsewhere a way that cannot be told from
        // another is not the best.
        let alone = || best(table, None).filter(|best| not_behind(table, best, None).is_empty());
        let best = match table.ways.iter().any(|way| way.durable.is_some()) {
            true => table.finding.as_ref().and_then(|finding| finding.best.as_deref()),
            false => alone().map(|best| best.name.as_str()),
        };
        let best = best.filter(|_| table.ways.len() > 1);
        Self { table, unit, best, full }
    }

    fn tint(&self, way: &Way) -> Tint {
        if self.best == Some(way.name.as_str()) { Tint::Good } else { Tint::Plain }
    }

    /// A cell for each measured way; empty for the others.
    fn each<'b>(&'b self, cell: impl Fn(&'a Way) -> Text + 'b) -> impl Iterator<Item = Text> + 'b {
        self.table.ways.iter().map(move |way| match way.is_measured() {
            true => cell(way),
            false => Text::default(),
        })
    }

    fn value(&self, way: &Way) -> String {
        match self.table.median(way) {
            None => NOTHING.into(),
            Some(value) if self.table.unit.is_time() => self.unit.show(value),
            Some(value) if self.table.unit.is_bytes() => format!("{}B", bytes(value)),
            Some(value) => sig3(value),
        }
    }
}

fn values(view: &View<'_>, grid: &mut Grid) {
    let unit = view.table.unit;
    let group = [view.unit.name.to_owned()];
    let value = view.each(|way| Text::new(view.tint(way), &view.value(way)));
    grid.push(match unit {
        Unit::NsPerCommit => Column::new("per commit", Align::Point, 0, value).group(&group),
        unit if unit.is_time() => {
            let head = unit.name().trim_start_matches("ns, ");
            Column::new(head, Align::Point, 0, value).group(&group)
        }
        Unit::BytesPerS => Column::new("per s", Align::Right, 0, value),
        unit => Column::new(unit.name(), Align::Right, 0, value),
    });
    let mark = view.each(|way| {
        let is_knee = |(series, x): &(String, f64)| *series == way.series && Some(*x) == way.x;
        let is_knee = view.table.knees.iter().any(is_knee);
        match (is_knee, view.best == Some(way.name.as_str())) {
            (true, true) => Text::new(Tint::Good, "knee, best"),
            (true, false) => Text::new(Tint::Strong, "knee"),
            (false, true) => Text::new(Tint::Good, "best"),
            (false, false) => Text::default(),
        }
    });
    grid.push(Column::new("", Align::Left, 1, mark));
    let is_time = unit.is_time();
    let shown = if is_time { view.unit } else { TimeUnit::US };
    let latency_group = if is_time { group } else { ["latency, us".to_owned()] };
    let mut latency = |head: &str, rank: u32, pick: fn(&Histogram) -> u64| {
        let cells = view.each(|way| match &way.latency {
            Some(latency) if latency.count > 0 => shown.show(pick(latency) as f64).into(),
            _ => Text::default(),
        });
        grid.push(Column::new(head, Align::Point, rank, cells).group(&latency_group));
    };
    latency("p50", 14, |latency| latency.p50_ns);
    latency("p99", 9, |latency| latency.p99_ns);
    latency("p99.9", 30, |latency| latency.p999_ns);
    latency("max", 31, |latency| latency.max_ns);
    if unit == Unit::NsPerCommit {
        let rate = view.each(|way| {
            view.table.median(way).map_or_else(|| NOTHING.into(), |ns| sig3(1e9 / ns).into())
        });
        grid.push(Column::new("commits/s", Align::Right, 12, rate));
    }
}

fn relatives(view: &View<'_>, style: &TableStyle, grid: &mut Grid) {
    let any = view.table.ways.iter().any(|way| way.relative.is_some());
    if view.table.baseline.is_some() || any {
        let column = |full: bool| view.each(move |way| relative(view, way, full));
        let short = Column::new("speedup", Align::Left, 1, column(false));
        // The short form is added early; the interval replaces it if more important columns leave
        // room.
        grid.push(Column::new("speedup [95%]", Align::Left, 8, column(true)).instead(short));
    }
    let bar = |width: usize| view.each(move |way| bar(view, way, style, width));
    let short = Column::new("speed", Align::Left, 10, bar(BAR[1]));
    grid.push(Column::new("speed", Align::Left, 10, bar(BAR[0])).instead(short));
}

fn relative(view: &View<'_>, way: &Way, full: bool) -> Text {
    let is_base = view.table.baseline.as_deref() == Some(way.name.as_str());
    match &way.relative {
        None if is_base => Text::new(Tint::Dim, if full { "1.00 (base)" } else { "(base)" }),
        None => Text::new(Tint::Dim, NOTHING),
        Some(relative) => speedup(relative, full),
    }
}

fn speedup(relative: &Relative, full: bool) -> Text {
    let is_told = matches!(relative.verdict, Verdict::Faster | Verdict::Slower);
    let tint = if is_told { Tint::Plain } else { Tint::Dim };
    match full {
        true => Text::new(tint, &relative.column(ratio)),
        false => {
            let mark = relative.verdict.mark();
            Text::new(tint, &format!("{}{mark}", ratio(relative.speedup)))
        }
    }
}

/// The way's speed as a part of the best's; a faster way that is not durable gets a full bar.
fn bar(view: &View<'_>, way: &Way, style: &TableStyle, width: usize) -> Text {
    let (Some(full), Some(own)) = (view.full, view.table.median(way)) else {
        return Text::default();
    };
    let share = if view.table.unit.is_time() { full / own } else { own / full };
    let part = share.clamp(0.0, 1.0) * width as f64;
    let eighths = ((part * 8.0).round() as usize).max(1);
    let (block, beyond) = if style.unicode { ("█", "»") } else { ("#", ">") };
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let text = match share > 1.0 {
        true => format!("{}{beyond}", block.repeat(width - 1)),
        false if style.unicode => format!("{}{}", block.repeat(eighths / 8), EIGHTHS[eighths % 8]),
        false => block.repeat((part.round() as usize).max(1)),
    };
    Text::new(view.tint(way), &text)
}

/// A way's bill at the file system's own device.
fn own_layer(way: &Way) -> Option<(&Bill, &LayerBill)> {
    let bill = way.bill.as_ref().filter(|bill| bill.commits > 0)?;
    Some((bill, bill.layers.first()?))
}

/// Our writes that are neither the file's data nor the journal's. Writes of unknown origin occur on
/// shared devices; they are in the bill only.
fn other_writes(layer: &LayerBill) -> Tally {
    layer.of(&[Kind::MetadataWrite, Kind::Zeroing, Kind::Discard])
}

/// The journal's writes. On a shared file system those that no commit of ours waited for are in the
/// bill only.
fn journal_writes(layer: &LayerBill) -> Tally {
    match layer.shared {
        true => layer.of(&[Kind::JournalWrite]),
        false => layer.of(&[Kind::JournalWrite, Kind::TimerJournalWrite, Kind::OtherJournalWrite]),
    }
}

fn bills(view: &View<'_>, grid: &mut Grid) {
    let bills: Vec<_> = view.table.ways.iter().filter_map(own_layer).collect();
    let Some((_, layer)) = bills.first() else { return };
    let long = format!("requests per commit at {}", layer.device);
    let group =
        [long, "requests per commit".to_owned(), "per commit".to_owned(), layer.device.clone()];
    type Count = fn(&LayerBill) -> u64;
    // A count from traces, and one from shared counters, if there is one.
    let mut column = |head: &str, rank: u32, traced: Option<Count>, counted: Option<Count>| {
        let of = |bill: &Bill, layer: &LayerBill| {
            let count = if bill.source == BillSource::Trace { traced } else { counted };
            count.map(|count| count(layer) as f64 / bill.commits as f64)
        };
        let each = bills.iter().filter_map(|(bill, layer)| of(bill, layer));
        let Some(most) = each.reduce(f64::max) else { return };
        let rank = match most {
            0.0 => rank + ZEROS,
            most if most >= EACH => rank.min(EACH_RANK),
            _ => rank,
        };
        let cells = || {
            view.each(|way| match own_layer(way) {
                Some((bill, layer)) => {
                    of(bill, layer).map_or_else(Text::default, |count| tilde(bill, per(count)))
                }
                None => NOTHING.into(),
            })
        };
        let column = |head: &str| Column::new(head, Align::Right, rank, cells()).group(&group);
        grid.push(match head {
            "journal" => column(head).instead(column("jrnl")),
            head => column(head),
        });
    };
    column("data", 5, Some(|layer| layer.count(Kind::DataWrite)), None);
    column("journal", 6, Some(|layer| journal_writes(layer).requests), None);
    column("other", 28, Some(|layer| other_writes(layer).requests), None);
    column("writes", 5, None, Some(|layer| layer.all_writes.requests));
    let reads: Count = |layer| layer.of(&[Kind::DataRead, Kind::OtherRead]).requests;
    column("reads", 32, Some(reads), Some(|layer| layer.all_reads.requests));
    let flushes: Count = |layer| layer.count(Kind::Flush);
    column("flush", 4, Some(flushes), Some(flushes));
    if bills.iter().any(|(_, layer)| layer.fua_writes > 0) {
        column("FUA", 4, Some(|layer| layer.fua_writes), None);
    }
    let sizes = view.each(|way| {
        own_layer(way).map_or_else(|| NOTHING.into(), |(bill, layer)| sizes(bill, layer))
    });
    grid.push(Column::new("bytes", Align::Right, 13, sizes).group(&group));
}

/// Bytes written per commit: the file's data, plus everything else.
fn sizes(bill: &Bill, layer: &LayerBill) -> Text {
    let each = |total: u64| bytes(total as f64 / bill.commits as f64);
    if bill.source == BillSource::SharedCounters {
        return tilde(bill, each(layer.all_writes.bytes));
    }
    let data = layer.of(&[Kind::DataWrite]).bytes;
    match journal_writes(layer).bytes.saturating_add(other_writes(layer).bytes) {
        0 => tilde(bill, each(data)),
        more => tilde(bill, format!("{}+{}", each(data), each(more))),
    }
}

/// Marks a count that is not this way's alone.
fn tilde(bill: &Bill, text: String) -> Text {
    match bill.source {
        BillSource::Trace => text.into(),
        BillSource::SharedCounters => format!("~{text}").into(),
    }
}

/// A column for each name, in order of first appearance.
fn figures(view: &View<'_>, grid: &mut Grid) {
    let mut known: Vec<(&str, Unit)> = Vec::new();
    for Figure { name, unit, .. } in view.table.ways.iter().flat_map(|way| &way.figures) {
        if !known.iter().any(|(other, _)| other == name) {
            known.push((name, *unit));
        }
    }
    for (index, (name, unit)) in known.into_iter().enumerate() {
        let head = match unit {
            Unit::Percent => format!("{name} %"),
            unit if unit.is_time() => format!("{name}, us"),
            _ => name.to_owned(),
        };
        let cells = view.each(|way| {
            let value = way.figure(name);
            value.map_or_else(Text::default, |value| shown(unit, value).into())
        });
        grid.push(Column::new(&head, Align::Right, FIGURES_RANK + index as u32, cells));
    }
}

/// Times in microseconds.
pub(super) fn shown(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Percent => format!("{value:.0}"),
        unit if unit.is_time() => sig3(value / 1e3),
        unit if unit.is_bytes() => bytes(value),
        unit if unit.is_per() => per(value),
        _ => sig3(value),
    }
}

fn durable(way: &Way) -> Text {
    match &way.durable {
        None => Text::default(),
        Some(DurableFinding::NotClaimed) => Text::new(Tint::Dim, "no"),
        Some(DurableFinding::Seen { .. }) => "yes".into(),
        Some(DurableFinding::Consistent { .. }) => "likely".into(),
        Some(DurableFinding::NotCovered { .. }) => Text::new(Tint::Bad, "NO"),
        Some(DurableFinding::NotVisible { .. }) => "claimed".into(),
    }
}

/// Each reason once, with the ways it is about: `new fsync`, or `new fsync and 11 others`.
fn by_reason<'a>(ways: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<(&'a str, String)> {
    let mut reasons: Vec<(&str, &str, u32)> = Vec::new();
    for (name, reason) in ways {
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
fn explained(table: &Table) -> Option<String> {
    let written = table.ways.iter().filter(|way| way.what.is_some());
    let names: Vec<&str> = written.flat_map(|way| way.name.split(' ')).collect();
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
fn notes(view: &View<'_>, style: &TableStyle, dropped: &[String], out: &mut String) {
    let table = view.table;
    let measured = || table.ways.iter().filter(|way| way.is_measured());
    let mut say = |lead: &str, text: &str, tint| paragraph(out, style, lead, text, tint);
    if let Some(base) = &table.baseline {
        let relatives = || measured().filter_map(|way| way.relative.as_ref());
        let mut text = format!("compared with `{base}`, round by round");
        if relatives().any(|relative| relative.interval().is_some()) {
            text.push_str(
                "; its intervals hold all at once in 95 of 100 runs; tie: the whole interval is \
                 within 10% of 1; cannot \
                 tell: the interval is wider",
            );
        }
        if relatives().any(|relative| relative.interval().is_none()) {
            text.push_str(&format!("; few rounds: {FEW_ROUNDS} ({PAIRS_MIN} make one)"));
        }
        say("  speedup  ", &text, Tint::Dim);
    }
    if !table.knees.is_empty() {
        say("  knee  ", "no later way of its curve is measurably better", Tint::Dim);
    }
    if let Some(words) = explained(table) {
        say("  ways  ", &words, Tint::Dim);
    }
    let not_covered = measured().filter_map(|way| match &way.durable {
        Some(DurableFinding::NotCovered { reason }) => Some((way.name.as_str(), reason.as_str())),
        _ => None,
    });
    for (reason, ways) in by_reason(not_covered) {
        say("  NO  ", &format!("{ways}: {reason}"), Tint::Bad);
    }
    let not_visible = measured().filter_map(|way| match &way.durable {
        Some(DurableFinding::NotVisible { reason }) => Some((way.name.as_str(), reason.as_str())),
        _ => None,
    });
    for (reason, ways) in by_reason(not_visible) {
        say("  claimed  ", &format!("not seen here ({ways}): {reason}"), Tint::Dim);
    }
    if measured().any(|way| matches!(way.durable, Some(DurableFinding::Consistent { .. }))) {
        let text = "the device counted at least one flush per commit: consistent with the claim, \
         but no proof";
        say("  likely  ", text, Tint::Dim);
    }
    let bills = || measured().filter_map(|way| way.bill.as_ref());
    if bills().any(|bill| bill.source == BillSource::SharedCounters) {
        let text = "from the device's counters, which include requests of other processes and \
         count an empty flush as a write";
        say("  ~  ", text, Tint::Dim);
    }
    let lost: u64 = bills().map(|bill| bill.lost_events).sum();
    if lost > 0 {
        let text =
            format!("{lost} trace events were lost: requests per commit are too low by that much");
        say("  ! ", &text, Tint::Bad);
    }
    let dropped: Vec<&str> =
        dropped.iter().map(String::as_str).filter(|head| !head.is_empty()).collect();
    if !dropped.is_empty() {
        let text = format!("{} (a wider terminal, --csv and --json have them)", dropped.join(", "));
        say("  not shown: ", &text, Tint::Dim);
    }
}
