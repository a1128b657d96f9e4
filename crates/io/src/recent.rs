//! The last bytes that were written to a file, in memory that other processes read.
//!
//! *Owns*: where in that memory a byte lies, and how a copy is known to be whole. *May not touch*:
//! what the bytes are, how the memory is found (`shared_page.rs`). A reader checks the bytes as if
//! a disk had given them: any process of the same user can write here.
//!
//! The byte at place `at` of a file lies at `at` modulo the size. What is here is one *stretch* of
//! one file. The writer alone changes it, and readers take no lock: before the writer overwrites
//! old bytes it raises `from`, and after it has written new ones it raises `end`. A reader copies,
//! and then asks whether `from` has passed what it has copied. Another stretch begins with an odd
//! count, as in a seqlock. All accesses are atomic, in words of 8 bytes.
//!
//! Nothing is copied that nobody asks for: a reader asks each time it reads, and each copy uses up
//! a little of that.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// How many bytes are kept. A group of more is not shared: readers find it in the file.
pub(crate) const RECENT_BYTES: usize = 1 << 20;
const WORDS: usize = RECENT_BYTES / WORD;
const WORD: usize = 8;
/// For how many copies a reader asks at once.
const WANTED: u32 = 1024;

/// The memory.
pub(crate) type Words = [AtomicU64; WORDS];

/// What says which bytes are there. Every field may hold anything at any time: another process may
/// write to it.
#[repr(C)]
pub(crate) struct RecentPage {
    /// Odd while another stretch begins.
    stretch: AtomicU64,
    file: AtomicU64,
    /// The bytes of the file that are here: from the first to before the second.
    from: AtomicU64,
    end: AtomicU64,
    /// Above 0: a reader wants the bytes that come. A number that is lost between two processes
    /// costs a copy, or saves one.
    wanted: AtomicU32,
}

/// The writer's own knowledge of what is there.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    stretch: u64,
    file: u64,
    from: u64,
    end: u64,
}

/// The page and the memory.
pub(crate) struct Recent<'a> {
    pub(crate) page: &'a RecentPage,
    pub(crate) words: &'a Words,
}

impl Recent<'_> {
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.page.wanted.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn want(&self) {
        self.page.wanted.store(WANTED, Ordering::Relaxed);
    }

    pub(crate) fn take_want(&self) {
        let wanted = self.page.wanted.load(Ordering::Relaxed);
        self.page.wanted.store(wanted.saturating_sub(1), Ordering::Relaxed);
    }

    pub(crate) fn clear_want(&self) {
        self.page.wanted.store(0, Ordering::Relaxed);
    }

    /// Adds the bytes at `at` of the file. If they do not follow those that are here, another
    /// stretch begins with them.
    pub(crate) fn push(&self, shared: &mut Shared, file: u64, at: u64, bytes: &[u8]) {
        let Some(end) = at.checked_add(bytes.len() as u64) else { return };
        if !at.is_multiple_of(WORD as u64)
            || !bytes.len().is_multiple_of(WORD)
            || bytes.len() > RECENT_BYTES
        {
            return;
        }
        let page = self.page;
        if (shared.file, shared.end) != (file, at) || shared.stretch == 0 {
            let stretch = shared.stretch.wrapping_add(2).max(2);
            *shared = Shared { stretch, file, from: at, end: at };
            page.stretch.store(stretch - 1, Ordering::Relaxed);
            fence(Ordering::Release);
            page.file.store(file, Ordering::Relaxed);
            page.from.store(at, Ordering::Relaxed);
            page.end.store(at, Ordering::Relaxed);
            page.stretch.store(stretch, Ordering::Release);
        }
        shared.from = shared.from.max(end.saturating_sub(RECENT_BYTES as u64));
        shared.end = end;
        page.from.store(shared.from, Ordering::Relaxed);
        // A reader that has copied a byte of this piece in the place of an old one sees, after its
        // own fence, the `from` above.
        fence(Ordering::Release);
        let first = place(at);
        let (words, _) = bytes.as_chunks::<WORD>();
        let (here, around) = words.split_at(words.len().min(WORDS - first));
        for (to, word) in self.words[first..].iter().zip(here).chain(self.words.iter().zip(around))
        {
            to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        page.end.store(end, Ordering::Release);
    }

    /// Copies the bytes at `at` of the file; false if not all of them are here.
    pub(crate) fn copy(&self, file: u64, at: u64, to: &mut [u8]) -> bool {
        let page = self.page;
        let Some(end) = at.checked_add(to.len() as u64) else { return false };
        if !at.is_multiple_of(WORD as u64)
            || !to.len().is_multiple_of(WORD)
            || to.len() > RECENT_BYTES
        {
            return false;
        }
        let stretch = page.stretch.load(Ordering::Acquire);
        let is_here =
            || page.file.load(Ordering::Relaxed) == file && page.from.load(Ordering::Relaxed) <= at;
        if stretch % 2 == 1 || page.end.load(Ordering::Acquire) < end || !is_here() {
            return false;
        }
        let first = place(at);
        let (words, _) = to.as_chunks_mut::<WORD>();
        let here = words.len().min(WORDS - first);
        let (here, around) = words.split_at_mut(here);
        for (from, word) in
            self.words[first..].iter().zip(here).chain(self.words.iter().zip(around))
        {
            *word = from.load(Ordering::Relaxed).to_ne_bytes();
        }
        fence(Ordering::Acquire);
        page.stretch.load(Ordering::Relaxed) == stretch && is_here()
    }
}

/// The word of the memory that holds the byte at `at` of the file.
fn place(at: u64) -> usize {
    (at / WORD as u64) as usize % WORDS
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Memory {
        page: RecentPage,
        words: Box<Words>,
    }

    impl Memory {
        fn new() -> Self {
            let zero = || AtomicU64::new(0);
            let page = RecentPage {
                stretch: zero(),
                file: zero(),
                from: zero(),
                end: zero(),
                wanted: AtomicU32::new(0),
            };
            let words: Vec<_> = (0..WORDS).map(|_| zero()).collect();
            Self { page, words: words.into_boxed_slice().try_into().expect("as many") }
        }

        fn recent(&self) -> Recent<'_> {
            Recent { page: &self.page, words: &self.words }
        }
    }

    /// Numbers below a bound, in an order that looks random.
    fn numbers(mut last: u64) -> impl FnMut(u64) -> u64 {
        move |bound| {
            last = last.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (last >> 33) % bound
        }
    }

    /// What a file holds from `at` on.
    fn content(file: u64, at: u64, bytes: usize) -> Vec<u8> {
        let words =
            (at / 8..).map(|word| (word ^ (file << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        words.take(bytes / 8).flat_map(u64::to_ne_bytes).collect()
    }

    /// Whether those bytes are there; then they are the file's.
    fn has(memory: &Memory, file: u64, at: u64, bytes: usize) -> bool {
        let mut to = vec![0; bytes];
        let is_there = memory.recent().copy(file, at, &mut to);
        assert!(!is_there || to == content(file, at, bytes), "file {file}, {bytes} bytes at {at}");
        is_there
    }

    #[test]
    fn copies_beside_the_writer_are_whole_or_refused() {
        let memory = Memory::new();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut shared = Shared::default();
                let mut number = numbers(1);
                for file in 0..20 {
                    let mut at = 0;
                    while at < 4 << 20 {
                        let bytes = number(8000) as usize * 8 + 8;
                        memory.recent().push(&mut shared, file, at, &content(file, at, bytes));
                        at += bytes as u64;
                    }
                }
                done.store(true, Ordering::Release);
            });
            let mut number = numbers(2);
            let mut copied = 0;
            while !done.load(Ordering::Acquire) || copied == 0 {
                let (file, end) = (
                    memory.page.file.load(Ordering::Relaxed),
                    memory.page.end.load(Ordering::Relaxed),
                );
                let bytes = number(20_000) as usize * 8 + 8;
                let back = number(RECENT_BYTES as u64 / 8) * 8;
                copied += u64::from(has(
                    &memory,
                    file,
                    end.saturating_sub(back),
                    bytes.min(back as usize),
                ));
            }
        });
    }

    #[test]
    fn a_reader_asks_for_a_number_of_copies() {
        let memory = Memory::new();
        assert!(!memory.recent().is_wanted());
        memory.recent().want();
        for _ in 0..WANTED {
            assert!(memory.recent().is_wanted());
            memory.recent().take_want();
        }
        assert!(!memory.recent().is_wanted());
        memory.recent().take_want();
        assert!(!memory.recent().is_wanted(), "it does not go around");
    }
}
