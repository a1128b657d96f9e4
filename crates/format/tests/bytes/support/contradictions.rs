//! Segments with good checksums that say what cannot be: no crash makes them, and no reader may go
//! along with them.
//!
//! *Owns*: summing a changed header again, by the formulas of `docs/format.md`. *May not touch*:
//! the encoder.

use inkstone_format::{Batch, Control, Fault, Lsn, PayloadSum, PromiseReason, checksum};

use super::{File, Writer, log_id, segment};

/// A segment, what is wrong with it, and the fault that must be named.
pub struct Contradiction {
    pub what: &'static str,
    pub fault: Fault,
    pub files: Vec<File>,
}

fn seed(tag: &[u8; 8]) -> u32 {
    let crc = checksum::append(checksum::crc32c(tag), log_id(6).bytes());
    checksum::append(crc, &1u64.to_le_bytes())
}

fn sum_group(bytes: &mut [u8], at: usize) {
    let crc = checksum::append(seed(b"IK1GROUP"), &(at as u64).to_le_bytes());
    let crc = checksum::append(checksum::append(crc, &bytes[at..at + 4]), &bytes[at + 8..at + 48]);
    bytes[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
}

fn sum_frame(bytes: &mut [u8], at: usize) {
    let len = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    if at + 24 + len <= bytes.len() {
        let payload = checksum::crc32c(&bytes[at + 24..at + 24 + len]);
        bytes[at + 16..at + 20].copy_from_slice(&payload.to_le_bytes());
    }
    let crc = checksum::append(seed(b"IK1FRAME"), &(at as u64).to_le_bytes());
    let crc = checksum::append(checksum::append(crc, &1u64.to_le_bytes()), &bytes[at..at + 20]);
    bytes[at + 20..at + 24].copy_from_slice(&crc.to_le_bytes());
}

/// Every contradiction that has a name. Offsets are in the last group (`group`) or in one of its
/// frames (`frame`).
pub fn contradictions() -> Vec<Contradiction> {
    let mut writer = Writer::create_with_gaps(log_id(6), Lsn::new(8));
    writer.append(&[vec![1; 16]]);
    let good = writer.clone();
    let mut all = Vec::new();
    let mut group = |what, fault, at: usize, new: &[u8]| {
        let mut writer = good.clone();
        writer.append(&[vec![2; 16], vec![3; 16]]);
        let start = writer.groups.last().unwrap().at as usize;
        let bytes = writer.active();
        bytes[start + at..start + at + new.len()].copy_from_slice(new);
        sum_group(bytes, start);
        all.push(Contradiction { what, fault, files: writer.files });
    };
    group("a frame fewer than counted", Fault::Count, 12, &3u32.to_le_bytes());
    group("a frame more than counted", Fault::Count, 12, &1u32.to_le_bytes());
    group("no frame", Fault::Length, 12, &0u32.to_le_bytes());
    group("more frames than there is room for", Fault::Length, 12, &100u32.to_le_bytes());
    group("longer than the segment", Fault::Length, 8, &(1u32 << 20).to_le_bytes());
    group("longer than a group can be", Fault::Length, 8, &0xffff_fff8u32.to_le_bytes());
    group("a length that is not aligned", Fault::Length, 8, &132u32.to_le_bytes());
    group("ends inside a frame", Fault::Length, 8, &120u32.to_le_bytes());
    group("ends inside a frame header", Fault::Count, 8, &104u32.to_le_bytes());
    group("another LSN", Fault::Lsn, 16, &9u64.to_le_bytes());
    group("promises itself", Fault::Promise, 32, &2u64.to_le_bytes());
    group("promises bytes of its own", Fault::Promise, 40, &8192u64.to_le_bytes());
    group("promises less than the header", Fault::Promise, 40, &0u64.to_le_bytes());
    group("promises part of a frame", Fault::Promise, 40, &4100u64.to_le_bytes());
    all.extend(in_frames(&good));
    all.extend(in_control_frames(&good));
    all
}

fn in_frames(good: &Writer) -> Vec<Contradiction> {
    let mut all = Vec::new();
    let mut frame = |what, fault, index: usize, at: usize, new: &[u8]| {
        let mut writer = good.clone();
        writer.append(&[vec![2; 16], vec![0; 16]]);
        let start = writer.groups.last().unwrap().at as usize + 48 + index * 40;
        let bytes = writer.active();
        bytes[start + at..start + at + new.len()].copy_from_slice(new);
        sum_frame(bytes, start);
        all.push(Contradiction { what, fault, files: writer.files });
    };
    frame("a batch that is left open", Fault::Batch, 1, 5, &[1]);
    frame("a batch that another record breaks into", Fault::Batch, 0, 5, &[1]);
    frame("a batch that goes on and was never begun", Fault::Batch, 0, 5, &[2]);
    frame("a batch that ends and was never begun", Fault::Batch, 0, 5, &[3]);
    frame("an unknown place in a batch", Fault::Kind, 0, 5, &[4]);
    frame("kind 0", Fault::Kind, 0, 4, &[0]);
    frame("kind 8", Fault::Kind, 0, 4, &[8]);
    frame("a gap of the wrong size", Fault::Control, 0, 4, &[7]);
    frame("bytes that are reserved", Fault::Kind, 0, 6, &[1]);
    frame("another LSN in a frame", Fault::Lsn, 1, 8, &2u64.to_le_bytes());
    frame("a higher LSN in a frame", Fault::Lsn, 1, 8, &99u64.to_le_bytes());
    frame("longer than its group", Fault::Length, 1, 0, &17u32.to_le_bytes());
    frame("longer than a record can be", Fault::Length, 1, 0, &0xffff_fff8u32.to_le_bytes());
    frame("an epoch that is not first", Fault::EpochOrder, 1, 4, &[2]);
    frame("padding that is not zero", Fault::Control, 0, 4, &[6]);
    frame("a promise of the wrong size", Fault::Control, 1, 4, &[3]);
    frame("a control frame in a batch", Fault::Batch, 1, 4, &[6, 1]);
    all
}

fn in_control_frames(good: &Writer) -> Vec<Contradiction> {
    let mut all = Vec::new();
    let mut control = |what, fault, control: Control, new: &[u8]| {
        let mut writer = good.clone();
        writer.control(&control);
        let start = writer.groups.last().unwrap().at as usize + 48;
        let bytes = writer.active();
        bytes[start + 24..start + 24 + new.len()].copy_from_slice(new);
        sum_frame(bytes, start);
        all.push(Contradiction { what, fault, files: writer.files });
    };
    let idle = Control::Promise(PromiseReason::Idle);
    control("an unknown reason", Fault::Control, idle, &[3]);
    control(
        "more truncated than there is",
        Fault::Control,
        Control::TruncateBefore(Lsn::new(1)),
        &[200],
    );
    let gap = Control::Lost(Lsn::new(7));
    control("a gap that ends before it begins", Fault::Control, gap, &[1]);
    control("a gap of which the header does not know", Fault::Control, gap, &[9]);
    control("a seal that names itself", Fault::Control, Control::Seal(segment(2)), &[1]);
    let opening = Control::Epoch { previous: None, recovered: Lsn::new(1) };
    control("an epoch after itself", Fault::Control, opening, &[1]);
    control(
        "an epoch that recovered something else",
        Fault::Control,
        opening,
        &[0, 0, 0, 0, 0, 0, 0, 0, 9],
    );
    // Behind the seal, in the same group.
    for (what, is_record) in
        [("a control frame after the seal", false), ("a record after the seal", true)]
    {
        let mut writer = good.clone();
        writer.group(|group, buffer| {
            group.control(buffer, &Control::Padding(8)).unwrap();
            if is_record {
                group.record(buffer, &[2; 16], PayloadSum::of(&[2; 16]), Batch::Alone).unwrap();
            } else {
                group.control(buffer, &idle).unwrap();
            }
        });
        let start = writer.groups.last().unwrap().at as usize + 48;
        let bytes = writer.active();
        (bytes[start + 4], bytes[start + 24]) = (5, 2);
        sum_frame(bytes, start);
        all.push(Contradiction { what, fault: Fault::Control, files: writer.files });
    }
    all
}
