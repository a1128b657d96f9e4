//! The inbox of a stream: the memory into which its bytes are read, so that a kill loses none of
//! those that the reader has taken out of a pipe.
//!
//! *Owns*: bytes that were read and are not among the lines yet, and the words that say how many of
//! them are. *May not touch*: lines, locks, files.
//!
//! It is the last of the stage's buffers. Bytes are read into its upper half, where all others are
//! zeros: behind a kill the last byte that is none ends them, also if the process did not live to
//! see how many came. (A read that ends with zeros loses those.) Then they are put among the lines,
//! perhaps in parts. Before a part is put, a slot says into which buffer and behind how many of its
//! bytes: so it is known whether it was. The slots take turns, since one cannot be changed at once.
//!
//! | word | meaning |
//! |---|---|
//! | 0 to 3 | as of every buffer; 0 in word 1 while this is an inbox |
//! | 2 | 1: the first of its bytes continue a line |
//! | 3 | 3 once a stream has used it, until it is found as a buffer. Otherwise nobody looks at its bytes: for them
//!       there may be no memory |
//! | 4, 5 and 6, 7 | a slot: the number of a buffer; its bytes before, and those of the inbox up to the end of the part, in half a word each |

use inkstone_io::StageBuffer;

use crate::buffer::{CONTINUES, NUMBER, Sum};

const USE: usize = 3;
const IN_USE: u64 = 3;
const SLOTS: [usize; 2] = [4, 6];
/// No buffer has this number: the part was dropped.
const NOWHERE: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Inbox {
    memory: StageBuffer,
    /// It survives a kill.
    is_kept: bool,
    /// A stream uses it.
    pub(crate) is_taken: bool,
    /// Bytes of the last read.
    len: usize,
    next_slot: usize,
}

impl Inbox {
    pub(crate) fn new(memory: StageBuffer, is_kept: bool) -> Self {
        Self { memory, is_kept, is_taken: false, len: 0, next_slot: 0 }
    }

    /// Takes it for a stream, once its memory is there.
    pub(crate) fn take(&mut self) -> inkstone_io::Result<()> {
        if self.is_kept {
            self.memory.ready()?;
            self.memory.set_word(USE, IN_USE);
        }
        self.is_taken = true;
        Ok(())
    }

    /// Reads up to so many bytes, when all that was read before is among the lines. `is_within`:
    /// they continue a line.
    pub(crate) fn read<E>(
        &mut self,
        most: usize,
        is_within: bool,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<&[u8], E> {
        let half = self.memory.capacity() / 2;
        if self.is_kept {
            self.memory.spare_mut(half)[..self.len].fill(0);
            SLOTS.iter().for_each(|slot| self.memory.set_word(*slot, 0));
            self.memory.set_word(CONTINUES, u64::from(is_within));
        }
        self.len = 0;
        let room = &mut self.memory.spare_mut(half)[..most.clamp(1, half)];
        self.len = read(room)?.min(room.len());
        Ok(&room[..self.len])
    }

    /// Stores where the bytes up to `to` go, before they go there.
    pub(crate) fn goes(&mut self, to: usize, number: u64, offset: usize) {
        if self.is_kept {
            let slot = SLOTS[self.next_slot];
            self.next_slot = 1 - self.next_slot;
            self.memory.set_word(slot, 0);
            self.memory.set_word(slot + 1, (offset as u64) << 32 | to as u64);
            self.memory.set_word(slot, number);
        }
    }

    /// Stores that the bytes up to `to` go nowhere.
    pub(crate) fn is_dropped(&mut self, to: usize) {
        self.goes(to, NOWHERE, 0);
    }
}

/// Whether a stream of a killed process may have read something into it.
pub(crate) fn is_in_use(memory: &StageBuffer) -> bool {
    memory.word(NUMBER) == 0 && memory.word(USE) == IN_USE
}

/// What a killed process has left in its inbox, as a buffer behind its `others`, if it left
/// anything. A kill at any moment leaves the one or the other.
pub(crate) fn left_in(mut memory: StageBuffer, others: &[StageBuffer]) -> Option<StageBuffer> {
    let half = memory.capacity() / 2;
    if is_in_use(&memory) {
        let is_put = |slot: &&usize| {
            let (number, offset) = (memory.word(**slot), memory.word(**slot + 1) >> 32);
            let other = others.iter().find(|other| other.word(NUMBER) == number);
            // One that is gone is written.
            number != 0 && other.is_none_or(|other| other.len() as u64 > offset)
        };
        let put = SLOTS.iter().filter(is_put).map(|slot| memory.word(slot + 1) as u32 as usize);
        let put = put.max().unwrap_or(0);
        memory.clear();
        let text = memory.spare_mut(half);
        let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        let rest = text.get(put..end).filter(|rest| !rest.is_empty())?.to_vec();
        let before = put.checked_sub(1).map(|at| text[at] != b'\n');
        let continues = before.map_or(memory.word(CONTINUES), u64::from);
        let numbers = others.iter().filter(|other| !other.is_empty());
        let last = numbers.map(|other| other.word(NUMBER)).max().unwrap_or(0);
        memory.put(&rest);
        memory.publish(Sum::of(&rest).mark());
        memory.set_word(CONTINUES, continues);
        memory.set_word(NUMBER, last + 1);
    }
    // It is a buffer from here on, and no inbox once it was released. A kill may have come before
    // this was stored.
    if memory.word(USE) == IN_USE {
        memory.set_word(USE, 0);
    }
    (memory.word(NUMBER) != 0).then_some(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkstone_io::{StageLayout, buffers_in_memory};

    /// What is found of `one\ntwo\nthr`, which is read and put in two parts, the first of them into
    /// buffer 3 behind so many bytes, if that buffer is there and has so many by then.
    fn found(parts: usize, number: u64, bytes: usize) -> Option<(String, u64, u64)> {
        let layout = StageLayout { head_bytes: 4096, buffer_bytes: 4096, buffers: 2 };
        let mut memory = buffers_in_memory(layout).expect("memory");
        let mut inbox = Inbox::new(memory.pop().expect("two"), true);
        let fill = |text: &'static [u8]| {
            move |room: &mut [u8]| {
                room[..text.len()].copy_from_slice(text);
                Ok::<_, ()>(text.len())
            }
        };
        inbox.take().expect("memory");
        // Nothing of an earlier read comes again.
        inbox.read(100, true, fill(b"a longer one that was put\n")).expect("read");
        inbox.is_dropped(26);
        inbox.read(100, true, fill(b"one\ntwo\nthr")).expect("read");
        if parts > 0 {
            inbox.goes(4, 3, 10);
        }
        if parts > 1 {
            inbox.goes(11, 3, 14);
        }
        memory[0].put(&vec![b'x'; bytes]);
        memory[0].publish(0);
        memory[0].set_word(NUMBER, number);
        let mut found = left_in(inbox.memory, &memory)?;
        let text = String::from_utf8(found.bytes().to_vec()).expect("text");
        assert_eq!(found.mark(), Sum::of(text.as_bytes()).mark());
        let seen = (text, found.word(NUMBER), found.word(CONTINUES));
        // A start places it, at the beginning of a file here, and is killed before it releases it;
        // the next one is killed behind that.
        let placed = [(3, 1), (4, 77), (5, 0)];
        placed.iter().for_each(|(word, is)| found.set_word(*word, *is));
        let mut again = left_in(found, &memory).expect("a buffer");
        assert_eq!(placed.map(|(word, _)| (word, again.word(word))), placed, "it keeps its place");
        again.set_word(NUMBER, 0);
        again.clear();
        assert!(left_in(again, &memory).is_none(), "it comes once");
        Some(seen)
    }

    #[test]
    fn what_was_read_and_not_put_comes_again_and_nothing_else() {
        let all = Some(("one\ntwo\nthr".to_owned(), 4, 1));
        let rest = |number| Some(("two\nthr".to_owned(), number, 0));
        assert_eq!(found(0, 3, 10), all, "it was read");
        assert_eq!(found(1, 3, 10), all, "the first part was about to be put");
        assert_eq!(found(1, 3, 14), rest(4), "it was put");
        assert_eq!(found(1, 7, 2), rest(8), "and written, and its buffer has another number");
        assert_eq!(found(2, 3, 14), rest(4), "the second part was about to be put");
        assert_eq!((found(2, 3, 21), found(2, 0, 0)), (None, None));
    }
}
