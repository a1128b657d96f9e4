//! The answers to claims: one line of figures each, and below it the statement and its source.
//!
//! *Owns*: their layout. *May not touch*: answers.

use super::grid::paragraph;
use super::numbers::sig3;
use super::{closing, render_warnings};
use crate::result::{Answer, Found, Judged, LabResult};

/// The answers, how many there are of each, and the warnings.
pub fn render_claims(found: &LabResult, width: usize) -> String {
    let mut out = String::new();
    for answer in &found.claims {
        one(&mut out, answer, width);
    }
    let all = [Judged::Confirmed, Judged::Refuted, Judged::CannotTell, Judged::NotRun];
    let counts = all.map(|verdict| {
        let of_it = found.claims.iter().filter(|answer| answer.verdict == verdict);
        format!("{} {}", of_it.count(), verdict.words())
    });
    let counts = format!("{} claims: {}", found.claims.len(), counts.join(", "));
    paragraph(&mut out, width, "", &counts);
    let rule = "confirmed: the whole 95% interval is in the claim's band; refuted: none of it is; \
                cannot tell: part of it is, or the lab doubts what the run means. Counts have no \
                interval. Times are of this disk, beside its other load.";
    paragraph(&mut out, width, "", rule);
    out.push_str(&render_warnings(found, width));
    closing(found, width, &mut out);
    out
}

fn one(out: &mut String, answer: &Answer, width: usize) {
    let verdict = format!("{:13}", answer.verdict.words());
    let seen = answer.found.as_ref().map_or_else(String::new, figure);
    paragraph(out, width, &verdict, &format!("{} {seen}", answer.id));
    let indent = " ".repeat(verdict.len());
    let mut say = |text: &str| paragraph(out, width, &indent, text);
    say(&answer.statement);
    let link = answer.link.as_ref().map(|link| format!(", {link}")).unwrap_or_default();
    say(&format!("source: {}{link}", answer.source));
    if let Some(found) = &answer.found {
        say(&format!("holds at: {}; seen: {}", answer.band, found.of));
    }
    if let Some(reason) = &answer.reason {
        let what = if answer.found.is_some() { "no answer" } else { "not run" };
        say(&format!("{what}: {reason}"));
    }
    out.push('\n');
}

/// The figure of a claim: `1.85 [1.49..2.03] times`, `2.02 metadata writes a commit`.
fn figure(found: &Found) -> String {
    let interval = match found.low == found.high {
        true => String::new(),
        false => format!(" [{}..{}]", sig3(found.low), sig3(found.high)),
    };
    format!("{}{interval} {}", sig3(found.value), found.unit)
}
