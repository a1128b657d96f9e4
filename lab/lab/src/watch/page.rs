//! The page of a report: text for a terminal.
//!
//! *Owns*: its words and columns. *May not touch*: figures, which the report has.

use crate::table::{numbers, paragraph};

use super::report::{FileReport, WatchReport};
use super::tally::SyncTime;

/// What helps where no setting that was measured answers the cause.
const NOTHING_KNOWN: &str = "no setting is known here: docs/watch.md has those that were measured";
/// The most slow calls on the page.
const SLOW_LISTED: usize = 10;
/// What the time is that no request and no journal explains.
const ELSEWHERE: &str = "the kernel's own work, and waits for a processor or a lock";
/// The width of the column of names.
const NAME_COLUMNS: usize = 13;

/// The report as text of at most `width` columns.
pub fn page(report: &WatchReport, width: usize) -> String {
    let width = width.clamp(60, 120);
    let mut text =
        wrapped(&format!("{}, watched for {:.1} s", report.program, report.seconds), width);
    text.push('\n');
    text.push_str(&wrapped(&report.finding, width));
    for (index, file) in report.files.iter().enumerate() {
        text.push('\n');
        // The finding has the reason for the first file.
        file_of(file, index > 0, width, &mut text);
    }
    if report.files_left_out > 0 {
        text.push_str(&format!("\n{} more files were synced\n", report.files_left_out));
    }
    if let Some(slow) = &report.slow {
        text.push('\n');
        text.push_str(&wrapped(&slow.finding, width));
        for call in slow.listed.iter().take(SLOW_LISTED) {
            let at = format!("{:.2} s", call.at_ms / 1000.0);
            text.push_str(&row(&at, &call.words(), width));
        }
    }
    text.push('\n');
    for disk in &report.disks {
        let cache = match (disk.volatile_cache, disk.fua) {
            (false, _) => "no volatile cache: a sync needs no flush",
            (true, true) => "volatile cache, FUA",
            (true, false) => "volatile cache, no FUA",
        };
        let said = format!(
            "{}: {} at {} ({}), {cache}, busy {:.0}% of the time",
            disk.device,
            disk.file_system,
            disk.mounted,
            disk.options,
            disk.busy * 100.0
        );
        text.push_str(&row("disk", &said, width));
    }
    if report.files.iter().any(|file| file.time.is_some()) {
        text.push_str(&row("elsewhere", ELSEWHERE, width));
    }
    for warning in &report.warnings {
        text.push_str(&row("note", warning, width));
    }
    text
}

fn file_of(file: &FileReport, says_why: bool, width: usize, text: &mut String) {
    let files = match file.more_files {
        0 => String::new(),
        more => format!(" ({} files)", more + 1),
    };
    text.push_str(&wrapped(&format!("{}{files}", file.path), width));
    for (how, calls) in &file.calls {
        let failed = match calls.failed {
            0 => String::new(),
            failed => format!(", {failed} FAILED"),
        };
        let said = format!(
            "{} calls, {:.1} per second: p50 {}, p99 {}, max {}{failed}",
            calls.calls,
            calls.per_second,
            time(calls.p50_us),
            time(calls.p99_us),
            time(calls.max_us)
        );
        text.push_str(&row(how.words(), &said, width));
    }
    if let Some(between) = file.bytes_between {
        text.push_str(&row("writes", &format!("{} for each sync", bytes(between as f64)), width));
    }
    if let Some(bill) = &file.bill {
        let mut said = super::cause::words(bill);
        let sizes = [
            ("data", bill.data_bytes),
            ("journal", bill.journal_bytes),
            ("metadata", bill.metadata_bytes),
        ];
        let sizes: Vec<String> = sizes
            .into_iter()
            .filter(|(_, size)| *size >= 1.0)
            .map(|(what, size)| format!("{} of {what}", bytes(size)))
            .collect();
        if !sizes.is_empty() {
            said.push_str(&format!(" ({})", sizes.join(", ")));
        }
        text.push_str(&row("one pays", &said, width));
    }
    if let Some(spent) = &file.time {
        let said = format!("{} on average: {}", time(spent.total_us), parts(spent));
        text.push_str(&row("one takes", &said, width));
        let share = file.bill.map_or(0.0, |bill| bill.waited * 100.0);
        if let (Some(waited), Some(other), true) =
            (spent.waited_p50_us, spent.other_p50_us, (0.5..99.5).contains(&share))
        {
            let said = format!(
                "{share:.0}% of them waited for the journal: {} (median); the others: {}",
                time(waited),
                time(other)
            );
            text.push_str(&row("", &said, width));
        }
    }
    if let Some(slowest) = &file.slowest {
        let said = format!("{} on average: {}", time(slowest.total_us), parts(slowest));
        text.push_str(&row("slowest 1%", &said, width));
    }
    if says_why {
        text.push_str(&row("why", &file.why, width));
    }
    match &file.advice {
        Some(advice) => {
            let said = format!(
                "{}: {} ({}). {}; docs/watch.md has the gain that was measured",
                advice.program, advice.setting, advice.effect, advice.source
            );
            text.push_str(&row("what helps", &said, width));
        }
        None if !says_why => text.push_str(&row("what helps", NOTHING_KNOWN, width)),
        None => {}
    }
}

/// Where the time of a sync went, without what is below a hundredth of it.
fn parts(spent: &SyncTime) -> String {
    let rest = spent.total_us - spent.device_us - spent.queue_us - spent.journal_us;
    let flush = format!("in the device ({} of it flushes)", time(spent.flush_us));
    let parts = [
        (spent.device_us, if spent.flush_us > 0.0 { &flush } else { "in the device" }),
        (spent.queue_us, "in the queue"),
        (spent.journal_us, "waiting for the journal besides"),
        (rest, "elsewhere"),
    ];
    let parts = parts.into_iter().filter(|(us, _)| *us >= spent.total_us / 100.0);
    parts.map(|(us, what)| format!("{} {what}", time(us))).collect::<Vec<String>>().join(", ")
}

/// Microseconds, in a unit that suits them.
fn time(us: f64) -> String {
    numbers::time(us * 1000.0)
}

/// Bytes, in a unit that suits them.
fn bytes(count: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    let digits = usize::from(unit > 0 && value < 100.0 && (value - value.round()).abs() >= 0.05);
    format!("{value:.digits$} {}", units[unit])
}

/// A row: a name, and words that wrap to the right of it.
fn row(name: &str, words: &str, width: usize) -> String {
    let mut text = String::new();
    paragraph(&mut text, width, &format!("  {name:NAME_COLUMNS$} "), words);
    text
}

fn wrapped(words: &str, width: usize) -> String {
    let mut text = String::new();
    paragraph(&mut text, width, "", words);
    text
}
