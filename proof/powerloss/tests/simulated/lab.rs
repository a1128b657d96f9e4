//! The simulated lab by itself: every class checks something, and a broken promise is found and can
//! be shown again.
//!
//! *Owns*: a little of everything. *May not touch*: how many states the gate needs
//! (`.ci/powerloss`).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use inkstone::{Access, Durability, Event};
use inkstone_io::{Directory, File, NamedChoice, OpenFile};
use inkstone_powerloss::sim::PATH;
use inkstone_powerloss::sim::class::{FaultClass, Look, Unit};
use inkstone_powerloss::sim::lab::{Plan, Report, Until, run};
use inkstone_powerloss::sim::prove::prove;
use inkstone_powerloss::sim::space::{Pick, Space, is_unread};
use inkstone_powerloss::sim::tally::Tally;
use inkstone_powerloss::sim::variant::{Variant, times, variant};
use inkstone_powerloss::sim::walk::Walk;
use inkstone_powerloss::sim::way::{Effort, Way};
use inkstone_sim::{Counters, DiskOptions, SimDisk};
use inkstone_subject::End;
use inkstone_subject::log::history::{Op, Step};
use inkstone_subject::log::new_past;
use inkstone_subject::log::options::{RECORD_BYTES_MAX, SEGMENT_BYTES, small};

/// Opens a small log.
fn open(disk: &SimDisk) -> inkstone::Result<inkstone::Log> {
    inkstone::Log::open_in(&disk.directory(PATH), small())
}

fn plan(classes: &[FaultClass], until: Until) -> Plan {
    Plan {
        seed: 1,
        until,
        classes: classes.to_vec(),
        jobs: 2,
        all_of: 8,
        mistake: None,
        operations: None,
        command: "a test".into(),
    }
}

fn run_now(plan: &Plan) -> Report {
    run(plan, &AtomicBool::new(false), &mut |_| {})
}

#[test]
fn every_class_holds_and_looks_at_something() {
    let reports = FaultClass::ALL.iter().map(|class| run_now(&plan(&[*class], Until::Seeds(4))));
    let reports: Vec<_> = reports.collect();
    let broken: Vec<_> = reports.iter().filter(|report| !report.result.is_clean()).collect();
    let words = broken.iter().map(|report| report.result.to_string());
    assert!(broken.is_empty(), "{}", words.collect::<String>());
    let of: HashMap<FaultClass, Tally> =
        reports.into_iter().flat_map(|report| report.looked).collect();
    for class in FaultClass::ALL {
        let class_states = of[class].states;
        assert!(class_states >= 60, "{class}: {class_states} states");
    }
    assert!(of[&FaultClass::Recovery].depths.iter().all(|states| *states >= 100));
    let Tally { beneath, states, .. } = of[&FaultClass::Recycled];
    assert!(beneath * 2 > states, "old bytes in {beneath} of {states} states");
    let states: u64 = of.values().map(|tally| tally.states).sum();
    assert!(states >= 100_000, "{states} states");
}

/// Once the sync that lies and the one that reports it are both the close's own; once an opening's
/// sync lies, and the next append gets the LSN of what was lost.
#[test]
fn a_disk_that_lies_within_a_close_or_an_opening_is_no_fault_of_the_log() {
    for (seed, operations) in [(0xE, [1, 2]), (0x33, [9, 10])] {
        let one = plan(&[FaultClass::SyncError], Until::Seeds(1));
        let report = run_now(&Plan { seed, operations: Some(operations.into()), ..one });
        assert!(report.result.is_clean(), "{}", report.result);
    }
}

/// A padded log that is closed again and again in a full segment comes to where the room for control
/// groups is kept for openings and truncations.
#[test]
fn a_close_that_has_little_room_left_may_leave_out_its_promise() {
    let one = plan(&[FaultClass::Rot], Until::Seeds(1));
    let operations = Some([1, 2, 6, 9, 10, 11].into());
    let report = run_now(&Plan { seed: 0x2d, operations, ..one });
    assert!(report.result.is_clean(), "{}", report.result);
}

/// Why one draw is enough of files that are no segments yet: an opening removes them and reads not
/// one byte.
#[test]
fn an_unfinished_file_is_not_read() {
    let disk = SimDisk::new(5, DiskOptions::default());
    open(&disk).unwrap().abandon();
    let read_bytes = |content: Option<u8>| {
        let found = disk.crash(1);
        if let Some(byte) = content {
            let file = found
                .directory(PATH)
                .open("00000000000000000009.new", &OpenFile::new_file())
                .unwrap();
            file.write_at(&vec![byte; 64 << 10], 0).unwrap();
        }
        let before = found.counters();
        open(&found).unwrap().abandon();
        let since = found.counters().since(&before);
        let is_left = found.directory(PATH).list().unwrap().iter().any(|name| is_unread(name));
        (since.reads, since.read_bytes, is_left)
    };
    let without = read_bytes(None);
    assert!(without.0 > 0 && !without.2);
    assert_eq!((read_bytes(Some(0)), read_bytes(Some(0x49))), (without, without));
}

/// A space enumerates each state once: if all items differ, it has as many different disks as it
/// says.
#[test]
fn every_subset_is_made_once() {
    let disk = SimDisk::new(1, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
    let file = disk.directory("/d").open("f", &OpenFile::new_file()).unwrap();
    file.write_at(&[1; 4096], 0).unwrap();
    file.sync(inkstone_io::SyncKind::All).unwrap();
    disk.directory("/d").sync().unwrap();
    let bytes: Vec<u8> = (0..4096_u32).map(|at| (at / 512 + 2) as u8).collect();
    file.write_at(&bytes, 0).unwrap();
    for (pick, states) in [(Pick::Items, 256), (Pick::Writes, 2), (Pick::Garbage, 6561)] {
        let space = Space::of(disk.power_cut(), pick);
        assert_eq!(space.enumerated(16), Some(states), "{pick:?}");
        let images: HashSet<_> = (0..states).map(|number| space.state(number, 1).image()).collect();
        assert_eq!(images.len() as u64, states, "{pick:?}");
    }
}

#[test]
fn a_run_ends_when_it_is_told_to() {
    let stop = AtomicBool::new(true);
    let report = run(&plan(FaultClass::ALL, Until::Seeds(1000)), &stop, &mut |_| {});
    assert!(
        report.is_cut_short
            && report.result.not_run.iter().any(|what| what.contains("stopped early"))
    );
    assert!(report.result.seeds < 100, "{} seeds", report.result.seeds);
    let stopped = Unit {
        class: FaultClass::Torn512,
        seed: 1,
        look: Look::Whole(16),
        mistake: None,
        stop: Arc::new(true.into()),
    };
    let (tally, result) = stopped.run(&stopped.history());
    assert_eq!((tally.states, result), (0, Ok(())));
}

/// The last record ends exactly where records may end, or a few bytes before or behind it.
#[test]
fn segments_filled_to_the_last_byte() {
    let mut states = 0;
    for (seed, size) in (90_001..).zip((20_200..20_300).step_by(4)) {
        let ends = [
            Step::End(End::Kill),
            Step::Do(Op::Append(size)),
            Step::Do(Op::LetGo(3)),
            Step::End(End::Close),
            Step::Do(Op::TruncateAfter(255)),
        ];
        let appends = [RECORD_BYTES_MAX, size, 0].map(|size| Step::Do(Op::Append(size)));
        let mut steps = appends.to_vec();
        steps.push(ends[(size / 4 + 4) % ends.len()].clone());
        let last =
            [Op::TruncateAfter(120), Op::Append(size), Op::TruncateBefore(255), Op::Append(1)];
        steps.extend(last.map(Step::Do));
        let Variant { mut disk, mut log } = variant(seed);
        disk.garbage_at_crash = false;
        log.options = log.options.segment_bytes(SEGMENT_BYTES).pad_groups(false);
        let way = Way::new(Effort { samples: 2, all_of: 4, deep: 5 });
        let mut walk = Walk::new(log, SimDisk::new(seed, disk), new_past(), steps, way, seed);
        prove(&mut walk, &mut |_, _| {}).unwrap_or_else(|broken| panic!("{size}: {broken}"));
        states += walk.tally.states;
    }
    assert!(states >= 7_500, "{states} states");
}

/// Commits of one block that alternate between two durable ways, then take the one that is kept, in
/// several openings and segments: whatever a cut leaves, it is a state of one log.
#[test]
fn a_log_that_tries_two_ways_survives_every_cut() {
    let (mut found, mut states, mut ways) = ([0; 2], 0, Counters::default());
    for seed in 1..=12 {
        let mut steps = Vec::new();
        for number in 0..90 {
            steps.push(Step::Do(Op::Append([100, 900, 3000][number % 3])));
            if number == 45 {
                steps.push(Step::End([End::Kill, End::Close][(seed % 2) as usize]));
            }
        }
        let kept = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&kept);
        let Variant { disk, mut log } = variant(seed);
        let disk = DiskOptions {
            times: Some(times(seed)),
            has_fua: true,
            has_direct: true,
            garbage_at_crash: false,
            ..disk
        };
        let pads = seed.is_multiple_of(4);
        let options = small().access(Access::Direct).pad_groups(pads);
        log.options = options.listener(move |event| {
            if let Event::Tried(tried) = event {
                told.lock().unwrap().push(tried.kept);
            }
        });
        let way = Way::new(Effort { samples: 2, all_of: 4, deep: 0 });
        let disk = SimDisk::new(seed, disk);
        let mut walk = Walk::new(log, disk.clone(), new_past(), steps, way, seed);
        prove(&mut walk, &mut |_, _| {}).unwrap_or_else(|broken| panic!("{seed}: {broken}"));
        states += walk.tally.states;
        ways.dsync_writes += disk.counters().dsync_writes;
        ways.data_syncs += disk.counters().data_syncs;
        for kept in &*kept.lock().unwrap() {
            found[usize::from(*kept == Durability::Fdatasync)] += 1;
        }
    }
    println!("{states} states; {ways:?}; kept {found:?}");
    assert!(states >= 3000, "{states} states");
    assert!(ways.dsync_writes > 200 && ways.data_syncs > 200, "{ways:?}");
    assert!(found.iter().all(|count| *count > 1), "{found:?} trials kept each of the ways");
}

/// A tenth or so of what the classes draw tries.
#[test]
fn the_classes_have_logs_that_try_two_ways() {
    let tries = |seed| {
        let Variant { disk, log } = variant(seed);
        let disk = SimDisk::new(seed, disk);
        inkstone::Log::open_in(&disk.directory(PATH), log.options).unwrap().choice().trial.is_some()
    };
    let count = (1..=200).filter(|seed| tries(*seed)).count();
    assert!((10..=40).contains(&count), "{count} of 200");
}

#[cfg(inkstone_mistakes)]
mod mistaken {
    use inkstone::mistake::Mistake;

    use super::*;

    /// Each mistake is found by the lab, and the command that it prints shows the same again.
    #[test]
    fn what_is_broken_is_found_and_shown_again() {
        for (mistake, class) in [
            (Mistake::NoSync, FaultClass::Torn512),
            (Mistake::EpochNotSynced, FaultClass::Torn512),
            (Mistake::NoDirectorySync, FaultClass::Names),
            (Mistake::NoIdentity, FaultClass::Recycled),
            (Mistake::CutsBelowPromise, FaultClass::Rot),
            (Mistake::TailRewritten, FaultClass::Lost),
        ] {
            let asked = Plan { mistake: Some(mistake), ..plan(&[class], Until::Seeds(8)) };
            let report = run_now(&asked);
            let [violation] = &report.result.violations[..] else {
                panic!("{mistake} is not found by {class}")
            };
            let words: Vec<&str> = violation.command.split(' ').collect();
            let after =
                |name: &str| words[words.iter().position(|word| *word == name).unwrap() + 1];
            let numbers = match after("--operations") {
                "none" => Vec::new(),
                list => list.split(',').map(|number| number.parse().unwrap()).collect(),
            };
            let again = Plan {
                seed: u64::from_str_radix(after("--seed").trim_start_matches("0x"), 16).unwrap(),
                until: Until::Seeds(after("--seeds").parse().unwrap()),
                classes: vec![after("--class").parse().unwrap()],
                mistake: Some(after("--mistake").parse().unwrap()),
                all_of: after("--all-of").parse().unwrap(),
                operations: Some(numbers),
                ..asked
            };
            let shown = &run_now(&again).result.violations;
            assert_eq!(
                shown.first().map(|shown| &shown.what),
                Some(&violation.what),
                "{}",
                violation.command
            );
            // The same without the mistake holds.
            let sound = run_now(&Plan { mistake: None, ..again });
            assert!(sound.result.is_clean(), "{}", sound.result);
        }
    }
}
