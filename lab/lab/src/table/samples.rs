//! Results made by hand, for the tests of what is shown. *Owns*: nothing that ships.

use crate::histogram::Recorder;
use crate::result::*;
use crate::stats;

const COMMITS: u64 = 2_048;

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
        loop_backing: Some("/var/tmp/lab.img, opened directly".into()),
        host: Some(Box::new(Place { device: Some("vda".into()), ..Place::default() })),
        ..Place::default()
    }
}

/// A way whose rounds took this long for each of 1,000 operations, in nanoseconds.
pub(crate) fn timed(name: &str, each_ns: impl IntoIterator<Item = f64>) -> Way {
    let round = |(number, ns)| Round {
        number,
        commits: 1000,
        total_ns: (ns * 1000.0) as u64,
        ..Round::default()
    };
    Way { name: name.into(), rounds: (0..).zip(each_ns).map(round).collect(), ..Way::default() }
}

/// A measured way with this median time per commit, in microseconds.
pub(crate) fn measured(name: &str, us: f64, rounds: u32) -> Way {
    let mut commit = Recorder::new();
    for index in 0..COMMITS {
        let tail = if index % 100 == 7 { 4.0 } else { 1.0 };
        commit.record((us * 1e3 * tail * (0.9 + (index % 20) as f64 / 100.0)) as u64);
    }
    let round = |number: u32| Round {
        number,
        commits: COMMITS,
        total_ns: (us * 2_048e3 * (0.97 + f64::from(number * 7 % 10) / 150.0)) as u64,
        ..Round::default()
    };
    Way {
        name: name.into(),
        file_bytes: Some(8 << 20),
        rounds: (0..rounds).map(round).collect(),
        latency: Some(commit.finish()),
        figures: vec![figure("sync p50", Unit::Ns, us * 950.0)],
        durable: Some(DurableFinding::Seen { commits: COMMITS }),
        ..Way::default()
    }
}

pub(crate) fn tally(requests: u64, bytes: u64) -> Tally {
    Tally { requests, bytes }
}

/// A traced bill: journal writes and flushes per commit as given.
pub(crate) fn traced(journal: u64, flushes: u64) -> Bill {
    let by = |who: &str, what, requests, bytes| Submitter {
        who: who.into(),
        what,
        tally: tally(requests, bytes),
    };
    Bill {
        commits: COMMITS,
        device: "loop0".into(),
        requests: [
            (Kind::DataWrite, tally(COMMITS, COMMITS * 4096)),
            (Kind::JournalWrite, tally(COMMITS * journal, COMMITS * journal * 6144)),
            (Kind::MetadataWrite, tally(journal * 3, journal * 12_288)),
            (Kind::Flush, tally(COMMITS * flushes, 0)),
        ]
        .into(),
        submitters: vec![
            by("this process", Kind::DataWrite, COMMITS, COMMITS * 4096),
            by("jbd2/loop0-8", Kind::JournalWrite, 40, 163_840),
        ],
        cross_check: Some(CrossCheck {
            traced_flushes: COMMITS * flushes,
            counted_flushes: COMMITS * flushes,
            traced_write_sectors: 16_384,
            counted_write_sectors: 16_384 + journal * 8,
        }),
        ..Bill::default()
    }
}

/// A run with every kind of way.
pub(crate) fn run() -> Table {
    let known = [
        ("new fdatasync", 611.0, 2, 2),
        ("fallocate fdatasync", 585.0, 2, 2),
        ("reuse fdatasync", 205.0, 0, 1),
        ("reuse direct o-dsync", 186.0, 0, 1),
    ];
    let way = |(name, us, journal, flushes)| Way {
        bill: Some(traced(journal, flushes)),
        ..measured(name, us, 20)
    };
    let mut ways: Vec<Way> = known.into_iter().map(way).collect();
    let base = ways[0].rounds.clone();
    for way in ways.iter_mut().skip(1) {
        for round in &mut way.rounds {
            round.total_ns += u64::from(round.number * 5 % 7) * round.total_ns / 40;
        }
        way.relative = stats::relative_of_several(&base, &way.rounds, 1);
    }
    let reason = "2048 of 2048 acknowledgements before any flush".into();
    ways.push(Way {
        durable: Some(DurableFinding::NotCovered { reason }),
        relative: Some(Relative::with_interval(1.02, (0.971, 1.06), Verdict::Tie)),
        figures: vec![figure("page faults", Unit::PerOp, 1.0)],
        ..measured("reuse none", 2.1, 20)
    });
    let missing = "fallocate WRITE_ZEROES: the kernel answered EOPNOTSUPP; the device has no \
                   write zeroes that unmaps";
    ways.push(Way {
        name: "write-zeroes fdatasync".into(),
        missing: Some(missing.into()),
        ..Way::default()
    });
    Table {
        name: "quick".into(),
        title: "Ways of making 4 KiB durable, side by side".into(),
        place: place(),
        unit: Unit::NsPerCommit,
        baseline: Some("new fdatasync".into()),
        rounds: 20,
        random_order: true,
        ways,
        ..Table::default()
    }
}

/// The modes of fallocate: facts, without rounds.
pub(crate) fn atlas() -> Table {
    let way = |name: &str, facts: [(&str, &str); 4]| Way {
        name: name.into(),
        facts: facts.map(|(what, fact)| (what.to_owned(), fact.to_owned())).into(),
        figures: vec![figure("blocks after", Unit::Blocks, 272.0)],
        ..Way::default()
    };
    let unwritten = "0B+64KiB written, 64KiB+64KiB unwritten";
    Table {
        name: "fallocate".into(),
        title: "fallocate: what each mode does to a file".into(),
        place: place(),
        ways: vec![
            way(
                "mode-0 64KiB",
                [
                    ("answer", "ok"),
                    ("size", "65536->139264"),
                    ("blocks", "128->272"),
                    ("extents after", unwritten),
                ],
            ),
            way(
                "zero-range-keep-size 64KiB",
                [
                    ("answer", "EOPNOTSUPP"),
                    ("size", "65536"),
                    ("blocks", "128"),
                    ("extents after", "0B+64KiB written"),
                ],
            ),
        ],
        ..Table::default()
    }
}

/// A whole result with everything in it.
pub(crate) fn result() -> LabResult {
    let finding = Finding {
        sentence: "On this disk overwriting a reused file with O_DIRECT and O_DSYNC is the \
                   fastest durable way: 3.2 times as fast as appending."
            .into(),
        why: Some("a commit costs 1.0 writes (4.0 KiB) and 1.0 flushes".into()),
        best: Some("reuse direct o-dsync".into()),
    };
    LabResult {
        schema_version: SCHEMA_VERSION,
        inkstone_version: "0.1.0".into(),
        command: "inkstone lab .".into(),
        elapsed_ns: 58_300_000_000,
        machine: Machine {
            kernel: "Linux 6.18.3".into(),
            cpu: "Example CPU @ 2.80GHz".into(),
            cpus: 4,
            memory_bytes: 16 << 30,
            root: true,
            trace_refused: None,
        },
        tables: vec![Table { finding: Some(finding), ..run() }, atlas()],
        warnings: vec![Warning {
            name: "device-busy".into(),
            text: "Other processes wrote 12 MiB to vda while it was measured.".into(),
            cure: "stop them, or read the medians and not the tails".into(),
        }],
        ..LabResult::default()
    }
}
