//! `docs/format.md` against the code: its constants, its tables, its example.
//!
//! *Owns*: that the document says what the code does. *May not touch*: either.

use std::collections::BTreeMap;

use crate::support::{SEGMENT_BYTES, Writer, log_id, survey_of};
use inkstone_format::{HEADER_ROWS, ROWS, Verdict, limits};

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");
    std::fs::read_to_string(path).unwrap()
}

/// The cells of the rows of all tables, without the blanks around them.
fn rows(document: &str) -> Vec<Vec<String>> {
    let rows = document.lines().filter(|line| line.starts_with('|'));
    rows.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect())
        .collect()
}

#[test]
fn the_constants_are_the_codes() {
    let hex =
        |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    let code = BTreeMap::from([
        ("`FORMAT_VERSION`", limits::FORMAT_VERSION.to_string()),
        ("`MAGIC`", hex(&limits::MAGIC)),
        ("`GROUP_MARKER`", hex(&limits::GROUP_MARKER)),
        ("`ALIGN`", limits::ALIGN.to_string()),
        ("`BLOCK_BYTES`", limits::BLOCK_BYTES.to_string()),
        ("`HEADER_BYTES`", limits::HEADER_BYTES.to_string()),
        ("`CUTS_KNOWN`", limits::CUTS_KNOWN.to_string()),
        ("`HEADER_COPY_BYTES`", limits::HEADER_COPY_BYTES.to_string()),
        ("`HEADER_COPIES_AT`", limits::HEADER_COPIES_AT.map(|at| at.to_string()).join(", ")),
        ("`GROUP_HEADER_BYTES`", limits::GROUP_HEADER_BYTES.to_string()),
        ("`FRAME_HEADER_BYTES`", limits::FRAME_HEADER_BYTES.to_string()),
        ("`SEGMENT_BYTES_MIN`", limits::SEGMENT_BYTES_MIN.to_string()),
        ("`SEGMENT_BYTES_MAX`", limits::SEGMENT_BYTES_MAX.to_string()),
        ("`MARK_BLOCK_BYTES`", limits::MARK_BLOCK_BYTES.to_string()),
        ("`CUT_MARK_MARKER`", hex(&limits::CUT_MARK_MARKER)),
        ("`CUT_MARK_COPY_BYTES`", limits::CUT_MARK_COPY_BYTES.to_string()),
        ("`CONTROL_RESERVE_BYTES`", limits::CONTROL_RESERVE_BYTES.to_string()),
        ("`INDEX_STEP_BYTES`", limits::INDEX_STEP_BYTES.to_string()),
        ("`INDEX_SEGMENT_BYTES_MIN`", limits::INDEX_SEGMENT_BYTES_MIN.to_string()),
        ("`INDEX_MARKER`", hex(&limits::INDEX_MARKER)),
        ("`INDEX_HEADER_BYTES`", limits::INDEX_HEADER_BYTES.to_string()),
        ("`INDEX_ENTRY_BYTES`", limits::INDEX_ENTRY_BYTES.to_string()),
        ("`RECORD_BYTES_MAX`", limits::RECORD_BYTES_MAX.to_string()),
        ("`GROUP_BYTES_MAX`", limits::GROUP_BYTES_MAX.to_string()),
    ]);
    let rows = rows(&document());
    let said: BTreeMap<&str, String> = rows
        .iter()
        .filter(|row| row.len() == 3 && row[0].starts_with('`') && row[0].to_uppercase() == row[0])
        .map(|row| (row[0].as_str(), row[1].clone()))
        .collect();
    assert_eq!(said, code);
    // A constant that is added has to be documented.
    let source = include_str!("../../src/limits.rs");
    let is_one = |line: &&str| line.starts_with("pub const ") && !line.starts_with("pub const fn");
    assert_eq!(source.lines().filter(is_one).count(), code.len());
}

#[test]
fn the_verdict_tables_are_the_codes() {
    let rows = rows(&document());
    let verdict_of = |name: &str| {
        let row = rows.iter().find(|row| row[0] == name);
        row.unwrap_or_else(|| panic!("row {name} is not in the document")).last().unwrap().clone()
    };
    let names = ROWS.iter().map(|row| (row.name, row.verdict));
    for (name, verdict) in names.chain(HEADER_ROWS.iter().map(|row| (row.name, row.verdict))) {
        let word = match verdict {
            Verdict::End => "End",
            Verdict::Torn => "Torn",
            Verdict::Corrupt(_) => "Corrupt",
            Verdict::Unknown => "Unknown",
        };
        assert!(
            verdict_of(name).starts_with(word),
            "{name} is {word}, the document says {}",
            verdict_of(name)
        );
    }
    // Each cell of the table of stops.
    for row in ROWS {
        let said = rows.iter().find(|said| said[0] == row.name).unwrap();
        let flag = |value: Option<bool>, yes: &str, no: &str| match value {
            None => String::new(),
            Some(true) => yes.to_string(),
            Some(false) => no.to_string(),
        };
        let cells = [
            (1, flag(row.below, "yes", "no")),
            (2, flag(row.short, "yes", "no")),
            (3, flag(row.sealed, "yes", "no")),
            (5, row.place.map_or(String::new(), |place| format!("{place:?}").to_lowercase())),
            (6, flag(row.lower, "lower", "not lower")),
            (7, flag(row.later, "yes", "no")),
            (8, flag(row.length, "right", "wrong")),
            (9, flag(row.lsn, "right", "wrong")),
            (10, flag(row.grammar, "right", "wrong")),
            (11, flag(row.body, "right", "wrong")),
        ];
        for (column, cell) in cells {
            assert_eq!(said[column], cell, "row {} column {column}", row.name);
        }
    }
}

fn example() -> Writer {
    let mut writer = Writer::create(log_id(0));
    writer.append(&[b"hello, disk".to_vec()]);
    writer
}

fn hex_of(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (line, chunk) in bytes.chunks(16).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let words: Vec<String> = chunk.chunks(4).map(hex).collect();
            text.push_str(&format!("{:05x}: {}\n", line * 16, words.join(" ")));
        }
    }
    text
}

#[test]
fn the_example_is_what_the_code_writes_and_reads() {
    let writer = example();
    let document = document();
    let said = document.split("```hex\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let mut bytes = vec![0; SEGMENT_BYTES as usize];
    for line in said.lines().map(|line| line.split(';').next().unwrap()) {
        let Some((at, hex)) = line.split_once(": ") else { continue };
        let at = usize::from_str_radix(at, 16).unwrap();
        let hex: String = hex.split_whitespace().collect();
        for index in 0..hex.len() / 2 {
            let byte = &hex[2 * index..2 * index + 2];
            bytes[at + index] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    assert!(
        bytes == writer.files[0].bytes,
        "the document should show\n{}",
        hex_of(&writer.files[0].bytes)
    );
    let (found, shown) = survey_of(&[crate::support::File { number: writer.header.number, bytes }]);
    assert_eq!(
        (found.verdict, shown),
        (Verdict::End, vec![(1, b"hello, disk")].into_iter().map(own).collect())
    );
}

fn own((lsn, payload): (u64, &[u8; 11])) -> (inkstone_format::Lsn, Vec<u8>) {
    (inkstone_format::Lsn::new(lsn), payload.to_vec())
}
