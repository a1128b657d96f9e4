//! The answers to statements: one line of figures each, and below it the statement and its source.
//!
//! *Owns*: their layout. *May not touch*: answers.

use super::grid::paragraph;
use super::numbers::sig3;
use super::{closing, render_warnings};
use crate::experiment::statement::{Statement, statements};
use crate::result::{Answer, Found, Judged, LabResult};

/// The answers, how many there are of each, and the warnings.
pub fn render_statements(found: &LabResult, width: usize) -> String {
    let mut out = String::new();
    for answer in &found.statements {
        one(&mut out, answer, width);
    }
    let all = [Judged::Confirmed, Judged::Refuted, Judged::CannotTell, Judged::NotRun];
    let counts = all.map(|verdict| {
        let of_it = found.statements.iter().filter(|answer| answer.verdict == verdict);
        format!("{} {}", of_it.count(), verdict.words())
    });
    let counts = format!("{} statements: {}", found.statements.len(), counts.join(", "));
    paragraph(&mut out, width, "", &counts);
    let rule = "confirmed: the whole interval is in the statement's band; refuted: none of it is; \
                cannot tell: part of it is, there were too few rounds, other programs used the \
                machine, or the lab doubts what the run means. The intervals of one experiment's \
                statements hold all at once in 95 of 100 runs. That of a count is what several \
                passes counted.";
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
        say(&format!("holds at: {}; seen: {}, on {}", answer.band, found.of, found.place));
    }
    if let Some(reason) = &answer.reason {
        let what = if answer.found.is_some() { "no answer" } else { "not run" };
        say(&format!("{what}: {reason}"));
    }
    out.push('\n');
}

/// The figure of an answer: `1.85 [1.49..2.03] times`, `2.02 metadata writes a commit`.
fn figure(found: &Found) -> String {
    let interval = match found.low == found.high {
        true => String::new(),
        false => format!(" [{}..{}]", sig3(found.low), sig3(found.high)),
    };
    // A count is exact.
    let value = match found.value {
        value if found.low == found.high && value.fract() == 0.0 => value.to_string(),
        value => sig3(value),
    };
    format!("{value}{interval} {}", found.unit)
}

/// The rows and the statements of the five articles as Markdown: each with its command and its
/// answer, or why it was not run.
pub fn render_articles(found: &LabResult) -> String {
    let mut out = String::from("| row of the articles | command | here |\n|---|---|---|\n");
    for line in include_str!("../experiment/articles.txt").lines() {
        let words: Vec<&str> = line.split('|').map(str::trim).collect();
        let [row, command, tables] = words.as_slice() else { continue };
        let here = match *tables {
            "" => "not run: it has a command of its own".to_owned(),
            tables => {
                tables.split(", ").map(|table| ran(found, table)).collect::<Vec<_>>().join("; ")
            }
        };
        out.push_str(&format!("| {row} | {command} | {here} |\n"));
    }
    out.push_str("\n| article | statement | command | answer |\n|---|---|---|---|\n");
    let mut of_articles: Vec<&Statement> =
        statements().iter().filter(|statement| statement.article.is_some()).collect();
    of_articles.sort_by_key(|statement| statement.article);
    for statement in of_articles {
        let Some(answer) = found.statements.iter().find(|answer| answer.id == statement.id) else {
            continue;
        };
        let seen =
            answer.found.as_ref().map(|found| format!(" {}, {}", figure(found), found.place));
        let why = answer.reason.as_ref().map(|why| format!(": {}", why.replace('|', "/")));
        out.push_str(&format!(
            "| {} | {} | `inkstone lab experiment {}` ({}) | {}{}{} |\n",
            statement.article.unwrap_or_default(),
            statement.says,
            statement.experiment.trim_start_matches('e'),
            statement.id,
            answer.verdict.words(),
            seen.unwrap_or_default(),
            why.unwrap_or_default()
        ));
    }
    out
}

/// Whether a table was measured, or why not.
fn ran(found: &LabResult, name: &str) -> String {
    let table = found.tables.iter().find(|table| table.name == name);
    let Some(table) = table else { return format!("not run: {name} has no table in this result") };
    let measured = table.ways.iter().filter(|way| way.is_measured()).count();
    match table.ways.iter().find_map(|way| way.missing.as_ref()).filter(|_| measured == 0) {
        Some(why) => format!("not run: {why}"),
        None => format!("{name}: {measured} of {} ways", table.ways.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_articles_have_their_rows_and_statements_each_with_an_answer() {
        let mut found = crate::table::samples::result();
        let all: Vec<&Statement> = statements().iter().collect();
        found.statements = crate::answers::answers(&all, &found);
        let text = render_articles(&found);
        let articles = statements().iter().filter(|one| one.article.is_some()).count();
        assert!(articles >= 78, "{articles}");
        let rows =
            text.lines().filter(|line| line.starts_with("| ") && !line.contains("| command"));
        assert_eq!(rows.count(), 25 + articles);
        assert!(
            text.contains("| `inkstone lab experiment 4` | fallocate: 2 of 2 ways |"),
            "{text}"
        );
        assert!(!text.lines().any(|line| line.ends_with("|  |")), "an answer for each: {text}");
    }
}
