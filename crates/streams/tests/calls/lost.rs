//! A log of streams that was salvaged: what its streams still have is read by the same numbers, and
//! nobody writes to it.
//!
//! *Owns*: streams over a gap. *May not touch*: what a salvage saves; the log's tests do that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use inkstone::inspect::{Entry, dump_in, salvage_in, verify_in};
use inkstone::system::seam::{File, OpenFile};
use inkstone::{Directory, Lsn};
use inkstone_sim::{DiskOptions, SimDirectory, SimDisk};
use inkstone_streams::{Bounds, Error, Options, Streams, StreamsReader};

/// Of sections that are larger than the log: no page is written, and one table, the first.
const NO_PAGE_BYTES: u64 = 1 << 20;

/// No record is moved.
fn options() -> Options {
    let options = Options::new().log(inkstone::Options::small()).section_bytes(16 << 10);
    options.own_mover(false).size_multiple(1000)
}

/// Stream and number of a record.
type At = (u64, u64);

/// What the streams still have; every call must agree.
fn shown(reader: &StreamsReader) -> (BTreeMap<At, Vec<u8>>, Vec<At>) {
    let (mut shown, mut lost) = (BTreeMap::new(), Vec::new());
    for stream in reader.ids(None, 1000).unwrap() {
        let Bounds { first, next } = reader.bounds(stream).unwrap();
        let mut number = first;
        for found in reader.records(stream, first) {
            match found {
                Ok(found) => {
                    assert_eq!(found.number, number, "stream {stream}");
                    if number % 16 == 0 {
                        assert_eq!(reader.get(stream, number).unwrap(), found.bytes);
                    }
                    shown.insert((stream, number), found.bytes);
                    number += 1;
                }
                Err(Error::LostRecord { number: of, next, .. }) => {
                    assert!(of == number && next > of, "stream {stream}: {of} to {next}");
                    for lost in [of, next - 1] {
                        let found = reader.get(stream, lost);
                        assert!(matches!(found, Err(Error::LostRecord { .. })), "{found:?}");
                    }
                    lost.extend((number..next).map(|number| (stream, number)));
                    number = next;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(number, next, "stream {stream}");
    }
    (shown, lost)
}

/// A stream as its writer knows it.
#[derive(Default)]
struct Known {
    first: u64,
    /// The bytes, the record of the log that has them.
    records: BTreeMap<u64, (Vec<u8>, Lsn)>,
    next: u64,
    note: Vec<u8>,
    /// The record of the log that has made, cut or restarted it last.
    cut: Lsn,
}

/// Every record that ever was.
type Ever = BTreeSet<(u64, u64, Vec<u8>)>;

/// A random history.
fn history(
    random: &mut fastrand::Rng,
    streams: &Streams,
    moves: bool,
) -> (BTreeMap<u64, Known>, Ever) {
    let (mut known, mut ever) = (BTreeMap::<u64, Known>::new(), BTreeSet::new());
    for step in 0..random.u32(100..1200) {
        let id = random.u64(1..5);
        let Some(found) = known.get_mut(&id) else {
            let first = random.u64(0..40);
            let cut = streams.create(id, first).unwrap().lsn();
            known.insert(id, Known { first, next: first, cut, ..Known::default() });
            continue;
        };
        match random.u32(0..100) {
            0..72 => {
                let mut bytes = step.to_le_bytes().to_vec();
                bytes.resize(4 + random.usize(0..300), id as u8);
                let lsn = streams.append(id, &bytes).unwrap().lsn();
                ever.insert((id, found.next, bytes.clone()));
                found.records.insert(found.next, (bytes, lsn));
                found.next += 1;
            }
            72..76 => {
                let first = random.u64(found.first..=found.next);
                drop(streams.truncate_before(id, first).unwrap());
                found.records.retain(|number, _| *number >= first);
                found.first = first;
            }
            76..90 if found.first < found.next => {
                let last = random.u64(found.first..found.next);
                found.cut = streams.truncate_after(id, last).unwrap().lsn();
                found.records.retain(|number, _| *number <= last);
                found.next = last + 1;
            }
            90..92 => {
                let first = random.u64(0..60);
                found.cut = streams.restart_at(id, first).unwrap().lsn();
                found.records.clear();
                (found.first, found.next) = (first, first);
            }
            92 => {
                drop(streams.remove(id).unwrap());
                known.remove(&id);
            }
            93..96 => {
                found.note = step.to_le_bytes().to_vec();
                drop(streams.set_note(id, &found.note).unwrap());
            }
            96.. if moves => drop(streams.move_some().unwrap()),
            _ => streams.sync().unwrap(),
        }
    }
    (known, ever)
}

/// Streams that are cut, restarted, removed and moved, of whose log some parts are lost: nothing is
/// shown that never was. A certain stream is as its writer knew it. What is left is shown. So many
/// histories take seconds; `INKSTONE_HISTORIES=20000` takes two minutes.
#[test]
fn what_is_shown_of_any_history_over_any_gaps_is_true() {
    let count = std::env::var("INKSTONE_HISTORIES").map_or(600, |count| count.parse().unwrap());
    let (mut certain, mut uncertain, mut left) = (0, 0, 0);
    for seed in 0..count {
        let random = &mut fastrand::Rng::with_seed(seed);
        let moves = random.bool();
        let section_bytes = [16 << 10, 16 << 10, NO_PAGE_BYTES][random.usize(0..3)];
        let options =
            options().section_bytes(section_bytes).size_multiple(if moves { 2 } else { 1000 });
        let directory = Arc::new(SimDisk::new(1, DiskOptions::default()).directory("/log"));
        let streams = Streams::open_in(Arc::clone(&directory), options.clone()).unwrap();
        let (known, ever) = history(random, &streams, moves);
        streams.close().unwrap();
        let Some(saved) = salvaged_without(random, &directory) else { continue };
        let gaps: Vec<_> = verify_in(Arc::clone(&saved)).unwrap().gaps().collect();
        let first_lost = gaps.first().map_or(Lsn::new(u64::MAX), |gap| gap.first);
        let is_lost = |lsn: Lsn| gaps.iter().any(|gap| (gap.first..=gap.last).contains(&lsn));
        let what = format!("seed {seed}, {gaps:?}");
        let reader = StreamsReader::open_in(Arc::clone(&saved), &options).expect(&what);
        let usage = reader.usage().unwrap();
        let (shown, _) = shown(&reader);
        for ((stream, number), bytes) in &shown {
            assert!(ever.contains(&(*stream, *number, bytes.clone())), "{what}: {stream} {number}");
        }
        for found in &usage.streams {
            let id = found.stream;
            assert_eq!(reader.is_uncertain(id).unwrap(), found.is_uncertain, "{what}: {id}");
            if found.is_uncertain {
                uncertain += 1;
                continue;
            }
            certain += 1;
            let is = known.get(&id).unwrap_or_else(|| panic!("{what}: {id} was removed"));
            assert_eq!(found.bounds, Bounds { first: is.first, next: is.next }, "{what}: {id}");
            assert_eq!(reader.note(id).unwrap(), is.note, "{what}: {id}");
            for number in is.first..is.next {
                let shown = shown.get(&(id, number));
                assert!(shown.is_none_or(|bytes| *bytes == is.records[&number].0), "{what}: {id}");
            }
        }
        let opened = Streams::open_in(saved, options);
        assert_eq!(matches!(opened, Err(Error::Lost { .. })), !gaps.is_empty(), "{what}");
        for (id, is) in known.iter().filter(|_| !moves) {
            for (number, (bytes, lsn)) in &is.records {
                // Where a page is lost, too, nobody knows whether a record was cut and made anew.
                let may_be_cut = is.cut >= first_lost && section_bytes < NO_PAGE_BYTES;
                let shown = shown.get(&(*id, *number));
                if !is_lost(*lsn) && (shown.is_some() || !may_be_cut) {
                    assert_eq!(shown, Some(bytes), "{what}: {id} {number}");
                    left += 1;
                }
            }
        }
    }
    assert!(certain > count && uncertain > count && left > 10 * count, "{certain} {uncertain}");
}

/// A salvage after some runs of records were damaged; none if no record is left.
fn salvaged_without(
    random: &mut fastrand::Rng,
    directory: &Arc<SimDirectory>,
) -> Option<Arc<SimDirectory>> {
    let report = verify_in(Arc::clone(directory)).unwrap();
    let entries: Vec<_> = dump_in(Arc::clone(directory), 1).unwrap().map(Result::unwrap).collect();
    for _ in 0..random.u32(1..4) {
        let from = random.usize(0..entries.len());
        let count = [1, 3, 10, 60][random.usize(0..4)];
        for entry in entries.iter().skip(from).take(count) {
            let Entry::Frame { segment, at, control: None, .. } = entry else { continue };
            let segment = report.segments.iter().find(|is| is.number == *segment).unwrap();
            let name = segment.path.file_name().unwrap().to_string_lossy();
            let file = directory.open(&name, &OpenFile::existing()).unwrap();
            file.write_at(&random.u64(..).to_le_bytes(), at + 8).unwrap();
        }
    }
    let saved = Arc::new(SimDisk::new(2, DiskOptions::default()).directory("/saved"));
    let log = inkstone::Options::small();
    match salvage_in(Arc::clone(directory), || Ok(Arc::clone(&saved)), &log) {
        Err(inkstone::Error::Corrupt(found)) if found.cure == inkstone::Cure::Backup => None,
        report => report.map(|_| Some(saved)).unwrap(),
    }
}
