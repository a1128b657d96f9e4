//! The bill in detail: the requests of each cell's commits to each device, and who made them.
//!
//! *Owns*: the lines of the detailed bill. *May not touch*: how requests are attributed.

use super::grid::{Align, Column, Grid, Text};
use super::numbers::{bytes, per};
use super::place::place_lines;
use super::style::TableStyle;
use super::text::{Tint, paragraph};
use crate::result::{Bill, BillSource, CrossCheck, Kind, LayerBill, Submitter, Table, Tally};

/// How many submitters, and how many unattributed requests, are shown for a device.
const LINES_MAX: usize = 5;

/// The detailed bill of every way of a table.
pub fn render_bill(table: &Table, style: &TableStyle) -> String {
    let mut out = String::new();
    let title = if table.title.is_empty() { &table.name } else { &table.title };
    paragraph(&mut out, style, "", &format!("The bill: {title}"), Tint::Strong);
    place_lines(&table.place, style, &mut out);
    let bills: Vec<(&str, &Bill)> =
        table.ways.iter().filter_map(|way| Some((way.name.as_str(), way.bill.as_ref()?))).collect();
    for (name, bill) in &bills {
        out.push('\n');
        one(name, bill, style, &mut out);
    }
    if bills.is_empty() {
        let text = "No way has a bill: the block layer was not observed.";
        paragraph(&mut out, style, "  ", text, Tint::Plain);
    }
    out
}

fn one(name: &str, bill: &Bill, style: &TableStyle, out: &mut String) {
    let source = match bill.source {
        BillSource::Trace => "traced at the block layer",
        BillSource::SharedCounters => "from the device's counters, which include other processes",
    };
    paragraph(out, style, "", &format!("{name}: {} commits, {source}", bill.commits), Tint::Strong);
    if bill.commits == 0 || bill.layers.is_empty() {
        paragraph(out, style, "  ", "nothing was counted", Tint::Plain);
    } else {
        counts(bill, style, out);
    }
    for layer in &bill.layers {
        details(layer, style, out);
    }
    if let Some(punts) = bill.uring_punts {
        let each = per(punts as f64 / bill.commits.max(1) as f64);
        let text = format!(
            "io_uring: {punts} requests ({each} per commit) went to a kernel worker thread"
        );
        paragraph(out, style, "  ", &text, Tint::Plain);
    }
    if bill.lost_events > 0 {
        let text = format!("{} trace events were lost: the bill is not complete", bill.lost_events);
        paragraph(out, style, "  ! ", &text, Tint::Bad);
    }
    for note in &bill.notes {
        paragraph(out, style, "  note: ", note, Tint::Dim);
    }
}

/// A line of the bill: its name, and whether it is shown even if it is 0.
struct Line {
    name: &'static str,
    always: bool,
    tally: fn(&LayerBill) -> Tally,
}

macro_rules! lines {
    ($($name:literal, $always:literal, $tally:expr;)*) => {
        [$(Line { name: $name, always: $always, tally: $tally }),*]
    };
}

const TRACED: [Line; 16] = lines! {
    "data writes", true, |layer| layer.of(&[Kind::DataWrite]);
    "journal, waited for", true, |layer| layer.of(&[Kind::JournalWrite]);
    "journal, by a timer", false, |layer| layer.of(&[Kind::TimerJournalWrite]);
    "journal, for others", false, |layer| layer.of(&[Kind::OtherJournalWrite]);
    "metadata writes", false, |layer| layer.of(&[Kind::MetadataWrite]);
    "zeroing", false, |layer| layer.of(&[Kind::Zeroing]);
    "discards", false, |layer| layer.of(&[Kind::Discard]);
    "unattributed writes", false, |layer| layer.of(&[Kind::UnattributedWrite]);
    "writes of others", false, |layer| layer.of(&[Kind::ForeignWrite]);
    "discards for others", false, |layer| layer.of(&[Kind::ForeignOther]);
    "data reads", false, |layer| layer.of(&[Kind::DataRead]);
    "other reads", false, |layer| layer.of(&[Kind::OtherRead]);
    "reads of others", false, |layer| layer.of(&[Kind::ForeignRead]);
    "flushes", true, |layer| layer.of(&[Kind::Flush]);
    "flushes for others", false, |layer| layer.of(&[Kind::ForeignFlush]);
    "writes with FUA", false, |layer| Tally { requests: layer.fua_writes, bytes: 0 };
};

const COUNTED: [Line; 3] = lines! {
    "all writes", true, |layer| layer.all_writes;
    "all reads", true, |layer| layer.all_reads;
    "flushes", true, |layer| layer.of(&[Kind::Flush]);
};

fn counts(bill: &Bill, style: &TableStyle, out: &mut String) {
    let lines: &[Line] = match bill.source {
        BillSource::Trace => &TRACED,
        BillSource::SharedCounters => &COUNTED,
    };
    let nothing =
        |line: &&Line| bill.layers.iter().all(|layer| (line.tally)(layer) == Tally::default());
    let shown: Vec<&Line> = lines.iter().filter(|line| line.always || !nothing(line)).collect();
    let none: Vec<&str> =
        lines.iter().filter(|line| !line.always && nothing(line)).map(|line| line.name).collect();
    let mut grid = Grid::new(shown.len(), 2);
    grid.push(Column::new("per commit", Align::Left, 0, shown.iter().map(|line| line.name.into())));
    let commits = bill.commits as f64;
    let mark = if bill.source == BillSource::SharedCounters { "~" } else { "" };
    for (index, layer) in bill.layers.iter().enumerate() {
        let group = [format!("{} ({})", layer.device, layer.role), layer.device.clone()];
        let requests = shown
            .iter()
            .map(|line| count_text(mark, per((line.tally)(layer).requests as f64 / commits)));
        let rank = index as u32 * 2 + 1;
        grid.push(Column::new("requests", Align::Right, rank, requests).group(&group));
        let sizes = shown.iter().map(|line| match (line.tally)(layer).bytes {
            0 => Text::default(),
            total => format!("{mark}{}", bytes(total as f64 / commits)).into(),
        });
        grid.push(Column::new("bytes", Align::Right, rank + 1, sizes).group(&group));
    }
    let dropped = grid.render(style, out);
    if !dropped.is_empty() {
        paragraph(out, style, "  ", "no room for a device further below: --json has it", Tint::Dim);
    }
    if !none.is_empty() {
        paragraph(out, style, "  none: ", &none.join("; "), Tint::Dim);
    }
}

fn count_text(mark: &str, count: String) -> Text {
    if count == "0.00" {
        Text::new(Tint::Dim, &format!("{mark}{count}"))
    } else {
        format!("{mark}{count}").into()
    }
}

fn details(layer: &LayerBill, style: &TableStyle, out: &mut String) {
    if layer.submitters.is_empty() && layer.cross_check.is_none() && layer.unattributed.is_empty() {
        return;
    }
    paragraph(out, style, "  ", &format!("{} ({}):", layer.device, layer.role), Tint::Plain);
    let mut submitters: Vec<(&str, Vec<String>)> = Vec::new();
    for by in &layer.submitters {
        match submitters.iter_mut().find(|(who, _)| *who == by.who) {
            Some((_, what)) => what.push(submitted(by)),
            None => submitters.push((&by.who, vec![submitted(by)])),
        }
    }
    for (who, what) in submitters.iter().take(LINES_MAX) {
        paragraph(out, style, "    ", &format!("by {who}: {}", what.join(", ")), Tint::Plain);
    }
    if let Some(check) = &layer.cross_check {
        let (text, tint) = cross_check(check);
        paragraph(out, style, "    ", &format!("cross-check: {text}"), tint);
    }
    for what in layer.unattributed.iter().take(LINES_MAX) {
        paragraph(out, style, "    ", &format!("unattributed: {what}"), Tint::Plain);
    }
    for (what, all) in
        [("submitters", submitters.len()), ("unattributed", layer.unattributed.len())]
    {
        if all > LINES_MAX {
            let text = format!("and {} more {what} (--json has them)", all - LINES_MAX);
            paragraph(out, style, "    ", &text, Tint::Dim);
        }
    }
}

fn submitted(by: &Submitter) -> String {
    let size = if by.tally.bytes > 0 {
        format!(" ({})", bytes(by.tally.bytes as f64))
    } else {
        String::new()
    };
    format!("{} x {}{size}", by.tally.requests, by.what.words())
}

/// `agree` with the numbers, or the difference.
fn cross_check(check: &CrossCheck) -> (String, Tint) {
    let pairs = [
        ("flushes", check.traced_flushes, check.counted_flushes),
        ("sectors written", check.traced_write_sectors, check.counted_write_sectors),
        ("sectors read", check.traced_read_sectors, check.counted_read_sectors),
    ];
    if pairs.iter().all(|(_, traced, counted)| traced == counted) {
        let said: Vec<String> =
            pairs.iter().map(|(what, traced, _)| format!("{traced} {what}")).collect();
        return (format!("agree ({})", said.join(", ")), Tint::Dim);
    }
    let said: Vec<String> = pairs
        .iter()
        .map(|(what, traced, counted)| match traced == counted {
            true => format!("{traced} {what}"),
            false => format!("{what} {traced} traced but {counted} counted"),
        })
        .collect();
    (format!("DIFFER: {}", said.join(", ")), Tint::Bad)
}
