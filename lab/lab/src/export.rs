//! A result as JSON (everything) and as CSV (a row for each cell, for spreadsheets and plots).
//!
//! *Owns*: the CSV's columns, whose names and order never change: new ones are added at the end.
//! *May not touch*: files; the command writes them. Durations are in nanoseconds, sizes in bytes; a
//! value that was not measured is an empty field.

use crate::result::{
    Bill, BillSource, CellResult, DurableFinding, Histogram, LabResult, LayerBill, Measured,
    Outcome, Run, Tally, Verdict,
};
use crate::stats;

/// The whole result on one line: raw histograms would fill thousands. Reading it back with serde
/// gives the same result.
///
/// # Errors
/// When serde cannot write it; with the types of `result` that does not happen.
pub fn to_json(result: &LabResult) -> serde_json::Result<String> {
    serde_json::to_string(result).map(|json| json + "\n")
}

/// Reads what [`to_json`] wrote. Everything that reads a result goes through here: the code of
/// serde for all its types is then made once, not once for each crate and kind of input.
///
/// # Errors
/// It is not JSON, or not a result.
pub fn from_json(json: &str) -> serde_json::Result<LabResult> {
    serde_json::from_str(json)
}

/// A header and one row per cell, with CRLF and quotes as in RFC 4180. The bill is that of the file
/// system's own device, per commit; the host's below a loop device follows it.
pub fn to_csv(result: &LabResult) -> String {
    let mut out = HEADER.join(",");
    out.push_str("\r\n");
    for run in &result.runs {
        for cell in &run.cells {
            let mut row = Row::default();
            place(&mut row, run);
            coordinates(&mut row, cell);
            measurement(&mut row, run, cell);
            debug_assert_eq!(row.fields, HEADER.len(), "a field for each name of the header");
            out.push_str(&row.text);
            out.push_str("\r\n");
        }
    }
    out
}

/// The names of the CSV's columns.
const HEADER: [&str; 77] = [
    "run",
    "place",
    "directory",
    "file_system",
    "mount_options",
    "device",
    "write_cache",
    "fua",
    "cell",
    "preparation",
    "reuse",
    "access",
    "durability",
    "engine",
    "write_bytes",
    "file_bytes",
    "pass",
    "cache",
    "outcome",
    "reason",
    "baseline",
    "rounds",
    "commits",
    "per_commit_ns",
    "preparation_ns",
    "commit_p50_ns",
    "commit_p99_ns",
    "commit_p999_ns",
    "commit_min_ns",
    "commit_max_ns",
    "commit_mean_ns",
    "write_p50_ns",
    "write_p99_ns",
    "write_p999_ns",
    "write_max_ns",
    "sync_p50_ns",
    "sync_p99_ns",
    "sync_p999_ns",
    "sync_max_ns",
    "speedup",
    "speedup_low",
    "speedup_high",
    "verdict",
    "durable",
    "durable_reason",
    "minor_faults_per_write",
    "major_faults_per_write",
    "bill_source",
    "bill_commits",
    "bill_lost_events",
    "bill_device",
    "data_writes",
    "data_write_bytes",
    "journal_writes",
    "journal_write_bytes",
    "timer_journal_writes",
    "timer_journal_write_bytes",
    "other_journal_writes",
    "other_journal_write_bytes",
    "metadata_writes",
    "metadata_write_bytes",
    "zeroing",
    "zeroing_bytes",
    "discards",
    "discard_bytes",
    "unattributed_writes",
    "unattributed_write_bytes",
    "reads",
    "read_bytes",
    "all_writes",
    "all_write_bytes",
    "flushes",
    "fua_writes",
    "host_device",
    "host_writes",
    "host_write_bytes",
    "host_flushes",
];

/// A row being written.
#[derive(Default)]
struct Row {
    text: String,
    fields: usize,
}

impl Row {
    fn text(&mut self, text: &str) {
        if self.fields > 0 {
            self.text.push(',');
        }
        self.fields += 1;
        if text.contains(['"', ',', '\r', '\n']) || text.starts_with(' ') || text.ends_with(' ') {
            self.text.push('"');
            self.text.push_str(&text.replace('"', "\"\""));
            self.text.push('"');
        } else {
            self.text.push_str(text);
        }
    }

    fn count(&mut self, count: Option<u64>) {
        self.text(&count.map(|count| count.to_string()).unwrap_or_default());
    }

    /// A number; empty if it is not finite.
    fn number(&mut self, number: Option<f64>) {
        self.text(
            &number
                .filter(|number| number.is_finite())
                .map(|number| number.to_string())
                .unwrap_or_default(),
        );
    }
}

fn place(row: &mut Row, run: &Run) {
    let place = &run.place;
    row.text(&run.name);
    row.text(&place.name);
    row.text(&place.directory);
    row.text(&place.file_system);
    row.text(&place.mount_options);
    row.text(place.device.as_deref().unwrap_or_default());
    row.text(place.write_cache.as_deref().unwrap_or_default());
    row.text(place.fua.map_or("", |fua| if fua { "true" } else { "false" }));
}

fn coordinates(row: &mut Row, cell: &CellResult) {
    let what = &cell.what;
    for text in
        [&cell.name, &what.preparation, &what.reuse, &what.access, &what.durability, &what.engine]
    {
        row.text(text);
    }
    row.count(Some(what.write_bytes));
    row.count(Some(what.file_bytes));
    row.text(&what.pass);
    row.text(&what.cache);
}

fn measurement(row: &mut Row, run: &Run, cell: &CellResult) {
    let (outcome, reason) = match &cell.outcome {
        Outcome::Measured(_) => ("measured", ""),
        Outcome::Invalid { reason } => ("invalid", reason.as_str()),
        Outcome::NotRun => ("not-run", ""),
    };
    row.text(outcome);
    row.text(reason);
    row.text(run.baseline.as_deref().unwrap_or_default());
    let Some(measured) = cell.outcome.measured() else {
        while row.fields < HEADER.len() {
            row.text("");
        }
        return;
    };
    times(row, measured);
    relative(row, measured);
    durable(row, measured);
    bill(row, measured.bill.as_ref());
}

fn times(row: &mut Row, measured: &Measured) {
    let rounds = &measured.rounds;
    row.count(Some(rounds.len() as u64));
    row.count(Some(rounds.iter().map(|round| round.commits).fold(0, u64::saturating_add)));
    row.number(stats::per_commit_ns(measured));
    let preparations: Vec<f64> = rounds.iter().map(|round| round.preparation_ns as f64).collect();
    row.number(stats::median(&preparations));
    let commit = some(&measured.commit);
    let picks: [fn(&Histogram) -> u64; 5] =
        [|h| h.p50_ns, |h| h.p99_ns, |h| h.p999_ns, |h| h.min_ns, |h| h.max_ns];
    for pick in picks {
        row.count(commit.map(pick));
    }
    row.number(commit.map(|histogram| histogram.mean_ns));
    for histogram in [some(&measured.write), some(&measured.sync)] {
        let picks: [fn(&Histogram) -> u64; 4] =
            [|h| h.p50_ns, |h| h.p99_ns, |h| h.p999_ns, |h| h.max_ns];
        for pick in picks {
            row.count(histogram.map(pick));
        }
    }
}

fn some(histogram: &Histogram) -> Option<&Histogram> {
    (histogram.count > 0).then_some(histogram)
}

fn relative(row: &mut Row, measured: &Measured) {
    let relative = measured.relative;
    row.number(relative.map(|relative| relative.speedup));
    row.number(relative.and_then(|relative| Some(relative.interval()?.0)));
    row.number(relative.and_then(|relative| Some(relative.interval()?.1)));
    row.text(relative.map_or("", |relative| match relative.verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Tie => "tie",
        Verdict::CannotTell => "cannot-tell",
        Verdict::Unknown => "unknown",
    }));
}

fn durable(row: &mut Row, measured: &Measured) {
    let (word, reason) = match &measured.durable {
        DurableFinding::NotClaimed => ("not-claimed", ""),
        DurableFinding::Seen { .. } => ("seen", ""),
        DurableFinding::Consistent { .. } => ("consistent", ""),
        DurableFinding::NotCovered { reason } => ("not-covered", reason.as_str()),
        DurableFinding::NotVisible { reason } => ("not-visible", reason.as_str()),
    };
    row.text(word);
    row.text(reason);
    row.number(measured.faults_per_write.map(|(minor, _)| minor));
    row.number(measured.faults_per_write.map(|(_, major)| major));
}

fn bill(row: &mut Row, bill: Option<&Bill>) {
    row.text(bill.map_or("", |bill| match bill.source {
        BillSource::Trace => "trace",
        BillSource::SharedCounters => "shared-counters",
    }));
    row.count(bill.map(|bill| bill.commits));
    row.count(bill.map(|bill| bill.lost_events));
    let own = bill.and_then(|bill| bill.layers.first());
    row.text(own.map_or("", |layer| layer.device.as_str()));
    let commits = bill.map_or(0, |bill| bill.commits) as f64;
    // With 0 commits the quotient is not finite, so the field is empty.
    let per = |total: u64| total as f64 / commits;
    let traced = own.filter(|_| bill.is_some_and(|bill| bill.source == BillSource::Trace));
    let counted =
        own.filter(|_| bill.is_some_and(|bill| bill.source == BillSource::SharedCounters));
    let tallies: [fn(&LayerBill) -> Tally; 8] = [
        |l| l.data_writes,
        |l| l.journal_writes,
        |l| l.timer_journal_writes,
        |l| l.other_journal_writes,
        |l| l.metadata_writes,
        |l| l.zeroing,
        |l| l.discards,
        |l| l.unattributed_writes,
    ];
    let mut tally = |of: Option<Tally>| {
        row.number(of.map(|tally| per(tally.requests)));
        row.number(of.map(|tally| per(tally.bytes)));
    };
    tallies.into_iter().for_each(|pick| tally(traced.map(pick)));
    tally(traced.map(|l| sum([l.data_reads, l.other_reads])).or(counted.map(|l| l.all_reads)));
    tally(own.and_then(|layer| bill.map(|bill| all_writes(layer, bill.source))));
    row.number(own.map(|layer| per(layer.flushes)));
    row.number(traced.map(|layer| per(layer.fua_writes)));
    let host = bill
        .and_then(|bill| bill.layers.get(1).map(|layer| (layer, all_writes(layer, bill.source))));
    row.text(host.map_or("", |(layer, _)| layer.device.as_str()));
    row.number(host.map(|(_, writes)| per(writes.requests)));
    row.number(host.map(|(_, writes)| per(writes.bytes)));
    row.number(host.map(|(layer, _)| per(layer.flushes)));
}

fn sum<const N: usize>(tallies: [Tally; N]) -> Tally {
    tallies.iter().fold(Tally::default(), |sum, tally| Tally {
        requests: sum.requests.saturating_add(tally.requests),
        bytes: sum.bytes.saturating_add(tally.bytes),
    })
}

/// All our writes to a layer. They do not include zeroing and discards, which carry no data of
/// ours, nor writes of other processes, nor those of the kernel that belong to no known process.
fn all_writes(layer: &LayerBill, source: BillSource) -> Tally {
    match source {
        BillSource::SharedCounters => layer.all_writes,
        BillSource::Trace => sum([
            layer.data_writes,
            layer.journal_writes,
            layer.timer_journal_writes,
            layer.other_journal_writes,
            layer.metadata_writes,
        ]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::samples;

    /// A CSV reader by RFC 4180, to check the writer with.
    fn read_csv(text: &str) -> Vec<Vec<String>> {
        let (mut rows, mut row, mut field, mut quoted) =
            (Vec::new(), Vec::new(), String::new(), false);
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match (c, quoted) {
                ('"', true) if chars.peek() == Some(&'"') => field.push(chars.next().unwrap()),
                ('"', _) => quoted = !quoted,
                (',', false) => row.push(std::mem::take(&mut field)),
                ('\r', false) => assert_eq!(chars.peek(), Some(&'\n')),
                ('\n', false) => {
                    row.push(std::mem::take(&mut field));
                    rows.push(std::mem::take(&mut row));
                }
                (c, _) => field.push(c),
            }
        }
        assert!(field.is_empty() && row.is_empty() && !quoted);
        rows
    }

    fn field<'a>(rows: &'a [Vec<String>], row: usize, name: &str) -> &'a str {
        let column = rows[0].iter().position(|head| head == name).unwrap();
        &rows[row][column]
    }

    #[test]
    fn json_comes_back_the_same() {
        let result = samples::result();
        let json = to_json(&result).unwrap();
        let back = from_json(&json).unwrap();
        assert_eq!(to_json(&back).unwrap(), json);
        assert_eq!(back.runs[0].cells.len(), result.runs[0].cells.len());
    }

    #[test]
    fn csv_has_a_row_per_cell_and_every_field() {
        let result = samples::result();
        let rows = read_csv(&to_csv(&result));
        assert_eq!(rows.len(), 1 + result.runs[0].cells.len());
        assert!(rows.iter().all(|row| row.len() == HEADER.len()));
        assert_eq!(field(&rows, 1, "cell"), "new fdatasync");
        assert_eq!(field(&rows, 1, "place"), "ext4, direct loop");
        assert_eq!(field(&rows, 1, "journal_writes"), "2");
        assert_eq!(field(&rows, 1, "journal_write_bytes"), "12288");
        assert_eq!(field(&rows, 1, "speedup"), "");
        assert_eq!(field(&rows, 1, "rounds"), "20");
        assert_eq!(field(&rows, 1, "commits"), "40960");
        assert_eq!(field(&rows, 2, "baseline"), "new fdatasync");
        assert_eq!(field(&rows, 4, "host_flushes"), "1");
        assert_eq!(field(&rows, 4, "verdict"), "faster");
        assert_eq!(field(&rows, 8, "minor_faults_per_write"), "1");
        assert_eq!(
            field(&rows, 9, "durable_reason"),
            "2048 of 2048 acknowledgements before any flush"
        );
        assert_eq!(
            field(&rows, 9, "sync_p50_ns"),
            "",
            "empty where the write carries its durability"
        );
        assert_eq!(field(&rows, 10, "outcome"), "invalid");
        assert_eq!(field(&rows, 11, "outcome"), "not-run");
    }

    #[test]
    fn csv_quotes_what_it_must_and_leaves_out_what_is_no_number() {
        let mut result = samples::result();
        let run = &mut result.runs[0];
        run.cells.truncate(2);
        run.cells[0].name = "say \"hi\", näh\r\nnext".into();
        run.cells[0].outcome = Outcome::Invalid { reason: " blank".into() };
        if let Outcome::Measured(measured) = &mut run.cells[1].outcome {
            measured.faults_per_write = Some((f64::NAN, f64::INFINITY));
            measured.rounds.clear();
            if let Some(bill) = &mut measured.bill {
                bill.commits = 0;
            }
        }
        let text = to_csv(&result);
        assert!(text.contains("\"say \"\"hi\"\", näh\r\nnext\""), "{text}");
        let rows = read_csv(&text);
        assert_eq!(field(&rows, 1, "cell"), "say \"hi\", näh\r\nnext");
        assert_eq!(field(&rows, 1, "reason"), " blank");
        for name in [
            "minor_faults_per_write",
            "major_faults_per_write",
            "per_commit_ns",
            "data_writes",
            "flushes",
        ] {
            assert_eq!(field(&rows, 2, name), "", "{name}");
        }
        assert!(!text.contains("NaN") && !text.contains("inf,"), "{text}");
    }

    #[test]
    fn counters_shared_with_others_fill_their_own_columns() {
        let mut result = samples::result();
        if let Outcome::Measured(measured) = &mut result.runs[0].cells[0].outcome {
            measured.bill = Some(samples::counted());
        }
        let rows = read_csv(&to_csv(&result));
        assert_eq!(field(&rows, 1, "bill_source"), "shared-counters");
        assert_eq!(field(&rows, 1, "data_writes"), "");
        assert_eq!(field(&rows, 1, "fua_writes"), "");
        assert!(field(&rows, 1, "all_writes").starts_with("2.00"));
    }
}
