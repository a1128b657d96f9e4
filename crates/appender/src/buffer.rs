//! One buffer on its way from the writers to the file.
//!
//! *Owns*: what is kept beside a buffer's bytes, in which order it is stored (a kill may come between any two stores).
//! *May not touch*: locks, files.
//!
//! | word | meaning |
//! |---|---|
//! | 0 | bytes that are there ([`StageBuffer`]'s own) |
//! | 1 | its number, from 1; 0: free, nothing in it counts. Stored last when it is taken, first when it is given back |
//! | 2 | 0: its first bytes are the beginning of a line; 1: they continue the line that ends the buffer before; 2: they are a line, and
//!      the one before it had no line end, so that the two are one line of text |
//! | 3 | 1: words 4 to 6 are there, stored before the first byte is written to the file |
//! | 4, 5, 6 | device, inode, offset: where in which file its first byte goes, or that of word 7 |
//! | 7 | so many of its bytes are elsewhere already: 0 unless somebody wrote behind the half of it |

use std::fmt;

use inkstone_io::StageBuffer;

use crate::notice::Dropped;

pub(crate) const NUMBER: usize = 1;
pub(crate) const CONTINUES: usize = 2;
pub(crate) const PLACED: usize = 3;
pub(crate) const DEVICE: usize = 4;
pub(crate) const INODE: usize = 5;
pub(crate) const OFFSET: usize = 6;
pub(crate) const ELSEWHERE: usize = 7;

const WORD_BITS: usize = u64::BITS as usize;

/// What the first bytes of a buffer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    Line = 0,
    /// They continue the line that ends the buffer before.
    Piece = 1,
    /// They are a line, behind one that had no line end: a program may put one line of text in several.
    Joined = 2,
}

/// What a file has of a buffer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Part {
    /// So many of its bytes.
    pub(crate) to: usize,
    /// Lines that end in that.
    pub(crate) lines: u64,
    /// The bytes up to the end of the last of them, without notices.
    pub(crate) bytes: u64,
    /// What the notices in it tell of.
    pub(crate) told: Dropped,
}

/// One bit for each byte: a line ends with it.
struct Ends(Vec<u64>);

impl fmt::Debug for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ends").finish_non_exhaustive()
    }
}

/// A notice among the lines.
#[derive(Debug, Clone, Copy)]
struct NoticeAt {
    end: usize,
    bytes: u64,
    told: Dropped,
}

/// Where a buffer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) offset: u64,
}

#[derive(Debug)]
pub(crate) struct Buffer {
    memory: StageBuffer,
    number: u64,
    continues: bool,
    /// Lines that begin in it.
    pub(crate) lines: u64,
    /// Bytes that are no notices.
    pub(crate) line_bytes: u64,
    /// What its notices tell of: told only if it reaches the file.
    pub(crate) told: Dropped,
    ends: Ends,
    notices: Vec<NoticeAt>,
}

impl Buffer {
    pub(crate) fn new(memory: StageBuffer) -> Self {
        let ends = Ends(vec![0; memory.capacity().div_ceil(WORD_BITS)]);
        let (lines, line_bytes, told) = (0, 0, Dropped::default());
        Self { memory, number: 0, continues: false, lines, line_bytes, told, ends, notices: Vec::new() }
    }

    /// Takes it into use, empty.
    pub(crate) fn claim(&mut self, number: u64, first: First) {
        self.memory.set_word(NUMBER, 0);
        self.clear();
        self.memory.set_word(PLACED, 0);
        self.memory.set_word(CONTINUES, first as u64);
        self.memory.set_word(NUMBER, number);
        (self.number, self.continues) = (number, first == First::Piece);
        (self.lines, self.line_bytes, self.told) = (0, 0, Dropped::default());
    }

    fn clear(&mut self) {
        let used = self.memory.len().div_ceil(WORD_BITS);
        self.ends.0[..used].fill(0);
        self.notices.clear();
        self.memory.clear();
    }

    /// What a file has that has so many of its bytes.
    pub(crate) fn part(&self, to: usize) -> Part {
        let (mut lines, mut last) = (0, 0);
        for (word, bits) in self.ends.0.iter().enumerate().take(to.div_ceil(WORD_BITS)) {
            let left = to - word * WORD_BITS;
            let bits = if left < WORD_BITS { bits & ((1 << left) - 1) } else { *bits };
            lines += u64::from(bits.count_ones());
            if bits != 0 {
                last = (word + 1) * WORD_BITS - bits.leading_zeros() as usize;
            }
        }
        let told = self.notices.iter().filter(|notice| notice.end <= to);
        let between = self.notices.iter().filter(|notice| notice.end <= last);
        let bytes = last as u64 - between.map(|notice| notice.bytes).sum::<u64>();
        Part { to, lines, bytes, told: told.fold(Dropped::default(), |sum, notice| sum.plus(notice.told)) }
    }

    /// Goes into other memory with all that is in it.
    pub(crate) fn move_into(&mut self, mut memory: StageBuffer, is_in_use: bool) {
        if is_in_use {
            memory.push(self.memory.bytes());
            for word in [CONTINUES, DEVICE, INODE, OFFSET, ELSEWHERE, PLACED, NUMBER] {
                memory.set_word(word, self.memory.word(word));
            }
        }
        self.memory = memory;
    }

    /// Nothing in it counts any more.
    pub(crate) fn release(&mut self) {
        self.memory.set_word(NUMBER, 0);
        self.clear();
    }

    /// Says where it goes, all but so many bytes that are elsewhere already, before it goes there.
    pub(crate) fn place(&mut self, place: Place, elsewhere: u64) {
        self.memory.set_word(PLACED, 0);
        self.memory.set_word(DEVICE, place.device);
        self.memory.set_word(INODE, place.inode);
        self.memory.set_word(OFFSET, place.offset);
        self.memory.set_word(ELSEWHERE, elsewhere);
        self.memory.set_word(PLACED, 1);
    }

    /// Nothing is in it, and no line goes on there.
    pub(crate) fn begins(&mut self) {
        self.memory.set_word(CONTINUES, First::Line as u64);
        self.continues = false;
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn continues(&self) -> bool {
        self.continues
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.memory.room()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// A whole line; the caller has asked for room.
    #[inline]
    pub(crate) fn push_line(&mut self, line: &[u8]) {
        self.memory.push(line);
        self.end_line();
        self.lines += 1;
        self.line_bytes += line.len() as u64;
    }

    /// A piece of a line; `is_first` counts the line. With `published` false a kill leaves it out.
    pub(crate) fn push_piece(&mut self, piece: &[u8], is_first: bool, published: bool) {
        self.memory.put(piece);
        if published {
            self.memory.publish();
        }
        self.lines += u64::from(is_first);
        self.line_bytes += piece.len() as u64;
    }

    /// The line that was put last ends here.
    #[inline]
    pub(crate) fn end_line(&mut self) {
        // One without a byte has no last byte.
        if let Some(last) = self.memory.len().checked_sub(1) {
            self.ends.0[last / WORD_BITS] |= 1 << (last % WORD_BITS);
        }
    }

    pub(crate) fn publish(&mut self) {
        self.memory.publish();
    }

    /// A notice that so much was dropped.
    pub(crate) fn push_notice(&mut self, notice: &[u8], told: Dropped) {
        self.memory.push(notice);
        self.notices.push(NoticeAt { end: self.memory.len(), bytes: notice.len() as u64, told });
        self.told = self.told.plus(told);
    }
}
