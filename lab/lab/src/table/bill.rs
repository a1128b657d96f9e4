//! The bill in detail: the requests of each way's commits, and who made them.
//!
//! *Owns*: the lines of the bill. *May not touch*: how requests are attributed.

use super::grid::{Grid, paragraph};
use super::numbers::{bytes, per};
use super::place_lines;
use crate::result::{Bill, CrossCheck, Table, Tally};

/// How many submitters, and how many unattributed requests, are shown for a device.
const LINES_MAX: usize = 5;

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
    let text = format!("{name}: {} commits, traced at the block layer", bill.commits);
    paragraph(out, width, "", &text);
    match bill.commits {
        0 => paragraph(out, width, "  ", "nothing was counted"),
        _ => counts(bill, width, out),
    }
    details(bill, width, out);
    if bill.lost_events > 0 {
        let text = format!("{} trace events were lost: the bill is not complete", bill.lost_events);
        paragraph(out, width, "  ! ", &text);
    }
    for note in &bill.notes {
        paragraph(out, width, "  note: ", note);
    }
}

/// The requests of each kind that there are.
fn counts(bill: &Bill, width: usize, out: &mut String) {
    let kinds = bill.requests.iter().map(|(kind, tally)| (kind.words(), *tally));
    let fua = Tally { requests: bill.fua_writes, bytes: 0 };
    let shown = kinds.chain([("of these with FUA", fua)]).filter(|(_, tally)| tally.requests > 0);
    let shown: Vec<(&str, Tally)> = shown.collect();
    let mut grid = Grid::new("per commit", shown.iter().map(|(words, _)| (*words).to_owned()));
    let requests = |(_, tally): &(&str, Tally)| per(bill.each(tally.requests));
    grid.column(&bill.device, 0, shown.iter().map(requests));
    let size = |(_, tally): &(&str, Tally)| match tally.bytes {
        0 => String::new(),
        total => bytes(bill.each(total)),
    };
    grid.column("bytes", 0, shown.iter().map(size));
    grid.render(width, out);
}

fn details(bill: &Bill, width: usize, out: &mut String) {
    if bill.submitters.is_empty() && bill.cross_check.is_none() && bill.unattributed.is_empty() {
        return;
    }
    paragraph(out, width, "  ", &format!("{}:", bill.device));
    let mut submitters: Vec<(&str, Vec<String>)> = Vec::new();
    for by in &bill.submitters {
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
    let check = bill.cross_check.iter().map(|check| format!("cross-check: {}", checked(check)));
    let unknown = bill.unattributed.iter().map(|what| format!("unattributed: {what}"));
    let said = by.take(LINES_MAX).chain(check).chain(unknown.take(LINES_MAX));
    said.for_each(|text| paragraph(out, width, "    ", &text));
    for (what, all) in [("submitters", submitters.len()), ("unattributed", bill.unattributed.len())]
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
    ];
    let said = pairs.map(|(what, traced, counted)| match traced == counted {
        true => format!("{traced} {what}"),
        false => format!("{what} {traced} traced but {counted} counted"),
    });
    let agrees = pairs.iter().all(|(_, traced, counted)| traced == counted);
    format!("{} ({})", if agrees { "agree" } else { "DIFFER" }, said.join(", "))
}
