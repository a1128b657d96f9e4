//! Experiments whose rows are not commits of a cell: their rows with figures, knees marked.
//!
//! *Owns*: the columns, and in which order they are dropped if there is no room. *May not touch*:
//! figures.

use super::TableStyle;
use super::grid::{Align, Column, Grid, Text};
use super::numbers::{NOTHING, bytes, per, ratio, sig3};
use super::text::{Tint, paragraph};
use crate::experiment::{ExperimentResult, ExperimentRow, Figure, Unit, not_behind};
use crate::result::{FEW_ROUNDS, Histogram};
use crate::stats::{PAIRS_MIN, median};

/// One experiment: its heading, its table, its finding.
pub fn render_experiment(experiment: &ExperimentResult, style: &TableStyle) -> String {
    let mut out = String::new();
    let title = if experiment.title.is_empty() { &experiment.name } else { &experiment.title };
    paragraph(&mut out, style, "", title, Tint::Strong);
    super::place_lines(&experiment.place, style, &mut out);
    let ExperimentResult { rounds, seed, .. } = experiment;
    let rounds = if *rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") };
    let text = format!("{rounds}, rows in random order, seed {seed}");
    paragraph(&mut out, style, "  ", &text, Tint::Dim);
    if experiment.rows.is_empty() {
        paragraph(&mut out, style, "  ", "Nothing was measured.", Tint::Plain);
    } else {
        rows(experiment, style, &mut out);
    }
    for note in &experiment.notes {
        paragraph(&mut out, style, "  ", note, Tint::Dim);
    }
    if let Some(finding) = &experiment.finding {
        super::finding::finding(finding, style, &mut out);
    } else {
        out.push('\n');
    }
    out
}

fn rows(experiment: &ExperimentResult, style: &TableStyle, out: &mut String) {
    let all = &experiment.rows;
    let mut grid = Grid::new(all.len(), 2);
    let cells = |cell: &dyn Fn(&ExperimentRow) -> Text| {
        all.iter().map(cell).collect::<Vec<_>>().into_iter()
    };
    grid.push(Column::new("", Align::Left, 0, cells(&|row| row.name.as_str().into())));
    let (in_bytes, less) = (experiment.unit.is_bytes(), experiment.unit.is_time());
    let value = cells(&|row| match median(&row.samples) {
        Some(value) if less => sig3(value / 1e3).into(),
        Some(value) if in_bytes => format!("{}B", bytes(value)).into(),
        Some(value) => sig3(value).into(),
        None => NOTHING.into(),
    });
    let head = match experiment.unit {
        Unit::TailNs => "p99.9 of a write, us",
        Unit::BytesPerS => "per s",
        unit => unit.name(),
    };
    grid.push(Column::new(head, Align::Right, 0, value));
    let medians = all.iter().filter_map(|row| median(&row.samples));
    let best =
        if less { medians.fold(f64::INFINITY, f64::min) } else { medians.fold(0.0, f64::max) };
    let best = all
        .iter()
        .find(|row| best > 0.0 && row.invalid.is_none() && median(&row.samples) == Some(best));
    // A row that cannot be told from another is not the best.
    let best = best
        .filter(|row| not_behind(experiment, row, None).is_empty())
        .map(|row| row.name.as_str());
    let mark = cells(&|row| mark(experiment, row, best == Some(&row.name)));
    grid.push(Column::new("", Align::Left, 1, mark));
    let relative = cells(&|row| beside(experiment, row));
    let short = cells(&|row| {
        row.relative
            .as_ref()
            .map_or_else(|| beside(experiment, row), |relative| ratio(relative.speedup).into())
    });
    let short = Column::new("rel.", Align::Left, 1, short);
    grid.push(Column::new("relative", Align::Left, 2, relative).instead(short));
    latency(&mut grid, all);
    figures(&mut grid, all);
    for (index, row) in all.iter().enumerate() {
        if let Some(reason) = &row.invalid {
            grid.span(index, &row.name, Text::new(Tint::Bad, reason));
        }
    }
    let dropped = grid.render(style, out);
    if let Some(base) = &experiment.baseline {
        let mut text = relative_words(all, base);
        if !experiment.knees.is_empty() {
            text.push_str(" knee: no later row of its curve is measurably better.");
        }
        let dropped: Vec<&str> =
            dropped.iter().map(String::as_str).filter(|head| !head.is_empty()).collect();
        if !dropped.is_empty() {
            text.push_str(&format!(
                " Columns that did not fit: {} (they are in --json).",
                dropped.join(", ")
            ));
        }
        paragraph(out, style, "  ", &text, Tint::Dim);
    }
}

/// Explains the relative figures; it mentions intervals only if at least one row has one.
fn relative_words(rows: &[ExperimentRow], base: &str) -> String {
    let relatives = || rows.iter().filter_map(|row| row.relative.as_ref());
    let some = relatives().any(|relative| relative.interval().is_some());
    let few = relatives().any(|relative| relative.interval().is_none());
    let mut text = format!("relative: compared with `{base}`, paired by round");
    text.push_str(if some { ", with the 95% interval." } else { "." });
    if few {
        text.push_str(&format!(" few rounds: {FEW_ROUNDS} ({PAIRS_MIN} make one)."));
    }
    text
}

/// `knee`, `best`.
fn mark(experiment: &ExperimentResult, row: &ExperimentRow, is_best: bool) -> Text {
    let is_knee = experiment.knees.iter().any(|(name, x)| *name == row.series && Some(*x) == row.x);
    match (is_knee, is_best) {
        (true, true) => Text::new(Tint::Good, "knee, best"),
        (true, false) => Text::new(Tint::Strong, "knee"),
        (false, true) => Text::new(Tint::Good, "best"),
        (false, false) => Text::default(),
    }
}

fn beside(experiment: &ExperimentResult, row: &ExperimentRow) -> Text {
    match &row.relative {
        Some(relative) => {
            let tint = if relative.interval().is_some() { Tint::Plain } else { Tint::Dim };
            Text::new(tint, &relative.column(ratio))
        }
        None if experiment.baseline.as_ref() == Some(&row.name) => Text::new(Tint::Dim, "1"),
        None => NOTHING.into(),
    }
}

fn latency(grid: &mut Grid, all: &[ExperimentRow]) {
    type Quantile = fn(&Histogram) -> u64;
    let columns: [(&str, u32, Quantile); 3] =
        [("p50", 3, |l| l.p50_ns), ("p99", 6, |l| l.p99_ns), ("p99.9", 4, |l| l.p999_ns)];
    let group = ["latency, us".to_owned(), "us".to_owned()];
    for (head, rank, quantile) in columns {
        let cell = |row: &ExperimentRow| match &row.latency {
            Some(latency) if latency.count > 0 => Text::from(sig3(quantile(latency) as f64 / 1e3)),
            _ => Text::default(),
        };
        let cells: Vec<Text> = all.iter().map(cell).collect();
        grid.push(Column::new(head, Align::Right, rank, cells.into_iter()).group(&group));
    }
}

/// A column for each name, in order of first appearance; the first stay longest.
fn figures(grid: &mut Grid, all: &[ExperimentRow]) {
    let mut known: Vec<(&str, Unit)> = Vec::new();
    for Figure { name, unit, .. } in all.iter().flat_map(|row| &row.figures) {
        if !known.iter().any(|(other, _)| other == name) {
            known.push((name, *unit));
        }
    }
    for (index, (name, unit)) in known.into_iter().enumerate() {
        let cell = |row: &ExperimentRow| {
            let figure = row.figures.iter().find(|figure| figure.name == name);
            figure.map_or_else(Text::default, |figure| shown(figure).into())
        };
        let cells: Vec<Text> = all.iter().map(cell).collect();
        let head = head_of(name, unit);
        grid.push(Column::new(&head, Align::Right, 5 + index as u32, cells.into_iter()));
    }
}

/// Times in microseconds, as everywhere in tables.
fn head_of(name: &str, unit: Unit) -> String {
    match unit {
        Unit::Percent => format!("{name} %"),
        unit if unit.is_time() => format!("{name}, us"),
        _ => name.to_owned(),
    }
}

fn shown(figure: &Figure) -> String {
    match figure.unit {
        Unit::Percent => format!("{:.0}", figure.value),
        unit if unit.is_time() => sig3(figure.value / 1e3),
        unit if unit.is_bytes() => bytes(figure.value),
        unit if unit.is_per() => per(figure.value),
        _ => sig3(figure.value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Place, Relative, Verdict};

    fn experiment() -> ExperimentResult {
        let row = |name: &str, x: f64, per_s: f64| ExperimentRow {
            name: name.into(),
            series: "pool".into(),
            x: Some(x),
            samples: vec![per_s; 5],
            relative: (x > 2.0).then(|| {
                let interval = (per_s / 31_000.0, per_s / 29_000.0);
                Relative::with_interval(per_s / 30_000.0, interval, Verdict::Faster)
            }),
            figures: vec![
                Figure { name: "context switches".into(), unit: Unit::PerOp, value: 2.345 },
                Figure { name: "system time".into(), unit: Unit::NsPerOp, value: 12_345.0 },
            ],
            ..ExperimentRow::default()
        };
        ExperimentResult {
            name: "pool".into(),
            title: "A pool of threads".into(),
            place: Place { file_system: "ext4".into(), ..Place::default() },
            x_name: Some("threads".into()),
            unit: Unit::OperationsPerS,
            baseline: Some("pool, 2 threads".into()),
            rounds: 5,
            rows: vec![
                row("pool, 2 threads", 2.0, 30_000.0),
                row("pool, 8 threads", 8.0, 60_000.0),
                ExperimentRow {
                    name: "io_uring".into(),
                    invalid: Some("this kernel has none".into()),
                    ..ExperimentRow::default()
                },
            ],
            knees: vec![("pool".into(), 8.0)],
            ..ExperimentResult::default()
        }
    }

    #[test]
    fn rows_knees_figures_and_reasons_stand_in_their_place() {
        let text = render_experiment(&experiment(), &TableStyle::default());
        let line = |name: &str| {
            text.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned()
        };
        for word in ["60,000", "knee, best", "2.00 [1.94..2.07]", "2.35", "12.3"] {
            assert!(line("pool, 8 threads").contains(word), "{word}: {text}");
        }
        assert!(!line("pool, 2 threads").contains("knee"), "{text}");
        assert!(line("io_uring").contains("this kernel has none"), "{text}");
    }

    /// The table and the sentence below it agree, for any number of rounds.
    #[test]
    fn an_interval_stands_only_where_rounds_make_one() {
        let said = |rounds: usize| {
            let round = |number: usize| crate::result::Round {
                number: number as u32,
                commits: 100,
                total_ns: 1_000_000 + number as u64,
                ..crate::result::Round::default()
            };
            let all: Vec<_> = (0..rounds).map(round).collect();
            let mut experiment = experiment();
            experiment.rounds = rounds as u32;
            experiment.rows[1].relative = crate::stats::relative(&all, &all, 1);
            let text = render_experiment(&experiment, &TableStyle::default());
            let row =
                text.lines().find(|line| line.contains("pool, 8 threads")).unwrap_or_default();
            let words = crate::experiment::compared_words(experiment.rows[1].relative.as_ref());
            (
                row.contains('['),
                text.contains("95%"),
                words.contains("95%"),
                text.contains("few rounds"),
            )
        };
        for rounds in [1, 2, 4] {
            assert_eq!(said(rounds), (false, false, false, true), "{rounds}");
        }
        assert_eq!(said(PAIRS_MIN), (true, true, true, false));
    }

    #[test]
    fn nothing_is_called_best_that_ties_or_has_no_interval() {
        let is_best = |change: &dyn Fn(&mut ExperimentResult)| {
            let mut experiment = experiment();
            change(&mut experiment);
            render_experiment(&experiment, &TableStyle::default()).contains("best")
        };
        assert!(is_best(&|_| {}));
        assert!(!is_best(&|experiment| experiment.rows[1].samples = vec![30_100.0; 5]));
        assert!(!is_best(&|experiment| experiment
            .rows
            .iter_mut()
            .for_each(|row| row.samples.truncate(2))));
    }

    #[test]
    fn nothing_overflows_and_what_has_no_room_is_named() {
        for width in [40, 60, 80, 120] {
            let style = TableStyle { width, ..TableStyle::default() };
            let text = render_experiment(&experiment(), &style);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            assert!(text.contains("60,000"), "{width}: {text}");
        }
        let narrow =
            render_experiment(&experiment(), &TableStyle { width: 60, ..TableStyle::default() });
        let said = narrow.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("Columns that did not fit: context switches, system time"),
            "{narrow}"
        );
    }

    #[test]
    fn an_empty_experiment_says_so() {
        let text = render_experiment(&ExperimentResult::default(), &TableStyle::default());
        assert!(text.contains("Nothing was measured."), "{text}");
    }
}
