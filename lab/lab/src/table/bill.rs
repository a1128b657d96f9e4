//! The bill in detail: the requests of each way's commits to each device, and who made them; and
//! some commits request by request.
//!
//! *Owns*: the lines of the bill, the lanes of a commit. *May not touch*: how requests are
//! attributed.

use super::grid::{Grid, paragraph};
use super::numbers::{TimeUnit, bytes, per, time};
use super::place_lines;
use super::ways::tilde;
use crate::result::{
    Bill, BillSource, CrossCheck, Kind, LayerBill, Table, Tally, TimelineCommit, TimelineRequest,
};

/// How many submitters, and how many unattributed requests, are shown for a device.
const LINES_MAX: usize = 5;
/// Characters of a lane.
const LANE: usize = 24;

/// The detailed bill of every way of a table.
pub fn render_bill(table: &Table, width: usize) -> String {
    let mut out = String::new();
    let title = if table.title.is_empty() { &table.name } else { &table.title };
    paragraph(&mut out, width, "", &format!("The bill: {title}"));
    place_lines(&table.place, width, &mut out);
    for way in &table.ways {
        if let Some(bill) = &way.bill {
            out.push('\n');
            one(&way.name, bill, width, &mut out);
        }
    }
    if table.ways.iter().all(|way| way.bill.is_none()) {
        let text = "No way has a bill: the block layer was not observed.";
        paragraph(&mut out, width, "  ", text);
    }
    out
}

fn one(name: &str, bill: &Bill, width: usize, out: &mut String) {
    let source = match bill.source {
        BillSource::Trace => "traced at the block layer",
        BillSource::SharedCounters => "from the device's counters, which include other processes",
    };
    paragraph(out, width, "", &format!("{name}: {} commits, {source}", bill.commits));
    if bill.commits == 0 || bill.layers.is_empty() {
        paragraph(out, width, "  ", "nothing was counted");
    } else {
        counts(bill, width, out);
    }
    for layer in &bill.layers {
        details(layer, width, out);
    }
    if let Some(punts) = bill.uring_punts {
        let each = per(punts as f64 / bill.commits.max(1) as f64);
        let text = format!(
            "io_uring: {punts} requests ({each} per commit) went to a worker of the kernel"
        );
        paragraph(out, width, "  ", &text);
    }
    if bill.lost_events > 0 {
        let text = format!("{} trace events were lost: the bill is not complete", bill.lost_events);
        paragraph(out, width, "  ! ", &text);
    }
    for note in &bill.notes {
        paragraph(out, width, "  note: ", note);
    }
}

type Line = (&'static str, Tally);

/// The lines of a device. Of a trace each kind; a kind that no device has is left out.
fn lines(bill: &Bill, layer: &LayerBill) -> Vec<Line> {
    if bill.source == BillSource::SharedCounters {
        let flushes = ("flushes", layer.of(&[Kind::Flush]));
        return vec![("writes", layer.all_writes), ("reads", layer.all_reads), flushes];
    }
    let kinds = Kind::ALL.iter().map(|&kind| (kind.words(), layer.of(&[kind])));
    let fua = Tally { requests: layer.fua_writes, bytes: 0 };
    kinds.chain([("of these with FUA", fua)]).collect()
}

fn counts(bill: &Bill, width: usize, out: &mut String) {
    let all: Vec<Vec<Line>> = bill.layers.iter().map(|layer| lines(bill, layer)).collect();
    let is_shown = |at: &usize| all.iter().any(|lines| lines[*at].1.requests > 0);
    let shown: Vec<usize> = (0..all[0].len()).filter(is_shown).collect();
    let names = shown.iter().map(|&at| all[0][at].0.to_owned());
    let mut grid = Grid::new("per commit", names);
    let commits = bill.commits as f64;
    for (index, (layer, lines)) in bill.layers.iter().zip(&all).enumerate() {
        let requests = |&at: &usize| tilde(bill, per(lines[at].1.requests as f64 / commits));
        let rank = index as u32 * 2;
        grid.column(&layer.device, rank, shown.iter().map(requests));
        let size = |&at: &usize| match lines[at].1.bytes {
            0 => String::new(),
            total => tilde(bill, bytes(total as f64 / commits)),
        };
        grid.column("bytes", rank + 1, shown.iter().map(size));
    }
    let dropped = grid.render(width, out);
    if !dropped.is_empty() {
        paragraph(out, width, "  ", "no room for a device further below: --json has it");
    }
}

fn details(layer: &LayerBill, width: usize, out: &mut String) {
    if layer.submitters.is_empty() && layer.cross_check.is_none() && layer.unattributed.is_empty() {
        return;
    }
    paragraph(out, width, "  ", &format!("{} ({}):", layer.device, layer.role));
    let mut submitters: Vec<(&str, Vec<String>)> = Vec::new();
    for by in &layer.submitters {
        let size = match by.tally.bytes {
            0 => String::new(),
            total => format!(" ({})", bytes(total as f64)),
        };
        let what = format!("{} x {}{size}", by.tally.requests, by.what.words());
        match submitters.iter_mut().find(|(who, _)| *who == by.who) {
            Some((_, all)) => all.push(what),
            None => submitters.push((&by.who, vec![what])),
        }
    }
    let by = submitters.iter().map(|(who, what)| format!("by {who}: {}", what.join(", ")));
    let check = layer.cross_check.iter().map(|check| format!("cross-check: {}", checked(check)));
    let unknown = layer.unattributed.iter().map(|what| format!("unattributed: {what}"));
    let said = by.take(LINES_MAX).chain(check).chain(unknown.take(LINES_MAX));
    said.for_each(|text| paragraph(out, width, "    ", &text));
    for (what, all) in
        [("submitters", submitters.len()), ("unattributed", layer.unattributed.len())]
    {
        if all > LINES_MAX {
            let text = format!("and {} more {what} (--json has them)", all - LINES_MAX);
            paragraph(out, width, "    ", &text);
        }
    }
}

/// `agree` with the numbers, or the difference.
fn checked(check: &CrossCheck) -> String {
    let pairs = [
        ("flushes", check.traced_flushes, check.counted_flushes),
        ("sectors written", check.traced_write_sectors, check.counted_write_sectors),
        ("sectors read", check.traced_read_sectors, check.counted_read_sectors),
    ];
    let said = pairs.map(|(what, traced, counted)| match traced == counted {
        true => format!("{traced} {what}"),
        false => format!("{what} {traced} traced but {counted} counted"),
    });
    let agrees = pairs.iter().all(|(_, traced, counted)| traced == counted);
    format!("{} ({})", if agrees { "agree" } else { "DIFFER" }, said.join(", "))
}

/// The commits of the timeline of the way `name`, each with a lane for each request.
pub fn render_timeline(name: &str, bill: &Bill, width: usize) -> String {
    let mut out = String::new();
    paragraph(&mut out, width, "", &format!("Request by request: {name}"));
    if bill.timeline.is_empty() {
        paragraph(&mut out, width, "  ", "No commit was recorded.");
    }
    for commit in &bill.timeline {
        lanes(commit, width, &mut out);
    }
    if bill.lost_events > 0 {
        let text = format!("{} trace events were lost: requests may be missing", bill.lost_events);
        paragraph(&mut out, width, "! ", &text);
    }
    out
}

fn lanes(commit: &TimelineCommit, width: usize, out: &mut String) {
    let requests = &commit.requests;
    let total = commit.total_ns as f64;
    let text = format!("commit {}: {}, requests: {}", commit.number, time(total), requests.len());
    paragraph(out, width, "", &text);
    let unit = TimeUnit::of([total].into_iter().chain(requests.iter().map(|r| r.issued_ns as f64)));
    let ends = requests.iter().map(|request| request.completed_ns.unwrap_or(request.issued_ns));
    let scale_ns = ends.chain([commit.total_ns]).max().unwrap_or(0).max(1);
    let mut grid = Grid::new("request", requests.iter().map(|r| r.what.words().to_owned()));
    let mut column = |head: &str, rank: u32, cell: &dyn Fn(&TimelineRequest) -> String| {
        grid.column(head, rank, requests.iter().map(cell));
    };
    column(&format!("start, {}", unit.0), 0, &|r| unit.show(r.issued_ns as f64));
    column(&format!("took, {}", unit.0), 0, &|r| match r.completed_ns {
        Some(end) => unit.show(end.saturating_sub(r.issued_ns) as f64),
        None => "not seen".into(),
    });
    column("device", 2, &|r| r.device.clone());
    column("when", 1, &|r| lane(commit, r, scale_ns));
    let some = |is: bool, text: String| if is { text } else { String::new() };
    column("bytes", 6, &|r| some(r.bytes > 0, bytes(r.bytes as f64)));
    column("who", 7, &|r| r.who.clone());
    column("flags", 8, &|r| r.flags.clone());
    column("sector", 9, &|r| some(r.bytes > 0, r.sector.to_string()));
    grid.render(width, out);
    if scale_ns > commit.total_ns {
        let text = "the acknowledgement: requests to the right of it came later";
        paragraph(out, width, "  | ", text);
    }
}

/// The time of a request at the device, within the commit, as a bar.
fn lane(commit: &TimelineCommit, request: &TimelineRequest, scale_ns: u64) -> String {
    let at = |ns: u64| ((ns as f64 / scale_ns as f64) * LANE as f64).round() as usize;
    let from = at(request.issued_ns).min(LANE - 1);
    let to = at(request.completed_ns.unwrap_or(u64::MAX)).clamp(from + 1, LANE);
    let ack = at(commit.total_ns);
    let column = |column: usize| match column {
        column if (from..to).contains(&column) => '#',
        column if column == ack && scale_ns > commit.total_ns => '|',
        _ => '.',
    };
    (0..LANE).map(column).collect()
}
