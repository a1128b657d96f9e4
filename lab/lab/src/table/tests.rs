//! The rendered text: contents, widths, hostile input. *Owns*: nothing that ships.

use super::text::columns;
use super::*;
use crate::result::*;

fn style(width: usize) -> TableStyle {
    TableStyle { colour: false, width, unicode: true }
}

/// Every rendering of a result.
fn everything(result: &LabResult, style: &TableStyle) -> String {
    let mut out = render(result, style);
    for run in &result.runs {
        out.push_str(&render_bill(run, style));
        for cell in &run.cells {
            if let Some(bill) = cell.outcome.measured().and_then(|measured| measured.bill.as_ref())
            {
                out.push_str(&render_timeline(&cell.name, bill, style));
            }
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
fn shared() -> Run {
    let mut run = samples::run();
    for cell in &mut run.cells {
        if let Outcome::Measured(measured) = &mut cell.outcome {
            measured.bill = Some(samples::counted());
            measured.durable = DurableFinding::Consistent { flushes: 2_051, commits: 2_048 };
        }
    }
    run
}

#[test]
fn a_run_says_what_matters_at_100_columns() {
    let text = render_run(&samples::run(), &style(100));
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
        row("write-zeroes fdatasync").contains("cannot do this here: fallocate WRITE_ZEROES"),
        "{text}"
    );
    assert!(text.contains("not run: the run ended"), "{text}");
    assert!(text.contains("below loop0: /var/tmp/lab.img, opened directly; ext4 on vda"), "{text}");
    assert!(text.contains("cache write back, no FUA"), "{text}");
}

#[test]
fn a_wide_table_has_every_column() {
    let text = render_run(&samples::run(), &style(260));
    for head in [
        "p50",
        "p99.9",
        "max",
        "write p50",
        "sync p50",
        "commits/s",
        "faults",
        "bytes",
        "other",
        "reads",
    ] {
        assert!(text.contains(head), "{head}\n{text}");
    }
    assert!(!text.contains("not shown"), "{text}");
    assert!(text.contains("4.0K+12K"), "{text}");
    assert!(text.contains("1.00+<0.01"), "{text}");
}

#[test]
fn the_interval_goes_before_the_speedup() {
    let wide = render_run(&samples::run(), &style(140));
    assert!(wide.contains("1.02 [0.97..1.06] tie"), "{wide}");
    let narrow = render_run(&samples::run(), &style(60));
    assert!(narrow.contains("1.02 tie") && !narrow.contains("[0.97"), "{narrow}");
}

#[test]
fn reads_show_where_there_are_any() {
    let mut run = samples::run();
    let reads =
        |run: &Run| render_run(run, &style(100)).lines().any(|line| line.contains("reads  "));
    assert!(!reads(&run));
    if let Outcome::Measured(measured) = &mut run.cells[3].outcome
        && let Some(bill) = &mut measured.bill
    {
        bill.layers[0].data_reads = samples::tally(2_048, 2_048 * 4096);
    }
    assert!(reads(&run), "{}", render_run(&run, &style(100)));
    let narrow = render_run(&samples::run(), &style(80));
    assert!(narrow.contains("jrnl"), "{narrow}");
}

#[test]
fn shared_counters_are_marked() {
    let text = render_run(&shared(), &style(140));
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
    for cell in &mut run.cells {
        if let Outcome::Measured(measured) = &mut cell.outcome {
            measured.bill = None;
            measured.durable = DurableFinding::NotVisible { reason: "tracefs is for root".into() };
        }
    }
    let text = render_run(&run, &style(100));
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
        runs: vec![],
        experiments: Vec::new(),
        fallocate: vec![],
        warnings: vec![],
        preamble: Preamble { interrupted: true, ..samples::result().preamble },
        ..samples::result()
    };
    let text = render(&empty, &style(80));
    assert!(text.contains("Nothing was measured.") && text.contains("stopped early"), "{text}");
    let mut run = samples::run();
    run.cells.iter_mut().for_each(|cell| cell.outcome = Outcome::NotRun);
    assert!(render_run(&run, &style(80)).contains("No way was measured."));
    assert!(render_bill(&run, &style(80)).contains("No way has a bill"));
    run.cells.clear();
    assert!(render_run(&run, &style(80)).contains("no ways of writing"));
    assert!(
        render_fallocate(&FallocateAtlas::default(), &style(80)).contains("No mode was tried.")
    );
    assert_fits(&LabResult { runs: vec![run, Run::default()], ..empty }, "empty");
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
    if let Outcome::Measured(measured) = &mut run.cells[0].outcome
        && let Some(bill) = &mut measured.bill
    {
        bill.lost_events = 7;
        bill.uring_punts = Some(2_048);
        bill.layers[0].unattributed = (0..9).map(|n| format!("write {n}")).collect();
    }
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
    let run = &mut ugly.runs[0];
    run.title = String::new();
    run.name = "名前のとても長い実験".repeat(9);
    run.place.directory = "/a/very/long/path/without/blanks".repeat(12);
    run.place.mount_options = "rw,\x1b[31mred,a,b,c,d,e,f".into();
    run.baseline = Some("nobody".into());
    run.notes = vec!["x".repeat(300), String::new()];
    for (index, cell) in run.cells.iter_mut().enumerate() {
        cell.name = match index {
            0 => {
                "reuse+zero-range direct fdatasync-fsync-64 uring-registered 512B second-pass cold"
                    .into()
            }
            1 => "日本語の名前\u{202e}\nzwei".repeat(4),
            2 => String::new(),
            _ => cell.name.clone(),
        };
        if let Outcome::Measured(measured) = &mut cell.outcome {
            ugly_numbers(measured, index);
        }
    }
    ugly.warnings.push(Warning { name: String::new(), text: "y".repeat(500), cure: " ".into() });
    assert_fits(&ugly, "ugly");
    let text = everything(&ugly, &style(100));
    assert!(!text.contains('\x1b') && !text.contains("NaN") && !text.contains("inf"), "{text}");
}

fn ugly_numbers(measured: &mut Measured, index: usize) {
    let nan = Relative::with_interval(f64::NAN, (f64::NEG_INFINITY, f64::INFINITY), Verdict::Tie);
    match index {
        0 => measured.rounds.clear(),
        1 => measured.rounds.iter_mut().for_each(|round| round.commits = 0),
        2 => {
            measured
                .rounds
                .iter_mut()
                .for_each(|round| (round.commits, round.total_ns) = (1, u64::MAX));
            measured.commit.max_ns = u64::MAX;
        }
        3 => measured
            .rounds
            .iter_mut()
            .for_each(|round| (round.commits, round.total_ns) = (u64::MAX, 1)),
        4 => measured.commit = Histogram::default(),
        _ => measured.faults_per_write = Some((f64::NAN, 1e300)),
    }
    measured.relative = Some(nan);
    if let Some(bill) = &mut measured.bill {
        bill.commits = if index == 1 { 0 } else { 1 };
        bill.layers[0].data_writes = samples::tally(u64::MAX / 2, u64::MAX / 2);
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
