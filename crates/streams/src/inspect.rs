//! What a record of the log says, for those who look at it.
//!
//! *Owns*: the names of changes and of their numbers. *May not touch*: their bytes (`record.rs`).

use inkstone::Lsn;

use crate::record::{Change, Flaw, Run, Sealed, decode};

/// A change of a record of the log, with its numbers. A length is in bytes.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub change: &'static str,
    pub numbers: Vec<(&'static str, u64)>,
}

/// What the record with this LSN says: first its head, then its changes.
///
/// # Errors
/// Why it is no record of streams that this program knows.
#[doc(hidden)]
pub fn said(record: &[u8], lsn: Lsn) -> Result<Vec<Said>, String> {
    let flaw = |flaw| match flaw {
        Flaw::Unknown(what) => format!("it has {what}, which this program does not know"),
        Flaw::Malformed(why) => why.to_owned(),
    };
    let (head, changes) = decode(record, lsn).map_err(flaw)?;
    let section = u64::from(head.section);
    let numbers = vec![("section", section), ("replay_from", head.replay_from.get())];
    let mut all = vec![Said { change: "head", numbers }];
    for change in changes {
        all.push(of(&change.map_err(flaw)?));
    }
    Ok(all)
}

fn of(change: &Change<'_>) -> Said {
    let (change, numbers) = match *change {
        Change::Create { stream, first } => ("create", vec![("stream", stream), ("first", first)]),
        Change::Append { stream, number, bytes } => {
            ("append", vec![("stream", stream), ("number", number), length(bytes)])
        }
        Change::Note { stream, bytes } => ("note", vec![("stream", stream), length(bytes)]),
        Change::TruncateBefore { stream, first } => {
            ("truncate before", vec![("stream", stream), ("first", first)])
        }
        Change::TruncateAfter { stream, next } => {
            ("truncate after", vec![("stream", stream), ("next", next)])
        }
        Change::Restart { stream, first } => ("restart", vec![("stream", stream), ("next", first)]),
        Change::Remove { stream } => ("remove", vec![("stream", stream)]),
        Change::Moved { stream, number, source, bytes } => {
            let source = ("source", u64::from(source));
            ("moved", vec![("stream", stream), ("number", number), source, length(bytes)])
        }
        Change::Lost { stream, number, source } => {
            let source = ("source", u64::from(source));
            ("lost", vec![("stream", stream), ("number", number), source])
        }
        Change::TableBegin => ("table begins", Vec::new()),
        Change::TableStream { stream, first, next, cut, note, from, ref runs } => (
            "stream of a table",
            vec![
                ("stream", stream),
                ("first", first),
                ("next", next),
                ("cut", cut.get()),
                ("from", from),
                length(note),
                count(runs),
            ],
        ),
        Change::TableRuns { stream, from, to, ref runs } => {
            let numbers = vec![("stream", stream), ("from", from), ("to", to), count(runs)];
            ("runs of a table", numbers)
        }
        Change::TableSection(ref sealed) => ("section of a table", section(sealed)),
        Change::TableEnd => ("table ends", Vec::new()),
        Change::Page { section, bytes } => {
            ("page of a directory", vec![("section", u64::from(section)), length(bytes)])
        }
        Change::Sealed(ref sealed) => ("directory is complete", section(sealed)),
    };
    Said { change, numbers }
}

fn length(bytes: &[u8]) -> (&'static str, u64) {
    ("length", bytes.len() as u64)
}

fn count(runs: &[Run]) -> (&'static str, u64) {
    ("runs", runs.len() as u64)
}

fn section(sealed: &Sealed) -> Vec<(&'static str, u64)> {
    let Sealed { number, first, end, bytes, written } = sealed;
    vec![
        ("section", u64::from(*number)),
        ("first_lsn", first.get()),
        ("end_lsn", end.get()),
        ("bytes", *bytes),
        ("pages", written.pages.len() as u64),
    ]
}
