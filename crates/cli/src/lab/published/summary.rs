//! The table at the end: what was seen, part by part, in the form that docs/notebook/lab.md has.
//!
//! *Owns*: that text. *May not touch*: figures.

use std::fmt::Write as _;

use inkstone_lab::claims::Answer;
use inkstone_lab::experiment::{ExperimentResult, ExperimentRow};
use inkstone_lab::result::{CellResult, LabResult, Outcome, Relative, Run};
use inkstone_lab::stats::{median, per_commit_ns};
use inkstone_lab::table::figure;

use super::Part;
use super::effort::human_s;
use super::whole::measured_on;

/// A part that is done.
pub(super) struct Seen<'a> {
    pub(super) part: &'static Part,
    pub(super) result: &'a LabResult,
    /// The answers of parts that check claims.
    pub(super) claims: Vec<Answer>,
}

/// One row for each part, and below it the figures of each.
pub(super) fn table(seen: &[Seen<'_>], is_small: bool) -> String {
    let mut out = String::from("# The published tables, here\n\n");
    if is_small {
        out.push_str("**Tried out at small sizes (`--small`): no figure here means anything.**\n\n");
    }
    if let Some(first) = seen.first() {
        let _ = writeln!(out, "{}.\n", measured_on(first.result));
    }
    out.push_str("| section | command | seen here | took |\n|---|---|---|---|\n");
    for one in seen {
        let Seen { part, result, .. } = one;
        let took = human_s(result.preamble.elapsed_ns as f64 / 1e9);
        let _ = writeln!(
            out,
            "| {} | `{}` | {} | {took} |",
            part.section,
            part.line(is_small),
            escaped(&in_words(one))
        );
    }
    for one in seen {
        let _ = writeln!(out, "\n## {}: `{}`", one.part.name, one.part.line(is_small));
        one.result.runs.iter().for_each(|run| run_table(run, &mut out));
        one.result.experiments.iter().for_each(|experiment| experiment_table(experiment, &mut out));
        answers(one, &mut out);
        for warning in &one.result.warnings {
            let _ = writeln!(out, "\n*{}*: {}.", warning.name, warning.text.trim_end_matches('.'));
        }
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The findings; without one, where the figures are.
fn in_words(seen: &Seen<'_>) -> String {
    let result = seen.result;
    let runs = result.runs.iter().filter_map(|run| run.finding.as_ref());
    let experiments = result.experiments.iter().filter_map(|experiment| experiment.finding.as_ref());
    let words: Vec<&str> = runs.chain(experiments).map(|finding| finding.sentence.as_str()).collect();
    match words.as_slice() {
        [] if !seen.claims.is_empty() => format!("{} claims: see below", seen.claims.len()),
        [] if !result.fallocate.is_empty() => {
            format!("{} file systems: see the JSON", result.fallocate.len())
        }
        [] => "see below".into(),
        words => words.join(" "),
    }
}

fn run_table(run: &Run, out: &mut String) {
    let _ = writeln!(
        out,
        "\n{}, on {}, {} rounds{}:\n\n| way | us per commit | whole file, s | speedup |\n|---|---|---|---|",
        run.title,
        run.place.name,
        run.rounds,
        run.state_words()
    );
    for cell in &run.cells {
        let _ = writeln!(out, "| {} | {} |", escaped(&cell.name), cell_figures(cell));
    }
}

fn cell_figures(cell: &CellResult) -> String {
    let measured = match &cell.outcome {
        Outcome::Measured(measured) => measured,
        Outcome::Invalid { reason } => return format!("{} | |", escaped(reason)),
        Outcome::NotRun => return "not run | |".into(),
    };
    let whole = cell.what.file_bytes / cell.what.write_bytes.max(1);
    // Only rounds that wrote the whole file have a time for it.
    let wrote_all = measured.rounds.iter().filter(|round| round.commits >= whole);
    let seconds: Vec<f64> = wrote_all.map(|round| round.total_ns as f64 / 1e9).collect();
    let each: Vec<String> = seconds.iter().map(|s| format!("{s:.2}")).collect();
    let commit = per_commit_ns(measured).map_or_else(|| "-".into(), |ns| format!("{:.1}", ns / 1000.0));
    let all = if each.is_empty() { "not written whole".into() } else { each.join(" / ") };
    format!("{commit} | {all} | {}", speedup(measured.relative.as_ref()))
}

fn speedup(relative: Option<&Relative>) -> String {
    relative.map_or_else(|| "1".into(), Relative::words)
}

fn experiment_table(found: &ExperimentResult, out: &mut String) {
    let against = found.baseline.as_deref().unwrap_or("nothing");
    let _ = writeln!(
        out,
        "\n{} ({} rounds):\n\n| row | {}, median | against {} |\n|---|---|---|",
        found.title,
        found.rounds,
        found.unit,
        escaped(against)
    );
    let figures = |row: &ExperimentRow| match &row.invalid {
        Some(reason) => format!("{} | ", escaped(reason)),
        None => {
            let value = median(&row.samples).map_or_else(|| "-".into(), |value| format!("{value:.0}"));
            format!("{value} | {}", speedup(row.relative.as_ref()))
        }
    };
    for row in &found.rows {
        let _ = writeln!(out, "| {} | {} |", escaped(&row.name), figures(row));
    }
    for note in &found.notes {
        let _ = writeln!(out, "\n{note}.");
    }
}

fn answers(seen: &Seen<'_>, out: &mut String) {
    if !seen.result.asked.is_empty() {
        out.push_str("\n| question | where | answer | seen |\n|---|---|---|---|\n");
    }
    for asked in &seen.result.asked {
        let why = asked.reason.as_deref().unwrap_or_default();
        let (question, answer) = (escaped(&asked.question), asked.answer.words());
        let seen = speedup(asked.relative.as_ref());
        let _ = writeln!(out, "| {question} | {} | {answer} {} | {seen} |", asked.place, escaped(why));
    }
    if !seen.claims.is_empty() {
        out.push_str("\n| claim | source | holds at | seen | answer |\n|---|---|---|---|---|\n");
    }
    for claim in &seen.claims {
        let found = claim.found.as_ref().map(|found| format!("{} ({})", figure(found), found.of));
        let found = found.unwrap_or_else(|| claim.reason.clone().unwrap_or_default());
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            escaped(&claim.statement),
            claim.source,
            claim.band,
            escaped(&found),
            claim.verdict.words()
        );
    }
}

#[cfg(test)]
mod tests {
    use inkstone_lab::precondition::Preconditioned;

    use super::*;

    #[test]
    fn states_of_the_device_are_told_apart() {
        let heading = |kind: &str| {
            let precondition = Some(Preconditioned { kind: kind.into(), bytes: vec![1 << 30] });
            let mut out = String::new();
            run_table(&Run { title: "Commits".into(), precondition, ..Run::default() }, &mut out);
            out
        };
        for kind in ["none", "fill", "trim"] {
            assert!(heading(kind).contains(&format!("; precondition {kind}: ")), "{}", heading(kind));
        }
        let mut out = String::new();
        run_table(&Run::default(), &mut out);
        assert!(!out.contains("precondition"), "{out}");
    }
}
