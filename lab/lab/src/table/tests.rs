//! The rendered text: contents, widths, hostile input. *Owns*: nothing that ships.

use super::text::columns;
use super::*;
use crate::result::{figure, *};

fn style(width: usize) -> TableStyle {
    TableStyle { colour: false, width, unicode: true }
}

/// Every rendering of a result.
fn everything(result: &LabResult, style: &TableStyle) -> String {
    let mut out = render(result, style);
    for table in &result.tables {
        out.push_str(&render_bill(table, style));
        for (way, bill) in table.ways.iter().filter_map(|way| Some((way, way.bill.as_ref()?))) {
            out.push_str(&render_timeline(&way.name, bill, style));
        }
    }
    out
}

fn assert_fits(result: &LabResult, what: &str) {
    for width in [10, 40, 47, 60, 72, 80, 93, 100, 120, 140, 200, 400] {
        for unicode in [false, true] {
            let style = TableStyle { unicode, ..style(width) };
            let text = everything(result, &style);
            for line in text.lines() {
                assert!(
                    columns(line) <= width.max(40),
                    "{what} at {width}: {} {line:?}",
                    columns(line)
                );
                assert_eq!(line.trim_end(), line, "{what}: blanks at the end");
            }
        }
    }
}

/// A run seen by shared counters only.
fn shared() -> Table {
    let mut run = samples::run();
    for way in run.ways.iter_mut().filter(|way| way.is_measured()) {
        way.bill = Some(samples::counted());
        way.durable = Some(DurableFinding::Consistent { flushes: 2_051, commits: 2_048 });
    }
    run
}

#[test]
fn a_run_says_what_matters_at_100_columns() {
    let text = render_table(&samples::run(), &style(100));
    let row = |name: &str| {
        text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default()
    };
    for head in ["way", "per commit", "speedup", "durable", "data", "journal", "flush"] {
        assert!(text.contains(head), "{head}\n{text}");
    }
    assert!(row("new fdatasync").contains("1.00 (base)"), "{text}");
    assert!(row("new fdatasync").contains("2.00"), "{text}");
    assert!(row("reuse mmap msync").contains("tie"), "{text}");
    assert!(row("reuse none").contains("NO"), "{text}");
    assert!(text.contains("NO  reuse none: 2048 of 2048"), "{text}");
    assert!(
        row("write-zeroes fdatasync").contains("fallocate WRITE_ZEROES: the kernel answered"),
        "{text}"
    );
    assert!(text.contains("not run: the run ended"), "{text}");
    assert!(text.contains("below loop0: /var/tmp/lab.img, opened directly; ext4 on vda"), "{text}");
    assert!(text.contains("cache write back, no FUA"), "{text}");
}

#[test]
fn a_wide_table_has_every_column() {
    let text = render_table(&samples::run(), &style(300));
    for head in [
        "p50",
        "p99.9",
        "max",
        "write p50",
        "sync p50",
        "commits/s",
        "minor faults",
        "bytes",
        "other",
        "reads",
    ] {
        assert!(text.contains(head), "{head}\n{text}");
    }
    assert!(!text.contains("not shown"), "{text}");
    assert!(text.contains("4.0K+12K"), "{text}");
}

#[test]
fn the_interval_goes_before_the_speedup() {
    let wide = render_table(&samples::run(), &style(140));
    assert!(wide.contains("1.02 [0.97..1.06] tie"), "{wide}");
    let narrow = render_table(&samples::run(), &style(60));
    assert!(narrow.contains("1.02 tie") && !narrow.contains("[0.97"), "{narrow}");
}

#[test]
fn reads_show_where_there_are_any() {
    let mut run = samples::run();
    let reads =
        |run: &Table| render_table(run, &style(100)).lines().any(|line| line.contains("reads  "));
    assert!(!reads(&run));
    let bill = run.ways[3].bill.as_mut().expect("a bill");
    bill.layers[0].requests.insert(Kind::DataRead, samples::tally(2_048, 2_048 * 4096));
    assert!(reads(&run), "{}", render_table(&run, &style(100)));
    let narrow = render_table(&samples::run(), &style(80));
    assert!(narrow.contains("jrnl"), "{narrow}");
}

#[test]
fn shared_counters_are_marked() {
    let text = render_table(&shared(), &style(140));
    assert!(
        text.contains("~2.01") && text.contains("writes") && !text.contains("journal "),
        "{text}"
    );
    assert!(text.contains("likely") && text.contains("requests of other processes"), "{text}");
    let bill = render_bill(&shared(), &style(100));
    assert!(bill.contains("~2.01") && bill.contains("all writes"), "{bill}");
}

#[test]
fn claims_that_cannot_be_seen_are_explained_once() {
    let mut run = samples::run();
    for way in run.ways.iter_mut().filter(|way| way.is_measured()) {
        way.bill = None;
        way.durable = Some(DurableFinding::NotVisible { reason: "tracefs is for root".into() });
    }
    let text = render_table(&run, &style(100));
    assert_eq!(text.matches("tracefs is for root").count(), 1, "{text}");
    assert!(text.contains("and 8 others") && !text.contains("flush"), "{text}");
}

#[test]
fn the_whole_result_ends_in_words() {
    let text = render(&samples::result(), &style(100));
    assert!(text.contains("! Other processes wrote 12 MiB"), "{text}");
    assert!(text.contains("\n  cure: stop them"), "{text}");
    assert!(text.contains("On this disk overwriting a reused file"), "{text}");
    assert!(
        text.contains("The harness itself costs 92.4 ns a commit (a clock reading 21.0 ns)"),
        "{text}"
    );
}

#[test]
fn nothing_measured_says_so() {
    let empty = LabResult {
        tables: vec![],
        fallocate: vec![],
        warnings: vec![],
        preamble: Preamble { interrupted: true, ..samples::result().preamble },
        ..samples::result()
    };
    let text = render(&empty, &style(80));
    assert!(text.contains("Nothing was measured.") && text.contains("stopped early"), "{text}");
    let mut run = samples::run();
    for way in &mut run.ways {
        way.rounds.clear();
        way.bill = None;
        way.missing = Some("not run: the run ended before".into());
    }
    assert!(render_table(&run, &style(80)).contains("No way was measured."));
    assert!(render_bill(&run, &style(80)).contains("No way has a bill"));
    run.ways.clear();
    assert!(render_table(&run, &style(80)).contains("there are no ways"));
    assert!(
        render_fallocate(&FallocateAtlas::default(), &style(80)).contains("No mode was tried.")
    );
    assert_fits(&LabResult { tables: vec![run, Table::default()], ..empty }, "empty");
}

#[test]
fn the_bill_compares_layers_and_checks_itself() {
    let text = render_bill(&samples::run(), &style(80));
    for part in [
        "loop0 (file system):",
        "vda (host of loop0):",
        "journal, waited for",
        "none: journal, for others; zeroing",
        "cross-check: agree (2048 flushes, 16384 sectors written, 0 sectors read)",
        "DIFFER",
        "sectors written 16384 traced but 16400 counted",
        "by jbd2/loop0-8: 40 x journal write (160K)",
        "by this process: 2048 x data write (8.0M), 4096 x flush",
    ] {
        let flat: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(part), "{part}\n{text}");
    }
    let mut run = samples::run();
    let bill = run.ways[0].bill.as_mut().expect("a bill");
    bill.lost_events = 7;
    bill.uring_punts = Some(2_048);
    bill.layers[0].unattributed = (0..9).map(|n| format!("write {n}")).collect();
    let text = render_bill(&run, &style(80));
    assert!(
        text.contains("7 trace events were lost") && text.contains("(1.00 per commit)"),
        "{text}"
    );
    assert!(text.contains("and 4 more unattributed"), "{text}");
}

#[test]
fn the_timeline_shows_when_each_request_ran() {
    let text = render_timeline("reuse fdatasync", &samples::traced(2, 2), &style(120));
    for part in [
        "commit 17: 611 us, 5 requests",
        "8.20",
        "journal write",
        "jbd2/loop0-8",
        "WSM",
        "no completion was seen",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let late = render_timeline(
        "reuse fdatasync",
        &samples::traced(0, 1),
        &TableStyle { unicode: false, ..style(120) },
    );
    assert!(late.contains("requests to the right of it came later") && late.is_ascii(), "{late}");
    let bill = Bill { timeline: vec![], ..samples::traced(0, 1) };
    assert!(render_timeline("x", &bill, &style(80)).contains("No commit was recorded"));
}

#[test]
fn the_atlas_shows_before_and_after() {
    for width in [80, 140] {
        let text = render_fallocate(&samples::atlas(), &style(width));
        for part in [
            "64K->136K",
            "65536..139264 unwritten",
            "8192 x data",
            "EOPNOTSUPP: operation",
            "ZERO_RANGE",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}

#[test]
fn colour_changes_nothing_but_the_colour() {
    let plain = everything(&samples::result(), &style(100));
    let mut tinted = everything(&samples::result(), &TableStyle { colour: true, ..style(100) });
    assert!(tinted.contains("\x1b[32m") && tinted.contains("\x1b[31;1m"));
    for code in ["32", "31;1", "2", "1", "0"] {
        tinted = tinted.replace(&format!("\x1b[{code}m"), "");
    }
    assert_eq!(plain, tinted);
    assert!(!plain.contains('\x1b'));
}

#[test]
fn ascii_is_ascii() {
    let text = everything(&samples::result(), &TableStyle { unicode: false, ..style(100) });
    assert!(text.is_ascii());
    assert!(text.contains("############"), "{text}");
}

#[test]
fn ugly_input_stays_in_its_columns() {
    assert_fits(&samples::result(), "sample");
    let mut ugly = samples::result();
    let run = &mut ugly.tables[0];
    run.title = String::new();
    run.name = "名前のとても長い実験".repeat(9);
    run.place.directory = "/a/very/long/path/without/blanks".repeat(12);
    run.place.mount_options = "rw,\x1b[31mred,a,b,c,d,e,f".into();
    run.baseline = Some("nobody".into());
    run.notes = vec!["x".repeat(300), String::new()];
    for (index, way) in run.ways.iter_mut().enumerate() {
        way.name = match index {
            0 => {
                "reuse+zero-range direct fdatasync-fsync-64 uring-registered 512B second-pass cold"
                    .into()
            }
            1 => "日本語の名前\u{202e}\nzwei".repeat(4),
            2 => String::new(),
            _ => way.name.clone(),
        };
        if way.is_measured() {
            ugly_numbers(way, index);
        }
    }
    ugly.warnings.push(Warning { name: String::new(), text: "y".repeat(500), cure: " ".into() });
    assert_fits(&ugly, "ugly");
    let text = everything(&ugly, &style(100));
    assert!(!text.contains('\x1b') && !text.contains("NaN") && !text.contains("inf"), "{text}");
}

fn ugly_numbers(way: &mut Way, index: usize) {
    let mut each = |to: (u64, u64)| {
        way.rounds.iter_mut().for_each(|round| (round.commits, round.total_ns) = to);
    };
    match index {
        0 => way.rounds.clear(),
        1 => each((0, 1)),
        2 => each((1, u64::MAX)),
        3 => each((u64::MAX, 1)),
        4 => way.latency = None,
        _ => way.figures.push(figure("a figure", Unit::PerOp, f64::NAN)),
    }
    way.relative =
        Some(Relative::with_interval(f64::NAN, (f64::NEG_INFINITY, f64::INFINITY), Verdict::Tie));
    if let Some(bill) = &mut way.bill {
        bill.commits = if index == 1 { 0 } else { 1 };
        let tally = samples::tally(u64::MAX / 2, u64::MAX / 2);
        bill.layers[0].requests.insert(Kind::DataWrite, tally);
        if index == 4 {
            bill.layers.clear();
        }
        for request in bill.timeline.iter_mut().flat_map(|commit| &mut commit.requests) {
            request.issued_ns = u64::MAX - 1;
            request.who = "a process with a name and\ta tab".into();
        }
        bill.timeline.push(TimelineCommit { number: u64::MAX, total_ns: 0, requests: vec![] });
    }
}

/// Ways of other work: a pool of threads.
fn pool() -> Table {
    let round = |per_s: f64| {
        move |number: u32| Round {
            number,
            commits: (per_s * 10.0) as u64,
            total_ns: 10_000_000_000,
            ..Round::default()
        }
    };
    let way = |name: &str, x: f64, per_s: f64| Way {
        name: name.into(),
        series: "pool".into(),
        x: Some(x),
        rounds: (0..5).map(round(per_s)).collect(),
        relative: (x > 2.0).then(|| {
            let interval = (per_s / 31_000.0, per_s / 29_000.0);
            Relative::with_interval(per_s / 30_000.0, interval, Verdict::Faster)
        }),
        figures: vec![
            figure("context switches", Unit::PerOp, 2.345),
            figure("system time", Unit::NsPerOp, 12_345.0),
        ],
        ..Way::default()
    };
    let missing = Some("this kernel has none".into());
    Table {
        name: "pool".into(),
        title: "A pool of threads".into(),
        x_name: Some("threads".into()),
        unit: Unit::OperationsPerS,
        baseline: Some("pool, 2 threads".into()),
        rounds: 5,
        ways: vec![
            way("pool, 2 threads", 2.0, 30_000.0),
            way("pool, 8 threads", 8.0, 60_000.0),
            Way { name: "io_uring".into(), missing, ..Way::default() },
        ],
        knees: vec![("pool".into(), 8.0)],
        ..Table::default()
    }
}

#[test]
fn knees_figures_and_reasons_stand_in_their_place() {
    let text = render_table(&pool(), &style(120));
    let line =
        |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    for word in ["60,000", "knee, best", "2.00 [1.94..2.07]", "2.35", "12.3"] {
        assert!(line("pool, 8 threads").contains(word), "{word}: {text}");
    }
    assert!(!line("pool, 2 threads").contains("knee"), "{text}");
    assert!(line("io_uring").contains("this kernel has none"), "{text}");
    let mut tied = pool();
    tied.ways[1].rounds = tied.ways[0].rounds.clone();
    assert!(!render_table(&tied, &style(120)).contains("best"), "a tie is not the best");
    tied = pool();
    tied.ways.iter_mut().for_each(|way| way.rounds.truncate(2));
    assert!(!render_table(&tied, &style(120)).contains("best"), "two rounds show nothing");
}

#[test]
fn a_bench_has_a_row_for_each_load_with_its_floor() {
    let mut table = pool();
    table.ways.truncate(2);
    table.ways[0].name = crate::bench::beside::FLOOR.into();
    table.ways[1].name = "1 thread, 128B".into();
    let result = LabResult { tables: vec![table], ..LabResult::default() };
    let text = render_bench(&result, &style(140));
    let line = text.lines().find(|line| line.contains("1 thread, 128B")).expect("the row");
    for word in ["60,000", "30,000", "2.00 [1.94..2.07]", "12.3"] {
        assert!(line.contains(word), "{word}: {line}");
    }
}
