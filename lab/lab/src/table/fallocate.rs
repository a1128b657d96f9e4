//! The fallocate atlas: what each mode does to a file in one place, and the cost of zeroing there.
//!
//! *Owns*: its tables. *May not touch*: files.

use super::grid::{Grid, paragraph};
use super::numbers::{TimeUnit, bytes};
use super::place_lines;
use crate::result::{FallocateAtlas, FallocateCall, Zeroed};

/// The atlas of one place.
pub fn render_fallocate(atlas: &FallocateAtlas, width: usize) -> String {
    let mut out = String::new();
    paragraph(&mut out, width, "", "fallocate: what each mode does to a file");
    place_lines(&atlas.place, width, &mut out);
    if atlas.calls.is_empty() {
        paragraph(&mut out, width, "  ", "No mode was tried.");
    } else {
        modes(&atlas.calls, width, &mut out);
    }
    if !atlas.zeroing.is_empty() {
        out.push('\n');
        zeroing(&atlas.zeroing, width, &mut out);
    }
    out
}

fn modes(calls: &[FallocateCall], width: usize, out: &mut String) {
    let change = |before: String, after: String| match before == after {
        true => after,
        false => format!("{before}->{after}"),
    };
    let mut grid = Grid::new("mode", calls.iter().map(|call| call.mode.clone()));
    let mut column = |head: &str, rank: u32, cell: &dyn Fn(&FallocateCall) -> String| {
        grid.column(head, rank, calls.iter().map(cell));
    };
    column("of", 4, &|call| bytes(call.len_bytes as f64));
    column("answer", 0, &|call| call.answer.clone());
    column("size", 2, &|call| {
        change(bytes(call.before.size_bytes as f64), bytes(call.after.size_bytes as f64))
    });
    column("blocks", 3, &|call| {
        change(call.before.blocks.to_string(), call.after.blocks.to_string())
    });
    column("extents after; = content", 0, &|call| {
        let (extents, content) = (call.after.extents.join(", "), call.after.content.join(", "));
        format!("{extents}; = {content}")
    });
    grid.render(width, out);
}

fn zeroing(ways: &[Zeroed], width: usize, out: &mut String) {
    paragraph(out, width, "", "Zeroing a file of this size");
    let total = |way: &Zeroed| Some((way.call_ns? + way.sync_ns.unwrap_or(0)) as f64);
    let unit = TimeUnit::of(ways.iter().filter_map(total));
    let mut grid = Grid::new("way", ways.iter().map(|way| way.way.clone()));
    let mut column = |head: &str, rank: u32, cell: &dyn Fn(&Zeroed) -> Option<String>| {
        grid.column(head, rank, ways.iter().map(|way| cell(way).unwrap_or_default()));
    };
    column("size", 4, &|way| Some(bytes(way.len_bytes as f64)));
    let time = |ns: Option<u64>| ns.map(|ns| unit.show(ns as f64));
    column(&format!("call, {}", unit.0), 2, &|way| time(way.call_ns));
    column(&format!("sync, {}", unit.0), 3, &|way| time(way.sync_ns));
    // A call that writes nothing has no rate.
    column("rate", 5, &|way| {
        let ns = total(way).filter(|ns| *ns > 0.0 && way.blocks_are == "written")?;
        Some(format!("{}/s", bytes(way.len_bytes as f64 / ns * 1e9)))
    });
    column("blocks are", 1, &|way| Some(way.blocks_are.clone()));
    for (index, way) in ways.iter().enumerate() {
        if way.call_ns.is_none() {
            grid.reason(index, &way.answer);
        }
    }
    grid.render(width, out);
}
