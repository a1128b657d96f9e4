//! Results made by hand, for the tests of what is shown. *Owns*: nothing that ships.

use crate::histogram::Recorder;
use crate::result::*;
use crate::stats;
use crate::writing::{FILE_BYTES, WRITE_BYTES};

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

pub(crate) fn description() -> Description {
    Description {
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

/// A measured way with this median time per commit, in microseconds.
pub(crate) fn measured(name: &str, us: f64, rounds: u32) -> Way {
    let mut commit = Recorder::new();
    for index in 0..2_048u64 {
        let tail = if index % 100 == 7 { 4.0 } else { 1.0 } * if index == 99 { 30.0 } else { 1.0 };
        commit.record((us * 1e3 * tail * (0.9 + (index % 20) as f64 / 100.0)) as u64);
    }
    let round = |number: u32| Round {
        number,
        turn: number % 3,
        commits: 2_048,
        total_ns: (us * 2_048e3 * (0.97 + f64::from(number * 7 % 10) / 150.0)) as u64,
        slowest_ns: Some((us * 4e3) as u64),
    };
    Way {
        name: name.into(),
        what: Some(description()),
        rounds: (0..rounds).map(round).collect(),
        latency: Some(commit.finish()),
        figures: vec![
            figure("write p50", Unit::Ns, us * 50.0),
            figure("sync p50", Unit::Ns, us * 950.0),
        ],
        durable: Some(DurableFinding::Seen { commits: 2_048 }),
        ..Way::default()
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
        requests: [
            (Kind::DataWrite, tally(COMMITS, COMMITS * 4096)),
            (Kind::JournalWrite, tally(COMMITS * journal, COMMITS * journal * 6144)),
            (Kind::TimerJournalWrite, tally(journal * 6, journal * 49_152)),
            (Kind::MetadataWrite, tally(journal * 3, journal * 12_288)),
            (Kind::Flush, tally(COMMITS * flushes, 0)),
        ]
        .into(),
        submitters: vec![
            Submitter {
                who: "this process".into(),
                what: Kind::DataWrite,
                tally: tally(COMMITS, COMMITS * 4096),
            },
            Submitter {
                who: "jbd2/loop0-8".into(),
                what: Kind::JournalWrite,
                tally: tally(40, 163_840),
            },
            Submitter {
                who: "this process".into(),
                what: Kind::Flush,
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
        |device: &str, what: Kind, from: u64, to: u64, bytes: u64, flags: &str, who: &str| {
            TimelineRequest {
                device: device.into(),
                issued_ns: from,
                completed_ns: Some(to),
                what,
                sector: 2_359_296 + from,
                bytes,
                flags: flags.into(),
                who: who.into(),
            }
        };
    let mut requests = vec![
        request("loop0", Kind::DataWrite, 8_200, 61_000, 4096, "WS", "this process"),
        request("vda", Kind::DataWrite, 14_100, 55_300, 4096, "WS", "kworker/u8:2"),
    ];
    let mut total_ns = 190_000;
    if journal {
        requests.push(request(
            "loop0",
            Kind::JournalWrite,
            70_300,
            130_900,
            8192,
            "WSM",
            "jbd2/loop0-8",
        ));
        requests.push(request("loop0", Kind::Flush, 140_000, 610_300, 0, "FF", "jbd2/loop0-8"));
        requests.push(TimelineRequest {
            completed_ns: None,
            ..request("vda", Kind::MetadataWrite, 600_000, 1, 4096, "WM", "kworker/u8:2")
        });
        total_ns = 611_000;
    } else {
        requests.push(request("loop0", Kind::Flush, 66_000, 188_000, 0, "FF", "this process"));
        requests.push(request("vda", Kind::Flush, 71_000, 240_000, 0, "FF", "kworker/u8:2"));
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
        requests: [(Kind::Flush, tally(2_051, 0))].into(),
        ..LayerBill::default()
    };
    Bill {
        source: BillSource::SharedCounters,
        layers: vec![layer],
        timeline: vec![],
        ..traced(0, 1)
    }
}

/// A run with every kind of way.
pub(crate) fn run() -> Table {
    let known = [
        ("new fdatasync", 611.0, 2, 2),
        ("fallocate fdatasync", 585.0, 2, 2),
        ("zero-range fdatasync", 467.0, 2, 2),
        ("zeros fdatasync", 195.0, 0, 1),
        ("reuse fdatasync", 205.0, 0, 1),
        ("reuse+zero-range fdatasync", 600.0, 2, 2),
        ("reuse direct o-dsync", 186.0, 0, 1),
    ];
    let mut ways: Vec<Way> = known
        .into_iter()
        .map(|(name, us, journal, flushes)| Way {
            bill: Some(traced(journal, flushes)),
            ..measured(name, us, 20)
        })
        .collect();
    let base = ways[0].rounds.clone();
    for way in ways.iter_mut().skip(1) {
        for round in &mut way.rounds {
            round.total_ns += u64::from(round.number * 5 % 7) * round.total_ns / 40;
        }
        way.relative = stats::relative(&base, &way.rounds, 1);
    }
    let mut mmap = measured("reuse mmap msync", 240.0, 20);
    mmap.figures.push(figure("minor faults", Unit::PerOp, 1.0));
    mmap.figures.push(figure("major faults", Unit::PerOp, 0.002));
    mmap.bill = Some(traced(0, 1));
    mmap.relative = Some(Relative::with_interval(1.02, (0.971, 1.06), Verdict::Tie));
    ways.push(mmap);
    let mut none = measured("reuse none", 2.1, 20);
    none.figures.truncate(1);
    none.durable = Some(DurableFinding::NotCovered {
        reason: "2048 of 2048 acknowledgements before any flush".into(),
    });
    none.relative = Some(Relative::with_interval(291.0, (270.0, 312.4), Verdict::Faster));
    ways.push(none);
    let missing = |name: &str, why: &str| Way {
        name: name.into(),
        what: Some(description()),
        missing: Some(why.into()),
        ..Way::default()
    };
    let reason = "fallocate WRITE_ZEROES: the kernel answered EOPNOTSUPP; the device has no write zeroes that unmaps";
    ways.push(missing("write-zeroes fdatasync", reason));
    let reason = "not run: the run ended before";
    ways.push(missing("reuse direct rwf-dsync uring-registered", reason));
    Table {
        name: "quick".into(),
        title: "Ways of making 4 KiB durable, side by side".into(),
        place: place(),
        unit: Unit::NsPerCommit,
        baseline: Some("new fdatasync".into()),
        rounds: 20,
        random_order: true,
        seed: 42,
        ways,
        ..Table::default()
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
    let call = |mode: &str, answer: &str, after: FileFacts| FallocateCall {
        mode: mode.into(),
        offset_bytes: 8_192,
        len_bytes: 131_072,
        answer: answer.into(),
        done: answer == "Ok",
        before: before.clone(),
        after,
    };
    let zeroing = |way: &str, times: Option<(u64, u64)>, answer: &str, are: &str| Zeroed {
        way: way.into(),
        len_bytes: 64 << 20,
        call_ns: times.map(|(call, _)| call),
        sync_ns: times.map(|(_, sync)| sync),
        answer: answer.into(),
        blocks_are: are.into(),
    };
    FallocateAtlas {
        place: place(),
        calls: vec![
            call(
                "fallocate",
                "Ok",
                facts(
                    139_264,
                    272,
                    &["0..65536 written", "65536..139264 unwritten"],
                    &["65536 x data", "73728 x zero"],
                ),
            ),
            call(
                "keep-size",
                "Ok",
                facts(
                    65_536,
                    272,
                    &["0..65536 written", "65536..139264 unwritten"],
                    &["65536 x data"],
                ),
            ),
            call(
                "punch-hole",
                "Ok",
                facts(65_536, 16, &["0..8192 written"], &["8192 x data", "57344 x zero"]),
            ),
            call("write-zeroes", "EOPNOTSUPP: operation not supported", before.clone()),
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
        tables: vec![Table { finding: Some(finding()), ..run() }],
        fallocate: vec![atlas()],
        warnings: vec![Warning {
            name: "device-busy".into(),
            text: "Other processes wrote 12 MiB to vda while it was measured.".into(),
            cure: "stop them, or read the medians and not the tails".into(),
        }],
        ..LabResult::default()
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
