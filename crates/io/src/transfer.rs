//! `EINTR` and short transfers, in one place: what to do after the kernel has answered one attempt.
//!
//! *Owns*: the decision. *May not touch*: files; the caller's thread, io_uring and Linux AIO each
//! make the attempts in their own way and ask this state machine for the next step.

use std::io;

/// How far a transfer of a known length has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    done: usize,
    len: usize,
}

/// What to do next.
#[derive(Debug)]
pub enum Next {
    /// Attempt the rest: bytes `done..len`.
    Again,
    /// All bytes were transferred.
    Done,
    /// A read met the end of the file here.
    End,
    /// Stop with this error.
    Fail(io::Error),
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
        Self { done: 0, len }
    }

    /// The bytes transferred so far.
    pub fn done(&self) -> usize {
        self.done
    }

    /// The bytes still to transfer.
    pub fn rest(&self) -> usize {
        self.len - self.done
    }

    /// Takes the kernel's answer to one attempt.
    ///
    /// `EAGAIN` is retried too: a blocking file returns it only if an engine could not finish at
    /// once.
    pub fn advance(&mut self, direction: Direction, answer: io::Result<usize>) -> Next {
        match answer {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Next::Again,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Next::Again,
            Err(error) => Next::Fail(error),
            Ok(0) if self.rest() == 0 => Next::Done,
            Ok(0) if direction == Direction::Read => Next::End,
            Ok(0) => {
                Next::Fail(io::Error::new(io::ErrorKind::WriteZero, "the kernel wrote 0 bytes"))
            }
            Ok(count) if count > self.rest() => Next::Fail(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the kernel claims {count} bytes of {}", self.rest()),
            )),
            Ok(count) => {
                self.done += count;
                if self.rest() == 0 { Next::Done } else { Next::Again }
            }
        }
    }

    /// Runs `attempt(done)` until all is transferred, the file ends, or an error must be returned.
    /// Returns the bytes transferred.
    pub fn run(
        mut self,
        direction: Direction,
        mut attempt: impl FnMut(usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        while self.rest() > 0 {
            let answer = attempt(self.done);
            match self.advance(direction, answer) {
                Next::Again => {}
                Next::Done | Next::End => break,
                Next::Fail(error) => return Err(error),
            }
        }
        Ok(self.done)
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
