//! Explains to people what is wrong with a frame or a group header: expected and found.
//!
//! *Owns*: the texts. *May not touch*: the verdict; no code acts on anything here.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::checksum::crc32c;
use crate::frame::{FrameHeader, Kind, summed};
use crate::group::{GroupHeader, Identity};
use crate::limits::{FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, GROUP_MARKER, RECORD_BYTES_MAX};
use crate::stop::{Fault, Place, Stop};

/// Explains a stop in sentences without a full stop, and without its segment and byte, which the
/// caller knows. `window` holds bytes of the segment from `window_at` on: the more it has of the
/// failing frame, the more can be explained.
pub fn explain(identity: &Identity, stop: &Stop, window: &[u8], window_at: u64) -> Vec<String> {
    let from = stop.at.checked_sub(window_at).and_then(|from| usize::try_from(from).ok());
    let bytes = from.and_then(|from| window.get(from..)).unwrap_or_default();
    let mut lines = Vec::new();
    // Without segment and byte: the report that shows this line has named both.
    let place = match stop.place {
        Place::Between => "where a group should begin",
        Place::Inside => "inside a group whose header is sound",
    };
    lines.push(format!("{}, {place}", words(stop.fault)));
    match stop.fault {
        Fault::GroupChecksum => explain_group(identity, stop, bytes, &mut lines),
        Fault::FrameChecksum => explain_frame(identity, stop, bytes, &mut lines),
        Fault::PayloadChecksum => explain_payload(bytes, &mut lines),
        Fault::Lsn => {
            let found = stop.lsn_found.unwrap_or_default();
            lines.push(format!("LSN: expected {}, found {found}", stop.lsn_expected));
        }
        _ => {}
    }
    lines
}

fn explain_group(identity: &Identity, stop: &Stop, bytes: &[u8], lines: &mut Vec<String>) {
    let Some(bytes) = bytes.get(..GROUP_HEADER_BYTES) else { return };
    if !bytes.starts_with(&GROUP_MARKER) {
        lines.push(format!("marker: expected {GROUP_MARKER:02x?}, found {:02x?}", &bytes[..4]));
    }
    if let Some(found) = GroupHeader::fields(bytes) {
        lines.push(format!("epoch: expected {} or higher, found {}", stop.tail.epoch, found.epoch));
        lines.push(format!("LSN: expected {}, found {}", stop.lsn_expected, found.first_lsn));
        lines.push(format!(
            "length {}, {} frames, promise {}",
            found.length, found.count, found.promise.lsn
        ));
    }
    let crc = identity.group_crc(stop.at, bytes);
    lines.push(format!(
        "checksum: expected {crc:08x}, found {:08x}",
        crate::bytes::u32_at(bytes, 4)
    ));
}

fn explain_frame(identity: &Identity, stop: &Stop, bytes: &[u8], lines: &mut Vec<String>) {
    let Some(bytes) = bytes.get(..FRAME_HEADER_BYTES) else { return };
    let found = FrameHeader::fields(bytes);
    lines.push(format!("LSN: expected {}, found {}", stop.lsn_expected, found.lsn));
    lines.push(match Kind::of(found.kind) {
        Some(kind) => format!("{kind:?} of {} bytes", found.payload_bytes),
        None => format!("kind: expected 1 to 6, found {}", found.kind),
    });
    let crc = identity.frame_crc(stop.at, stop.epoch_here, summed(bytes));
    lines.push(format!("checksum: expected {crc:08x}, found {:08x}", found.header_crc));
}

fn explain_payload(bytes: &[u8], lines: &mut Vec<String>) {
    let Some((header, rest)) = bytes.split_at_checked(FRAME_HEADER_BYTES) else { return };
    let header = FrameHeader::fields(header);
    let len = (header.payload_bytes as usize).min(RECORD_BYTES_MAX);
    let Some(payload) = rest.get(..len) else { return };
    let crc = crc32c(payload);
    lines.push(format!("LSN {}, {len} bytes", header.lsn));
    lines.push(format!("payload checksum: expected {:08x}, found {crc:08x}", header.payload_crc));
}

fn words(fault: Fault) -> &'static str {
    match fault {
        Fault::SegmentEnd => "the segment ends",
        Fault::FileEnds => "the file ends before the segment does",
        Fault::Zeros => "zeros instead of a header",
        Fault::GroupChecksum => "the checksum of a group header does not match",
        Fault::FrameChecksum => "the checksum of a frame header does not match",
        Fault::PayloadChecksum => "the checksum of a payload does not match",
        Fault::Gap => "bytes other than zero after a payload",
        Fault::EpochLower => "a group of an older epoch",
        Fault::EpochOrder => "an epoch frame is missing, or is not the first of its group",
        Fault::Length => "an impossible length",
        Fault::Lsn => "the LSN is not the next one",
        Fault::Promise => "an impossible promise",
        Fault::Kind => "a kind or field that the format does not have",
        Fault::Batch => "a batch without a beginning or without an end",
        Fault::Control => "a control frame that is not allowed here, or has an impossible payload",
        Fault::Count => "the number of frames is not the one in the group header",
        Fault::Sealed => "the segment is sealed",
    }
}
