//! Every claim gives each answer for figures made to give it; none is a constant, none lacks a
//! source.

use super::evidence::{Evidence, cells};
use super::*;
use crate::cell::Cell;
use crate::experiment::statement::{Band, By, Counted, Ground};
use crate::experiment::{ExperimentResult, ExperimentRow, Unit};
use crate::finding::tests::{cell as made, run};
use crate::result::{
    Bill, BillSource, DurableFinding, FallocateAtlas, FallocateCell, FileFacts, LayerBill, Outcome,
    Place, Run, Submitter, Tally, Warning,
};

const COMMITS: u64 = 1_000;

/// A run in which each of these cells takes this long; every third round is off by `noise`.
fn timed(cells: &[(Cell, f64)], noise: f64) -> Run {
    let seen = || DurableFinding::Seen { commits: 10 };
    let one = |&(cell, us): &(Cell, f64)| {
        let mut made = made("new fsync", us, seen());
        made.name = cell.name();
        if let Outcome::Measured(measured) = &mut made.outcome {
            for round in &mut measured.rounds {
                let factor = if round.number.is_multiple_of(3) { noise } else { 1.0 };
                round.total_ns = (us * 100_000.0 * factor) as u64;
            }
        }
        made
    };
    run(cells.iter().map(one).collect())
}

/// The same with this count of everything in every commit.
fn counted(cell: Cell, per_commit: f64, what: Counted) -> Run {
    let mut run = timed(&[(cell, 100.0)], 1.0);
    run.place = Place { write_cache: Some("write back".into()), ..run.place };
    let requests = (per_commit * COMMITS as f64).round() as u64;
    let tally = Tally { requests, bytes: requests * 1024 };
    let mut layer = LayerBill::default();
    match what {
        Counted::Faults | Counted::Punts => {}
        Counted::OwnFlushes => layer.submitters.push(Submitter {
            who: "this process".into(),
            what: "flush".into(),
            tally,
        }),
        Counted::Reads => layer.data_reads = tally,
        Counted::Metadata => layer.metadata_writes = tally,
        Counted::JournalWrites | Counted::JournalKib => layer.journal_writes = tally,
        Counted::WrittenKib => layer.data_writes = tally,
    }
    // What others send is not ours.
    layer.flushes = 1_000;
    if let Outcome::Measured(measured) = &mut run.cells[0].outcome {
        measured.faults_per_write = Some((per_commit, 0.0));
        measured.bill = Some(Bill {
            source: BillSource::Trace,
            commits: COMMITS,
            layers: vec![layer],
            lost_events: 0,
            uring_punts: Some(requests),
            timeline: Vec::new(),
            notes: Vec::new(),
        });
    }
    run
}

fn experiment(name: &str, rows: &[(&str, f64)], noise: f64) -> ExperimentResult {
    let samples = |per_s: f64| {
        let one = |round: u32| if round.is_multiple_of(3) { per_s / noise } else { per_s };
        (0..10).map(one).collect()
    };
    let row = |&(name, per_s): &(&str, f64)| ExperimentRow {
        name: name.into(),
        samples: samples(per_s),
        ..ExperimentRow::default()
    };
    ExperimentResult {
        name: name.into(),
        rows: rows.iter().map(row).collect(),
        ..ExperimentResult::default()
    }
}

fn atlas(mode: &str, len_bytes: u64, added: u64) -> FallocateAtlas {
    let facts = |blocks| FileFacts { blocks, ..FileFacts::default() };
    let cell = FallocateCell {
        mode: mode.into(),
        offset_bytes: 0,
        len_bytes,
        answer: "ok".into(),
        done: true,
        before: facts(16),
        after: facts(16 + added),
    };
    FallocateAtlas { cells: vec![cell], ..FallocateAtlas::default() }
}

/// The answer to a claim when its figure is `value`; with noise in one of the two that are
/// compared.
fn figured(claim: &Statement, value: f64, noise: f64) -> Answer {
    let empty = empty_of();
    let on = |ground: Ground, run: &Run| match ground {
        Ground::Here => told(claim, &Evidence { here: Ok(run), ..empty_of() }),
        Ground::Journal => told(claim, &Evidence { journal: Ok(run), ..empty_of() }),
        Ground::Article1Journal | Ground::Article1NoJournal => {
            told(claim, &Evidence { article_1: Ok((run, run)), ..empty_of() })
        }
    };
    let both = |journal: &Run, none: &Run| {
        told(claim, &Evidence { article_1: Ok((journal, none)), ..empty_of() })
    };
    match &claim.by {
        By::Speed { ground, slow, fast } => {
            let slower = slow.iter().map(|&cell| (cell, 100.0 * value));
            let cells: Vec<_> = slower.chain([(*fast, 100.0)]).collect();
            let mut run = timed(&cells, 1.0);
            let noisy = timed(&[(*fast, 100.0)], noise);
            *run.cells.last_mut().expect("the fast one") = noisy.cells[0].clone();
            on(*ground, &run)
        }
        By::JournalTime { cell } => {
            both(&timed(&[(*cell, 100.0 * value)], 1.0), &timed(&[(*cell, 100.0)], noise))
        }
        By::JournalCount { cell, what } => {
            both(&counted(*cell, 10.0 * value, *what), &counted(*cell, 10.0, *what))
        }
        By::Count { ground, cell, what } => on(*ground, &counted(*cell, value, *what)),
        By::Rate { result, slow, fast, .. } => {
            // Of times less is better.
            let (unit, faster) = if *result == "buffers" {
                (Unit::TailNs, 1000.0 / value)
            } else {
                (Unit::OperationsPerS, 1000.0 * value)
            };
            let mut found = experiment(result, &[(slow, 1000.0), (fast, faster)], 1.0);
            found.rows[1] = experiment("", &[(fast, faster)], noise).rows[0].clone();
            found.unit = unit;
            told(claim, &Evidence { experiments: &[found], ..empty })
        }
        By::Most { result, row, .. } => {
            let found = experiment(result, &[(row, value)], noise);
            told(claim, &Evidence { experiments: &[found], ..empty })
        }
        // Its figure is not ours.
        By::Elsewhere(_) => told(claim, &empty),
        By::Blocks { mode, len_bytes } => {
            let atlas = atlas(inkstone_io::NamedChoice::name(*mode), *len_bytes, value as u64);
            told(claim, &Evidence { atlas: Some(&atlas), ..empty })
        }
    }
}

fn empty_of() -> Evidence<'static> {
    Evidence {
        here: Err("not made".to_owned()),
        journal: Err("not made".to_owned()),
        article_1: Err("not made".to_owned()),
        warnings: &[],
        experiments: &[],
        atlas: None,
    }
}

/// Well inside a claim's band, and well outside.
fn inside_and_outside(band: Band) -> (f64, f64) {
    if band.to.is_infinite() {
        (band.from * 2.0, band.from / 4.0)
    } else {
        ((band.from + band.to) / 2.0, (band.to + 1.0) * 4.0)
    }
}

#[test]
fn every_claim_is_confirmed_refuted_and_not_run_by_figures_made_for_it() {
    for claim in list::statements() {
        let nothing = told(claim, &empty_of());
        assert_eq!(nothing.verdict, Verdict::NotRun);
        assert!(nothing.found.is_none() && nothing.reason.is_some_and(|reason| !reason.is_empty()));
        if matches!(claim.by, By::Elsewhere(_)) {
            continue;
        }
        let (inside, outside) = inside_and_outside(claim.band);
        let confirmed = figured(claim, inside, 1.0);
        assert_eq!(confirmed.verdict, Verdict::Confirmed, "{confirmed:?}");
        let found = confirmed.found.expect("a figure");
        assert!(
            (found.value - inside).abs() <= 0.02 * inside,
            "{}: {} for {inside}",
            claim.id,
            found.value
        );
        let refuted = figured(claim, outside, 1.0);
        assert_eq!(refuted.verdict, Verdict::Refuted, "{refuted:?}");
    }
}

#[test]
fn no_claim_on_times_is_told_where_noise_hides_it() {
    for claim in list::statements().filter(|claim| {
        matches!(claim.by, By::Speed { .. } | By::Rate { .. } | By::JournalTime { .. })
    }) {
        let tie = figured(claim, claim.band.from * 1.02, 3.0);
        assert_eq!(tie.verdict, Verdict::CannotTell, "{tie:?}");
        let found = tie.found.expect("a figure");
        assert!(found.low < found.high, "{found:?}");
    }
}

#[test]
fn ids_are_unique_and_everything_is_said() {
    let mut ids: Vec<&str> = list::statements().map(|claim| claim.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), list::statements().count());
    for claim in list::statements() {
        assert!(
            claim.says.ends_with(['.', ')']) && !claim.source.words().is_empty(),
            "{}",
            claim.id
        );
        assert!(claim.band.from <= claim.band.to && !claim.band.words().is_empty(), "{}", claim.id);
        let grounds =
            [Ground::Here, Ground::Journal, Ground::Article1Journal, Ground::Article1NoJournal];
        for cell in grounds.into_iter().flat_map(|ground| cells(&claim.by, ground)) {
            assert_eq!(cell.check(), Ok(()), "{}: {}", claim.id, cell.name());
        }
    }
}

fn told(claim: &Statement, evidence: &Evidence<'_>) -> Answer {
    super::answer(claim, evidence)
}

fn of(id: &str) -> &'static Statement {
    list::statements().find(|claim| claim.id == id).expect("a claim")
}

#[test]
fn of_several_forms_the_nearest_decides() {
    let claim = of("fallocate-below-reuse");
    let By::Speed { slow, fast, .. } = &claim.by else { panic!("a comparison") };
    let mut cells = vec![(slow[0], 200.0), (slow[1], 100.5), (slow[2], 150.0), (*fast, 100.0)];
    let run = timed(&cells, 1.0);
    let near = told(claim, &Evidence { here: Ok(&run), ..empty_of() });
    assert_eq!(near.verdict, Verdict::Refuted, "one of them ties with it: {near:?}");
    assert!(
        near.found.expect("a figure").of.contains(&format!("{}, the nearest of 3", slow[1].name()))
    );
    // One that the file system does not have decides nothing.
    cells.remove(1);
    let run = timed(&cells, 1.0);
    assert_eq!(told(claim, &Evidence { here: Ok(&run), ..empty_of() }).verdict, Verdict::Confirmed);
}

#[test]
fn what_everybody_shares_is_not_counted_for_ours() {
    let claim = of("direct-not-durable");
    let By::Count { cell, what, .. } = &claim.by else { panic!("a count") };
    let mut run = counted(*cell, 0.0, *what);
    let answer = |run: &Run| told(claim, &Evidence { here: Ok(run), ..empty_of() });
    assert_eq!(
        answer(&run).verdict,
        Verdict::Confirmed,
        "1,000 flushes of others are none of ours"
    );
    run.place.write_cache = Some("write through".into());
    assert!(answer(&run).reason.is_some_and(|why| why.contains("no volatile cache")));
    run.place.write_cache = Some("write back".into());
    let Outcome::Measured(measured) = &mut run.cells[0].outcome else { panic!("measured") };
    let bill = measured.bill.as_mut().expect("a bill");
    bill.lost_events = 3;
    assert!(answer(&run).reason.is_some_and(|why| why.contains("dropped 3")));
    let Outcome::Measured(measured) = &mut run.cells[0].outcome else { panic!("measured") };
    measured.bill.as_mut().expect("a bill").source = BillSource::SharedCounters;
    assert!(answer(&run).reason.is_some_and(|why| why.starts_with("needs root")));
    run.place.device = None;
    assert!(answer(&run).reason.is_some_and(|why| why.starts_with("there is no block device")));
}

#[test]
fn few_rounds_answer_nothing() {
    let claim = of("overwrite-twice");
    let By::Speed { slow, fast, .. } = &claim.by else { panic!("a comparison") };
    let mut run = timed(&[(slow[0], 200.0), (*fast, 100.0)], 1.0);
    for cell in &mut run.cells {
        let Outcome::Measured(measured) = &mut cell.outcome else { panic!("measured") };
        measured.rounds.truncate(4);
    }
    let answer = told(claim, &Evidence { here: Ok(&run), ..empty_of() });
    assert_eq!((answer.verdict, answer.found), (Verdict::NotRun, None));
}

#[test]
fn claims_are_chosen_by_name() {
    let ids = |only: &[&str]| {
        let only: Vec<String> = only.iter().map(|id| (*id).into()).collect();
        chosen(&only).map(|claims| claims.iter().map(|claim| claim.id).collect::<Vec<_>>())
    };
    assert_eq!(ids(&[]).expect("all").len(), list::statements().count());
    assert_eq!(ids(&["pool-knee", "overwrite-twice"]), Ok(vec!["overwrite-twice", "pool-knee"]));
    assert!(ids(&["nonsense"]).is_err_and(|why| why.contains("overwrite-twice")));
}

/// A figure of time is no better than its minute; a count is what it is.
#[test]
fn where_the_lab_doubts_a_run_no_time_is_judged() {
    let warning =
        |name: &str| Warning { name: name.into(), text: "so".into(), cure: String::new() };
    let (busy, swept, memory) = ([warning("cpu-busy")], [warning("swept")], [warning("memory")]);
    let claim = of("overwrite-twice");
    let By::Speed { slow, fast, .. } = &claim.by else { panic!("a comparison") };
    let run = timed(&[(slow[0], 200.0), (*fast, 100.0)], 1.0);
    let said = |warnings| told(claim, &Evidence { here: Ok(&run), warnings, ..empty_of() });
    assert_eq!(
        said(&swept).verdict,
        Verdict::Confirmed,
        "what was tidied up says nothing of figures"
    );
    assert_eq!(
        said(&busy).verdict,
        Verdict::Confirmed,
        "noise is in the interval: the warning stands beside"
    );
    let warned = said(&memory);
    assert!(warned.verdict == Verdict::CannotTell && warned.found.is_some(), "{warned:?}");
    assert!(warned.reason.is_some_and(|why| why.contains("memory")));
    let claim = of("direct-not-durable");
    let By::Count { cell, what, .. } = &claim.by else { panic!("a count") };
    let run = counted(*cell, 0.0, *what);
    let counted = told(claim, &Evidence { here: Ok(&run), warnings: &memory, ..empty_of() });
    assert_eq!(counted.verdict, Verdict::Confirmed);
    let claim = of("fake-iops");
    let By::Rate { result, slow, fast, .. } = &claim.by else { panic!("a rate") };
    let found = [experiment(result, &[(slow, 100.0), (fast, 900.0)], 1.0)];
    let rated =
        |warnings| told(claim, &Evidence { experiments: &found, warnings, ..empty_of() }).verdict;
    assert_eq!((rated(&busy), rated(&memory)), (Verdict::Confirmed, Verdict::CannotTell));
}
