//! Every mistake of the log is caught: by a class of faults within some states, by a test that was
//! made for it, or by the explorer. `.ci/mistaken table` prints which, after how many states; and
//! which promise of docs/durability.md was seen broken, in lines of which it makes a table.
//!
//! *Owns*: what catches which mistake. *May not touch*: how a mistake is built in (`mistake.rs`),
//! what a class is about (`sim/class.rs`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use inkstone::mistake::Mistake;
use inkstone_io::NamedChoice;
use inkstone_powerloss::sim::class::{FaultClass, Look, Unit};
use inkstone_powerloss::sim::lab::attempt;
use inkstone_subject::log::clauses::{ASKED, BY_LSN, LOST, PROMISES};
use inkstone_subject::promise;

/// A class that sees no broken promise in so many states does not catch the mistake.
const STATES_MAX: u64 = 60_000;

/// What catches a mistake.
enum By {
    /// A class of faults.
    Class(FaultClass),
    /// A test of the log, made for it: its file in `crates/log/tests`, its name, and what it sees
    /// broken.
    Test(&'static str, &'static str, &'static str),
    /// `.ci/explore mistakes`, since the mistake is about threads.
    Explorer,
}

/// Each class catches some of them: a blind one would be noticed.
fn by(mistake: Mistake) -> By {
    use FaultClass as C;
    use Mistake as M;
    const DIRECTED: &str = "simulated/mistaken.rs";
    By::Class(match mistake {
        M::NoSync => C::Threads,
        M::TailRewritten | M::RemovesFirst | M::CloseForgets | M::TruncationNotSynced => C::Torn512,
        M::SyncsFirst | M::TrialForgetsSync => C::Torn4096,
        M::PromiseTooHigh => C::Lost,
        M::FirstGroupEarly => C::Garbage,
        M::NoDirectorySync => C::Names,
        M::NoIdentity => C::Recycled,
        M::CutsBelowPromise | M::SpareNotJudged => C::Misdirected,
        M::NoPromise
        | M::LooksOneBlockAhead
        | M::GapTooShort
        | M::GapIsTheEnd
        | M::StopsAtGap
        | M::HalfBatchKept => C::Rot,
        M::PromisedBytesIgnored | M::ExpectIgnored => C::Lying,
        M::ReadsPageCache
        | M::WatermarkOnFailure
        | M::PoisonForgotten
        | M::CutEpochNotSynced
        | M::PaddingForgotten
        | M::HeaderFailureRetried => C::Faults,
        M::OverBudget
        | M::CutBeforeRecord
        | M::ReadsPastWatermark
        | M::SizeNotAllocated
        | M::NoRoomPoisons => C::Full,
        M::RenamedFirst
        | M::EpochNotRaised
        | M::HeadByLsn
        | M::HalfGroups
        | M::BatchSplit
        | M::HeaderNotSynced
        | M::FlagForgotten => C::Rough,
        M::EpochNotSynced
        | M::ShowsUnsynced
        | M::TailNotRead
        | M::WatermarkOffByOne
        | M::TruncationForgottenAtRoll
        | M::RecyclesAnySize => C::Killed,
        M::ZerosUnsynced | M::NamedEndIgnored | M::SyncForgets | M::NoLastPromise => C::Recovery,
        M::RetriesSync
        | M::RecyclesPinned
        | M::SyncErrorIgnored
        | M::CutUntold
        | M::CutKeepsPlace
        | M::StaleWindow
        | M::ShowsUnpromised
        | M::TruncatedShown
        | M::LockFileRemoved
        | M::CutNotCounted
        | M::CountGivenTwice
        | M::CloseSwallowsErrors => C::Readers,
        // No class sees these.
        M::CallbackEarly => {
            return By::Test(
                DIRECTED,
                "a_callback_before_its_group_is_written_tells_of_what_no_disk_has",
                promise(PROMISES, LOST),
            );
        }
        M::TruncationNeedsRoom => {
            return By::Test(
                DIRECTED,
                "a_truncation_that_needs_a_segment_leaves_a_full_disk_full",
                "A full disk",
            );
        }
        M::GetUnsummed => {
            return By::Test(
                "simulated/reading.rs",
                "a_get_that_sums_nothing_shows_what_was_never_appended",
                promise(PROMISES, BY_LSN),
            );
        }
        M::AheadUnsummed => {
            return By::Test(
                "simulated/reading.rs",
                "reading_ahead_without_sums_shows_what_was_never_appended",
                promise(PROMISES, ASKED),
            );
        }
        M::HeaderBelieved | M::UnsettledKept | M::ObservedOnce => {
            return By::Test(
                "simulated/meddled.rs",
                "a_reader_that_looks_too_little_is_caught_between_two_of_its_steps",
                promise(PROMISES, ASKED),
            );
        }
        M::TableTooShort => {
            return By::Test(
                "simulated/cuts.rs",
                "a_cut_that_is_not_known_any_more_is_caught",
                promise(PROMISES, ASKED),
            );
        }
        M::MarkBeforeHeader | M::MarkOnlyInCut => {
            return By::Test(
                "simulated/cuts.rs",
                "a_mark_too_early_or_too_seldom_is_caught",
                "A segment file that vanishes",
            );
        }
        M::TrialKeepsSlower => {
            return By::Test(
                "simulated/trial.rs",
                "a_trial_that_keeps_the_slower_way_is_caught",
                "its own checks",
            );
        }
        M::HintBelieved => {
            return By::Test(
                "processes/followed.rs",
                "a_hint_that_is_believed_shows_what_is_not_there",
                promise(PROMISES, ASKED),
            );
        }
        // The class threads saw it after 6,925 states, and on a busier machine not in 60,000.
        M::WatermarkEarly
        | M::WakesUnderLock
        | M::CutFuturesForgotten
        | M::ChangeBeforeWatermark
        | M::PlaceNotAskedAgain
        | M::ForkMarkNotAsked
        | M::ChildPromises
        | M::WakeUpLost
        | M::PoisonUntold
        | M::FollowerToldOk
        | M::TurnNotHanded
        | M::AwaitedEarly
        | M::TailAboveWatermark
        | M::TailKeptOverCut => return By::Explorer,
    })
}

/// States that the class opens, from seed 1 on, until it sees a broken promise, and which.
fn hunt(class: FaultClass, mistake: Mistake) -> Option<(u64, &'static str)> {
    let mut states = 0;
    for seed in 1.. {
        let stop = Arc::default();
        let unit = Unit { class, seed, look: Look::Glance, mistake: Some(mistake), stop };
        let (tally, result) = attempt(&unit, &unit.history());
        states += tally.states;
        if let Err(broken) = result {
            return Some((states.max(1), promise(PROMISES, broken.clause)));
        }
        if states > STATES_MAX {
            break;
        }
    }
    None
}

/// Whether there is such a test, and it is about the mistake.
fn is_about(file: &str, test: &str, mistake: Mistake) -> bool {
    let path = format!("{}/../../crates/log/tests/{file}", env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let body = source.split_once(&format!("fn {test}() {{\n"));
    let body = body.and_then(|(_, rest)| rest.split("#[test]").next());
    body.is_some_and(|body| body.contains(&format!("Mistake::{mistake:?}")))
}

/// What caught a mistake: how, by which driver, and the promise that was broken. The explorer
/// prints its own.
struct Caught {
    how: String,
    seen: Option<(String, &'static str)>,
}

fn catch(mistake: Mistake) -> Option<Caught> {
    match by(mistake) {
        By::Class(class) => hunt(class, mistake).map(|(states, promise)| {
            let seen = Some((format!("sim, {class}"), promise));
            Caught { how: format!("{class}, {states} states"), seen }
        }),
        By::Test(file, test, promise) => is_about(file, test, mistake).then(|| {
            let seen = Some(("a test of its own".to_owned(), promise));
            Caught { how: test.to_owned(), seen }
        }),
        By::Explorer => Some(Caught { how: ".ci/explore mistakes".to_owned(), seen: None }),
    }
}

#[test]
fn every_mistake_is_caught() {
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(|| {
                while let Some(&mistake) = Mistake::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    rows.lock().unwrap().push((mistake, catch(mistake)));
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap();
    rows.sort_by_key(|(mistake, _)| Mistake::ALL.iter().position(|known| known == mistake));
    for (mistake, caught) in &rows {
        let how = caught.as_ref().map_or("NOT CAUGHT", |caught| &caught.how);
        println!("{:<28} {how:<40} {}", mistake.name(), mistake.summary());
        if let Some((driver, promise)) = caught.as_ref().and_then(|caught| caught.seen.as_ref()) {
            println!("caught|durability.md|{promise}|{driver}|{}", mistake.name());
        }
    }
    PROMISES.iter().for_each(|(promise, _)| println!("promise|durability.md|{promise}"));
    let missed: Vec<_> = rows.iter().filter(|row| row.1.is_none()).map(|row| row.0).collect();
    assert!(missed.is_empty(), "nothing catches {missed:?}");
}
