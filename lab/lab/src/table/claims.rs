//! The answers to claims: one line of figures each, and below it the statement and its source.
//!
//! *Owns*: their layout in a terminal of any width. *May not touch*: answers.

use crate::result::{Answer, Found, Judged, LabResult};

use super::numbers::sig3;
use super::text::{Tint, clean, cut_end, paint, paragraph};
use super::{TableStyle, closing, render_warnings};

/// `confirmed` and its space.
const VERDICT_WIDTH: usize = 13;

/// The answers, how many there are of each, and the warnings.
pub fn render_claims(found: &LabResult, style: &TableStyle) -> String {
    let mut out = String::new();
    for answer in &found.claims {
        one(&mut out, answer, style);
    }
    let count =
        |verdict: Judged| found.claims.iter().filter(|answer| answer.verdict == verdict).count();
    let all = [Judged::Confirmed, Judged::Refuted, Judged::CannotTell, Judged::NotRun];
    let counts: Vec<String> =
        all.iter().map(|&verdict| format!("{} {}", count(verdict), verdict.words())).collect();
    let counts = format!("{} claims: {}", found.claims.len(), counts.join(", "));
    paragraph(&mut out, style, "", &counts, Tint::Strong);
    let rule = "confirmed: the whole 95% interval is in the claim's band; refuted: none of it is; cannot tell: part of it is, or the lab \
     doubts what the run means. Counts have no interval. Times are of this disk, beside its other load.";
    paragraph(&mut out, style, "", rule, Tint::Dim);
    out.push_str(&render_warnings(found, style));
    closing(found, style, &mut out);
    out
}

fn one(out: &mut String, answer: &Answer, style: &TableStyle) {
    let tint = match answer.verdict {
        Judged::Confirmed => Tint::Good,
        Judged::Refuted => Tint::Bad,
        Judged::CannotTell | Judged::NotRun => Tint::Dim,
    };
    let verdict = format!("{:VERDICT_WIDTH$}", answer.verdict.words());
    let line = match &answer.found {
        Some(found) => format!("{}  {}", answer.id, figure(found)),
        None => answer.id.clone(),
    };
    let rest = style.columns().saturating_sub(VERDICT_WIDTH);
    out.push_str(&format!(
        "{}{}\n",
        paint(style, tint, &verdict),
        cut_end(style, &clean(&line), rest)
    ));
    let indent = " ".repeat(VERDICT_WIDTH);
    let mut say = |text: &str, tint: Tint| paragraph(out, style, &indent, text, tint);
    say(&answer.statement, Tint::Plain);
    let link = answer.link.as_ref().map(|link| format!(", {link}")).unwrap_or_default();
    say(&format!("source: {}{link}", answer.source), Tint::Dim);
    match (&answer.found, &answer.reason) {
        (Some(found), reason) => {
            say(&format!("holds at: {}; seen: {}", answer.band, found.of), Tint::Dim);
            if let Some(reason) = reason {
                say(&format!("no answer: {reason}"), Tint::Dim);
            }
        }
        (None, Some(reason)) => say(&format!("not run: {reason}"), Tint::Plain),
        (None, None) => {}
    }
    out.push('\n');
}

/// The figure of a claim: `1.85 [1.49..2.03] times`, `2.02 metadata writes a commit`.
pub fn figure(found: &Found) -> String {
    if found.low == found.high {
        format!("{} {}", sig3(found.value), found.unit)
    } else {
        format!("{} [{}..{}] {}", sig3(found.value), sig3(found.low), sig3(found.high), found.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::samples;

    fn answer(id: &str, verdict: Judged, found: Option<Found>, reason: Option<&str>) -> Answer {
        Answer {
            id: id.into(),
            statement:
                "Something that somebody said of durable writes at such length that it needs two lines."
                    .into(),
            source: "a thread with a name that is long enough for a second line, somewhere/or-other#12345"
                .into(),
            link: None,
            band: "1.5 to 3".into(),
            verdict,
            found,
            reason: reason.map(Into::into),
        }
    }

    #[test]
    fn answers_fit_their_columns_and_say_everything() {
        let of = "reuse fdatasync : reuse+zero-range fdatasync".to_owned();
        let ratio =
            Found { value: 1.85, low: 1.49, high: 2.03, unit: "times".into(), of: of.clone() };
        let count =
            Found { value: 2.0, low: 2.0, high: 2.0, unit: "metadata writes a commit".into(), of };
        let found = LabResult {
            claims: vec![
                answer("overwrite-twice", Judged::Confirmed, Some(ratio), None),
                answer("fallocate-only-data", Judged::Refuted, Some(count), None),
                answer(
                    "second-pass",
                    Judged::NotRun,
                    None,
                    Some("needs root: it is made on a loop device"),
                ),
            ],
            ..samples::result()
        };
        for width in [40, 80, 120] {
            let text = render_claims(&found, &TableStyle { width, ..TableStyle::default() });
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
            assert!(text.contains("3 claims: 1 confirmed, 1 refuted") || width < 60, "{text}");
        }
        let text = render_claims(&found, &TableStyle { width: 80, ..TableStyle::default() });
        for said in [
            "confirmed    overwrite-twice  1.85 [1.49..2.03] times",
            "refuted      fallocate-only-data  2.00 metadata writes a commit",
            "not run      second-pass\n",
            "not run: needs root",
            "holds at: 1.5 to 3",
            "source: a thread",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}
