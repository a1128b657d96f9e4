//! A write batch as the bytes of a record.
//!
//! *Owns*: version 1 of the format, which docs/slatedb.md has byte by byte. *May not touch*: files.
//! The log has checked the checksums; decoding refuses bytes that no encoder of this version makes.

use std::fmt;

use bytes::{Buf, BufMut, Bytes};
use slatedb::{RowEntry, ValueDeletable};

const VERSION: u8 = 1;
const VALUE: u8 = 0;
const MERGE: u8 = 1;
const TOMBSTONE: u8 = 2;
const KIND: u8 = 0b11;
const CREATED: u8 = 0b100;
const EXPIRES: u8 = 0b1000;

/// Bytes that are not a record of this format, or rows that are not one write batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Malformed {
    /// A record of this other version: a newer program wrote it.
    Version(u8),
    /// The record ends in its head or within this row, counted from 0.
    Short(u32),
    /// A row has flags that this version does not know.
    Flags(u8),
    /// This many bytes follow the last row.
    Trailing(usize),
    /// A record without a row.
    Empty,
    /// A write batch has rows of two sequence numbers.
    Sequences(u64, u64),
    /// The length of a key or a value, or the number of rows, does not fit into 32 bits.
    TooLong(usize),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(found) => write!(
                f,
                "the record has version {found}, this program knows {VERSION}: use a newer program"
            ),
            Self::Short(row) => write!(f, "the record ends within row {row}"),
            Self::Flags(flags) => write!(f, "a row has the unknown flags {flags:#04x}"),
            Self::Trailing(bytes) => write!(f, "{bytes} bytes follow the last row of the record"),
            Self::Empty => write!(f, "the record has no row"),
            Self::Sequences(one, other) => {
                write!(f, "one write batch has the sequence numbers {one} and {other}")
            }
            Self::TooLong(bytes) => write!(f, "{bytes} bytes or rows do not fit into 32 bits"),
        }
    }
}

impl std::error::Error for Malformed {}

/// Encodes a write batch as the bytes of a record.
///
/// # Errors
/// [`Malformed`] if the rows are not one write batch.
pub fn encode(rows: &[RowEntry]) -> Result<Vec<u8>, Malformed> {
    let Some(first) = rows.first() else { return Err(Malformed::Empty) };
    let mut out = Vec::with_capacity(13 + rows.iter().map(row_bytes).sum::<usize>());
    out.put_u8(VERSION);
    out.put_u64_le(first.seq);
    out.put_u32_le(length(rows.len())?);
    for row in rows {
        if row.seq != first.seq {
            return Err(Malformed::Sequences(first.seq, row.seq));
        }
        let (kind, value) = match &row.value {
            ValueDeletable::Value(value) => (VALUE, Some(value)),
            ValueDeletable::Merge(value) => (MERGE, Some(value)),
            ValueDeletable::Tombstone => (TOMBSTONE, None),
        };
        let created = if row.create_ts.is_some() { CREATED } else { 0 };
        let expires = if row.expire_ts.is_some() { EXPIRES } else { 0 };
        out.put_u8(kind | created | expires);
        for time in [row.create_ts, row.expire_ts].into_iter().flatten() {
            out.put_i64_le(time);
        }
        out.put_u32_le(length(row.key.len())?);
        out.put_slice(&row.key);
        if let Some(value) = value {
            out.put_u32_le(length(value.len())?);
            out.put_slice(value);
        }
    }
    Ok(out)
}

/// Decodes the write batch of a record; keys and values share the record's memory.
///
/// # Errors
/// [`Malformed`] for bytes that [`encode`] does not make.
pub fn decode(record: Vec<u8>) -> Result<Vec<RowEntry>, Malformed> {
    let mut bytes = Bytes::from(record);
    let version = bytes.try_get_u8().map_err(|_| Malformed::Short(0))?;
    if version != VERSION {
        return Err(Malformed::Version(version));
    }
    let seq = bytes.try_get_u64_le().map_err(|_| Malformed::Short(0))?;
    let count = bytes.try_get_u32_le().map_err(|_| Malformed::Short(0))?;
    if count == 0 {
        return Err(Malformed::Empty);
    }
    // A row has at least five bytes, so a wrong count allocates little.
    let mut rows = Vec::with_capacity((count as usize).min(bytes.len() / 5));
    for number in 0..count {
        rows.push(row(&mut bytes, seq).map_err(|flags| match flags {
            Some(flags) => Malformed::Flags(flags),
            None => Malformed::Short(number),
        })?);
    }
    if bytes.is_empty() { Ok(rows) } else { Err(Malformed::Trailing(bytes.len())) }
}

/// The next row. The error is its unknown flags, or `None` if the bytes end too early.
fn row(bytes: &mut Bytes, seq: u64) -> Result<RowEntry, Option<u8>> {
    let flags = bytes.try_get_u8().map_err(|_| None)?;
    if flags & KIND > TOMBSTONE || flags & !(KIND | CREATED | EXPIRES) != 0 {
        return Err(Some(flags));
    }
    let mut time = |flag| -> Result<Option<i64>, Option<u8>> {
        if flags & flag == 0 {
            Ok(None)
        } else {
            Ok(Some(bytes.try_get_i64_le().map_err(|_| None)?))
        }
    };
    let (create_ts, expire_ts) = (time(CREATED)?, time(EXPIRES)?);
    let key = part(bytes)?;
    let value = match flags & KIND {
        VALUE => ValueDeletable::Value(part(bytes)?),
        MERGE => ValueDeletable::Merge(part(bytes)?),
        _ => ValueDeletable::Tombstone,
    };
    Ok(RowEntry { key, value, seq, create_ts, expire_ts })
}

fn part(bytes: &mut Bytes) -> Result<Bytes, Option<u8>> {
    let len = bytes.try_get_u32_le().map_err(|_| None)? as usize;
    if len > bytes.len() {
        return Err(None);
    }
    Ok(bytes.split_to(len))
}

fn length(len: usize) -> Result<u32, Malformed> {
    u32::try_from(len).map_err(|_| Malformed::TooLong(len))
}

fn row_bytes(row: &RowEntry) -> usize {
    let value = match &row.value {
        ValueDeletable::Value(value) | ValueDeletable::Merge(value) => value.len(),
        ValueDeletable::Tombstone => 0,
    };
    25 + row.key.len() + value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(key: &[u8], value: ValueDeletable, times: (Option<i64>, Option<i64>)) -> RowEntry {
        let key = Bytes::copy_from_slice(key);
        RowEntry { key, value, seq: 0x0102, create_ts: times.0, expire_ts: times.1 }
    }

    #[test]
    fn these_are_the_bytes_of_version_1() {
        let rows = [
            value(b"k", ValueDeletable::Value(Bytes::from_static(b"vv")), (Some(1), None)),
            value(b"", ValueDeletable::Tombstone, (None, Some(-1))),
        ];
        let bytes = encode(&rows).expect("a batch");
        let expected: &[u8] = &[
            1, 2, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0,
            0, // the version, the sequence number, two rows
            4, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, b'k', 2, 0, 0, 0, b'v',
            b'v', // a value, created
            10, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0,
            0, // a tombstone that expires
        ];
        assert_eq!(bytes, expected);
        assert_eq!(decode(bytes).expect("decoded"), rows);
    }

    #[test]
    fn what_no_encoder_makes_is_refused() {
        let row = value(b"k", ValueDeletable::Merge(Bytes::from_static(b"v")), (None, None));
        let good = encode(std::slice::from_ref(&row)).expect("a batch");
        for len in 0..good.len() {
            assert!(decode(good[..len].to_vec()).is_err(), "cut at {len}");
        }
        let changed = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            decode(bytes)
        };
        assert_eq!(changed(0, 2), Err(Malformed::Version(2)));
        assert_eq!(changed(9, 0), Err(Malformed::Empty));
        assert_eq!(changed(9, 2), Err(Malformed::Short(1)));
        assert_eq!(changed(13, 3), Err(Malformed::Flags(3)));
        assert_eq!(changed(13, 16), Err(Malformed::Flags(16)));
        let mut longer = good.clone();
        longer.push(0);
        assert_eq!(decode(longer), Err(Malformed::Trailing(1)));
        assert_eq!(encode(&[]), Err(Malformed::Empty));
        let other = RowEntry { seq: 7, ..row.clone() };
        assert_eq!(encode(&[row, other]), Err(Malformed::Sequences(0x0102, 7)));
    }

    #[test]
    fn any_bytes_are_a_batch_or_an_error_and_a_batch_is_its_bytes() {
        const TRIES: u32 = 100_000;
        let mut random = fastrand::Rng::with_seed(42);
        let mut batches = 0;
        for _ in 0..TRIES {
            let seq = random.u64(..);
            let rows: Vec<RowEntry> = (0..random.usize(1..4))
                .map(|_| {
                    let bytes = Bytes::from(vec![random.u8(..4); random.usize(0..5)]);
                    let value = match random.u8(0..3) {
                        VALUE => ValueDeletable::Value(bytes.clone()),
                        MERGE => ValueDeletable::Merge(bytes.clone()),
                        _ => ValueDeletable::Tombstone,
                    };
                    let mut time = || random.bool().then(|| random.i64(..));
                    let (create_ts, expire_ts) = (time(), time());
                    RowEntry { key: bytes, value, seq, create_ts, expire_ts }
                })
                .collect();
            let mut bytes = encode(&rows).expect("a batch");
            for _ in 0..random.usize(0..4) {
                let at = random.usize(0..bytes.len());
                match random.u8(0..4) {
                    0 => bytes.truncate(at.max(1)),
                    1 => bytes.insert(at, random.u8(..)),
                    2 => bytes[at] = random.u8(..4),
                    _ => bytes[at] ^= 1 << random.u8(..8),
                }
            }
            if let Ok(rows) = decode(bytes.clone()) {
                batches += 1;
                assert_eq!(encode(&rows).expect("a batch"), bytes);
            }
        }
        assert!(batches > TRIES / 10 && batches < TRIES, "{batches}");
    }
}
