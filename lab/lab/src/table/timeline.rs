//! Commits request by request: what blktrace shows, over the time of one commit.
//!
//! *Owns*: the lanes. *May not touch*: which requests belong to which commit.

use super::grid::{Align, Column, Grid, Text};
use super::numbers::{TimeUnit, bytes, time};
use super::style::TableStyle;
use super::text::{Tint, paragraph};
use crate::result::{Bill, TimelineCommit, TimelineRequest};

/// The commits of the timeline of the way `name`, each with a lane for each request. Columns are
/// dropped in this order if the terminal is too narrow: sector, flags, who, bytes, device.
pub fn render_timeline(name: &str, bill: &Bill, style: &TableStyle) -> String {
    let mut out = String::new();
    paragraph(&mut out, style, "", &format!("Request by request: {name}"), Tint::Strong);
    if bill.timeline.is_empty() {
        paragraph(&mut out, style, "  ", "No commit was recorded.", Tint::Plain);
        return out;
    }
    for (index, commit) in bill.timeline.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        one(commit, style, &mut out);
    }
    if bill.lost_events > 0 {
        let text = format!("{} trace events were lost: requests may be missing", bill.lost_events);
        paragraph(&mut out, style, "! ", &text, Tint::Bad);
    }
    out
}

fn one(commit: &TimelineCommit, style: &TableStyle, out: &mut String) {
    let requests = &commit.requests;
    let plural = if requests.len() == 1 { "request" } else { "requests" };
    let total = commit.total_ns as f64;
    let mut text =
        format!("commit {}: {}, {} {plural}", commit.number, time(total), requests.len());
    let busy = busy_ns(commit) as f64;
    if total > 0.0 && !requests.is_empty() {
        let share = (100.0 * busy / total).min(100.0);
        text.push_str(&format!(", {share:.0}% of the time with a request at a device"));
    }
    paragraph(out, style, "", &text, Tint::Strong);
    if requests.is_empty() {
        paragraph(out, style, "  ", "no request reached a device", Tint::Plain);
        return;
    }
    let unit = TimeUnit::of([total].into_iter().chain(requests.iter().map(|r| r.issued_ns as f64)));
    let several = requests.iter().any(|request| request.device != requests[0].device);
    let rows = |cell: &dyn Fn(&TimelineRequest) -> Text| {
        requests.iter().map(cell).collect::<Vec<_>>().into_iter()
    };
    let mut grid = Grid::new(requests.len(), 2);
    let group = [unit.name.to_owned()];
    let start = rows(&|r| unit.show(r.issued_ns as f64).into());
    grid.push(Column::new("start", Align::Point, 0, start).group(&group));
    let took = rows(&|r| match r.completed_ns {
        Some(end) => unit.show(end.saturating_sub(r.issued_ns) as f64).into(),
        None => "?".into(),
    });
    grid.push(Column::new("took", Align::Point, 0, took).group(&group));
    let device = rows(&|r| r.device.as_str().into());
    grid.push(Column::new("device", Align::Left, if several { 2 } else { 5 }, device));
    grid.push(Column::new("what", Align::Left, 1, rows(&|r| r.what.words().into())));
    let lane_columns = (style.columns() / 4).clamp(12, 40);
    grid.push(Column::new("when", Align::Left, 1, rows(&|r| lane(commit, r, style, lane_columns))));
    let size = rows(&|r| if r.bytes > 0 { bytes(r.bytes as f64).into() } else { Text::default() });
    grid.push(Column::new("bytes", Align::Right, 6, size));
    grid.push(Column::new("who", Align::Left, 7, rows(&|r| r.who.as_str().into())));
    grid.push(Column::new("flags", Align::Left, 8, rows(&|r| r.flags.as_str().into())));
    let sector = rows(&|r| if r.bytes > 0 { r.sector.to_string().into() } else { Text::default() });
    grid.push(Column::new("sector", Align::Right, 9, sector));
    grid.render(style, out);
    if scale_ns(commit) > commit.total_ns {
        let mark = ack_mark(style);
        paragraph(
            out,
            style,
            &format!("  {mark} "),
            "the acknowledgement: requests to the right of it came later",
            Tint::Dim,
        );
    }
    if requests.iter().any(|request| request.completed_ns.is_none()) {
        paragraph(out, style, "  ? ", "no completion was seen before the next commit", Tint::Dim);
    }
}

fn ack_mark(style: &TableStyle) -> char {
    if style.unicode { '│' } else { '|' }
}

/// The time that the lanes span.
fn scale_ns(commit: &TimelineCommit) -> u64 {
    let ends =
        commit.requests.iter().map(|request| request.completed_ns.unwrap_or(request.issued_ns));
    ends.chain([commit.total_ns]).max().unwrap_or(0)
}

/// The part of the commit's time with at least one request at a device.
fn busy_ns(commit: &TimelineCommit) -> u64 {
    let mut spans: Vec<(u64, u64)> = commit
        .requests
        .iter()
        .map(|request| {
            let end = request.completed_ns.unwrap_or(commit.total_ns).min(commit.total_ns);
            (request.issued_ns.min(end), end)
        })
        .collect();
    spans.sort_unstable();
    let (mut busy, mut until) = (0, 0);
    for (start, end) in spans {
        busy += end.saturating_sub(start.max(until));
        until = until.max(end);
    }
    busy
}

/// The time of a request at the device, within the commit, as a bar of `width` columns.
fn lane(
    commit: &TimelineCommit,
    request: &TimelineRequest,
    style: &TableStyle,
    width: usize,
) -> Text {
    let scale = scale_ns(commit).max(1) as f64;
    let at = |ns: u64| ((ns as f64 / scale) * width as f64).round() as usize;
    let from = at(request.issued_ns).min(width - 1);
    let to = at(request.completed_ns.unwrap_or(u64::MAX)).clamp(from + 1, width);
    let (rest, run) = if style.unicode { ('·', '█') } else { ('.', '#') };
    let mut bar: Vec<char> =
        (0..width).map(|column| if (from..to).contains(&column) { run } else { rest }).collect();
    if request.completed_ns.is_none() {
        bar[width - 1] = '?';
    }
    let ack = at(commit.total_ns).min(width);
    if scale_ns(commit) > commit.total_ns && ack < width && bar[ack] == rest {
        bar[ack] = ack_mark(style);
    }
    Text::from(bar.into_iter().collect::<String>())
}
