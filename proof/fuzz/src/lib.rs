//! From a fuzzer's bytes to the files of a log's directory, with checksums that fit where the bytes
//! ask for it.
//!
//! *Owns*: the encoding of an input, and summing it again. *May not touch*: what is done with the
//! files. Without the sums every mutation would end at the first checksum; with all of them right
//! no damage would be tried. So the first byte says which are made right, and patches at the end
//! spoil single bytes afterwards.
//!
//! ```text
//! input    = sums(1) count(1) segment{count mod 5} patch*
//! segment  = number(1) flags(1) header(656) body-length(2) body
//! patch    = segment(1) offset(2) value(1)
//! ```

#![forbid(unsafe_code)]

use std::ops::Range;

use inkstone_format::checksum::{append, crc32c};
use inkstone_format::limits::{
    FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, GROUP_MARKER, HEADER_BYTES, HEADER_COPIES_AT,
    HEADER_COPY_BYTES,
};

/// The judge of whole directories that the tests of the format use.
#[path = "../../../crates/format/tests/bytes/support/survey.rs"]
pub mod survey;

/// Every file is as long as the smallest segment.
pub const SEGMENT_BYTES: usize = 65_536;
/// Bytes of a header copy that are not zero, its sum apart.
pub const FIELDS_BYTES: usize = 656;

/// What the first byte of an input asks for.
pub mod sums {
    /// The sums of header copies.
    pub const HEADER: u8 = 1;
    /// The sums of group headers.
    pub const GROUP: u8 = 2;
    /// The sums of frame headers.
    pub const FRAME: u8 = 4;
    /// The sums of payloads.
    pub const PAYLOAD: u8 = 8;
    /// The size in the header, magic and version.
    pub const FIELDS: u8 = 16;
    /// Every segment has the first one's log id.
    pub const LOG: u8 = 32;
    /// All of them.
    pub const ALL: u8 = 63;
}

/// What a segment's flags ask for.
pub mod flags {
    /// The second header copy is left out.
    pub const ONE_COPY: u8 = 1;
    /// The file is as short as its bytes.
    pub const SHORT: u8 = 2;
}

/// A file of a log's directory: its segment number and its bytes.
pub type Image = (u64, Vec<u8>);

/// A reader of an input; what is missing reads as zeros.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn short(&mut self) -> usize {
        usize::from(self.byte()) | usize::from(self.byte()) << 8
    }
}

/// The files that an input describes.
pub fn images(bytes: &[u8]) -> Vec<Image> {
    let mut input = Input(bytes);
    let (asked, count) = (input.byte(), input.byte() % 5);
    let mut images: Vec<Image> = Vec::new();
    let mut log = [0; 16];
    for index in 0..count {
        let number = u64::from(input.byte()).max(1);
        let flags = input.byte();
        let mut fields = [0; FIELDS_BYTES];
        let given = input.take(FIELDS_BYTES);
        fields[..given.len()].copy_from_slice(given);
        if asked & sums::LOG != 0 && index > 0 {
            fields[16..32].copy_from_slice(&log);
        }
        log.copy_from_slice(&fields[16..32]);
        if asked & sums::FIELDS != 0 {
            fields[..8].copy_from_slice(&inkstone_format::limits::MAGIC);
            fields[8..16].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
            fields[32..40].copy_from_slice(&number.to_le_bytes());
            fields[40..48].copy_from_slice(&(SEGMENT_BYTES as u64).to_le_bytes());
        }
        let len = input.short();
        let body = input.take(len.min(SEGMENT_BYTES - HEADER_BYTES));
        let image = image(asked, flags, &fields, body);
        match images.iter_mut().find(|(other, _)| *other == number) {
            Some(other) => other.1 = image,
            None => images.push((number, image)),
        }
    }
    while let [segment, low, high, value] = *input.take(4) {
        let Some(index) = usize::from(segment).checked_rem(images.len()) else { break };
        let at = usize::from(low) | usize::from(high) << 8;
        if let Some(byte) = images[index].1.get_mut(at) {
            *byte = value;
        }
    }
    images
}

fn image(asked: u8, flags: u8, fields: &[u8; FIELDS_BYTES], body: &[u8]) -> Vec<u8> {
    let mut image = vec![0; HEADER_BYTES];
    for (copy, &at) in HEADER_COPIES_AT.iter().enumerate() {
        if copy == 1 && flags & self::flags::ONE_COPY != 0 {
            continue;
        }
        let bytes = &mut image[at..at + HEADER_COPY_BYTES];
        bytes[..FIELDS_BYTES].copy_from_slice(fields);
        bytes[100..104].copy_from_slice(&(copy as u32).to_le_bytes());
        if asked & sums::HEADER != 0 {
            let sum = crc32c(&bytes[..HEADER_COPY_BYTES - 4]);
            bytes[HEADER_COPY_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        }
    }
    image.extend(body);
    if flags & self::flags::SHORT == 0 {
        image.resize(SEGMENT_BYTES, 0);
    }
    let mut identity = [0; 24];
    identity.copy_from_slice(&fields[16..40]);
    sum_groups(asked, &identity, &mut image);
    image
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
}

/// Makes the sums right wherever a group's marker stands, and of the frames behind it as their
/// lengths say.
fn sum_groups(asked: u8, identity: &[u8; 24], image: &mut [u8]) {
    let mut at = HEADER_BYTES;
    while at + GROUP_HEADER_BYTES <= image.len() {
        if image[at..at + 4] != GROUP_MARKER {
            at += 8;
            continue;
        }
        let mut epoch = [0; 8];
        epoch.copy_from_slice(&image[at + 24..at + 32]);
        let end = at.saturating_add(word(image, at + 8)).min(image.len());
        if asked & sums::GROUP != 0 {
            let mut sum = append(crc32c(b"IK1GROUP"), identity);
            sum = append(sum, &(at as u64).to_le_bytes());
            sum = append(append(sum, &image[at..at + 4]), &image[at + 8..at + GROUP_HEADER_BYTES]);
            image[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
        }
        let mut frame = at + GROUP_HEADER_BYTES;
        while frame + FRAME_HEADER_BYTES <= end {
            let payload = frame + FRAME_HEADER_BYTES;
            let Some(bytes) = image.get(payload..payload.saturating_add(word(image, frame))) else {
                break;
            };
            let (len, sum) = (bytes.len(), crc32c(bytes));
            if asked & sums::PAYLOAD != 0 {
                image[frame + 16..frame + 20].copy_from_slice(&sum.to_le_bytes());
            }
            if asked & sums::FRAME != 0 {
                let mut sum = append(crc32c(b"IK1FRAME"), identity);
                sum = append(append(sum, &(frame as u64).to_le_bytes()), &epoch);
                sum = append(sum, &image[frame..frame + 20]);
                image[frame + 20..frame + 24].copy_from_slice(&sum.to_le_bytes());
            }
            frame = payload + len.next_multiple_of(8);
        }
        at = frame.max(at + 8).next_multiple_of(8);
    }
}

/// Where in an input the fields of group headers and frame headers stand, and the payloads: what
/// can be changed without everything behind it moving.
fn fields(input: &[u8]) -> Vec<Range<usize>> {
    let mut fields = Vec::new();
    let mut at = 0;
    while at + GROUP_HEADER_BYTES <= input.len() {
        if input[at..at + 4] != GROUP_MARKER {
            at += 1;
            continue;
        }
        fields.extend([at + 8..at + 16, at + 16..at + 32, at + 32..at + 48]);
        let end = at.saturating_add(word(input, at + 8)).min(input.len());
        let mut frame = at + GROUP_HEADER_BYTES;
        while frame + FRAME_HEADER_BYTES <= end {
            let payload = frame + FRAME_HEADER_BYTES;
            let len = word(input, frame);
            fields.extend([frame..frame + 8, frame + 8..frame + 16]);
            if len > 0 && payload.saturating_add(len) <= end {
                fields.push(payload..payload + len);
            }
            // Groups begin at multiples of 8 in their file, not in an input.
            frame = payload.saturating_add(len.next_multiple_of(8));
        }
        at += GROUP_HEADER_BYTES;
    }
    fields
}

/// Changes an input: one field in its place three times of four, else anywhere. `change` is
/// libFuzzer's own: bytes, how many count, how many there may be; it gives how many count then.
pub fn mutate(
    input: &mut [u8],
    len: usize,
    max_len: usize,
    seed: u32,
    change: impl Fn(&mut [u8], usize, usize) -> usize,
) -> usize {
    let fields = fields(&input[..len]);
    if fields.is_empty() || seed.is_multiple_of(4) {
        return change(input, len, max_len);
    }
    let field = fields[(seed / 4) as usize % fields.len()].clone();
    let field_len = field.len();
    change(&mut input[field], field_len, field_len);
    len
}

/// An input that gives these files, as far as one can.
pub fn input_of(asked: u8, images: &[Image]) -> Vec<u8> {
    let mut input = vec![asked, images.len() as u8];
    for (number, bytes) in images {
        let end =
            bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1).max(HEADER_BYTES);
        let body = &bytes[HEADER_BYTES.min(bytes.len())..end.min(bytes.len())];
        input.extend([*number as u8, 0]);
        input.extend(&bytes[..FIELDS_BYTES.min(bytes.len())]);
        input.extend((body.len() as u16).to_le_bytes());
        input.extend(body);
    }
    input
}
