//! A result as people read it on a terminal or paste it into an issue: plain text of a given width.
//!
//! *Owns*: the order of the parts, the heading of a run, the closing lines. *May not touch*:
//! numbers (they come from the result), terminals, files.

mod bill;
mod grid;
pub(crate) mod numbers;
#[cfg(test)]
pub(crate) mod samples;
mod statements;
#[cfg(test)]
mod tests;
mod ways;

pub use bill::render_bill;
pub use statements::{render_articles, render_statements};

use crate::result::{Finding, LabResult, Place, Table};
pub(crate) use grid::paragraph;
use numbers::{bytes, time};

/// The whole result: the tables, the modes of fallocate, warnings, the answers, the machine.
pub fn render(result: &LabResult, width: usize) -> String {
    let mut out = String::new();
    // With several tables each has its finding below it; with one it comes last.
    let several = result.tables.len() > 1;
    for table in &result.tables {
        out.push_str(&render_table(table, width));
        out.push('\n');
        if several {
            finding(table.finding.as_ref(), width, &mut out);
        }
    }
    if result.tables.is_empty() {
        out.push_str("Nothing was measured.\n\n");
    }
    out.push_str(&render_warnings(result, width));
    if let [table] = result.tables.as_slice() {
        finding(table.finding.as_ref(), width, &mut out);
    }
    closing(result, width, &mut out);
    out
}

/// All that the lab prints of a result: answers, tables, bills.
pub fn everything(result: &LabResult, width: usize) -> String {
    let mut out = String::new();
    if !result.statements.is_empty() {
        out.push_str(&render_statements(result, width));
        out.push('\n');
    }
    out.push_str(&render(result, width));
    for table in
        result.tables.iter().filter(|table| table.ways.iter().any(|way| way.bill.is_some()))
    {
        out.push('\n');
        out.push_str(&render_bill(table, width));
    }
    out
}

/// The sentence, and why.
fn finding(finding: Option<&Finding>, width: usize, out: &mut String) {
    let Some(finding) = finding else { return };
    paragraph(out, width, "", &finding.sentence);
    if let Some(why) = &finding.why {
        paragraph(out, width, "Why: ", why);
    }
    out.push('\n');
}

/// One table: its heading, its ways, its notes.
pub fn render_table(table: &Table, width: usize) -> String {
    let mut out = String::new();
    let title = if table.title.is_empty() { &table.name } else { &table.title };
    paragraph(&mut out, width, "", title);
    place_lines(&table.place, width, &mut out);
    if table.rounds > 0 {
        let order = if table.random_order { "in random order" } else { "always in this order" };
        let plural = if table.rounds == 1 { "" } else { "s" };
        let done = table.ways.iter().map(|way| way.rounds.len()).max().unwrap_or(0);
        let is_whole = done >= table.rounds as usize;
        let of = if is_whole { String::new() } else { format!("{done} of ") };
        let text = format!("{of}{} round{plural}, ways {order}", table.rounds);
        paragraph(&mut out, width, "  ", &text);
    }
    if table.ways.is_empty() {
        paragraph(&mut out, width, "  ", "Nothing was measured: there are no ways.");
    } else {
        ways::ways(table, width, &mut out);
    }
    for note in &table.notes {
        paragraph(&mut out, width, "  ", note);
    }
    out
}

/// Whether the run ended early, and each warning with its cure.
pub fn render_warnings(result: &LabResult, width: usize) -> String {
    let mut out = String::new();
    if result.interrupted {
        let text = "The run was stopped early: this is what was measured until then.";
        paragraph(&mut out, width, "! ", text);
    }
    for warning in &result.warnings {
        paragraph(&mut out, width, "! ", &warning.text);
        paragraph(&mut out, width, "  cure: ", &warning.cure);
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

/// The place in one line, and a line for each place below it.
fn place_lines(place: &Place, width: usize, out: &mut String) {
    let mut text = place_words(place);
    // A directory given by its path identifies the place; `.` does not.
    let known = place.name.as_str();
    if !place.directory.is_empty() && place.directory != known {
        text.push_str(&format!(" in {}", place.directory));
    }
    let lead = if known.is_empty() { String::new() } else { format!("{known}: ") };
    paragraph(out, width, "  ", &format!("{lead}{text}"));
    let mut above = Some(place);
    while let Some(place) = above {
        let host = place.host.as_deref();
        let below = [place.loop_backing.clone(), host.map(place_words)];
        let below: Vec<String> = below.into_iter().flatten().collect();
        if !below.is_empty() {
            let device = place.device.as_deref().unwrap_or("it");
            paragraph(out, width, "  ", &format!("below {device}: {}", below.join("; ")));
        }
        above = host;
    }
}

/// File system, device, and the facts that decide about a commit's cost, in short.
fn place_words(place: &Place) -> String {
    let device = place.device.as_ref().map(|device| format!(" on {device}")).unwrap_or_default();
    let is = |is: bool, what: &str| if is { what.to_owned() } else { format!("no {what}") };
    let copies = match place.copy_on_write.as_str() {
        "always" => Some("copy on write"),
        "shared extents only" => Some("copy on write of shared extents"),
        _ => None,
    };
    let direct = place.direct_align_bytes.map(|bytes| match bytes {
        0 => "no O_DIRECT".to_owned(),
        bytes => format!("O_DIRECT in multiples of {bytes} B"),
    });
    let scheduler = place.scheduler.as_ref().filter(|scheduler| scheduler.as_str() != "none");
    let facts = [
        place.model.as_ref().map(|model| model.trim().to_owned()).filter(|model| !model.is_empty()),
        place.write_cache.as_ref().map(|cache| format!("cache {cache}")),
        place.fua.map(|fua| is(fua, "FUA")),
        place.journal.map(|journal| is(journal, "journal")),
        copies.map(str::to_owned),
        direct,
        scheduler.map(|scheduler| format!("scheduler {scheduler}")),
        (!place.mount_options.is_empty()).then(|| shortened(&place.mount_options)),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
    let file_system =
        if place.file_system.is_empty() { "unknown file system" } else { &place.file_system };
    format!("{file_system}{device}{facts}")
}

/// Mount options, without the less important tail.
fn shortened(options: &str) -> String {
    const KEPT: usize = 5;
    let all: Vec<&str> = options.split(',').collect();
    match all.len() {
        0..=KEPT => options.to_owned(),
        many => format!("{},+{}", all[..KEPT].join(","), many - KEPT),
    }
}

/// The machine, and the elapsed time.
fn closing(result: &LabResult, width: usize, out: &mut String) {
    let machine = &result.machine;
    let cpu = if machine.cpu.is_empty() { "CPU" } else { &machine.cpu };
    let facts = [
        (!machine.kernel.is_empty()).then(|| machine.kernel.clone()),
        (machine.cpus > 0).then(|| format!("{} x {cpu}", machine.cpus)),
        (machine.memory_bytes > 0)
            .then(|| format!("memory {}", bytes(machine.memory_bytes as f64))),
        (result.elapsed_ns > 0).then(|| format!("took {}", time(result.elapsed_ns as f64))),
        (!result.inkstone_version.is_empty())
            .then(|| format!("inkstone {}", result.inkstone_version)),
    ];
    paragraph(out, width, "", &facts.into_iter().flatten().collect::<Vec<_>>().join("; "));
}
