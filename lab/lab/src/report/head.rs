//! The text of the page before any chart: the answer, the warnings.
//!
//! *Owns*: that text. *May not touch*: findings; they come from the lab. What is missing stands in
//! the tables below the charts.

use super::escape::escaped;
use crate::result::{Finding, Judged, LabResult, Table};
use crate::table::numbers::time;

/// What stands between the title and the charts.
pub(super) fn html(result: &LabResult) -> String {
    let mut html = String::new();
    let findings = findings(result);
    let sentences = match (&result.sentence, statements(result)) {
        (Some(sentence), _) => vec![sentence.clone()],
        (None, Some(counted)) => vec![counted],
        _ if findings.is_empty() => vec!["This run has no conclusion in words.".into()],
        _ => findings.iter().map(|finding| finding.sentence.clone()).collect(),
    };
    for sentence in sentences {
        html += &format!("\n<p class=\"lead\">{}</p>", marked(&sentence));
    }
    // The reason, if the answer is one table's.
    if let [Finding { why: Some(why), .. }] = findings[..] {
        html += &format!("\n<p class=\"step\"><b>Why:</b> {}</p>", marked(why));
    }
    let LabResult { machine, elapsed_ns, command, interrupted, .. } = result;
    let (kernel, cpus, cpu) = (&machine.kernel, machine.cpus, &machine.cpu);
    let took = time(*elapsed_ns as f64);
    let measured = format!("{kernel}; {cpus} x {cpu}; took {took}; measured by: {command}");
    html += &format!("\n<p class=\"facts\">{}</p>", escaped(&measured));
    let mut call = |text: &str, cure: &str| {
        let (text, cure) = (escaped(text), escaped(cure));
        html += &format!("\n<div class=\"call\"><p>{text}</p><p class=\"cure\">{cure}</p></div>");
    };
    if *interrupted {
        call("The run was stopped early: the page has what was measured until then.", "");
    }
    result.warnings.iter().for_each(|warning| call(&warning.text, &warning.cure));
    html
}

/// The most findings at the head of a page; each stands at its table too.
const FINDINGS_MAX: usize = 4;

/// What the first tables show that compare anything.
fn findings(result: &LabResult) -> Vec<&Finding> {
    let all = result.tables.iter().filter_map(|table| table.finding.as_ref());
    all.filter(|finding| finding.best.is_some()).take(FINDINGS_MAX).collect()
}

/// How many statements have which answer.
fn statements(result: &LabResult) -> Option<String> {
    let of = |judged| result.statements.iter().filter(|one| one.verdict == judged).count();
    (!result.statements.is_empty()).then(|| {
        format!(
            "Of {} statements, {} are confirmed on this disk, {} are refuted, of {} the lab cannot \
             tell, and {} could not be run.",
            result.statements.len(),
            of(Judged::Confirmed),
            of(Judged::Refuted),
            of(Judged::CannotTell),
            of(Judged::NotRun)
        )
    })
}

/// A sentence with names in `backticks`.
fn marked(sentence: &str) -> String {
    let piece = |(index, text)| match index % 2 {
        0 => escaped(text),
        _ => format!("<code>{}</code>", escaped(text)),
    };
    sentence.split('`').enumerate().map(piece).collect()
}

/// What the result contains.
pub(super) fn title(result: &LabResult) -> &str {
    match result.tables.as_slice() {
        _ if !result.disks.is_empty() => "Which disk is best for the log",
        _ if !result.statements.is_empty() => "Statements, checked",
        [Table { title, .. }] if !title.is_empty() => title,
        _ => "Durable writes",
    }
}
