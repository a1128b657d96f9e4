//! A result as people read it on a terminal or paste it into an issue.
//!
//! *Owns*: the order of the parts, the heading of a run, the closing lines. *May not touch*:
//! numbers (they come from the result), terminals (the command decides about colours), files.
//! Colour only emphasises: the text says the same.

mod bench;
mod bill;
mod cells;
mod claims;
mod experiment;
mod fallocate;
mod finding;
mod grid;
pub(crate) mod numbers;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
mod text;
mod timeline;

pub use bench::{bill_text, render_bench};
pub use bill::render_bill;
pub use claims::{figure, render_claims};
pub use experiment::render_experiment;
pub use fallocate::render_fallocate;
pub use timeline::render_timeline;

use crate::result::{BillSource, LabResult, Place, Run};
use crate::warnings::DISK_FULL_WARNING;
pub(crate) use numbers::time;
use text::{Tint, paragraph};

/// How tables are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableStyle {
    /// Whether emphasis may use colours.
    pub colour: bool,
    /// Columns of the terminal: no line is wider. Below 40 it counts as 40.
    pub width: usize,
    /// Whether rules, bars and ellipses may use Unicode. Names are always shown as they are.
    pub unicode: bool,
}

impl TableStyle {
    const WIDTH_MIN: usize = 40;

    /// The width to draw for.
    fn columns(&self) -> usize {
        self.width.max(Self::WIDTH_MIN)
    }
}

impl Default for TableStyle {
    /// Plain ASCII, 100 columns: safe for an unknown terminal.
    fn default() -> Self {
        Self { colour: false, width: 100, unicode: false }
    }
}

/// The whole result: each run, the experiments, the modes of fallocate, warnings, the finding, the
/// machine.
pub fn render(result: &LabResult, style: &TableStyle) -> String {
    let mut out = String::new();
    // A warning that makes a run fail is shown above its table too.
    for warning in result.warnings.iter().filter(|warning| warning.name == DISK_FULL_WARNING) {
        paragraph(&mut out, style, "! ", &format!("{}.", warning.text), Tint::Bad);
    }
    // With several runs each has its finding below its table; with one run it comes last.
    let several = result.runs.len() > 1;
    for run in &result.runs {
        out.push_str(&render_run(run, style));
        out.push('\n');
        if several {
            render_finding(run, style, &mut out);
        }
    }
    for experiment in &result.experiments {
        out.push_str(&render_experiment(experiment, style));
    }
    for atlas in &result.fallocate {
        out.push_str(&render_fallocate(atlas, style));
        out.push('\n');
    }
    if result.runs.is_empty() && result.experiments.is_empty() && result.fallocate.is_empty() {
        out.push_str("Nothing was measured.\n\n");
    }
    out.push_str(&render_warnings(result, style));
    if let [run] = result.runs.as_slice() {
        render_finding(run, style, &mut out);
    }
    closing(result, style, &mut out);
    out
}

fn render_finding(run: &Run, style: &TableStyle, out: &mut String) {
    if let Some(finding) = &run.finding {
        finding::finding(finding, style, out);
    }
}

/// One run: its heading, its table, its notes.
pub fn render_run(run: &Run, style: &TableStyle) -> String {
    let mut out = String::new();
    heading(run, style, &mut out);
    if run.cells.is_empty() {
        paragraph(
            &mut out,
            style,
            "  ",
            "Nothing was measured: the run has no ways of writing.",
            Tint::Plain,
        );
    } else {
        cells::table(run, style, &mut out);
    }
    for note in &run.notes {
        paragraph(&mut out, style, "  ", note, Tint::Dim);
    }
    out
}

/// Whether the run ended early, and each warning with its cure.
pub fn render_warnings(result: &LabResult, style: &TableStyle) -> String {
    let mut out = String::new();
    if result.preamble.interrupted {
        let text = "The run was stopped early: this is what was measured until then.";
        paragraph(&mut out, style, "! ", text, Tint::Bad);
    }
    finding::warnings(&result.warnings, style, &mut out);
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

fn heading(run: &Run, style: &TableStyle, out: &mut String) {
    let title = if run.title.is_empty() { &run.name } else { &run.title };
    paragraph(out, style, "", title, Tint::Strong);
    place_lines(&run.place, style, out);
    let order = if run.random_order { "in random order" } else { "always in this order" };
    let rounds =
        if run.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", run.rounds) };
    let text = format!("{rounds}, ways {order}, seed {}", run.seed);
    paragraph(out, style, "  ", &text, Tint::Dim);
}

/// The place in one line, and a line for each place below it.
fn place_lines(place: &Place, style: &TableStyle, out: &mut String) {
    let mut text = place_text(place);
    // A directory given by its path identifies the place; `.` does not.
    let known = place.name.as_str();
    if !place.directory.is_empty() && place.directory != known {
        text.push_str(&format!(" in {}", place.directory));
    }
    let lead = if known.is_empty() { String::new() } else { format!("{known}: ") };
    paragraph(out, style, "  ", &format!("{lead}{text}"), Tint::Plain);
    let mut above = place;
    while let Some(host) = &above.host {
        let device = above.device.as_deref().unwrap_or("it");
        let backing =
            above.loop_backing.as_deref().map(|file| format!("{file}; ")).unwrap_or_default();
        paragraph(
            out,
            style,
            "  ",
            &format!("below {device}: {backing}{}", place_text(host)),
            Tint::Plain,
        );
        above = host;
    }
    if let (None, Some(backing)) = (&above.host, &above.loop_backing) {
        let device = above.device.as_deref().unwrap_or("it");
        paragraph(out, style, "  ", &format!("below {device}: {backing}"), Tint::Plain);
    }
}

/// File system, device, and the facts that decide about a commit's cost, in short.
fn place_text(place: &Place) -> String {
    let file_system =
        if place.file_system.is_empty() { "unknown file system" } else { &place.file_system };
    let mut text = file_system.to_owned();
    if let Some(device) = &place.device {
        text.push_str(&format!(" on {device}"));
    }
    let mut facts = Vec::new();
    let model = place.model.as_deref().map(str::trim).filter(|model| !model.is_empty());
    facts.extend(model.map(str::to_owned));
    facts.extend(place.write_cache.as_ref().map(|cache| format!("cache {cache}")));
    facts.extend(place.fua.map(|fua| if fua { "FUA" } else { "no FUA" }.to_owned()));
    facts.extend(
        place.journal.map(|journal| if journal { "journal" } else { "no journal" }.to_owned()),
    );
    if matches!(place.copy_on_write.as_str(), "always" | "shared extents only") {
        facts.push(match place.copy_on_write.as_str() {
            "always" => "copy on write".into(),
            _ => "copy on write of shared extents".into(),
        });
    }
    facts.extend(
        place.direct_align_bytes.filter(|align| *align == 0).map(|_| "no O_DIRECT".to_owned()),
    );
    let scheduler = place.scheduler.as_ref().filter(|scheduler| scheduler.as_str() != "none");
    facts.extend(scheduler.map(|scheduler| format!("scheduler {scheduler}")));
    if !place.mount_options.is_empty() {
        facts.push(shortened(&place.mount_options));
    }
    if facts.is_empty() { text } else { format!("{text} ({})", facts.join(", ")) }
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

/// The machine, the cost of the harness, and the elapsed time.
fn closing(result: &LabResult, style: &TableStyle, out: &mut String) {
    let machine = &result.preamble.machine;
    if result.harness.commit_ns > 0.0 || result.harness.clock_ns > 0.0 {
        let text = format!(
            "The harness itself costs {} a commit (a clock reading {}); every figure includes it.",
            time(result.harness.commit_ns),
            time(result.harness.clock_ns)
        );
        paragraph(out, style, "", &text, Tint::Dim);
    }
    let mut facts = Vec::new();
    if !machine.kernel.is_empty() {
        facts.push(machine.kernel.clone());
    }
    if machine.cpus > 0 {
        let cpu = if machine.cpu.is_empty() { "CPU" } else { &machine.cpu };
        facts.push(format!("{} x {cpu}", machine.cpus));
    }
    facts.extend(machine.governor.as_ref().map(|governor| format!("governor {governor}")));
    if machine.memory_bytes > 0 {
        facts.push(format!("memory {}", numbers::bytes(machine.memory_bytes as f64)));
    }
    if result.preamble.elapsed_ns > 0 {
        facts.push(format!("took {}", time(result.preamble.elapsed_ns as f64)));
    }
    if !result.preamble.inkstone_version.is_empty() {
        facts.push(format!("inkstone {}", result.preamble.inkstone_version));
    }
    paragraph(out, style, "", &facts.join("; "), Tint::Dim);
    let measured =
        result.runs.iter().flat_map(|run| &run.cells).filter_map(|cell| cell.outcome.measured());
    let mut bills = measured.filter_map(|measured| measured.bill.as_ref());
    let traced = bills.any(|bill| bill.source == BillSource::Trace);
    if let (false, Some(why)) = (traced, &machine.trace_refused) {
        paragraph(
            out,
            style,
            "",
            &format!("The block layer could not be traced: {why}"),
            Tint::Dim,
        );
    }
}
