//! A result as people read it on a terminal or paste it into an issue.
//!
//! *Owns*: the order of the parts, the heading of a run, the closing lines. *May not touch*:
//! numbers (they come from the result), terminals (the command decides about colours), files.
//! Colour only emphasises: the text says the same.

mod bench;
mod bill;
mod claims;
mod fallocate;
mod grid;
pub(crate) mod numbers;
mod place;
#[cfg(test)]
pub(crate) mod samples;
mod style;
#[cfg(test)]
mod tests;
mod text;
mod timeline;
mod ways;

pub use bench::render_bench;
pub use bill::render_bill;
pub use claims::{figure, render_claims};
pub use fallocate::render_fallocate;
pub use style::TableStyle;
pub use timeline::render_timeline;

use crate::result::{BillSource, Finding, LabResult, Table};
use crate::warnings::DISK_FULL_WARNING;
use numbers::time;
use place::place_lines;
use text::{Tint, paragraph};

/// The whole result: the tables, the modes of fallocate, warnings, the answers, the machine.
pub fn render(result: &LabResult, style: &TableStyle) -> String {
    let mut out = String::new();
    // A warning that makes a run fail is shown above its table too.
    for warning in result.warnings.iter().filter(|warning| warning.name == DISK_FULL_WARNING) {
        paragraph(&mut out, style, "! ", &format!("{}.", warning.text), Tint::Bad);
    }
    // With several tables each has its finding below it; with one it comes last.
    let several = result.tables.len() > 1;
    for table in &result.tables {
        out.push_str(&render_table(table, style));
        out.push('\n');
        if several {
            finding(table.finding.as_ref(), style, &mut out);
        }
    }
    for atlas in &result.fallocate {
        out.push_str(&render_fallocate(atlas, style));
        out.push('\n');
    }
    if result.tables.is_empty() && result.fallocate.is_empty() {
        out.push_str("Nothing was measured.\n\n");
    }
    out.push_str(&render_warnings(result, style));
    if let [table] = result.tables.as_slice() {
        finding(table.finding.as_ref(), style, &mut out);
    }
    closing(result, style, &mut out);
    out
}

/// The sentence, why, and what to do.
fn finding(finding: Option<&Finding>, style: &TableStyle, out: &mut String) {
    let Some(finding) = finding else { return };
    paragraph(out, style, "", &finding.sentence, Tint::Strong);
    for (lead, words) in [("Why: ", &finding.why), ("Do this: ", &finding.advice)] {
        if let Some(words) = words {
            paragraph(out, style, lead, words, Tint::Strong);
        }
    }
    out.push('\n');
}

/// One table: its heading, its ways, its notes.
pub fn render_table(table: &Table, style: &TableStyle) -> String {
    let mut out = String::new();
    let title = if table.title.is_empty() { &table.name } else { &table.title };
    paragraph(&mut out, style, "", title, Tint::Strong);
    place_lines(&table.place, style, &mut out);
    let order = if table.random_order { "in random order" } else { "always in this order" };
    let rounds = match table.rounds {
        1 => "1 round".to_owned(),
        rounds => format!("{rounds} rounds"),
    };
    let text = format!("{rounds}, ways {order}, seed {}", table.seed);
    paragraph(&mut out, style, "  ", &text, Tint::Dim);
    if table.ways.is_empty() {
        let text = "Nothing was measured: there are no ways.";
        paragraph(&mut out, style, "  ", text, Tint::Plain);
    } else {
        ways::ways(table, style, &mut out);
    }
    for note in &table.notes {
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
    for warning in &result.warnings {
        paragraph(&mut out, style, "! ", &warning.text, Tint::Bad);
        if !warning.cure.trim().is_empty() {
            paragraph(&mut out, style, "  cure: ", &warning.cure, Tint::Plain);
        }
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
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
    let ways = result.tables.iter().flat_map(|table| &table.ways);
    let mut bills = ways.filter_map(|way| way.bill.as_ref());
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
