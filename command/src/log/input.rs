//! Records from a stream.
//!
//! *Owns*: where one record ends and the next begins. *May not touch*: what happens to them.

use std::io::{BufRead, ErrorKind};

use super::arguments::Separator;

/// Takes records out of `input`; a record that lies whole in its buffer is borrowed, not copied.
pub(super) struct Records<R> {
    input: R,
    separator: Separator,
    bytes_max: usize,
    /// The beginning of a record whose end has not arrived yet, including its length prefix if
    /// there is one.
    partial: Vec<u8>,
    /// How many records were taken.
    count: u64,
}

impl<R: BufRead> Records<R> {
    pub(super) fn new(input: R, separator: Separator, bytes_max: usize) -> Self {
        Self { input, separator, bytes_max, partial: Vec::new(), count: 0 }
    }

    /// Waits until there is something to take; false at the end of the input.
    pub(super) fn wait(&mut self) -> anyhow::Result<bool> {
        loop {
            match self.input.fill_buf() {
                Ok(bytes) => return Ok(!bytes.is_empty()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the records that have arrived whole. Call it only after [`Records::wait`] has returned
    /// true.
    pub(super) fn take(
        &mut self,
        mut give: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let bytes = self.input.fill_buf()?;
        let all = bytes.len();
        let mut rest = bytes;
        while !rest.is_empty() {
            let whole = match self.separator {
                Separator::Byte(end) => {
                    rest.iter().position(|byte| *byte == end).map(|at| (0, at, at + 1))
                }
                Separator::Length => with_length(&self.partial, rest, self.bytes_max)
                    .map_err(|bytes| too_large(self.count + 1, bytes, self.bytes_max))?,
            };
            match whole {
                Some((from, to, next)) if self.partial.is_empty() => {
                    give(&rest[from..to])?;
                    rest = &rest[next..];
                }
                Some((from, to, next)) => {
                    self.partial.extend_from_slice(&rest[..to]);
                    give(&self.partial[from..])?;
                    self.partial.clear();
                    rest = &rest[next..];
                }
                None => {
                    let bytes = self.partial.len() + rest.len();
                    let length_bytes = if self.separator == Separator::Length { 4 } else { 0 };
                    if bytes > self.bytes_max + length_bytes {
                        return Err(too_large(self.count + 1, bytes as u64, self.bytes_max));
                    }
                    self.partial.extend_from_slice(rest);
                    break;
                }
            }
            self.count += 1;
        }
        self.input.consume(all);
        Ok(())
    }

    /// Takes the rest at the end: the last line needs no line end.
    pub(super) fn finish(
        &mut self,
        give: impl FnOnce(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        if self.partial.is_empty() {
            return Ok(());
        }
        if self.separator == Separator::Length {
            anyhow::bail!(
                "the input ends inside record {}, after {} bytes",
                self.count + 1,
                self.partial.len()
            );
        }
        give(&self.partial)
    }
}

fn too_large(number: u64, bytes: u64, limit: usize) -> anyhow::Error {
    anyhow::anyhow!(
        "record {number} of the input has {bytes} bytes or more; the limit is {limit}: raise \
         --record-max"
    )
}

/// Finds a length-prefixed record in `partial` and `rest` together: its first byte, and in `rest`
/// its end and the start of what follows. The error is a length above the limit.
fn with_length(
    partial: &[u8],
    rest: &[u8],
    bytes_max: usize,
) -> Result<Option<(usize, usize, usize)>, u64> {
    let mut length = [0; 4];
    let known = partial.iter().chain(rest).take(4);
    let have = known.zip(&mut length).map(|(byte, to)| *to = *byte).count();
    if have < 4 {
        return Ok(None);
    }
    let length = u32::from_le_bytes(length);
    if length as usize > bytes_max {
        return Err(u64::from(length));
    }
    let end = 4 + length as usize;
    if partial.len() + rest.len() < end {
        return Ok(None);
    }
    let to = end - partial.len();
    Ok(Some((4, to, to)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn read(
        bytes: &[u8],
        separator: Separator,
        max: usize,
        buffer: usize,
    ) -> (Vec<Vec<u8>>, Result<(), String>) {
        let mut records = Records::new(BufReader::with_capacity(buffer, bytes), separator, max);
        let mut taken = Vec::new();
        let mut run = || -> anyhow::Result<()> {
            while records.wait()? {
                records.take(|record| {
                    taken.push(record.to_vec());
                    Ok(())
                })?;
            }
            records.finish(|record| {
                taken.push(record.to_vec());
                Ok(())
            })
        };
        let result = run().map_err(|error| error.to_string());
        (taken, result)
    }

    #[test]
    fn records_are_the_same_however_they_arrive() {
        for buffer in 1..20 {
            let (lines, result) =
                read(b"one\n\nthree\r\n\nlast", Separator::Byte(b'\n'), 8, buffer);
            assert_eq!(result, Ok(()));
            assert_eq!(lines, [&b"one"[..], b"", b"three\r", b"", b"last"], "buffer {buffer}");
            let (records, result) = read(b"a\nb\0\0c\0", Separator::Byte(0), 8, buffer);
            assert_eq!((records, result), (vec![b"a\nb".to_vec(), vec![], b"c".to_vec()], Ok(())));
            let (records, result) =
                read(b"\x02\0\0\0hi\0\0\0\0\x01\0\0\0!", Separator::Length, 8, buffer);
            assert_eq!((records, result), (vec![b"hi".to_vec(), vec![], b"!".to_vec()], Ok(())));
            assert_eq!(read(b"", Separator::Byte(b'\n'), 8, buffer), (vec![], Ok(())));
        }
    }

    #[test]
    fn what_is_cut_or_too_large_is_said_and_what_was_before_it_is_kept() {
        for buffer in 1..20 {
            let (records, result) =
                read(b"\x02\0\0\0hi\x09\0\0\0cut", Separator::Length, 9, buffer);
            assert_eq!(records, [b"hi"]);
            assert!(
                result.is_err_and(|said| said.contains("ends inside record 2")),
                "buffer {buffer}"
            );
            let (records, result) =
                read(b"\x02\0\0\0hi\xff\xff\xff\xffno", Separator::Length, 9, buffer);
            assert_eq!(records, [b"hi"]);
            assert!(
                result.is_err_and(|said| said.contains("record 2") && said.contains("4294967295"))
            );
            let (lines, result) =
                read(b"short\nmuch too long\n", Separator::Byte(b'\n'), 6, buffer);
            if buffer < 7 {
                // The log itself refuses one that lies whole in the buffer.
                assert_eq!(lines, [b"short"]);
                assert!(result.is_err_and(|said| said.contains("record 2")), "buffer {buffer}");
            }
        }
    }
}
