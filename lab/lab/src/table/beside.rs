//! The loads of a bench beside company: one part for each company, a line for each load.
//!
//! *Owns*: the parts, their columns and their legend. *May not touch*: figures.

use super::TableStyle;
use super::bench::{interval, name, per_s};
use super::grid::{Align, Column, Grid, Text};
use super::numbers::{NOTHING, sig3};
use super::text::{Tint, paragraph};
use crate::bench::company::Company;
use crate::bench::result::{BenchResult, BenchRow, Beside, Followed};
use crate::result::Histogram;

const LEGEND: &str = "of alone: the rate divided by that of the same load alone, in the same rounds: the median of the paired ratios, with \
                      its 95% interval.";
const FOLLOWED: &str = " seen: from before an append until a follower has the record. Each follower saw each record, once and in \
                        order; CPU us is the followers' processor time for each record that one of them saw.";

/// All parts.
pub(super) fn beside(result: &BenchResult, style: &TableStyle, out: &mut String) {
    let mut heads: Vec<(&str, u32)> = Vec::new();
    for beside in result.rows.iter().flat_map(|row| &row.beside) {
        let head = (beside.company.as_str(), beside.count);
        if !heads.contains(&head) {
            heads.push(head);
        }
    }
    for &(company, count) in &heads {
        out.push('\n');
        paragraph(out, style, "", &format!("Beside {}", words(company, count)), Tint::Strong);
        let is_part =
            |beside: &&Beside| (beside.company.as_str(), beside.count) == (company, count);
        let lines = result
            .rows
            .iter()
            .flat_map(|row| row.beside.iter().filter(is_part).map(move |b| (row, b)));
        part(&lines.collect::<Vec<_>>(), style, out);
    }
    if !heads.is_empty() {
        let is_followed = heads.iter().any(|(company, _)| *company != Company::Busy(1).kind());
        let legend = if is_followed { format!("{LEGEND}{FOLLOWED}") } else { LEGEND.to_owned() };
        paragraph(out, style, "  ", &legend, Tint::Dim);
    }
}

/// A company in words. A result of a newer version may have one that has no name here.
fn words(company: &str, count: u32) -> String {
    let known = [Company::Busy(count), Company::Followers(count), Company::Tail(count)];
    let found = known.into_iter().find(|known| known.kind() == company);
    found.map_or_else(|| format!("{company} {count}"), |company| company.to_string())
}

fn part(lines: &[(&BenchRow, &Beside)], style: &TableStyle, out: &mut String) {
    let mut grid = Grid::new(lines.len(), 2);
    let cells = |cell: &dyn Fn(&Beside) -> String| {
        lines.iter().map(|(_, beside)| Text::from(cell(beside))).collect::<Vec<_>>().into_iter()
    };
    let us = |latency: Option<&Histogram>, of: fn(&Histogram) -> u64| match latency {
        Some(latency) if latency.count > 0 => sig3(of(latency) as f64 / 1e3),
        _ => NOTHING.to_owned(),
    };
    let seen = |beside: &Beside, of: fn(&Histogram) -> u64| {
        us(beside.followed.as_ref().map(|followed| &followed.latency), of)
    };
    grid.push(Column::new("", Align::Left, 0, lines.iter().map(|(row, _)| Text::from(name(row)))));
    let rate = |beside: &Beside| {
        if beside.rounds.is_empty() { NOTHING.into() } else { sig3(per_s(&beside.rounds)) }
    };
    grid.push(Column::new("commits/s", Align::Right, 0, cells(&rate)));
    grid.push(Column::new(
        "of alone",
        Align::Left,
        0,
        cells(&|beside| interval(beside.ratio.as_ref())),
    ));
    let group = ["latency, us".to_owned(), "latency".to_owned()];
    let p50 = cells(&|beside| us(Some(&beside.latency), |latency| latency.p50_ns));
    grid.push(Column::new("p50", Align::Right, 1, p50).group(&group));
    let p99 = cells(&|beside| us(Some(&beside.latency), |latency| latency.p99_ns));
    grid.push(Column::new("p99", Align::Right, 2, p99).group(&group));
    if lines.iter().any(|(_, beside)| beside.followed.is_some()) {
        let group = ["seen, us".to_owned(), "seen".to_owned()];
        let p50 = cells(&|beside| seen(beside, |latency| latency.p50_ns));
        grid.push(Column::new("p50", Align::Right, 1, p50).group(&group));
        let p99 = cells(&|beside| seen(beside, |latency| latency.p99_ns));
        grid.push(Column::new("p99", Align::Right, 2, p99).group(&group));
        let cpu = |Followed { records, cpu_ns, .. }: &Followed| {
            sig3(*cpu_ns as f64 / 1e3 / (*records).max(1) as f64)
        };
        let cpu = cells(&|beside| beside.followed.as_ref().map_or_else(|| NOTHING.into(), cpu));
        grid.push(Column::new("CPU us", Align::Right, 3, cpu));
    }
    for (index, (row, beside)) in lines.iter().enumerate() {
        if let Some(reason) = &beside.failed {
            grid.span(index, &name(row), Text::new(Tint::Bad, reason));
        }
    }
    grid.render(style, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Round;
    use crate::table::render_bench;

    fn rounds(commits: u64) -> Vec<Round> {
        let round = |number| Round { number, commits, total_ns: 100_000_000, ..Round::default() };
        (0..5).map(round).collect()
    }

    fn result() -> BenchResult {
        let latency =
            |p50_ns, p99_ns| Histogram { count: 9, p50_ns, p99_ns, ..Histogram::default() };
        let beside = |company: Company, commits| Beside {
            company: company.kind().into(),
            count: company.count(),
            rounds: rounds(commits),
            latency: latency(700_000, 900_000),
            ratio: crate::stats::relative(&rounds(1000), &rounds(commits), 1),
            ..Beside::default()
        };
        let followed =
            Followed { records: 100, latency: latency(456_000, 789_000), cpu_ns: 321_000 };
        let followed = Beside { followed: Some(followed), ..beside(Company::Followers(4), 250) };
        let failed =
            Beside { failed: Some("it saw 3 records of 4".into()), ..beside(Company::Tail(1), 0) };
        let row = BenchRow {
            load: "1 thread".into(),
            threads: 1,
            record_bytes: 128,
            rounds: rounds(1000),
            beside: vec![beside(Company::Busy(2), 500), followed, failed],
            ..BenchRow::default()
        };
        BenchResult { rows: vec![row], ..BenchResult::default() }
    }

    /// The lines of the part with this head.
    fn part_of(text: &str, head: &str) -> Vec<String> {
        let from = text.lines().skip_while(|line| line.trim() != head).skip(1);
        from.take_while(|line| !line.trim().is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn each_company_has_a_part_of_its_own_with_the_ratio_to_the_load_alone() {
        let text = render_bench(&result(), &TableStyle { width: 120, ..TableStyle::default() });
        let has = |head: &str, words: &[&str]| {
            let part = part_of(&text, head);
            let rows: Vec<_> = part.iter().filter(|line| line.contains("1 thread, 128B")).collect();
            assert_eq!(rows.len(), 1, "{head}: {text}");
            words.iter().for_each(|word| assert!(rows[0].contains(word), "{head}, {word}: {text}"));
            part
        };
        let busy =
            has("Beside 2 processes that spin", &["5000", "0.50 [0.50..0.50]", "700", "900"]);
        assert!(!busy.iter().any(|line| line.contains("seen")), "{text}");
        let words = ["2500", "0.25 [0.25..0.25]", "456", "789", "3.21"];
        let followed = has("Beside 4 followers in the same process", &words);
        assert!(followed.iter().any(|line| line.contains("seen")), "{text}");
        has("Beside 1 other process that tails the log", &["it saw 3 records of 4"]);
        assert_eq!(
            text.lines().filter(|line| line.contains("1 thread, 128B")).count(),
            4,
            "{text}"
        );
        assert_eq!(text.matches("of alone: the rate").count(), 1, "{text}");
    }

    #[test]
    fn a_bench_without_company_has_no_such_part_and_a_narrow_one_fits() {
        let mut result = result();
        let narrow = render_bench(&result, &TableStyle { width: 60, ..TableStyle::default() });
        assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
        result.rows.iter_mut().for_each(|row| row.beside.clear());
        let text = render_bench(&result, &TableStyle::default());
        assert!(!text.contains("Beside") && !text.contains("of alone"), "{text}");
    }
}
