//! The bill in detail: the requests of each way's commits to each device, and who made them.
//!
//! *Owns*: the lines of the bill. *May not touch*: how requests are attributed.

use super::grid::{Grid, paragraph};
use super::numbers::{bytes, per};
use super::place_lines;
use crate::result::{Bill, CrossCheck, Kind, LayerBill, Table, Tally};

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

/// The lines of a device: each kind; a kind that no device has is left out.
fn lines(layer: &LayerBill) -> Vec<Line> {
    let kinds = Kind::ALL.iter().map(|&kind| (kind.words(), layer.of(&[kind])));
    let fua = Tally { requests: layer.fua_writes, bytes: 0 };
    kinds.chain([("of these with FUA", fua)]).collect()
}

fn counts(bill: &Bill, width: usize, out: &mut String) {
    let all: Vec<Vec<Line>> = bill.layers.iter().map(lines).collect();
    let is_shown = |at: &usize| all.iter().any(|lines| lines[*at].1.requests > 0);
    let shown: Vec<usize> = (0..all[0].len()).filter(is_shown).collect();
    let names = shown.iter().map(|&at| all[0][at].0.to_owned());
    let mut grid = Grid::new("per commit", names);
    let commits = bill.commits as f64;
    for (index, (layer, lines)) in bill.layers.iter().zip(&all).enumerate() {
        let requests = |&at: &usize| per(lines[at].1.requests as f64 / commits);
        let rank = index as u32 * 2;
        grid.column(&layer.device, rank, shown.iter().map(requests));
        let size = |&at: &usize| match lines[at].1.bytes {
            0 => String::new(),
            total => bytes(total as f64 / commits),
        };
        grid.column("bytes", rank + 1, shown.iter().map(size));
    }
    let dropped = grid.render(width, out);
    if !dropped.is_empty() {
        paragraph(out, width, "  ", "no room for the bytes: --json has them");
    }
}

fn details(layer: &LayerBill, width: usize, out: &mut String) {
    if layer.submitters.is_empty() && layer.cross_check.is_none() && layer.unattributed.is_empty() {
        return;
    }
    paragraph(out, width, "  ", &format!("{}:", layer.device));
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
