//! The fallocate atlas: what each mode does to a file in one place, and the cost of zeroing there.
//!
//! *Owns*: its tables. *May not touch*: files.

use super::grid::{Align, Column, Grid, Text};
use super::numbers::{TimeUnit, bytes};
use super::place::place_lines;
use super::style::TableStyle;
use super::text::{Tint, paragraph};
use crate::result::{FallocateAtlas, FallocateCall, FileFacts, Zeroed};

/// Extents or runs of content shown for a file.
const LINES_MAX: usize = 4;

/// The atlas of one place. Extents and content share a column if two do not fit; after that the
/// ranges and the blocks are dropped.
pub fn render_fallocate(atlas: &FallocateAtlas, style: &TableStyle) -> String {
    let mut out = String::new();
    paragraph(&mut out, style, "", "fallocate: what each mode does to a file", Tint::Strong);
    place_lines(&atlas.place, style, &mut out);
    if atlas.calls.is_empty() {
        paragraph(&mut out, style, "  ", "No mode was tried.", Tint::Plain);
    } else {
        modes(&atlas.calls, style, &mut out);
    }
    if !atlas.zeroing.is_empty() {
        out.push('\n');
        zeroing(&atlas.zeroing, style, &mut out);
    }
    out
}

fn modes(cells: &[FallocateCall], style: &TableStyle, out: &mut String) {
    let rows = |cell: &dyn Fn(&FallocateCall) -> Text| {
        cells.iter().map(cell).collect::<Vec<_>>().into_iter()
    };
    let mut grid = Grid::new(cells.len(), 2);
    grid.push(Column::new("mode", Align::Left, 0, rows(&|cell| cell.mode.as_str().into())));
    let range = rows(&|cell| {
        let (from, len) = (bytes(cell.offset_bytes as f64), bytes(cell.len_bytes as f64));
        format!("{from}+{len}").into()
    });
    grid.push(Column::new("range", Align::Left, 4, range));
    grid.push(Column::new("answer", Align::Left, 1, rows(&answer)));
    let size = rows(&|cell| {
        change(bytes(cell.before.size_bytes as f64), bytes(cell.after.size_bytes as f64))
    });
    grid.push(Column::new("size", Align::Left, 2, size));
    let blocks =
        rows(&|cell| change(cell.before.blocks.to_string(), cell.after.blocks.to_string()));
    grid.push(Column::new("blocks", Align::Left, 3, blocks));
    let extents = |facts: &FileFacts| some_of(&facts.extents, "no extents");
    let content = |facts: &FileFacts| some_of(&facts.content, "no bytes");
    let both = |facts: &FileFacts| {
        let mut lines = extents(facts);
        lines.extend(content(facts).into_iter().map(|line| format!("= {line}")));
        lines
    };
    let extents_after = rows(&|cell| Text::lines(&extents(&cell.after)));
    let extents_after = Column::new("extents after", Align::Left, 0, extents_after);
    let content_after = rows(&|cell| Text::lines(&content(&cell.after)));
    let content_after = Column::new("content after", Align::Left, 0, content_after);
    if grid.width_with(&[&extents_after, &content_after]) <= style.columns() {
        grid.push(extents_after);
        grid.push(content_after);
    } else {
        let stacked = rows(&|cell| Text::lines(&both(&cell.after)));
        grid.push(Column::new("extents, = content", Align::Left, 0, stacked));
    }
    grid.render(style, out);
    for refused in refusals(cells) {
        paragraph(out, style, "  ", &refused, Tint::Dim);
    }
}

/// `Ok`, or the name of the error; its text is below the table.
fn answer(cell: &FallocateCall) -> Text {
    let name = cell.answer.split(':').next().unwrap_or_default().trim();
    Text::new(if cell.done { Tint::Plain } else { Tint::Bad }, name)
}

/// The text of each error, once.
fn refusals(cells: &[FallocateCall]) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for cell in cells.iter().filter(|cell| !cell.done && cell.answer.contains(':')) {
        if !said.contains(&cell.answer) {
            said.push(cell.answer.clone());
        }
    }
    said
}

fn change(before: String, after: String) -> Text {
    if before == after { Text::new(Tint::Dim, &after) } else { format!("{before}->{after}").into() }
}

fn some_of(all: &[String], none: &str) -> Vec<String> {
    if all.is_empty() {
        return vec![none.to_owned()];
    }
    let mut lines: Vec<String> = all.iter().take(LINES_MAX).cloned().collect();
    if all.len() > LINES_MAX {
        lines.push(format!("and {} more", all.len() - LINES_MAX));
    }
    lines
}

fn zeroing(cells: &[Zeroed], style: &TableStyle, out: &mut String) {
    paragraph(out, style, "", "Zeroing a file of this size", Tint::Strong);
    let total = |cell: &Zeroed| match (cell.call_ns, cell.sync_ns) {
        (Some(call), sync) => Some(call as f64 + sync.unwrap_or(0) as f64),
        (None, _) => None,
    };
    let unit = TimeUnit::of(cells.iter().filter_map(total));
    let rows =
        |cell: &dyn Fn(&Zeroed) -> Text| cells.iter().map(cell).collect::<Vec<_>>().into_iter();
    let group = [unit.name.to_owned()];
    let time = |ns: Option<f64>| ns.map_or_else(Text::default, |ns| unit.show(ns).into());
    let mut grid = Grid::new(cells.len(), 2);
    grid.push(Column::new("way", Align::Left, 0, rows(&|cell| cell.way.as_str().into())));
    grid.push(Column::new(
        "size",
        Align::Right,
        4,
        rows(&|cell| bytes(cell.len_bytes as f64).into()),
    ));
    let call = rows(&|cell| time(cell.call_ns.map(|ns| ns as f64)));
    grid.push(Column::new("call", Align::Point, 2, call).group(&group));
    let sync = rows(&|cell| time(cell.sync_ns.map(|ns| ns as f64)));
    grid.push(Column::new("sync", Align::Point, 3, sync).group(&group));
    grid.push(Column::new("both", Align::Point, 1, rows(&|cell| time(total(cell)))).group(&group));
    let rate = rows(&|cell| match total(cell) {
        // A call that writes nothing has no rate.
        Some(ns) if ns > 0.0 && cell.blocks_are == "written" => {
            format!("{}/s", bytes(cell.len_bytes as f64 / ns * 1e9)).into()
        }
        _ => Text::default(),
    });
    grid.push(Column::new("rate", Align::Right, 5, rate));
    grid.push(Column::new(
        "blocks are",
        Align::Left,
        1,
        rows(&|cell| cell.blocks_are.as_str().into()),
    ));
    for (index, cell) in cells.iter().enumerate() {
        if cell.call_ns.is_none() {
            grid.span(index, &cell.way, Text::new(Tint::Bad, &cell.answer));
        }
    }
    grid.render(style, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::samples;

    #[test]
    fn a_call_that_writes_nothing_has_no_rate() {
        let result = samples::result();
        let text = render_fallocate(
            &result.fallocate[0],
            &TableStyle { width: 120, ..TableStyle::default() },
        );
        let (_, zeroing) = text.split_once("Zeroing a file").expect("the zeroing");
        let line = |way: &str| zeroing.lines().find(|line| line.contains(way)).expect(way);
        assert!(
            line("zeros written").contains("/s") && !line("ZERO_RANGE").contains("/s"),
            "{zeroing}"
        );
    }
}
