//! `EINTR` and short transfers, in one place: what to do after the kernel has answered one attempt.
//!
//! *Owns*: the decision. *May not touch*: files; each kind of file makes its own attempts.

use std::io;

/// A transfer of a known length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    len: usize,
}

/// Which way the bytes go: a transfer of 0 bytes is the end of the file for a read and an error for
/// a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the file into memory.
    Read,
    /// From memory into the file.
    Write,
}

impl Transfer {
    /// A transfer of `len` bytes that has not begun.
    pub fn new(len: usize) -> Self {
        Self { len }
    }

    /// Runs `attempt(done)` until all is transferred, the file ends, or an error must be returned.
    /// Returns the bytes transferred.
    ///
    /// `EAGAIN` is retried, too: a blocking file returns it only if it could not finish at once.
    pub fn run(
        self,
        direction: Direction,
        mut attempt: impl FnMut(usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut done = 0;
        while done < self.len {
            let rest = self.len - done;
            match attempt(done) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
                Ok(0) if direction == Direction::Read => break,
                Ok(0) => {
                    let why = "the kernel wrote 0 bytes";
                    return Err(io::Error::new(io::ErrorKind::WriteZero, why));
                }
                Ok(count) if count > rest => {
                    let why = format!("the kernel claims {count} bytes of {rest}");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
                Ok(count) => done += count,
            }
        }
        Ok(done)
    }
}

/// Calls again for as long as the answer is `EINTR`.
pub fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scripted(
        direction: Direction,
        len: usize,
        answers: Vec<io::Result<usize>>,
    ) -> (io::Result<usize>, Vec<usize>) {
        let mut seen = Vec::new();
        let mut answers = answers.into_iter();
        let result = Transfer::new(len).run(direction, |done| {
            seen.push(done);
            answers.next().expect("one attempt more than the script has")
        });
        assert!(answers.next().is_none(), "the script has attempts left");
        (result, seen)
    }

    fn os(code: i32) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(code))
    }

    #[test]
    fn short_writes_and_interrupts_continue_where_they_stopped() {
        let answers = vec![os(libc::EINTR), Ok(512), os(libc::EINTR), Ok(1024), Ok(2560)];
        let (result, seen) = scripted(Direction::Write, 4096, answers);
        assert_eq!(result.expect("all written"), 4096);
        assert_eq!(seen, [0, 0, 512, 512, 1536]);
    }

    #[test]
    fn an_error_after_a_short_write_is_the_error() {
        let (result, _) = scripted(Direction::Write, 4096, vec![Ok(512), os(libc::ENOSPC)]);
        assert_eq!(result.expect_err("no space").raw_os_error(), Some(libc::ENOSPC));
    }

    #[test]
    fn zero_bytes_end_a_read_and_fail_a_write() {
        assert_eq!(scripted(Direction::Read, 10, vec![Ok(4), Ok(0)]).0.expect("a short file"), 4);
        let (result, _) = scripted(Direction::Write, 10, vec![Ok(4), Ok(0)]);
        assert_eq!(result.expect_err("nothing written").kind(), io::ErrorKind::WriteZero);
    }

    #[test]
    fn more_than_asked_for_is_an_error() {
        assert!(scripted(Direction::Write, 10, vec![Ok(11)]).0.is_err());
    }

    #[test]
    fn nothing_to_do_makes_no_attempt() {
        assert_eq!(scripted(Direction::Write, 0, vec![]).0.expect("nothing"), 0);
    }
}
