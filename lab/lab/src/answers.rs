//! Answers to statements of articles and threads, from the tables of a result.
//!
//! *Owns*: the answers. *May not touch*: measuring, what a statement asks
//! (`crate::experiment::statement`).
//!
//! One rule applies to all: an interval inside the statement's band confirms it, one outside
//! refutes it, and one across an end cannot tell. The statements of one experiment share a level:
//! all their intervals hold at once in 95 of 100 runs (Bonferroni). With fewer than
//! [`ROUNDS_TO_JUDGE`] rounds, and where the lab doubts what a run means or other programs used the
//! machine meanwhile, a statement about time has its figure and no verdict. The interval of a count
//! is what several passes counted, and what of it is not known; a pass of fewer than
//! [`COMMITS_TO_COUNT`] counts nothing. Without a figure the answer is *not run*, with the reason.

use crate::bar::unknown_writes;
use crate::experiment::statement::{Asks, Counted, Row, Statement};
use crate::result::{Answer, Bill, Found, Judged, Kind, LabResult, Round, Table, Way};
use crate::run::COMMITS_TO_COUNT;
use crate::stats::{ROUNDS_TO_JUDGE, relative_of_several};
use crate::warnings::forbidding;

/// The answers from this result. Each names the file system of its figure.
pub(crate) fn answers(statements: &[&Statement], result: &LabResult) -> Vec<Answer> {
    statements.iter().map(|statement| answer(statement, statements, result)).collect()
}

fn answer(statement: &Statement, all: &[&Statement], result: &LabResult) -> Answer {
    let alike = all.iter().filter(|other| other.experiment == statement.experiment);
    let questions = alike.map(|other| match &other.asks {
        Asks::Faster { slow, .. } => slow.len(),
        _ => 0,
    });
    let evidence = Evidence { result, place: statement.place, questions: questions.sum() };
    let (verdict, found, reason) = match evidence.find(&statement.asks) {
        Ok((found, None)) => (statement.band.verdict(found.low, found.high), Some(found), None),
        Ok((found, why)) => (Judged::CannotTell, Some(found), why),
        Err(why) => (Judged::NotRun, None, Some(why)),
    };
    Answer {
        id: statement.id.into(),
        statement: statement.says.into(),
        source: statement.source.clone(),
        link: statement.link.clone(),
        band: statement.band.words(),
        verdict,
        found,
        reason,
    }
}

/// The tables, in the place that a statement is about.
struct Evidence<'a> {
    result: &'a LabResult,
    place: Option<&'static str>,
    /// Comparisons that share a level.
    questions: usize,
}

/// A figure, and why it allows no verdict.
type Told = (Found, Option<String>);

impl<'a> Evidence<'a> {
    fn find(&self, asks: &Asks) -> Result<Told, String> {
        match asks {
            Asks::Faster { table, fast, slow } => self.faster(table, *fast, slow),
            Asks::Count { table, row, beside, what } => {
                let of_row = |row: &Row| count(self.table(table, row.place)?, row.name, *what);
                let found = of_row(row)?;
                let Some(other) = beside else { return Ok((found, None)) };
                let less = of_row(other)?;
                if less.low <= 0.0 {
                    return Err(format!("the count is 0: {}", words(*other)));
                }
                let said = |found: &Found| format!("{:.1} {}", found.value, found.unit);
                let value = found.value / less.value;
                let (low, high) = (found.low / less.high, found.high / less.low);
                let of = format!("{}, {}: {}", words(*row), words(*other), said(&less));
                Ok((Found { value, low, high, unit: "times".into(), of, ..found }, None))
            }
            Asks::Figure { table, row, figure } => {
                let table = self.table(table, None)?;
                let way = measured(table, row)?;
                let value = way.figure(figure);
                let value = value.ok_or_else(|| format!("`{row}` has no figure {figure}"))?;
                Ok((exactly(value, figure, (*row).into(), table), None))
            }
            Asks::Elsewhere(why) => Err((*why).into()),
        }
    }

    /// The table of this name in this place; without one in the statement's; without that in the
    /// directory.
    fn table(&self, name: &str, place: Option<&str>) -> Result<&'a Table, String> {
        let place = place.or(self.place);
        let is_there = |table: &&Table| match place {
            Some(place) => table.place.name == place,
            None => !table.place.name.contains(" loop"),
        };
        let mut named = self.result.tables.iter().filter(|table| table.name == name);
        named.find(is_there).ok_or_else(|| match place {
            Some(place) if !self.result.machine.root => {
                format!("needs root: it makes a file system ({place})")
            }
            _ => format!("its table ({name}) was not measured"),
        })
    }

    /// Against the nearest of several slow ways: if the fast way beats that one, it beats all.
    fn faster(&self, name: &str, fast: Row, slow: &[Row]) -> Result<Told, String> {
        let table = self.table(name, fast.place)?;
        let judged = measured(table, fast.name)?;
        let mut nearest: Option<Told> = None;
        let mut why = String::new();
        for &row in slow {
            let mut of = format!("{} / {}", words(fast), words(row));
            if slow.len() > 1 {
                of.push_str(&format!(", the nearest of {}", slow.len()));
            }
            let told = self.table(name, row.place).and_then(|beside| {
                let base = measured(beside, row.name)?;
                let (found, few) = self.ratio(&base.rounds, &judged.rounds, beside, of)?;
                Ok((found, few.or_else(|| self.doubt(beside))))
            });
            // A way that the file system does not support is left out, as long as another remains.
            match told {
                Ok(told) if nearest.as_ref().is_none_or(|known| told.0.low < known.0.low) => {
                    nearest = Some(told);
                }
                Ok(_) => {}
                Err(reason) => why = reason,
            }
        }
        let (found, few) = nearest.ok_or(why)?;
        Ok((found, few.or_else(|| self.doubt(table))))
    }

    fn ratio(
        &self,
        slow: &[Round],
        fast: &[Round],
        table: &Table,
        of: String,
    ) -> Result<Told, String> {
        let found = relative_of_several(slow, fast, self.questions);
        let found = found.ok_or("no rounds of the two can be paired")?;
        let rounds = slow.len().min(fast.len());
        let few = (rounds < ROUNDS_TO_JUDGE).then(|| {
            let plural = if rounds == 1 { "" } else { "s" };
            format!("{rounds} round{plural}: a figure and no verdict ({ROUNDS_TO_JUDGE} make one)")
        });
        let value = found.speedup;
        let (low, high) = found.interval().unwrap_or((value, value));
        let exact = exactly(value, "times", of, table);
        Ok((Found { low, high, ..exact }, few))
    }

    /// What forbids a verdict about time: a figure of time is no better than the minute in which it
    /// was measured.
    fn doubt(&self, table: &Table) -> Option<String> {
        if !table.random_order {
            return Some("the ways always ran in the same order".into());
        }
        let warning = forbidding(table, &self.result.warnings)?;
        Some(format!("the lab warns about the run ({}: {})", warning.name, warning.text))
    }
}

fn exactly(value: f64, unit: &str, of: String, table: &Table) -> Found {
    let place = match table.place.name.as_str() {
        "" | "." => table.place.file_system.clone(),
        name => format!("{} ({name})", table.place.file_system),
    };
    Found { value, low: value, high: value, unit: unit.into(), of, place }
}

/// Its name, with its place if that is not the statement's.
fn words(row: Row) -> String {
    row.place.map_or_else(|| row.name.into(), |place| format!("{} ({place})", row.name))
}

/// A measured way of this name, or why there is none.
fn measured<'a>(table: &'a Table, name: &str) -> Result<&'a Way, String> {
    let way = table.way(name).ok_or_else(|| format!("`{name}` did not run"))?;
    way.missing.as_ref().map_or(Ok(way), |reason| Err(format!("`{name}`: {reason}")))
}

fn count(table: &Table, row: &str, what: Counted) -> Result<Found, String> {
    let way = measured(table, row)?;
    let unit = format!("{what} a commit");
    if what == Counted::Faults {
        let faults = way.figure("page faults");
        return Ok(exactly(faults.ok_or("no page faults were counted")?, &unit, row.into(), table));
    }
    if table.place.device.is_none() {
        return Err("there is no block device below, so nothing can be counted".into());
    }
    if let Some(why) = &way.no_bill {
        return Err(format!("`{row}` has no bill: {why}"));
    }
    let bill = way
        .bill
        .as_ref()
        .ok_or("needs root and a whole run: only a trace shows whose requests they are")?;
    let passes = [bill].into_iter().chain(&way.recounts);
    let counts = passes.map(|bill| counted(table, bill, what));
    let counts = counts.collect::<Result<Vec<(f64, f64)>, String>>()?;
    let low = counts.iter().map(|(low, _)| *low).fold(f64::INFINITY, f64::min);
    let high = counts.iter().map(|(_, high)| *high).fold(0.0, f64::max);
    let value = counts.iter().map(|(low, _)| low).sum::<f64>() / counts.len() as f64;
    Ok(Found { low, high, ..exactly(value, &unit, row.into(), table) })
}

/// What is this way's, and what may be.
fn counted(table: &Table, bill: &Bill, what: Counted) -> Result<(f64, f64), String> {
    if bill.lost_events > 0 {
        return Err(format!("the kernel dropped {} events of the trace", bill.lost_events));
    }
    if bill.commits < COMMITS_TO_COUNT {
        let Bill { commits, .. } = bill;
        return Err(format!(
            "its bill is of {commits} commits, and of fewer than {COMMITS_TO_COUNT} the first ones \
             may decide: give it more --time"
        ));
    }
    let has_cache = table.place.write_cache.as_deref() == Some("write back");
    if what == Counted::OwnFlushes && !has_cache {
        return Err("the device reports no volatile cache: there is nothing to flush".into());
    }
    let own = || {
        let flushes = bill.submitters.iter().filter(|one| one.what == Kind::Flush);
        flushes.filter(|one| one.who == "this process").map(|one| one.tally.requests).sum::<u64>()
    };
    let unknown = bill.of(&[Kind::UnattributedWrite]);
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    let (known, more) = match what {
        Counted::Faults => return Err("page faults are not in a bill".into()),
        Counted::OwnFlushes => (own() as f64, 0.0),
        Counted::Reads => (bill.count(Kind::DataRead) as f64, 0.0),
        Counted::Data => (bill.count(Kind::DataWrite) as f64, 0.0),
        Counted::Metadata => {
            let known = bill.of(&[Kind::JournalWrite, Kind::MetadataWrite]).requests;
            (known as f64, unknown_writes(bill) as f64)
        }
        Counted::JournalWrites => (bill.count(Kind::JournalWrite) as f64, 0.0),
        Counted::JournalKib => (kib(bill.of(&[Kind::JournalWrite]).bytes), 0.0),
        Counted::WrittenKib => {
            let known = bill.of(&[Kind::DataWrite, Kind::JournalWrite, Kind::MetadataWrite]);
            (kib(known.bytes), kib(unknown.bytes))
        }
    };
    let per = |total: f64| total / bill.commits as f64;
    Ok((per(known), per(known + more)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::statement::statements;
    use crate::finding::tests::{run, way};
    use crate::result::{DurableFinding, Tally, Warning};
    use crate::table::samples;

    fn of(id: &str) -> &'static Statement {
        statements().iter().find(|one| one.id == id).expect("a statement")
    }

    /// A table of these rows with these times; every third round of the last is off by `noise`.
    fn table(name: &str, rows: &[(&str, f64)], noise: f64) -> Table {
        let seen = || DurableFinding::Seen { commits: 10 };
        let mut table = run(rows.iter().map(|(row, us)| way(row, *us, seen())).collect());
        for round in table.ways.last_mut().into_iter().flat_map(|way| &mut way.rounds) {
            if round.number.is_multiple_of(3) {
                round.total_ns = (round.total_ns as f64 * noise) as u64;
            }
        }
        table.name = name.into();
        table
    }

    fn told(id: &str, tables: Vec<Table>) -> Answer {
        let mut result = LabResult { tables, ..LabResult::default() };
        result.machine.root = true;
        answer(of(id), &[of(id)], &result)
    }

    fn pair(times: f64) -> Vec<Table> {
        vec![table("e1", &[("new fdatasync", 100.0 * times), ("reuse fdatasync", 100.0)], 1.0)]
    }

    #[test]
    fn a_ratio_is_judged_by_its_interval_and_by_enough_rounds() {
        let id = "overwrite-twice";
        assert_eq!(told(id, pair(2.0)).verdict, Judged::Confirmed);
        assert_eq!(told(id, pair(1.1)).verdict, Judged::Refuted);
        assert_eq!(told(id, pair(5.0)).verdict, Judged::Refuted);
        let mut noisy = pair(1.5);
        noisy[0] = table("e1", &[("new fdatasync", 150.0), ("reuse fdatasync", 100.0)], 3.0);
        assert_eq!(told(id, noisy).verdict, Judged::CannotTell);
        let none = told(id, Vec::new());
        assert_eq!((none.verdict, none.found), (Judged::NotRun, None));
        // With fewer rounds there is a figure and no verdict.
        let mut few = pair(2.0);
        few[0].ways.iter_mut().for_each(|way| way.rounds.truncate(ROUNDS_TO_JUDGE - 1));
        let few = told(id, few);
        assert!(few.verdict == Judged::CannotTell && few.found.is_some(), "{few:?}");
        assert!(few.reason.is_some_and(|why| why.starts_with("11 rounds: a figure")));
    }

    /// `uring-behind-calls` was refuted beside a busy machine and confirmed ten minutes later.
    #[test]
    fn beside_noticed_load_and_in_a_fixed_order_no_time_is_judged() {
        let said = |name: &str, random: bool| {
            let mut tables = pair(2.0);
            tables[0].random_order = random;
            let warning = Warning { name: name.into(), text: "so".into(), cure: "".into() };
            let result = LabResult { tables, warnings: vec![warning], ..LabResult::default() };
            let statement = of("overwrite-twice");
            answer(statement, &[statement], &result)
        };
        for name in ["cpu-busy", "device-busy", "memory"] {
            let told = said(name, true);
            assert!(told.verdict == Judged::CannotTell && told.found.is_some(), "{told:?}");
        }
        assert_eq!(said("swept", true).verdict, Judged::Confirmed, "it says nothing of figures");
        assert_eq!(said("swept", false).verdict, Judged::CannotTell, "a fixed order");
    }

    #[test]
    fn statements_of_one_experiment_share_a_level() {
        let rows = [("new fdatasync", 160.0), ("reuse fdatasync", 100.0)];
        let tables = vec![table("e1", &rows, 1.05)];
        let result = LabResult { tables, ..LabResult::default() };
        let width = |all: &[&Statement]| {
            let found = answer(of("overwrite-twice"), all, &result).found.expect("a figure");
            found.high - found.low
        };
        let alike: Vec<&Statement> =
            statements().iter().filter(|one| one.experiment == "e1").collect();
        let alone = width(&[of("overwrite-twice")]);
        assert!(width(&alike) > alone, "{} {alone}", width(&alike));
    }

    #[test]
    fn of_several_forms_the_nearest_decides() {
        let rows = [
            ("fallocate fdatasync", 200.0),
            ("keep-size fdatasync", 100.5),
            ("zero-range fdatasync", 150.0),
            ("reuse fdatasync", 100.0),
        ];
        let near = told("fallocate-below-reuse", vec![table("e1", &rows, 1.0)]);
        assert_eq!(near.verdict, Judged::Refuted, "one of them ties with it: {near:?}");
        let of = near.found.expect("a figure").of;
        assert!(of.contains("keep-size fdatasync, the nearest of 3"), "{of}");
    }

    /// On btrfs "confirmed" was printed from an ext4 image, without saying so.
    #[test]
    fn an_answer_names_the_file_system_of_its_figure_and_no_other_one_answers() {
        let id = "zero-range-syncs";
        let mut tables =
            vec![table("e2", &[("new fsync", 200.0), ("zero-range fsync", 100.0)], 1.0)];
        assert_eq!(told(id, tables.clone()).verdict, Judged::NotRun, "it was measured elsewhere");
        tables[0].place.name = "ext4, buffered loop".into();
        let told = told(id, tables);
        let place = told.found.expect("a figure").place;
        assert_eq!((told.verdict, &*place), (Judged::Confirmed, "ext4 (ext4, buffered loop)"));
    }

    /// A commit of this row that writes so much metadata, and what the kernel wrote for somebody.
    fn billed(metadata: u64, unknown: u64) -> Table {
        let mut table = table("e3", &[("fallocate fdatasync", 100.0)], 1.0);
        table.place.write_cache = Some("write back".into());
        let mut bill = samples::traced(0, 1);
        let each = |count: u64| Tally { requests: count * 2048, bytes: count * 2048 * 4096 };
        let requests = &mut bill.requests;
        requests.insert(Kind::MetadataWrite, each(metadata));
        requests.insert(Kind::UnattributedWrite, each(unknown));
        table.ways[0].bill = Some(bill);
        table
    }

    /// The inode's write comes from a kworker: `other 0.00` was unknown, not 0.
    #[test]
    fn what_is_not_known_is_in_the_interval_of_a_count() {
        let verdict = |table| told("fallocate-only-data", vec![table]).verdict;
        assert_eq!(verdict(billed(0, 0)), Judged::Confirmed);
        assert_eq!(verdict(billed(1, 0)), Judged::Refuted);
        assert_eq!(verdict(billed(0, 1)), Judged::CannotTell, "unknown is not 0");
        let mut barred = billed(0, 0);
        barred.ways[0].no_bill = Some("no flush".into());
        assert_eq!(verdict(barred), Judged::NotRun);
        // `--time 3s`: bills of a commit each, and "refuted: 2 journal writes a commit" for one in
        // eight.
        let mut short = billed(0, 0);
        short.ways[0].bill.as_mut().expect("a bill").commits = COMMITS_TO_COUNT - 1;
        assert_eq!(verdict(short), Judged::NotRun);
    }

    /// 1.10, 1.07, 1.20 at an edge of 1.1, without an interval.
    #[test]
    fn a_count_has_the_interval_of_its_passes() {
        let row = "zero-range fsync second-pass";
        let place = |name: &str, kib: [u64; 3]| {
            let mut table = table("e2", &[(row, 100.0)], 1.0);
            table.place.name = name.into();
            let mut bills = kib.map(|kib| {
                let mut bill = samples::traced(0, 1);
                let bytes = bill.commits * kib * 1024;
                bill.requests = [(Kind::DataWrite, Tally { requests: 1, bytes })].into();
                bill
            });
            table.ways[0].recounts = bills[1..].to_vec();
            table.ways[0].bill = Some(bills[0].clone());
            bills[0].commits = 0;
            table
        };
        let said = |with| {
            let without = place("ext4-nojournal, buffered loop", [100; 3]);
            told("journal-amplifies-overwrites", vec![place("ext4, buffered loop", with), without])
        };
        assert_eq!(said([110, 107, 120]).verdict, Judged::CannotTell);
        assert_eq!(said([200, 207, 220]).verdict, Judged::Confirmed);
        assert_eq!(said([100, 101, 102]).verdict, Judged::Refuted);
    }

    #[test]
    fn what_everybody_shares_is_not_counted_for_ours() {
        let mut table = table("e6", &[("reuse direct no-sync", 100.0)], 1.0);
        table.place.write_cache = Some("write back".into());
        table.ways[0].bill = Some(samples::traced(0, 1));
        let said = |table: &Table| told("direct-not-durable", vec![table.clone()]);
        assert_eq!(said(&table).verdict, Judged::Confirmed, "flushes of others are none of ours");
        table.place.write_cache = Some("write through".into());
        assert!(said(&table).reason.is_some_and(|why| why.contains("no volatile cache")));
        table.place.write_cache = Some("write back".into());
        table.ways[0].bill.as_mut().expect("a bill").lost_events = 3;
        assert!(said(&table).reason.is_some_and(|why| why.contains("dropped 3")));
        table.ways[0].bill = None;
        assert!(said(&table).reason.is_some_and(|why| why.starts_with("needs root")));
        table.place.device = None;
        assert!(said(&table).reason.is_some_and(|why| why.starts_with("there is no block")));
    }
}
