//! The table of ways side by side: a row for each, in the order measured.
//!
//! *Owns*: the columns, their content, and which of them are dropped first if the terminal is too
//! narrow. *May not touch*: how columns are aligned (`grid`), what a bill means (`bill` of the
//! lab).

use super::grid::{Grid, paragraph};
use super::numbers::{TimeUnit, US, bytes, figure, per, ratio, sig3};
use crate::bar::{unknown_flushes, unknown_writes};
use crate::result::{
    Bill, DurableFinding, FEW_ROUNDS, Figure, Histogram, Kind, Table, Tally, Unit, Way,
};
use crate::stats::PAIRS_MIN;

/// Added to the rank of a column of zeros.
const ZEROS: u32 = 100;
/// A request in one commit of twenty is not chance: from there on reads and other writes matter.
const EACH: f64 = 0.05;
/// The rank of such a column.
const EACH_RANK: u32 = 7;
/// The rank of the further figures; the first stay longest.
const FIGURES_RANK: u32 = 15;
/// The rank of the first of them: a table's own question.
const FIRST_RANK: u32 = 9;

/// Appends the ways of a table, and the notes that they need, to `out`.
pub(super) fn ways(table: &Table, width: usize, out: &mut String) {
    let mut grid = Grid::new("way", table.ways.iter().map(|way| way.name.clone()));
    let has_rounds = table.ways.iter().any(|way| !way.rounds.is_empty());
    if has_rounds {
        values(table, &mut grid);
    }
    let speedup = |way: &Way| match way.relative {
        None if table.baseline.as_ref() == Some(&way.name) => "1.00 (base)".into(),
        None => String::new(),
        Some(found) => format!("{}{}", ratio(found.speedup), found.verdict.mark()),
    };
    grid.column("speedup", 1, cells(table, speedup));
    let interval = |way: &Way| {
        let interval = way.relative.and_then(|found| found.interval());
        interval.map_or_else(String::new, |(low, high)| format!("{}..{}", ratio(low), ratio(high)))
    };
    grid.column("95%", 8, cells(table, interval));
    bills(table, &mut grid);
    let operation = if table.unit == Unit::NsPerCommit { "/commit" } else { "/op" };
    // The facts of a way that is no work say what its figures are.
    if has_rounds {
        figures(&table.ways, operation, &mut grid);
    }
    facts(table, &mut grid);
    grid.column("durable", 3, cells(table, |way| durable(way).into()));
    for (index, way) in table.ways.iter().enumerate() {
        if let Some(reason) = &way.missing {
            grid.reason(index, reason);
        }
    }
    if !table.has_content() {
        paragraph(out, width, "  ", "No way was measured.");
    }
    let dropped = grid.render(width, out);
    notes(table, width, &dropped, out);
}

/// A column for each fact: they are what a table of facts is about, so none is dropped.
fn facts(table: &Table, grid: &mut Grid) {
    let mut known: Vec<&str> = Vec::new();
    for (name, _) in table.ways.iter().flat_map(|way| &way.facts) {
        if !known.contains(&name.as_str()) {
            known.push(name);
        }
    }
    for name in known {
        let cell = |way: &Way| {
            let fact = way.facts.iter().find(|(known, _)| known == name);
            fact.map_or_else(String::new, |(_, fact)| fact.clone())
        };
        grid.column(name, 0, cells(table, cell));
    }
}

/// A cell for each way; empty for those that were not measured.
fn cells(table: &Table, cell: impl Fn(&Way) -> String) -> impl Iterator<Item = String> {
    let of = move |way: &Way| if way.is_measured() { cell(way) } else { String::new() };
    table.ways.iter().map(of).collect::<Vec<_>>().into_iter()
}

fn values(table: &Table, grid: &mut Grid) {
    let unit = table.unit;
    let times = TimeUnit::of(table.ways.iter().filter_map(|way| table.median(way)));
    let head = match unit {
        unit if unit.is_time() => {
            let what = unit.name().trim_start_matches("ns").trim_start_matches(',').trim();
            format!("{what}, {}", times.0)
        }
        unit => unit.name().to_owned(),
    };
    let value = |way: &Way| match table.median(way) {
        None => "-".into(),
        Some(value) if unit.is_time() => times.show(value),
        Some(value) if unit.is_bytes() => bytes(value),
        Some(value) => sig3(value),
    };
    grid.column(&head, 0, cells(table, value));
    let best = table.finding.as_ref().and_then(|finding| finding.best.as_deref());
    let mark = |way: &Way| {
        if best == Some(way.name.as_str()) { "best".to_owned() } else { String::new() }
    };
    grid.column("", 1, cells(table, mark));
    latencies(&table.ways, if unit.is_time() { times } else { US }, [14, 9, 30, 31], grid);
}

/// Columns of the times of single operations.
pub(super) fn latencies(ways: &[Way], unit: TimeUnit, ranks: [u32; 4], grid: &mut Grid) {
    type Pick = (&'static str, fn(&Histogram) -> u64);
    let picks: [Pick; 4] = [
        ("p50", |latency| latency.p50_ns),
        ("p99", |latency| latency.p99_ns),
        ("p99.9", |latency| latency.p999_ns),
        ("max", |latency| latency.max_ns),
    ];
    for ((name, pick), rank) in picks.into_iter().zip(ranks) {
        let cell = |way: &Way| {
            let latency = way.latency.as_ref().filter(|latency| latency.count > 0);
            latency.map_or_else(String::new, |latency| unit.show(pick(latency) as f64))
        };
        grid.column(&format!("{name}, {}", unit.0), rank, ways.iter().map(cell));
    }
}

/// A way's bill, if it has commits.
fn bill_of(way: &Way) -> Option<&Bill> {
    way.bill.as_ref().filter(|bill| bill.commits > 0)
}

/// The journal's writes. On a shared file system those that no commit of ours waited for are in the
/// bill only.
fn journal_writes(bill: &Bill) -> Tally {
    match bill.shared {
        true => bill.of(&[Kind::JournalWrite]),
        false => bill.of(&[Kind::JournalWrite, Kind::OtherJournalWrite]),
    }
}

fn bills(table: &Table, grid: &mut Grid) {
    type Count = fn(&Bill) -> u64;
    // What may be ours and may be another's is no part of a count: the cell says that there is
    // more.
    let unknown: fn(&str) -> Option<Count> = |head| match head {
        "metadata" => Some(unknown_writes),
        "flush" => Some(unknown_flushes),
        _ => None,
    };
    let owned = || table.ways.iter().filter_map(bill_of);
    let mut column = |head: &str, rank: u32, count: Count| {
        let counts = owned().map(|bill| bill.each(count(bill)));
        let Some(most) = counts.reduce(f64::max) else { return };
        let is_unknown =
            |bill: &Bill| unknown(head).is_some_and(|count| bill.each(count(bill)) >= EACH);
        let rank = match most {
            _ if owned().any(is_unknown) => rank.min(EACH_RANK),
            0.0 => rank + ZEROS,
            most if most >= EACH => rank.min(EACH_RANK),
            _ => rank,
        };
        let cell = |way: &Way| match bill_of(way) {
            Some(bill) => per(bill.each(count(bill))) + if is_unknown(bill) { "?" } else { "" },
            None => "-".into(),
        };
        grid.column(head, rank, cells(table, cell));
    };
    column("data", 5, |bill| bill.count(Kind::DataWrite));
    column("journal", 6, |bill| journal_writes(bill).requests);
    column("metadata", 28, |bill| bill.count(Kind::MetadataWrite));
    column("discards", 33, |bill| bill.count(Kind::Discard));
    column("reads", 32, |bill| bill.of(&[Kind::DataRead, Kind::OtherRead]).requests);
    column("flush", 4, |bill| bill.count(Kind::Flush));
    if owned().any(|bill| bill.fua_writes > 0) {
        column("FUA", 4, |bill| bill.fua_writes);
    }
    grid.column("bytes", 13, cells(table, |way| bill_of(way).map_or_else(String::new, sizes)));
}

/// Bytes written per commit: the file's data, plus everything else.
fn sizes(bill: &Bill) -> String {
    let each = |total: u64| bytes(bill.each(total));
    let data = bill.of(&[Kind::DataWrite]).bytes;
    let other = bill.of(&[Kind::MetadataWrite, Kind::Discard]).bytes;
    match journal_writes(bill).bytes.saturating_add(other) {
        0 => each(data),
        more => format!("{}+{}", each(data), each(more)),
    }
}

/// For what a figure is one: the end of the head of its column. `operation` is the end for an
/// operation.
fn each(unit: Unit, operation: &'static str) -> &'static str {
    match unit {
        Unit::NsPerCommit => "/commit",
        Unit::NsPerOp | Unit::PerOp => operation,
        Unit::PerSecond => "/s",
        _ => "",
    }
}

/// A column for each name and unit of a further figure, in order of first appearance. In a table of
/// commits an `operation` is `/commit`, elsewhere `/op`.
pub(super) fn figures(ways: &[Way], operation: &'static str, grid: &mut Grid) {
    let mut known: Vec<(&str, Unit)> = Vec::new();
    for Figure { name, unit, .. } in ways.iter().flat_map(|way| &way.figures) {
        if !known.contains(&(name, *unit)) {
            known.push((name, *unit));
        }
    }
    for (rank, (name, unit)) in (FIGURES_RANK..).zip(known) {
        let rank = if rank == FIGURES_RANK { FIRST_RANK } else { rank };
        let head = match unit {
            Unit::Percent => format!("{name} %"),
            // Its name says it: records per flush.
            Unit::PerFlush => name.to_owned(),
            unit if unit.is_time() => format!("{name}, us{}", each(unit, operation)),
            unit => format!("{name}{}", each(unit, operation)),
        };
        let cell = |way: &Way| {
            let found = way.figures.iter().find(|one| one.name == name && one.unit == unit);
            let found = found.filter(|_| way.missing.is_none());
            found.map_or_else(String::new, |found| figure(unit, found.value))
        };
        grid.column(&head, rank, ways.iter().map(cell));
    }
}

fn durable(way: &Way) -> &'static str {
    match &way.durable {
        None => "",
        Some(DurableFinding::NotClaimed) => "no",
        Some(DurableFinding::Seen { .. }) => "yes",
        Some(DurableFinding::NotCovered { .. }) => "NO",
        Some(DurableFinding::NotVisible { .. }) => "claimed",
    }
}

/// Each reason once, with the ways it is about: `new fsync`, or `new fsync and 11 more`.
fn by_reason<'a>(ways: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<(&'a str, String)> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, reason) in ways {
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    let words = |(reason, names): (&'a str, Vec<&str>)| match names.as_slice() {
        [one] => (reason, (*one).to_owned()),
        all => (reason, format!("{} and {} more", all[0], all.len() - 1)),
    };
    reasons.into_iter().map(words).collect()
}

/// The words of the ways that say nothing by themselves.
const WORDS: [(&str, &str); 5] = [
    ("reuse", "blocks of an old file are written again"),
    ("zeros", "written into a new file before"),
    ("direct", "past the page cache"),
    ("o-dsync", "each write is durable when it returns"),
    ("rwf-dsync", "the same, asked for with the write"),
];

/// Explains the table's abbreviations, if it uses them.
fn notes(table: &Table, width: usize, dropped: &[String], out: &mut String) {
    let measured = || table.ways.iter().filter(|way| way.is_measured());
    let mut say = |lead: &str, text: &str| paragraph(out, width, &format!("  {lead}  "), text);
    if let Some(base) = &table.baseline {
        let has = |is_known: bool| {
            let mut all = measured().filter_map(|way| way.relative.as_ref());
            all.any(|relative| relative.interval().is_some() == is_known)
        };
        let mut text = format!("compared with `{base}`, round by round");
        if has(true) {
            text.push_str(
                "; its intervals hold all at once in 95 of 100 runs; tie: the whole interval is \
                 within 10% of 1; cannot tell: the interval is wider",
            );
        }
        if has(false) {
            text.push_str(&format!("; ?: {FEW_ROUNDS} ({PAIRS_MIN} make one)"));
        }
        say("speedup", &text);
    }
    let written = table.ways.iter().filter(|way| way.file_bytes.is_some());
    let names: Vec<&str> = written.flat_map(|way| way.name.split(' ')).collect();
    let known = WORDS.iter().filter(|(word, _)| names.contains(word));
    let words: Vec<String> = known.map(|(word, means)| format!("{word}: {means}")).collect();
    if !words.is_empty() {
        say("ways", &words.join("; "));
    }
    if let Some(bill) = table.ways.iter().find_map(bill_of) {
        let text = format!("data, journal, flush, ...: requests per commit at {}", bill.device);
        say("bill", &text);
    }
    let not_covered = measured().filter_map(|way| match &way.durable {
        Some(DurableFinding::NotCovered { reason }) => Some((way.name.as_str(), reason.as_str())),
        _ => None,
    });
    for (reason, ways) in by_reason(not_covered) {
        say("NO", &format!("{ways}: {reason}"));
    }
    let not_visible = measured().filter_map(|way| match &way.durable {
        Some(DurableFinding::NotVisible { reason }) => Some((way.name.as_str(), reason.as_str())),
        _ => None,
    });
    for (reason, ways) in by_reason(not_visible) {
        say("claimed", &format!("not seen here ({ways}): {reason}"));
    }
    let without = measured().filter_map(|way| Some((way.name.as_str(), way.no_bill.as_deref()?)));
    for (reason, ways) in by_reason(without) {
        say("no bill", &format!("{ways}: {reason}"));
    }
    let is_unknown =
        |bill: &Bill| bill.each(unknown_writes(bill).max(unknown_flushes(bill))) >= EACH;
    if table.ways.iter().filter_map(bill_of).any(is_unknown) {
        let text = "and more of the kernel that may be this way's and may be another's: `lab write \
                    --bills` and --json have them";
        say("?", text);
    }
    let bills = || measured().filter_map(|way| way.bill.as_ref());
    let lost: u64 = bills().map(|bill| bill.lost_events).sum();
    if lost > 0 {
        let text = format!("{lost} trace events were lost: requests per commit are too low");
        say("!", &text);
    }
    let dropped: Vec<&str> =
        dropped.iter().map(String::as_str).filter(|head| !head.is_empty()).collect();
    if !dropped.is_empty() {
        let text = format!("{} (a wider terminal and --json have them)", dropped.join(", "));
        say("not shown:", &text);
    }
}
