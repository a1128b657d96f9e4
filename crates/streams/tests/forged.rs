//! A wrong directory is detected: each bit of its pages is changed in an otherwise sound log, and
//! no reader gets a wrong record.
//!
//! *Owns*: logs with one record changed. *May not touch*: the crate's insides.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::sync::Arc;

use inkstone::{Log, LogKind, Lsn, Reader};
use inkstone_sim::{DiskOptions, SimDirectory, SimDisk};
use inkstone_streams::{Error, Options, Streams, StreamsReader};

const RECORDS: u64 = 150;

fn log_options() -> inkstone::Options {
    inkstone::Options::small().own_thread(false)
}

fn options() -> Options {
    // Without a cache, so that each read asks the log.
    Options::new().log(log_options()).section_bytes(16 << 10).own_mover(false).cache_bytes(0)
}

fn directory(seed: u64) -> Arc<SimDirectory> {
    Arc::new(SimDisk::new(seed, DiskOptions::default()).directory("/streams"))
}

fn text(stream: u64, number: u64) -> Vec<u8> {
    let bytes = if number == 20 { 17_000 } else { number % 50 };
    format!("{stream}/{number}:{}", "x".repeat(bytes as usize)).into()
}

/// All records of a log with three streams and at least one page of a directory.
fn sound() -> Vec<Vec<u8>> {
    let directory = directory(1);
    let streams = Streams::open_in(Arc::clone(&directory), options()).unwrap();
    (1..=3).for_each(|stream| drop(streams.create(stream, 1).unwrap()));
    for number in 1..=RECORDS {
        (1..=3).for_each(|stream| drop(streams.append(stream, &text(stream, number)).unwrap()));
        // A directory ends when its pages are durable.
        streams.sync().unwrap();
    }
    streams.close().unwrap();
    let reader = Reader::open_in(directory, log_options()).unwrap();
    assert_eq!(reader.first(), Lsn::FIRST, "nothing was given back");
    let (mut cursor, mut records) = (reader.from(Lsn::FIRST), Vec::new());
    while let Some(record) = cursor.next().unwrap() {
        records.push(record.bytes.to_vec());
    }
    records
}

fn number_end(record: &[u8], from: usize) -> usize {
    (from..).find(|place| record[*place] < 0x80).unwrap() + 1
}

/// The place of the first change of a record, if that has this kind.
fn change_at(record: &[u8], kind: u8) -> Option<usize> {
    let at = number_end(record, number_end(record, 1));
    (record[at] == kind).then_some(at)
}

/// Whether all records can be read; an error if one has changed.
fn read(records: &[Vec<u8>]) -> Result<(), Error> {
    let directory = directory(2);
    let of_streams = log_options().kind(LogKind::STREAMS);
    let log = Log::open_in(Arc::clone(&directory), of_streams).unwrap();
    records.iter().for_each(|record| drop(log.append(record).unwrap()));
    log.close().unwrap();
    let reader = StreamsReader::open_in(directory, &options())?;
    let mut told = Ok(());
    for stream in 1..=3 {
        for number in (1..=RECORDS).step_by(7) {
            match reader.get(stream, number) {
                Ok(bytes) => assert_eq!(bytes, text(stream, number), "{stream}/{number}"),
                Err(error) => told = Err(error),
            }
        }
        for record in reader.records(stream, 1) {
            match record {
                Ok(record) => assert_eq!(record.bytes, text(stream, record.number)),
                Err(error) => {
                    told = Err(error);
                    break;
                }
            }
        }
    }
    told
}

fn every_bit_of_a_page_that_is_wrong_is_told() {
    let records = sound();
    read(&records).unwrap();
    let pages: Vec<_> =
        (0..records.len()).filter_map(|at| Some((at, change_at(&records[at], 24)?))).collect();
    assert!(pages.len() > 3, "{}", pages.len());
    let mut flips = 0;
    for (at, page) in pages.into_iter().take(2) {
        for bit in (page + 1) * 8..records[at].len() * 8 {
            let mut records = records.clone();
            records[at][bit / 8] ^= 1 << (bit % 8);
            let told = read(&records).expect_err(&format!("bit {bit} of record {at}"));
            let is_told = matches!(told, Error::Contradiction { .. } | Error::Newer { .. });
            assert!(is_told, "bit {bit}: {told}");
            flips += 1;
        }
    }
    println!("{flips} wrong bits");
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
