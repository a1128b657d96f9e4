//! The text of the page before any chart: the answer, the warnings.
//!
//! *Owns*: that text. *May not touch*: findings; they come from the lab. What is missing stands in
//! the tables below the charts.

use super::escape::escaped;
use crate::result::{Finding, Judged, LabResult, Place, Preamble, Table};
use crate::table::numbers::time;

/// What stands between the title and the charts.
pub(super) fn html(result: &LabResult) -> String {
    let mut html = String::new();
    let findings = findings(result);
    let sentences = match (&result.sentence, claims(result)) {
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
    let Preamble { machine, elapsed_ns, command, interrupted, .. } = &result.preamble;
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

/// What the tables show; of many tables what the first show that compare anything.
fn findings(result: &LabResult) -> Vec<&Finding> {
    let all = || result.tables.iter().filter_map(|table| table.finding.as_ref());
    let compared = all().filter(|finding| finding.first.is_some()).take(FINDINGS_MAX);
    let compared: Vec<&Finding> = compared.collect();
    if compared.is_empty() { all().take(FINDINGS_MAX).collect() } else { compared }
}

/// How many claims have which answer.
fn claims(result: &LabResult) -> Option<String> {
    let of = |judged| result.claims.iter().filter(|claim| claim.verdict == judged).count();
    (!result.claims.is_empty()).then(|| {
        format!(
            "Of {} claims, {} are confirmed on this disk, {} are refuted, of {} the lab cannot \
             tell, and {} could not be run.",
            result.claims.len(),
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

/// What the result contains, and from where.
pub(super) fn title(result: &LabResult) -> String {
    let what = match result.tables.as_slice() {
        _ if !result.disks.is_empty() => return "Which disk is best for the log".into(),
        _ if !result.claims.is_empty() => "Claims, checked",
        [Table { title, .. }] if !title.is_empty() => title,
        _ => "Durable writes",
    };
    let name = |place: &Place| match place.name.as_str() {
        "" | "." => "this disk".to_owned(),
        name => name.to_owned(),
    };
    let mut places: Vec<String> = result.tables.iter().map(|table| name(&table.place)).collect();
    places.dedup();
    match places.as_slice() {
        [] => format!("{what} on this disk"),
        [one] => format!("{what} on {one}"),
        many => format!("{what} in {} places", many.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Compared, Relative, Verdict};

    fn table(place: &str, finding: Option<Finding>) -> Table {
        let place = Place { name: place.into(), ..Place::default() };
        Table { place, finding, ..Table::default() }
    }

    fn of(tables: Vec<Table>) -> LabResult {
        LabResult { tables, ..LabResult::default() }
    }

    #[test]
    fn a_page_is_called_what_it_holds() {
        let one = Table { title: "A pool of threads".into(), ..table("/data", None) };
        assert_eq!(title(&of(vec![one.clone()])), "A pool of threads on /data");
        assert_eq!(title(&of(vec![one.clone(), one])), "Durable writes on /data");
        assert_eq!(title(&LabResult::default()), "Durable writes on this disk");
        let said = marked("use `a b`, not `<c>`");
        assert_eq!(said, "use <code>a b</code>, not <code>&#60;c&#62;</code>");
    }

    /// `lab all` has several tables in one place.
    #[test]
    fn what_compares_two_ways_heads_the_page() {
        let run = |sentence: &str, is_compared: bool| {
            let speedup = Relative::with_interval(2.0, (1.1, 3.0), Verdict::Faster);
            let (way, against) = ("b".into(), "n".into());
            let first = is_compared.then_some(Compared { way, against, speedup });
            table(".", Some(Finding { sentence: sentence.into(), first, ..Finding::default() }))
        };
        let head = html(&of(vec![run("of e1", false), run("`b` is", true), run("of e6", false)]));
        assert!(head.contains("<code>b</code> is</p>") && !head.contains("of e"), "{head}");
        assert!(html(&of(vec![run("of e1", false)])).contains("of e1"));
    }
}
