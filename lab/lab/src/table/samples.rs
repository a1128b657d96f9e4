//! Results made by hand, for the tests of what is shown. *Owns*: nothing that ships.

use crate::cell::{FILE_BYTES, WRITE_BYTES};
use crate::histogram::Recorder;
use crate::over_time::Series;
use crate::result::*;
use crate::stats;

pub(crate) fn place() -> Place {
    Place {
        name: "ext4, direct loop".into(),
        directory: "/mnt/lab/ext4".into(),
        file_system: "ext4".into(),
        mount_options: "rw,noatime,data=ordered".into(),
        journal: Some(true),
        copy_on_write: "no".into(),
        device: Some("loop0".into()),
        write_cache: Some("write back".into()),
        fua: Some(false),
        scheduler: Some("none".into()),
        direct_align_bytes: Some(4096),
        loop_backing: Some("/var/tmp/lab.img, opened directly".into()),
        host: Some(Box::new(Place {
            file_system: "ext4".into(),
            device: Some("vda".into()),
            journal: Some(false),
            write_cache: Some("write back".into()),
            fua: Some(false),
            ..Place::default()
        })),
        ..Place::default()
    }
}

pub(crate) fn description() -> CellDescription {
    CellDescription {
        preparation: "none".into(),
        reuse: "new".into(),
        access: "buffered".into(),
        durability: "fdatasync".into(),
        engine: "caller".into(),
        write_bytes: WRITE_BYTES,
        file_bytes: FILE_BYTES,
        pass: "first".into(),
        cache: "warm".into(),
    }
}

/// A measured cell with this median time per commit, in microseconds.
pub(crate) fn measured(us: f64, rounds: u32) -> Measured {
    let mut commit = Recorder::new();
    let mut write = Recorder::new();
    let mut sync = Recorder::new();
    let mut over_time = Series::default();
    over_time.begin(2_048);
    for index in 0..2_048u64 {
        let tail = if index % 100 == 7 { 4.0 } else { 1.0 } * if index == 99 { 30.0 } else { 1.0 };
        let ns = (us * 1e3 * tail * (0.9 + (index % 20) as f64 / 100.0)) as u64;
        commit.record(ns);
        over_time.record(ns);
        write.record(ns / 20);
        sync.record(ns - ns / 20);
    }
    let round = |number: u32| Round {
        number,
        turn: number % 3,
        commits: 2_048,
        total_ns: (us * 2_048e3 * (0.97 + f64::from(number * 7 % 10) / 150.0)) as u64,
        closing_sync_ns: 0,
        preparation_ns: 12_000_000,
    };
    Measured {
        rounds: (0..rounds).map(round).collect(),
        preparation: Histogram::default(),
        write: write.finish(),
        sync: sync.finish(),
        commit: commit.finish(),
        over_time: (0..rounds).map(|_| over_time.slices(12)).collect(),
        relative: None,
        bill: None,
        durable: DurableFinding::Seen { commits: 2_048 },
        faults_per_write: None,
    }
}

pub(crate) fn tally(requests: u64, bytes: u64) -> Tally {
    Tally { requests, bytes }
}

/// A traced bill of 2,048 commits: journal writes and flushes per commit as given.
pub(crate) fn traced(journal: u64, flushes: u64) -> Bill {
    const COMMITS: u64 = 2_048;
    let layer = |device: &str, role: &str| LayerBill {
        device: device.into(),
        role: role.into(),
        data_writes: tally(COMMITS, COMMITS * 4096),
        journal_writes: tally(COMMITS * journal, COMMITS * journal * 6144),
        timer_journal_writes: tally(journal * 6, journal * 49_152),
        metadata_writes: tally(journal * 3, journal * 12_288),
        flushes: COMMITS * flushes,
        submitters: vec![
            Submitter {
                who: "this process".into(),
                what: "data write".into(),
                tally: tally(COMMITS, COMMITS * 4096),
            },
            Submitter {
                who: "jbd2/loop0-8".into(),
                what: "journal write".into(),
                tally: tally(40, 163_840),
            },
            Submitter {
                who: "this process".into(),
                what: "flush".into(),
                tally: tally(COMMITS * flushes, 0),
            },
        ],
        cross_check: Some(CrossCheck {
            traced_flushes: COMMITS * flushes,
            counted_flushes: COMMITS * flushes,
            traced_write_sectors: 16_384,
            counted_write_sectors: 16_384 + journal * 8,
            ..CrossCheck::default()
        }),
        ..LayerBill::default()
    };
    Bill {
        source: BillSource::Trace,
        commits: COMMITS,
        layers: vec![layer("loop0", "file system"), layer("vda", "host of loop0")],
        lost_events: 0,
        uring_punts: None,
        timeline: vec![timeline_commit(journal > 0)],
        notes: vec![],
    }
}

fn timeline_commit(journal: bool) -> TimelineCommit {
    let request =
        |device: &str, what: &str, from: u64, to: u64, bytes: u64, flags: &str, who: &str| {
            TimelineRequest {
                device: device.into(),
                issued_ns: from,
                completed_ns: Some(to),
                what: what.into(),
                sector: 2_359_296 + from,
                bytes,
                flags: flags.into(),
                who: who.into(),
            }
        };
    let mut requests = vec![
        request("loop0", "data write", 8_200, 61_000, 4096, "WS", "this process"),
        request("vda", "data write", 14_100, 55_300, 4096, "WS", "kworker/u8:2"),
    ];
    let mut total_ns = 190_000;
    if journal {
        requests.push(request(
            "loop0",
            "journal write",
            70_300,
            130_900,
            8192,
            "WSM",
            "jbd2/loop0-8",
        ));
        requests.push(request("loop0", "flush", 140_000, 610_300, 0, "FF", "jbd2/loop0-8"));
        requests.push(TimelineRequest {
            completed_ns: None,
            ..request("vda", "metadata write", 600_000, 1, 4096, "WM", "kworker/u8:2")
        });
        total_ns = 611_000;
    } else {
        requests.push(request("loop0", "flush", 66_000, 188_000, 0, "FF", "this process"));
        requests.push(request("vda", "flush", 71_000, 240_000, 0, "FF", "kworker/u8:2"));
    }
    TimelineCommit { number: 17, total_ns, requests }
}

/// A bill from shared counters.
pub(crate) fn counted() -> Bill {
    let layer = LayerBill {
        device: "vda".into(),
        role: "file system".into(),
        all_writes: tally(4_110, 2_090 * 4096),
        all_reads: tally(3, 12_288),
        flushes: 2_051,
        ..LayerBill::default()
    };
    Bill {
        source: BillSource::SharedCounters,
        layers: vec![layer],
        timeline: vec![],
        ..traced(0, 1)
    }
}

pub(crate) fn cell(name: &str, outcome: Outcome) -> CellResult {
    CellResult { name: name.into(), what: description(), outcome }
}

/// A run with every kind of row.
pub(crate) fn run() -> Run {
    let mut cells = Vec::new();
    let mut base_rounds = Vec::new();
    let arms = [
        ("new fdatasync", 611.0, 2, 2),
        ("fallocate fdatasync", 585.0, 2, 2),
        ("zero-range fdatasync", 467.0, 2, 2),
        ("zeros fdatasync", 195.0, 0, 1),
        ("reuse fdatasync", 205.0, 0, 1),
        ("reuse+zero-range fdatasync", 600.0, 2, 2),
        ("reuse direct o-dsync", 186.0, 0, 1),
    ];
    for (index, (name, us, journal, flushes)) in arms.into_iter().enumerate() {
        let mut arm = measured(us, 20);
        arm.bill = Some(traced(journal, flushes));
        if index == 0 {
            base_rounds = arm.rounds.clone();
        } else {
            for round in &mut arm.rounds {
                round.total_ns += u64::from(round.number * 5 % 7) * round.total_ns / 40;
            }
            arm.relative = stats::relative(&base_rounds, &arm.rounds, 1);
        }
        cells.push(cell(name, Outcome::Measured(Box::new(arm))));
    }
    let mut mmap = measured(240.0, 20);
    mmap.faults_per_write = Some((1.0, 0.002));
    mmap.bill = Some(traced(0, 1));
    mmap.relative = Some(Relative::with_interval(1.02, (0.971, 1.06), Verdict::Tie));
    cells.push(cell("reuse mmap msync", Outcome::Measured(Box::new(mmap))));
    let mut none = measured(2.1, 20);
    none.sync = Histogram::default();
    none.durable = DurableFinding::NotCovered {
        reason: "2048 of 2048 acknowledgements before any flush".into(),
    };
    none.relative = Some(Relative::with_interval(291.0, (270.0, 312.4), Verdict::Faster));
    cells.push(cell("reuse none", Outcome::Measured(Box::new(none))));
    let reason = "fallocate WRITE_ZEROES: the kernel answered EOPNOTSUPP; the device has no write zeroes that unmaps";
    cells.push(cell("write-zeroes fdatasync", Outcome::Invalid { reason: reason.into() }));
    cells.push(cell("reuse direct rwf-dsync uring-registered", Outcome::NotRun));
    Run {
        name: "quick".into(),
        title: "Ways of making 4 KiB durable, side by side".into(),
        place: place(),
        baseline: Some("new fdatasync".into()),
        rounds: 20,
        random_order: true,
        seed: 42,
        finding: None,
        cells,
        notes: vec![],
    }
}

pub(crate) fn atlas() -> FallocateAtlas {
    let facts = |size: u64, blocks: u64, extents: &[&str], content: &[&str]| FileFacts {
        size_bytes: size,
        blocks,
        extents: extents.iter().map(|text| (*text).into()).collect(),
        content: content.iter().map(|text| (*text).into()).collect(),
    };
    let before = facts(65_536, 128, &["0..65536 written"], &["65536 x data"]);
    let cell = |mode: &str, answer: &str, after: FileFacts| FallocateCell {
        mode: mode.into(),
        offset_bytes: 8_192,
        len_bytes: 131_072,
        answer: answer.into(),
        done: answer == "Ok",
        before: before.clone(),
        after,
    };
    let zeroing = |way: &str, times: Option<(u64, u64)>, answer: &str, are: &str| ZeroingCell {
        way: way.into(),
        len_bytes: 64 << 20,
        call_ns: times.map(|(call, _)| call),
        sync_ns: times.map(|(_, sync)| sync),
        answer: answer.into(),
        blocks_are: are.into(),
    };
    FallocateAtlas {
        place: place(),
        cells: vec![
            cell(
                "fallocate",
                "Ok",
                facts(
                    139_264,
                    272,
                    &["0..65536 written", "65536..139264 unwritten"],
                    &["65536 x data", "73728 x zero"],
                ),
            ),
            cell(
                "keep-size",
                "Ok",
                facts(
                    65_536,
                    272,
                    &["0..65536 written", "65536..139264 unwritten"],
                    &["65536 x data"],
                ),
            ),
            cell(
                "punch-hole",
                "Ok",
                facts(65_536, 16, &["0..8192 written"], &["8192 x data", "57344 x zero"]),
            ),
            cell("write-zeroes", "EOPNOTSUPP: operation not supported", before.clone()),
        ],
        zeroing: vec![
            zeroing("zeros written", Some((41_000_000, 230_000_000)), "Ok", "written"),
            zeroing("ZERO_RANGE", Some((150_000, 900_000)), "Ok", "unwritten"),
            zeroing("WRITE_ZEROES", None, "EOPNOTSUPP: operation not supported", ""),
        ],
    }
}

/// A whole result with everything in it.
pub(crate) fn result() -> LabResult {
    LabResult {
        preamble: Preamble {
            schema_version: SCHEMA_VERSION,
            inkstone_version: "0.1.0".into(),
            command: "inkstone lab .".into(),
            started_unix_s: 1_763_667_000,
            elapsed_ns: 58_300_000_000,
            interrupted: false,
            machine: Machine {
                kernel: "Linux 6.18.3".into(),
                cpu: "Example CPU @ 2.80GHz".into(),
                cpus: 4,
                governor: None,
                memory_bytes: 16 << 30,
                root: true,
                trace_refused: None,
            },
        },
        harness: HarnessCost { commit_ns: 92.4, clock_ns: 21.0 },
        runs: vec![Run { finding: Some(finding()), ..run() }],
        experiments: Vec::new(),
        fallocate: vec![atlas()],
        warnings: vec![Warning {
            name: "device-busy".into(),
            text: "Other processes wrote 12 MiB to vda while it was measured.".into(),
            cure: "stop them, or read the medians and not the tails".into(),
        }],
    }
}

fn finding() -> Finding {
    Finding {
        sentence:
            "On this disk overwriting a reused file with O_DIRECT and O_DSYNC is the fastest durable way: \
                       3.2 times as fast as appending, because it writes no journal and flushes once."
                .into(),
        why: Some("a commit costs 1.0 writes (4.0 KiB) and 1.0 flushes in place of 2.0 writes (10.0 KiB) and 2.0 flushes by `new fdatasync`.".into()),
        advice: Some("keep old files and write over their blocks; open it with O_DIRECT; open it with O_DSYNC.".into()),
        best: Some("reuse direct o-dsync".into()),
        naive: Some("new fdatasync".into()),
        speedup: Some(Relative::with_interval(3.2, (3.11, 3.31), Verdict::Faster)),
    }
}
