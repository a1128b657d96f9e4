//! What a flipped bit in a group is called: its byte, and the bit in it.
//!
//! *Owns*: that each place in a group is explained. *May not touch*: whether damage is noticed; the
//! second reader compares that.

use crate::support::{SEGMENT_BYTES, Writer, log_id};
use inkstone_format::{Decoder, Fault, Found, Step, explain};

#[test]
fn a_flipped_bit_is_named() {
    let mut writer = Writer::create(log_id(10));
    writer.append(&[vec![1; 100], vec![2; 1000]]);
    let group = *writer.groups.last().unwrap();
    for byte in group.at..group.end {
        let mut bytes = writer.files[0].bytes.clone();
        let bit = (byte % 8) as u8;
        bytes[byte as usize] ^= 1 << bit;
        let mut decoder = Decoder::new(&writer.header, SEGMENT_BYTES);
        let stop = loop {
            match decoder.step(&bytes, 0) {
                Step::Stop(stop) => break stop,
                Step::NeedBytes { .. } => panic!(),
                _ => {}
            }
        };
        let said = explain(decoder.identity(), &stop, &bytes, 0);
        assert!(
            said.lines[0].contains("a group should begin")
                || said.lines[0].contains("inside a group")
        );
        if stop.fault == Fault::Gap {
            continue;
        }
        let flip = said.flip.unwrap_or_else(|| panic!("byte {byte}: {said}"));
        assert_eq!((flip.byte, flip.bit), (byte, bit), "{said}");
        assert!(matches!(stop.found, Found::Garbage | Found::Remains | Found::Sound));
    }
}
