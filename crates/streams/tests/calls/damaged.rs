//! One damaged record costs one record: its section is emptied all the same, and a page of a
//! directory is made again. A wrong page is detected, and no reader gets a wrong record by it.

use std::sync::Arc;

use inkstone::inspect::verify_in;
use inkstone::system::seam::{File, OpenFile};
use inkstone::{Directory, Log, LogKind, Lsn, Reader};
use inkstone_sim::{DiskOptions, SimDirectory, SimDisk};
use inkstone_streams::{Error, Options, Streams, StreamsReader};

use super::churn;

const STREAMS: u64 = 50;
const ROUNDS: u64 = 8;
const HOT: u64 = u64::MAX;
/// The kind of a page of a directory, as docs/streams.md has it.
const PAGE: u8 = 24;

fn options(size_multiple: u32) -> Options {
    let log = inkstone::Options::small().tail_bytes(0).own_thread(false);
    let options = Options::new().log(log).section_bytes(16 << 10).cache_bytes(0);
    options.own_mover(false).size_multiple(size_multiple)
}

fn text(stream: u64, number: u64) -> Vec<u8> {
    format!("idle {stream}/{number}").into()
}

fn open(directory: &Arc<SimDirectory>, size_multiple: u32) -> Streams {
    Streams::open_in(Arc::clone(directory), options(size_multiple)).unwrap()
}

/// Idle streams in a section whose directory is written.
fn made() -> Arc<SimDirectory> {
    let directory = Arc::new(SimDisk::new(1, DiskOptions::default()).directory("/log"));
    let streams = open(&directory, 1000);
    streams.create(HOT, 1).unwrap().wait().unwrap();
    (1..=STREAMS).for_each(|stream| drop(streams.create(stream, 1).unwrap()));
    for number in 1..=ROUNDS {
        (1..=STREAMS)
            .for_each(|stream| drop(streams.append(stream, &text(stream, number)).unwrap()));
        streams.sync().unwrap();
    }
    churn(&streams, HOT, 100_000);
    streams.close().unwrap();
    directory
}

/// The bytes of the records of the log of which this is so.
fn records(directory: &Arc<SimDirectory>, is_so: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    let reader = Reader::open_in(Arc::clone(directory), inkstone::Options::small()).unwrap();
    let records = reader.records(Lsn::FIRST).map(|record| record.unwrap().bytes);
    records.take(1000).filter(|bytes| is_so(bytes)).collect()
}

/// Flips a bit of the last byte of a record.
fn damage(directory: &Arc<SimDirectory>, record: &[u8]) {
    for segment in &verify_in(Arc::clone(directory)).unwrap().segments {
        let name = segment.path.file_name().unwrap().to_string_lossy();
        let file = directory.open(&name, &OpenFile::existing()).unwrap();
        let mut bytes = vec![0; file.len_bytes().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        if let Some(at) = bytes.windows(record.len()).position(|window| window == record) {
            let last = at + record.len() - 1;
            file.write_at(&[bytes[last] ^ 1], last as u64).unwrap();
            return;
        }
    }
    panic!("the record is in no segment");
}

fn assert_all(reader: &StreamsReader) {
    for stream in 1..=STREAMS {
        for number in 1..=ROUNDS {
            assert_eq!(reader.get(stream, number).unwrap(), text(stream, number));
        }
        let read: Vec<_> = reader.records(stream, 1).map(|record| record.unwrap().bytes).collect();
        assert_eq!(read, (1..=ROUNDS).map(|number| text(stream, number)).collect::<Vec<_>>());
    }
}

/// Where a record has a page of a directory: after the head's two numbers, each of one byte or two,
/// comes the kind of the first change.
fn page_at(record: &[u8]) -> Option<usize> {
    let number_end =
        |from: usize| from + 1 + record[from..].iter().position(|b| *b < 0x80).unwrap();
    let at = number_end(number_end(1));
    (record[at] == PAGE).then_some(at)
}

#[test]
fn a_page_that_is_damaged_is_made_again_from_its_section() {
    let directory = made();
    let pages = records(&directory, |record| page_at(record).is_some());
    assert!(pages.len() >= 2, "{}", pages.len());
    pages.iter().take(2).for_each(|page| damage(&directory, page));
    assert_all(&StreamsReader::open_in(Arc::clone(&directory), &options(2)).unwrap());
    let streams = open(&directory, 2);
    assert_all(&streams.reader());
    churn(&streams, HOT, 100_000);
    while streams.move_some().unwrap() {}
    assert!(streams.stats().moved_records >= STREAMS * ROUNDS, "{:?}", streams.stats());
    assert!(streams.log().first() > Lsn::new(400), "{:?}", streams.log().first());
    assert_all(&streams.reader());
}

/// One bit of one record of an idle stream, where the section is read through and where its records
/// are read alone.
#[test]
fn a_damaged_record_is_lost_and_named_and_the_rest_is_moved() {
    for left in [STREAMS, 2] {
        let directory = made();
        let of = |stream, number| move |record: &[u8]| record.ends_with(&text(stream, number));
        let damaged = records(&directory, of(2, 3)).remove(0);
        damage(&directory, &damaged);
        let streams = open(&directory, 2);
        (left + 1..=STREAMS).for_each(|stream| drop(streams.remove(stream).unwrap()));
        churn(&streams, HOT, 100_000);
        while streams.move_some().unwrap() {}
        churn(&streams, HOT, 100_000);
        while streams.move_some().unwrap() {}
        assert_eq!((streams.stats().lost_records, streams.stats().moved_records > 0), (1, true));
        assert!(streams.log().first() > Lsn::new(400), "{:?}", streams.log().first());
        streams.close().unwrap();
        let again = open(&directory, 2);
        let beside = StreamsReader::open_in(Arc::clone(&directory), &options(2)).unwrap();
        for reader in [streams.reader(), again.reader(), beside] {
            for stream in 1..=left {
                let lost = |number| (stream, number) == (2, 3);
                for number in 1..=ROUNDS {
                    match reader.get(stream, number) {
                        Ok(bytes) => assert_eq!(bytes, text(stream, number)),
                        Err(Error::LostRecord { next: 4, .. }) => assert!(lost(number)),
                        Err(error) => panic!("{stream} {number}: {error}"),
                    }
                }
                let mut cursor = reader.read(stream, 1);
                for number in 1..=ROUNDS {
                    match cursor.next() {
                        Ok(found) => assert_eq!(found.unwrap().number, number),
                        Err(Error::LostRecord { next: 4, .. }) => assert!(lost(number)),
                        Err(error) => panic!("{stream} {number}: {error}"),
                    }
                }
            }
            let usage = reader.usage().unwrap();
            let lost = usage
                .streams
                .iter()
                .flat_map(|stream| stream.lost.iter().map(|lost| (stream.stream, lost.clone())));
            assert_eq!(lost.collect::<Vec<_>>(), [(2, 3..4)]);
        }
    }
}

const FORGED_ROUNDS: u64 = 150;

fn long_text(stream: u64, number: u64) -> Vec<u8> {
    let bytes = if number == 20 { 17_000 } else { number % 50 };
    format!("{stream}/{number}:{}", "x".repeat(bytes as usize)).into()
}

/// All records of a log with three streams and some pages of directories.
fn sound() -> Vec<Vec<u8>> {
    let directory = Arc::new(SimDisk::new(1, DiskOptions::default()).directory("/log"));
    let streams = open(&directory, 1000);
    (1..=3).for_each(|stream| drop(streams.create(stream, 1).unwrap()));
    for number in 1..=FORGED_ROUNDS {
        (1..=3)
            .for_each(|stream| drop(streams.append(stream, &long_text(stream, number)).unwrap()));
        // A directory ends when its pages are durable.
        streams.sync().unwrap();
    }
    streams.close().unwrap();
    records(&directory, |_| true)
}

/// Whether all of these records can be read; an error if one has changed.
fn read(records: &[Vec<u8>]) -> Result<(), Error> {
    let directory = Arc::new(SimDisk::new(2, DiskOptions::default()).directory("/log"));
    let of_streams = options(2).log_options().clone().kind(LogKind::STREAMS);
    let log = Log::open_in(Arc::clone(&directory), of_streams).unwrap();
    records.iter().for_each(|record| drop(log.append(record).unwrap()));
    log.close().unwrap();
    let reader = StreamsReader::open_in(directory, &options(2))?;
    let mut told = Ok(());
    for stream in 1..=3 {
        for number in (1..=FORGED_ROUNDS).step_by(7) {
            match reader.get(stream, number) {
                Ok(bytes) => assert_eq!(bytes, long_text(stream, number), "{stream}/{number}"),
                Err(error) => told = Err(error),
            }
        }
        for record in reader.records(stream, 1) {
            match record {
                Ok(record) => assert_eq!(record.bytes, long_text(stream, record.number)),
                Err(error) => told = Err(error),
            }
        }
    }
    told
}

fn every_bit_of_a_page_that_is_wrong_is_told() {
    let records = sound();
    read(&records).unwrap();
    let pages = (0..records.len()).filter_map(|at| Some((at, page_at(&records[at])?)));
    let pages: Vec<_> = pages.collect();
    assert!(pages.len() > 3, "{}", pages.len());
    for (at, page) in pages.into_iter().take(2) {
        for bit in (page + 1) * 8..records[at].len() * 8 {
            let mut records = records.clone();
            records[at][bit / 8] ^= 1 << (bit % 8);
            let told = read(&records).expect_err(&format!("bit {bit} of record {at}"));
            let is_told = matches!(told, Error::Contradiction { .. } | Error::Newer { .. });
            assert!(is_told, "bit {bit}: {told}");
        }
    }
}

#[test]
fn no_bit_of_a_directory_is_believed() {
    every_bit_of_a_page_that_is_wrong_is_told();
}

#[cfg(inkstone_mistakes)]
mod mistaken {
    use inkstone_streams::mistake::{Mistake, set};

    #[test]
    #[should_panic(expected = "assertion")]
    fn a_directory_that_is_believed() {
        set(Some(Mistake::DirectoryBelieved));
        super::every_bit_of_a_page_that_is_wrong_is_told();
    }
}
