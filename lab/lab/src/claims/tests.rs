//! Every claim gives each answer for figures made to give it; none is a constant, none lacks a
//! source.

use super::evidence::{Evidence, ways};
use super::*;
use crate::experiment::statement::{Band, By, Counted, Ground};
use crate::finding::tests::{run, way as made};
use crate::result::{
    Bill, BillSource, DurableFinding, FallocateAtlas, FallocateCall, FileFacts, Kind, LayerBill,
    Place, Round, Submitter, Table, Tally, Unit, Way, figure,
};
use crate::writing::Writing;

const COMMITS: u64 = 1_000;

/// A run in which each of these ways takes this long; every third round is off by `noise`.
fn timed(ways: &[(Writing, f64)], noise: f64) -> Table {
    let one = |&(writing, us): &(Writing, f64)| {
        let mut made = made("new fsync", us, DurableFinding::Seen { commits: 10 });
        made.name = writing.name();
        made.rounds.iter_mut().for_each(|round| *round = noisy(round.number, us * 1e3, noise));
        made
    };
    run(ways.iter().map(one).collect())
}

fn noisy(number: u32, each_ns: f64, noise: f64) -> Round {
    let factor = if number.is_multiple_of(3) { noise } else { 1.0 };
    let total_ns = (each_ns * 1e6 * factor) as u64;
    Round { number, commits: 1_000_000, total_ns, ..Round::default() }
}

/// The same with this count of everything in every commit.
fn counted(writing: Writing, per_commit: f64, what: Counted) -> Table {
    let mut run = timed(&[(writing, 100.0)], 1.0);
    run.place = Place { write_cache: Some("write back".into()), ..run.place };
    let requests = (per_commit * COMMITS as f64).round() as u64;
    let tally = Tally { requests, bytes: requests * 1024 };
    let mut layer = LayerBill::default();
    let kind = match what {
        Counted::Faults | Counted::Punts => None,
        Counted::OwnFlushes => {
            let who = "this process".into();
            layer.submitters.push(Submitter { who, what: Kind::Flush, tally });
            None
        }
        Counted::Reads => Some(Kind::DataRead),
        Counted::Metadata => Some(Kind::MetadataWrite),
        Counted::JournalWrites | Counted::JournalKib => Some(Kind::JournalWrite),
        Counted::WrittenKib => Some(Kind::DataWrite),
    };
    // What others send is not ours.
    layer.requests.insert(Kind::Flush, Tally { requests: 1_000, bytes: 0 });
    layer.requests.extend(kind.map(|kind| (kind, tally)));
    run.ways[0].figures = vec![
        figure("minor faults", Unit::PerOp, per_commit),
        figure("major faults", Unit::PerOp, 0.0),
    ];
    run.ways[0].bill = Some(Bill {
        source: BillSource::Trace,
        commits: COMMITS,
        layers: vec![layer],
        lost_events: 0,
        uring_punts: Some(requests),
        timeline: Vec::new(),
        notes: Vec::new(),
    });
    run
}

fn table(name: &str, rates: &[(&str, f64)], noise: f64) -> Table {
    let way = |&(name, per_s): &(&str, f64)| Way {
        name: name.into(),
        rounds: (0..10).map(|number| noisy(number, 1e9 / per_s, noise)).collect(),
        ..Way::default()
    };
    let ways = rates.iter().map(way).collect();
    Table { name: name.into(), unit: Unit::OperationsPerS, ways, ..Table::default() }
}

fn atlas(mode: &str, len_bytes: u64, added: u64) -> FallocateAtlas {
    let facts = |blocks| FileFacts { blocks, ..FileFacts::default() };
    let call = FallocateCall {
        mode: mode.into(),
        offset_bytes: 0,
        len_bytes,
        answer: "ok".into(),
        done: true,
        before: facts(16),
        after: facts(16 + added),
    };
    FallocateAtlas { calls: vec![call], ..FallocateAtlas::default() }
}

/// The answer to a claim when its figure is `value`; with noise in one of the two that are
/// compared.
fn figured(claim: &Statement, value: f64, noise: f64) -> Answer {
    let empty = empty_of();
    let on = |ground: Ground, run: &Table| match ground {
        Ground::Here => told(claim, &Evidence { here: Ok(run), ..empty_of() }),
        Ground::Journal | Ground::NoJournal => {
            told(claim, &Evidence { images: Ok((run, run)), ..empty_of() })
        }
    };
    let both = |journal: &Table, none: &Table| {
        told(claim, &Evidence { images: Ok((journal, none)), ..empty_of() })
    };
    match &claim.by {
        By::Speed { ground, slow, fast } => {
            let slower = slow.iter().map(|&writing| (writing, 100.0 * value));
            let ways: Vec<_> = slower.chain([(*fast, 100.0)]).collect();
            let mut run = timed(&ways, 1.0);
            let noisy = timed(&[(*fast, 100.0)], noise);
            *run.ways.last_mut().expect("the fast one") = noisy.ways[0].clone();
            on(*ground, &run)
        }
        By::JournalTime { writing } => {
            both(&timed(&[(*writing, 100.0 * value)], 1.0), &timed(&[(*writing, 100.0)], noise))
        }
        By::JournalCount { writing, what } => {
            both(&counted(*writing, 10.0 * value, *what), &counted(*writing, 10.0, *what))
        }
        By::Count { ground, writing, what } => on(*ground, &counted(*writing, value, *what)),
        By::Rate { result, slow, fast, .. } => {
            let mut found = table(result, &[(slow, 1000.0), (fast, 1000.0 * value)], 1.0);
            found.ways[1] = table("", &[(fast, 1000.0 * value)], noise).ways[0].clone();
            told(claim, &Evidence { tables: &[found], ..empty })
        }
        By::Most { result, way, .. } => {
            let mut found = table(result, &[(way, 1.0)], 1.0);
            let counted = |round: &mut Round| {
                (round.commits, round.total_ns) = (value as u64, 1_000_000_000);
            };
            found.ways[0].rounds.iter_mut().for_each(counted);
            told(claim, &Evidence { tables: &[found], ..empty })
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
        images: Err("not made".to_owned()),
        warnings: &[],
        tables: &[],
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
        assert_eq!(nothing.verdict, Judged::NotRun);
        assert!(nothing.found.is_none() && nothing.reason.is_some_and(|reason| !reason.is_empty()));
        if matches!(claim.by, By::Elsewhere(_)) {
            continue;
        }
        let (inside, outside) = inside_and_outside(claim.band);
        let confirmed = figured(claim, inside, 1.0);
        assert_eq!(confirmed.verdict, Judged::Confirmed, "{confirmed:?}");
        let found = confirmed.found.expect("a figure");
        assert!(
            (found.value - inside).abs() <= 0.02 * inside,
            "{}: {} for {inside}",
            claim.id,
            found.value
        );
        let refuted = figured(claim, outside, 1.0);
        assert_eq!(refuted.verdict, Judged::Refuted, "{refuted:?}");
    }
}

#[test]
fn no_claim_on_times_is_told_where_noise_hides_it() {
    for claim in list::statements().filter(|claim| {
        matches!(claim.by, By::Speed { .. } | By::Rate { .. } | By::JournalTime { .. })
    }) {
        let tie = figured(claim, claim.band.from * 1.02, 3.0);
        assert_eq!(tie.verdict, Judged::CannotTell, "{tie:?}");
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
        let grounds = [Ground::Here, Ground::Journal, Ground::NoJournal];
        for writing in grounds.into_iter().flat_map(|ground| ways(&claim.by, ground)) {
            assert_eq!(writing.check(), Ok(()), "{}: {}", claim.id, writing.name());
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
    let mut ways = vec![(slow[0], 200.0), (slow[1], 100.5), (slow[2], 150.0), (*fast, 100.0)];
    let run = timed(&ways, 1.0);
    let near = told(claim, &Evidence { here: Ok(&run), ..empty_of() });
    assert_eq!(near.verdict, Judged::Refuted, "one of them ties with it: {near:?}");
    assert!(
        near.found.expect("a figure").of.contains(&format!("{}, the nearest of 3", slow[1].name()))
    );
    // One that the file system does not have decides nothing.
    ways.remove(1);
    let run = timed(&ways, 1.0);
    assert_eq!(told(claim, &Evidence { here: Ok(&run), ..empty_of() }).verdict, Judged::Confirmed);
}

#[test]
fn what_everybody_shares_is_not_counted_for_ours() {
    let claim = of("direct-not-durable");
    let By::Count { writing, what, .. } = &claim.by else { panic!("a count") };
    let mut run = counted(*writing, 0.0, *what);
    let answer = |run: &Table| told(claim, &Evidence { here: Ok(run), ..empty_of() });
    assert_eq!(answer(&run).verdict, Judged::Confirmed, "1,000 flushes of others are none of ours");
    run.place.write_cache = Some("write through".into());
    assert!(answer(&run).reason.is_some_and(|why| why.contains("no volatile cache")));
    run.place.write_cache = Some("write back".into());
    run.ways[0].bill.as_mut().expect("a bill").lost_events = 3;
    assert!(answer(&run).reason.is_some_and(|why| why.contains("dropped 3")));
    run.ways[0].bill.as_mut().expect("a bill").source = BillSource::SharedCounters;
    assert!(answer(&run).reason.is_some_and(|why| why.starts_with("needs root")));
    run.place.device = None;
    assert!(answer(&run).reason.is_some_and(|why| why.starts_with("there is no block device")));
}

#[test]
fn few_rounds_answer_nothing() {
    let claim = of("overwrite-twice");
    let By::Speed { slow, fast, .. } = &claim.by else { panic!("a comparison") };
    let mut run = timed(&[(slow[0], 200.0), (*fast, 100.0)], 1.0);
    run.ways.iter_mut().for_each(|way| way.rounds.truncate(4));
    let answer = told(claim, &Evidence { here: Ok(&run), ..empty_of() });
    assert_eq!((answer.verdict, answer.found), (Judged::NotRun, None));
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
        Judged::Confirmed,
        "what was tidied up says nothing of figures"
    );
    assert_eq!(
        said(&busy).verdict,
        Judged::Confirmed,
        "noise is in the interval: the warning stands beside"
    );
    let warned = said(&memory);
    assert!(warned.verdict == Judged::CannotTell && warned.found.is_some(), "{warned:?}");
    assert!(warned.reason.is_some_and(|why| why.contains("memory")));
    let claim = of("direct-not-durable");
    let By::Count { writing, what, .. } = &claim.by else { panic!("a count") };
    let run = counted(*writing, 0.0, *what);
    let counted = told(claim, &Evidence { here: Ok(&run), warnings: &memory, ..empty_of() });
    assert_eq!(counted.verdict, Judged::Confirmed);
    let claim = of("fake-iops");
    let By::Rate { result, slow, fast, .. } = &claim.by else { panic!("a rate") };
    let found = [table(result, &[(slow, 100.0), (fast, 900.0)], 1.0)];
    let rated =
        |warnings| told(claim, &Evidence { tables: &found, warnings, ..empty_of() }).verdict;
    assert_eq!((rated(&busy), rated(&memory)), (Judged::Confirmed, Judged::CannotTell));
}
