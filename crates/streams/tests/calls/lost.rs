//! A log of streams that was salvaged: what its streams still have is read by the same numbers, and
//! nobody writes to it.
//!
//! *Owns*: streams over a gap. *May not touch*: what a salvage saves; the log's tests do that.

use std::collections::BTreeMap;
use std::sync::Arc;

use inkstone::inspect::{Entry, SegmentReport, dump_in, salvage_in, verify_in};
use inkstone::system::seam::{File, OpenFile};
use inkstone::{Directory, Lsn};
use inkstone_sim::{DiskOptions, SimDirectory, SimDisk};
use inkstone_streams::{Error, Options, Streams, StreamsReader};

const STREAMS: u64 = 50;
const ROUNDS: u64 = 60;

fn options() -> Options {
    Options::new().log(inkstone::Options::small()).section_bytes(16 << 10).own_mover(false)
}

fn record(stream: u64, number: u64) -> Vec<u8> {
    vec![(stream * 7 + number) as u8; (stream * 13 + number * 29) as usize % 200]
}

/// The log of 50 streams, in several sections, with a table behind most of them.
fn made() -> Arc<SimDirectory> {
    let directory = Arc::new(SimDisk::new(1, DiskOptions::default()).directory("/log"));
    let streams = Streams::open_in(Arc::clone(&directory), options()).unwrap();
    (1..=STREAMS).for_each(|stream| drop(streams.create(stream, 1).unwrap()));
    for number in 1..=ROUNDS {
        (1..=STREAMS).for_each(|id| drop(streams.append(id, &record(id, number)).unwrap()));
        streams.sync().unwrap();
    }
    streams.close().unwrap();
    directory
}

fn salvaged(from: &Arc<SimDirectory>) -> Arc<SimDirectory> {
    let to = Arc::new(SimDisk::new(2, DiskOptions::default()).directory("/saved"));
    let log = inkstone::Options::small();
    salvage_in(Arc::clone(from), || Ok(Arc::clone(&to)), &log).unwrap();
    to
}

/// Flips a bit while `check` runs.
fn flipped(directory: &SimDirectory, segment: &SegmentReport, bit: u64, check: impl FnOnce()) {
    let name = segment.path.file_name().unwrap().to_string_lossy();
    let file = directory.open(&name, &OpenFile::existing()).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, bit / 8).unwrap();
    file.write_at(&[byte[0] ^ 1 << (bit % 8)], bit / 8).unwrap();
    check();
    file.write_at(&byte, bit / 8).unwrap();
}

/// Stream and number of a record.
type At = (u64, u64);

/// What the streams still have; every call must agree.
fn shown(reader: &StreamsReader) -> (BTreeMap<At, Vec<u8>>, Vec<At>) {
    let (mut shown, mut lost) = (BTreeMap::new(), Vec::new());
    assert_eq!(reader.ids(None, 1000).unwrap(), (1..=STREAMS).collect::<Vec<_>>());
    for stream in 1..=STREAMS {
        assert_eq!(reader.bounds(stream).unwrap().next, ROUNDS + 1);
        for found in reader.records(stream, 1) {
            match found {
                Ok(found) => drop(shown.insert((stream, found.number), found.bytes)),
                Err(Error::LostRecord { stream, number }) => lost.push((stream, number)),
                Err(error) => panic!("{error}"),
            }
        }
    }
    for (stream, number) in &lost {
        let found = reader.get(*stream, *number);
        assert!(matches!(found, Err(Error::LostRecord { .. })), "{found:?}");
    }
    (shown, lost)
}

/// One of so many bits; of `INKSTONE_BIT_STEP` in .ci/long, which takes long.
#[test]
fn a_flipped_bit_costs_the_streams_one_record_and_no_writer_comes() {
    let directory = made();
    let all: BTreeMap<_, _> = (1..=STREAMS)
        .flat_map(|id| (1..=ROUNDS).map(move |number| ((id, number), record(id, number))))
        .collect();
    let step = std::env::var("INKSTONE_BIT_STEP").map_or(30_011, |step| step.parse().unwrap());
    let (mut whole, mut readable, mut unknown) = (0, 0, 0);
    for segment in &verify_in(Arc::clone(&directory)).unwrap().segments {
        for bit in (0..segment.end * 8).step_by(step) {
            let mut saved = None;
            flipped(&directory, segment, bit, || saved = Some(salvaged(&directory)));
            let saved = saved.unwrap();
            let what = format!("segment {}, bit {bit}", segment.number);
            let report = verify_in(Arc::clone(&saved)).unwrap();
            let has_gap = report.gaps().count() > 0;
            match StreamsReader::open_in(Arc::clone(&saved), &options()) {
                Ok(reader) => {
                    let (shown, lost) = shown(&reader);
                    assert!(lost.len() <= usize::from(has_gap), "{what}: {lost:?}");
                    assert_eq!(shown.len() + lost.len(), all.len(), "{what}");
                    assert!(shown.iter().all(|(at, bytes)| all[at] == *bytes), "{what}");
                    readable += 1;
                }
                Err(Error::Lost { is_readable: false, .. }) if has_gap => unknown += 1,
                Err(error) => panic!("{what}: {error}"),
            }
            match Streams::open_in(saved, options()) {
                Err(Error::Lost { .. }) if has_gap => {}
                Ok(_) if !has_gap => whole += 1,
                other => panic!("{what}: {other:?}"),
            }
        }
    }
    assert!(whole > 0 && readable > whole && unknown > 0, "{whole}, {readable}, {unknown}");
}

/// The kind of a record's first change: docs/streams.md.
fn first_change(record: &[u8]) -> u8 {
    let mut numbers = 0;
    let behind = record[1..].iter().position(|byte| {
        let is_behind = numbers == 2;
        numbers += usize::from(byte & 0x80 == 0);
        is_behind
    });
    record[1 + behind.unwrap()]
}

const PAGE: u8 = 24;

/// A page that names the places of records is lost: the records are found without it.
#[test]
fn records_whose_page_is_lost_are_found() {
    let directory = made();
    let report = verify_in(Arc::clone(&directory)).unwrap();
    let mut pages = 0;
    let entries: Vec<_> =
        dump_in(Arc::clone(&directory), 32).unwrap().map(Result::unwrap).collect();
    for entry in entries {
        let Entry::Frame { segment, at, lsn, payload, control: None, .. } = entry else {
            continue;
        };
        if first_change(&payload) != PAGE || lsn > Lsn::new(report.last.get() / 2) {
            continue;
        }
        let segment = report.segments.iter().find(|report| report.number == segment).unwrap();
        flipped(&directory, segment, (at + 40) * 8, || {
            let reader = StreamsReader::open_in(salvaged(&directory), &options()).unwrap();
            let (shown, lost) = shown(&reader);
            assert_eq!((shown.len() as u64, lost.len()), (STREAMS * ROUNDS, 0), "LSN {lsn}");
        });
        pages += 1;
    }
    assert!(pages > 2, "{pages} pages");
}
