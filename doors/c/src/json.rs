//! Statistics and reports as JSON, written by hand: a few flat objects need no library.
//!
//! *Owns*: the names of the members. *May not touch*: what the numbers mean.

use std::fmt::Write as _;

use inkstone::inspect::{Gap, Report};
use inkstone::{Corruption, Recovery, Stats, Times, Verdict};

/// An object that is being written.
struct Object(String);

impl Object {
    fn new() -> Self {
        Self("{".into())
    }

    /// A member whose value is JSON already.
    fn raw(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        let comma = if self.0.len() > 1 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{comma}{}:{value}", text(name));
        self
    }

    fn text(self, name: &str, value: &str) -> Self {
        self.raw(name, text(value))
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// A text in quotes.
fn text(value: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in value.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            control if control < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(","))
}

fn or_null(value: Option<impl std::fmt::Display>) -> String {
    value.map_or_else(|| "null".into(), |value| value.to_string())
}

fn times(times: &Times) -> String {
    Object::new()
        .raw("count", times.count())
        .raw("sum_us", times.sum_us())
        .raw("p50_us", times.quantile_us(0.5))
        .raw("p99_us", times.quantile_us(0.99))
        .raw("p999_us", times.quantile_us(0.999))
        .raw("max_us", times.max_us())
        .end()
}

pub(crate) fn stats(stats: &Stats) -> String {
    Object::new()
        .raw("records", stats.records)
        .raw("record_bytes", stats.record_bytes)
        .raw("groups", stats.groups)
        .raw("group_bytes", stats.group_bytes)
        .raw("waiters", stats.waiters)
        .raw("segments", stats.segments)
        .raw("segments_recycled", stats.segments_recycled)
        .raw("segments_prepared", stats.segments_prepared)
        .raw("segments_fallocated", stats.segments_fallocated)
        .raw("pool_empty", stats.pool_empty)
        .raw("prepared_bytes", stats.prepared_bytes)
        .raw("waits", stats.waits)
        .raw("missed_wakeups", stats.missed_wakeups)
        .raw("sleeps_at_once", stats.sleeps_at_once)
        .raw("rested_us", stats.rested_us)
        .raw("ready", stats.ready)
        .raw("free", stats.free)
        .raw("tail_bytes", stats.tail_bytes)
        .raw("queue", times(&stats.queue))
        .raw("write", times(&stats.write))
        .raw("sync", times(&stats.sync))
        .raw("commit", times(&stats.commit))
        .raw("change", times(&stats.change))
        .end()
}

pub(crate) fn streams_stats(stats: &::inkstone_streams::Stats) -> String {
    Object::new()
        .raw("streams", stats.streams)
        .raw("live_bytes", stats.live_bytes)
        .raw("table_bytes", stats.table_bytes)
        .raw("log_bytes", stats.log_bytes)
        .raw("sections", stats.sections)
        .raw("moved_records", stats.moved_records)
        .raw("moved_bytes", stats.moved_bytes)
        .raw("lost_records", stats.lost_records)
        .raw("housekeeping_bytes", stats.housekeeping_bytes)
        .raw("front_live_bytes", stats.front_live_bytes)
        .raw("not_moved", or_null(stats.not_moved.as_ref().map(|error| text(&error.to_string()))))
        .end()
}

pub(crate) fn recovery(recovery: &Recovery) -> String {
    Object::new()
        .text("text", &recovery.to_string())
        .raw("created", recovery.created)
        .raw("clean", recovery.clean)
        .raw("torn", recovery.verdict == Verdict::Torn)
        .text("row", recovery.row)
        .raw("first", recovery.first.get())
        .raw("last", recovery.last.get())
        .raw("epoch", or_null(recovery.epoch.map(|epoch| epoch.get())))
        .raw("segments", recovery.segments)
        .raw("bytes_read", recovery.bytes_read)
        .raw("leftovers", recovery.leftovers)
        .raw("waits_for_room", recovery.waits_for_room)
        .end()
}

fn damage(damage: &Corruption) -> String {
    Object::new()
        .text("path", &damage.path.to_string_lossy())
        .raw("segment", or_null(damage.segment.map(|segment| segment.get())))
        .raw("offset", damage.offset)
        .raw("lsn", or_null(damage.lsn.map(|lsn| lsn.get())))
        .text("reason", &damage.reason.to_string())
        .text("row", damage.row)
        .raw("details", list(damage.details.iter().map(|line| text(line))))
        .end()
}

fn gap(gap: Gap) -> String {
    Object::new().raw("first", gap.first.get()).raw("last", gap.last.get()).end()
}

/// The verdict in the words of docs/format.md.
fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::End => "end",
        Verdict::Torn => "torn",
        Verdict::Corrupt(_) => "corrupt",
        Verdict::Unknown => "unknown version",
    }
}

pub(crate) fn report(report: &Report) -> String {
    let counts = report.counts();
    Object::new()
        .text("path", &report.path.to_string_lossy())
        .raw("intact", report.is_intact())
        .text("verdict", verdict(report.verdict))
        .text("row", report.row)
        .raw("first", report.first.get())
        .raw("last", report.last.get())
        .raw("promise", report.promise.get())
        .raw("clean", report.clean)
        .raw("writer", or_null(report.writer.as_deref().map(text)))
        .raw("records", counts.records)
        .raw("record_bytes", counts.record_bytes)
        .raw("gaps", list(report.gaps().map(gap)))
        .raw("savable_records", or_null(report.savable.map(|savable| savable.records)))
        .raw("segments", report.segments.len())
        .raw("other_files", report.others.len())
        .raw("damage", list(report.damage.iter().map(damage)))
        .raw("doubts", list(report.doubts.iter().map(|doubt| text(doubt))))
        .end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_quoted_whatever_is_in_it() {
        assert_eq!(text("a \"b\" \\ \n\u{1}é"), "\"a \\\"b\\\" \\\\ \\u000a\\u0001é\"");
    }

    #[test]
    fn every_number_of_the_log_and_of_streams_is_in_its_json() {
        let (log, of_streams) = (Stats::default(), ::inkstone_streams::Stats::default());
        for (debug, json, count_min) in [
            (format!("{log:?}"), stats(&log), 21),
            (format!("{of_streams:?}"), streams_stats(&of_streams), 9),
        ] {
            let fields: Vec<&str> = debug
                .trim_start_matches("Stats {")
                .split(", ")
                .filter_map(|part| part.trim().split_once(": "))
                .map(|(name, _)| name)
                .filter(|name| name.chars().all(|sign| sign.is_ascii_lowercase() || sign == '_'))
                .collect();
            assert!(fields.len() >= count_min, "{fields:?}");
            for field in fields {
                assert!(json.contains(&format!("\"{field}\":")), "{field} is missing in {json}");
            }
        }
    }
}
