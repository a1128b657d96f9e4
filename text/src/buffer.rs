//! One buffer on its way from the writers to the file.
//!
//! *Owns*: the words kept beside a buffer's bytes, and the order of their stores (a kill may come
//! between any two). *May not touch*: locks, files.
//!
//! | word | meaning |
//! |---|---|
//! | 0 | bytes that are there, and a sum of them ([`StageBuffer`]'s own) |
//! | 1 | its number, from 1; 0: free, its contents do not count. Stored last when it is taken, first when it is released |
//! | 2 | 0: its first bytes begin a line; 1: they continue the line that ends the previous buffer |
//! | 3 | 0: it has no place yet. Otherwise its lowest bits say in which slot that is, 1 or 2, and the others how many
//!       of its bytes are elsewhere already (0 unless another process appended after a part of it). Stored before the
//!       first byte goes to the file |
//! | 4, 5 and 6, 7 | a slot: inode, offset: where the first byte goes (after those that are elsewhere), in which file
//!       of the log. Not the device: it has another number when it is mounted again |
//!
//! A place that changes goes into the other slot, and the one store of word 3 makes it valid: so a kill leaves the one
//! or the other.

use inkstone_io::StageBuffer;

use crate::disk::Place;

pub(crate) const NUMBER: usize = 1;
pub(crate) const CONTINUES: usize = 2;
const PLACED: usize = 3;
const SLOTS: [usize; 2] = [4, 6];
const SLOT_BITS: u64 = 2;
/// Bytes that are summed at once.
const WORD: usize = 4;

/// The sum of some bytes, by which a start sees that they are those that were put: the Internet's,
/// of words of four bytes, whose carry goes around. So a thread can make it of its own line, before
/// it takes the lock, wherever the line comes to stand: behind so many bytes it is turned by those.
/// Any one byte that is changed changes it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum(u32);

impl Sum {
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        // Two words at once: what a carry goes around does not matter.
        let (pairs, rest) = bytes.as_chunks::<8>();
        let last = match bytes.last_chunk::<8>() {
            Some(_) if rest.is_empty() => 0,
            // To copy the rest, whose length is not known, would take as long as all before it.
            Some(last) => u64::from_le_bytes(*last) >> (8 * (8 - rest.len())),
            None => rest.iter().rev().fold(0, |last, byte| last << 8 | u64::from(*byte)),
        };
        let pairs = pairs.iter().map(|pair| u128::from(u64::from_le_bytes(*pair)));
        let sum = pairs.fold(u128::from(last), |sum, pair| sum + pair);
        let (carries, sum) = ((sum >> 64) as u64, sum as u64);
        Self::folded(carries + (sum >> 32) + (sum & u64::from(u32::MAX)))
    }

    /// That of these bytes, which are so many, and the next.
    #[inline]
    fn then(self, len: usize, next: Self) -> Self {
        let turned = next.0.rotate_left((len % WORD * 8) as u32);
        let (sum, carry) = self.0.overflowing_add(turned);
        Self(sum + u32::from(carry))
    }

    #[inline]
    fn folded(sum: u64) -> Self {
        let sum = (sum >> 32) + (sum & u64::from(u32::MAX));
        Self(((sum >> 32) + (sum & u64::from(u32::MAX))) as u32)
    }

    pub(crate) fn mark(self) -> u32 {
        self.0
    }
}

/// What the first bytes of a buffer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    Line = 0,
    /// They continue the line that ends the previous buffer.
    Piece = 1,
}

/// Where the bytes of a buffer go, in the words beside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) inode: u64,
    pub(crate) offset: u64,
    /// This many of them are elsewhere already.
    pub(crate) elsewhere: usize,
}

/// Lines and bytes, without notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Count {
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Buffer {
    memory: StageBuffer,
    /// It survives a kill, so its bytes are summed.
    is_kept: bool,
    /// All of its memory is there.
    is_ready: bool,
    sum: Sum,
    number: u64,
    /// Its first bytes begin a line.
    begins: bool,
    /// What was put before it was taken into use.
    before: Count,
    /// The bytes of a notice, with which it begins then.
    notice_bytes: usize,
}

impl Buffer {
    pub(crate) fn new(memory: StageBuffer, is_kept: bool) -> Self {
        Self {
            memory,
            is_kept,
            is_ready: !is_kept,
            sum: Sum::default(),
            number: 0,
            begins: true,
            before: Count::default(),
            notice_bytes: 0,
        }
    }

    /// One that a killed process has left; `None` if it was free.
    pub(crate) fn found(memory: StageBuffer) -> Option<Self> {
        let number = memory.word(NUMBER);
        // The line before it may be in the file already, in part.
        let begins = memory.word(CONTINUES) == First::Line as u64;
        (number != 0).then(|| Self { number, begins, ..Self::new(memory, true) })
    }

    /// Whether the bytes that a killed process has left are those that it had put.
    pub(crate) fn is_sound(&self) -> bool {
        Sum::of(self.bytes()).mark() == self.memory.mark()
    }

    /// Sees to it that its memory is there before it is used.
    pub(crate) fn ready(&mut self) -> inkstone_io::Result<()> {
        if !self.is_ready {
            self.memory.ready()?;
            self.is_ready = true;
        }
        Ok(())
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether it continues the line that ends the buffer before it, in the words beside it.
    pub(crate) fn is_piece(&self) -> bool {
        self.memory.word(CONTINUES) == First::Piece as u64
    }

    /// Where its bytes go, for one that a killed process has left.
    pub(crate) fn placed(&self) -> Option<Placed> {
        let placed = self.memory.word(PLACED);
        let slot = SLOTS.get(((placed & 3) as usize).checked_sub(1)?)?;
        let elsewhere = (placed >> SLOT_BITS) as usize;
        Some(Placed {
            inode: self.memory.word(*slot),
            offset: self.memory.word(slot + 1),
            elsewhere: if elsewhere <= self.len() { elsewhere } else { 0 },
        })
    }

    /// Takes it into use, empty, when so much was put.
    pub(crate) fn claim(&mut self, number: u64, first: First, before: Count) {
        self.memory.set_word(NUMBER, 0);
        self.clear();
        self.memory.set_word(PLACED, 0);
        self.memory.set_word(CONTINUES, first as u64);
        self.memory.set_word(NUMBER, number);
        (self.number, self.begins, self.before) = (number, first != First::Piece, before);
    }

    fn clear(&mut self) {
        self.notice_bytes = 0;
        self.sum = Sum::default();
        self.memory.clear();
    }

    /// The bytes that were put up to its end.
    pub(crate) fn put_bytes(&self) -> u64 {
        self.before.bytes + (self.len() - self.notice_bytes) as u64
    }

    /// What the files have if they have this many of its bytes, and all before it. It searches for
    /// line ends, so that putting a line costs nothing more while the disk takes whole buffers.
    pub(crate) fn count(&self, to: usize) -> Count {
        let part = self.bytes().get(self.notice_bytes..to).unwrap_or_default();
        let ended = part.iter().filter(|byte| **byte == b'\n').count() as u64;
        // The line that began in an earlier one ends here, too.
        let lines = self.before.lines - u64::from(!self.begins) + ended;
        Count { lines, bytes: self.before.bytes + part.len() as u64 }
    }

    /// Frees it: its contents count no more.
    pub(crate) fn release(&mut self) {
        self.memory.set_word(NUMBER, 0);
        self.clear();
    }

    /// Records where it goes, before it goes there; `elsewhere` of its bytes are in another place
    /// already.
    pub(crate) fn place(&mut self, place: Place, elsewhere: usize) {
        for (word, value) in self.stores_of(place, elsewhere) {
            self.memory.set_word(word, value);
        }
    }

    /// What is stored for a place, in this order.
    fn stores_of(&self, place: Place, elsewhere: usize) -> [(usize, u64); 3] {
        let other = usize::from(self.memory.word(PLACED) & 3 == 1);
        let placed = (elsewhere as u64) << SLOT_BITS | (other as u64 + 1);
        [(SLOTS[other], place.inode), (SLOTS[other] + 1, place.offset), (PLACED, placed)]
    }

    /// Marks the empty buffer as the beginning of a line, which goes to no certain place.
    pub(crate) fn begin_line(&mut self) {
        self.memory.set_word(PLACED, 0);
        self.memory.set_word(CONTINUES, First::Line as u64);
        self.begins = true;
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether its first bytes begin a line.
    pub(crate) fn begins(&self) -> bool {
        self.begins
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

    /// The sum of bytes that are about to be put; of no use where no kill is survived.
    pub(crate) fn sum_of(&self, bytes: &[u8]) -> Sum {
        if self.is_kept { Sum::of(bytes) } else { Sum::default() }
    }

    /// Puts a whole line, or text; the caller has checked the room. All other threads wait
    /// meanwhile, so without survival it only copies.
    #[inline]
    pub(crate) fn push(&mut self, text: &[u8], sum: Sum) {
        if !self.is_kept {
            return self.memory.put(text);
        }
        self.push_unpublished(text, sum);
        self.publish();
    }

    /// The same; a kill loses it until it is published.
    #[inline]
    pub(crate) fn push_unpublished(&mut self, text: &[u8], sum: Sum) {
        self.sum = self.sum.then(self.memory.len(), sum);
        self.memory.put(text);
    }

    #[inline]
    pub(crate) fn publish(&mut self) {
        self.memory.publish(self.sum.mark());
    }

    /// Begins with a notice of dropped lines.
    pub(crate) fn push_notice(&mut self, notice: &[u8]) {
        self.push(notice, self.sum_of(notice));
        self.notice_bytes = notice.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkstone_io::{StageLayout, buffers_in_memory};

    /// A line would come twice if it had none for a moment.
    #[test]
    fn a_kill_leaves_the_place_as_it_was_or_as_it_is() {
        let layout = StageLayout { head_bytes: 4096, buffer_bytes: 4096, buffers: 2 };
        let mut memory = buffers_in_memory(layout).expect("memory");
        let mut buffer = Buffer::new(memory.pop().expect("two"), true);
        buffer.claim(1, First::Line, Count::default());
        buffer.push(&[b'x'; 100], Sum::default());
        let mut was = None;
        for (inode, elsewhere) in [(7, 0), (7, 30), (8, 100), (u64::MAX, 0)] {
            let place = Place { device: 1, inode, offset: inode - 5 };
            let stores = buffer.stores_of(place, elsewhere);
            let seen = |buffer: &Buffer| {
                let placed = buffer.placed()?;
                Some((placed.inode, placed.offset, placed.elsewhere))
            };
            let is = Some((inode, inode - 5, elsewhere));
            for (at, (word, value)) in stores.into_iter().enumerate() {
                buffer.memory.set_word(word, value);
                assert_eq!(seen(&buffer), if at < 2 { was } else { is });
            }
            was = is;
        }
    }

    #[test]
    fn a_sum_is_that_of_its_parts_and_of_no_other_bytes() {
        let bytes: Vec<u8> = (0..300_u32).map(|at| (at * at % 251) as u8).collect();
        let whole = Sum::of(&bytes).mark();
        for at in 0..bytes.len() {
            let (first, rest) = bytes.split_at(at);
            assert_eq!(Sum::of(first).then(at, Sum::of(rest)).mark(), whole);
            let mut other = bytes.clone();
            other[at] ^= 1 << (at % 8);
            assert_ne!(Sum::of(&other).mark(), whole);
        }
    }
}
