//! The rendered text: contents, widths, hostile input. *Owns*: nothing that ships.

use super::grid::columns;
use super::*;
use crate::result::{figure, *};

fn assert_fits(result: &LabResult, what: &str) {
    for width in [10, 40, 47, 60, 80, 100, 120, 200, 400] {
        for line in everything(result, width).lines() {
            assert!(columns(line) <= width.max(40), "{what} at {width}: {line:?}");
            assert_eq!(line.trim_end(), line, "{what}: blanks at the end");
        }
    }
}

/// The line that begins with this name.
fn row<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default()
}

fn assert_says(line: &str, words: &[&str], text: &str) {
    for word in words {
        assert!(line.contains(word), "{word:?} in {line:?} of\n{text}");
    }
}

#[test]
fn a_run_says_the_time_the_interval_the_bill_and_the_verdict_of_each_way() {
    let best = Some("reuse direct o-dsync".to_owned());
    let finding = Some(Finding { best, ..Finding::default() });
    let text = render_table(&Table { finding, ..samples::run() }, 140);
    assert_says(row(&text, "reuse direct o-dsync"), &["best"], &text);
    assert_says(row(&text, "way"), &["speedup", "durable", "data", "journal", "flush"], &text);
    assert_says(row(&text, "reuse fdatasync"), &["..", "yes"], &text);
    assert_says(row(&text, "reuse none"), &["tie", "NO"], &text);
    assert_says(row(&text, "write-zeroes fdatasync"), &["EOPNOTSUPP"], &text);
    let narrow = render_table(&samples::run(), 60);
    assert!(narrow.contains("speedup") && narrow.contains("not shown"), "{narrow}");
}

/// What the figures of a table are is in its heads.
#[test]
fn the_head_of_a_column_has_its_unit() {
    let head = |table: &Table, head: &str| {
        let text = render_table(table, 250);
        let heads = row(&text, "way").trim_end();
        assert!(heads.split("  ").any(|one| one.trim() == head), "{head}\n{text}");
    };
    let mut run = samples::run();
    for (unit, wanted) in [
        (Unit::BytesPerS, "bytes/s"),
        (Unit::OperationsPerS, "operations/s"),
        (Unit::NsPerOp, "per operation, us"),
    ] {
        run.unit = unit;
        head(&run, wanted);
    }
    for (name, unit, wanted) in [
        ("system time", Unit::NsPerOp, "system time, us/op"),
        ("sync p50", Unit::Ns, "sync p50, us"),
        ("reads", Unit::PerSecond, "reads/s"),
        ("reads", Unit::Percent, "reads %"),
        ("records per flush", Unit::PerFlush, "records per flush"),
    ] {
        run.ways.iter_mut().for_each(|way| way.figures = vec![figure(name, unit, 1e6)]);
        head(&run, wanted);
    }
    run.unit = Unit::NsPerCommit;
    run.ways[0].figures = vec![figure("page faults", Unit::PerOp, 1.0)];
    head(&run, "page faults/commit");
}

/// AIO on a shared ext4 without a journal: a kworker writes the inode, and `other 0.00` was
/// unknown.
#[test]
fn what_the_kernel_wrote_for_nobody_knows_whom_is_unknown_and_not_zero() {
    let mut run = samples::run();
    let bill = run.ways[2].bill.as_mut().expect("a bill");
    bill.requests.insert(Kind::UnattributedWrite, samples::tally(2048, 2048 * 4096));
    bill.requests.remove(&Kind::MetadataWrite);
    let text = render_table(&run, 160);
    assert_says(row(&text, "way"), &["metadata", "flush"], &text);
    assert_says(row(&text, "reuse fdatasync"), &["0.00?"], &text);
    assert!(text.contains("may be another's"), "{text}");
    let mut barred = samples::run();
    (barred.ways[2].bill, barred.ways[2].no_bill) = (None, Some("81 flushes for 2048".into()));
    let text = render_table(&barred, 160);
    assert!(text.contains("no bill  reuse fdatasync: 81 flushes for 2048"), "{text}");
}

/// `--time 3s`: six rounds of twelve, and the heading said twelve.
#[test]
fn a_table_says_how_many_rounds_it_has() {
    let mut run = samples::run();
    assert!(render_table(&run, 120).contains("  20 rounds, ways in random order"));
    run.rounds = 40;
    assert!(render_table(&run, 120).contains("  20 of 40 rounds, ways in random order"));
}

#[test]
fn a_bill_names_submitters_and_says_when_counters_and_trace_differ() {
    let text = render_bill(&samples::run(), 120);
    for part in ["by jbd2/loop0-8", "loop0:", "agree (2048 flushes", "DIFFER"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn the_atlas_shows_before_and_after() {
    // At 80 columns too: the size and the blocks are the experiment.
    for width in [80, 140] {
        let text = render_table(&samples::atlas(), width);
        for part in ["mode-0 64KiB", "65536->139264", "128->272", "unwritten", "EOPNOTSUPP"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
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
        match index {
            0 => way.name = "reuse+zero-range direct fdatasync-fsync-64 second-pass".repeat(3),
            1 => way.name = "日本語の名前\u{202e}\nzwei".repeat(4),
            2 => way.name = String::new(),
            _ => (),
        }
        if way.is_measured() {
            ugly_numbers(way, index);
        }
    }
    ugly.warnings.push(Warning { name: String::new(), text: "y".repeat(500), cure: " ".into() });
    assert_fits(&ugly, "ugly");
    let text = everything(&ugly, 100);
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
        _ => way.figures.push(figure("a figure", Unit::PerOp, f64::NAN)),
    }
    way.relative =
        Some(Relative::with_interval(f64::NAN, (f64::NEG_INFINITY, f64::INFINITY), Verdict::Tie));
    if let Some(bill) = &mut way.bill {
        bill.commits = u64::from(index != 1);
        let tally = samples::tally(u64::MAX / 2, u64::MAX / 2);
        bill.requests.insert(Kind::DataWrite, tally);
    }
}
