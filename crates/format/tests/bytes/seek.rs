//! Finding a place in the middle of a segment: what is found is a frame or a group of the log, from
//! which every later record is reached; and no bytes make the search panic.
//!
//! *Owns*: `Mark::first_in`. *May not touch*: where a reader looks; the log decides that.

use std::collections::BTreeMap;

use crate::support::{SEGMENT_BYTES, full_segment};
use inkstone_format::{Decoder, Kind, Lsn, Mark, Skim, Step, limits};

const FIRST: u64 = limits::HEADER_BYTES as u64;

#[test]
fn what_is_found_from_any_byte_on_leads_to_every_record_behind_it() {
    for seed in 0..60 {
        let mut writer = full_segment(&mut fastrand::Rng::with_seed(seed), SEGMENT_BYTES);
        writer.close();
        let bytes = &writer.files[0].bytes;
        let identity = writer.header.identity();
        let mut decoder = Decoder::new(&writer.header, SEGMENT_BYTES);
        let (mut places, mut records) = (BTreeMap::new(), BTreeMap::new());
        let end = loop {
            match decoder.step(&bytes[FIRST as usize..], FIRST) {
                Step::GroupStart(start) => drop(places.insert(start.at, start.header.first_lsn)),
                Step::Frame(frame) if frame.kind == Kind::Record => {
                    places.insert(frame.at, frame.lsn);
                    records.insert(frame.lsn, frame.at);
                }
                Step::Frame(_) | Step::GroupEnd(_) => {}
                Step::NeedBytes { .. } => panic!("the segment is whole"),
                Step::Stop(stop) => break stop.tail.end as usize,
            }
        };
        let from = Mark::between(FIRST, writer.header.first_lsn, writer.header.epoch);
        let behind = Mark::between(end as u64, Lsn::new(u64::MAX), writer.epoch);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..200 {
            let at = random.usize(FIRST as usize..end);
            let window = &bytes[at..end];
            let Some(mut mark) = from.first_in(&identity, &behind, window, at as u64) else {
                continue;
            };
            assert_eq!(places.get(&mark.at), Some(&mark.lsn), "seed {seed}, from {at} on");
            // Only frames are passed over, and only where an epoch begins behind them.
            let between = places.range(at as u64..mark.at).next();
            assert!(between.is_none() || writer.epoch != from.epoch, "seed {seed}, from {at} on");
            let mut wanted = records.range(mark.lsn..);
            loop {
                match mark.skim(&identity, &bytes[..end], 0) {
                    Skim::Record(record) => {
                        assert_eq!(wanted.next(), Some((&mark.lsn, &record.at)));
                        mark = record.next;
                    }
                    Skim::Passed(next) => mark = next,
                    Skim::NeedBytes(_) | Skim::Unsound => break,
                }
            }
            assert_eq!(wanted.next(), None, "seed {seed}, from {at} on: it ends too early");
        }
        // Cut anywhere, and with bits that changed.
        for _ in 0..500 {
            let at = random.usize(FIRST as usize..end);
            let mut window = bytes[at..end.min(at + random.usize(0..400))].to_vec();
            if let Some(byte) = random.choice(&mut window) {
                *byte ^= 1 << random.u32(..8);
            }
            let _ = from.first_in(&identity, &behind, &window, at as u64);
        }
    }
}
