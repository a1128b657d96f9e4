//! What reached a disk, in order: writes, flushes, and marks of what the writer knew by then. As a
//! file it has the format of Linux's dm-log-writes, so that its `replay-log` and others read it.
//!
//! *Owns*: the entries, and their bytes in a file. *May not touch*: disks, crash states.
//!
//! Little endian, in sectors of 512 bytes: a superblock (magic, version, number of entries: u64;
//! bytes of a sector: u32), then each entry in a sector of its own (sector, sectors, flags, bytes
//! of a mark: u64; then a mark's text), followed by the sectors that it wrote. The disk starts as
//! zeros: a recording holds everything from mkfs on.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::image::{Image, SECTOR_BYTES};

const MAGIC: u64 = 0x006A_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
const SUPER_BYTES: usize = 28;
const ENTRY_BYTES: usize = 32;
/// Longer marks are shortened: a mark shares a sector with its entry, and the kernel keeps a zero
/// after it.
pub const MARK_BYTES_MAX: usize = SECTOR_BYTES - ENTRY_BYTES - 1;

/// A request that reached the disk, or a mark of the writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Sectors with new bytes.
    Write { sector: u64, bytes: Arc<[u8]> },
    /// Sectors that became zeros: a discard or a zeroing request.
    Discard { sector: u64, sectors: u64 },
    /// Everything before it is on the medium.
    Flush,
    /// What the writer knew at this moment.
    Mark(String),
}

/// Everything that reached a disk of `len_bytes`, which was all zeros before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recording {
    /// In the order in which the disk carried them out.
    pub entries: Vec<Entry>,
}

impl Recording {
    pub fn mark(&mut self, text: &str) {
        let mut end = text.len().min(MARK_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.entries.push(Entry::Mark(text[..end].to_string()));
    }

    /// What was recorded, by the first mark.
    pub fn head(&self) -> Option<&str> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Mark(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Behind how many entries each line of the writer was heard.
    pub fn lines(&self) -> Vec<usize> {
        let marks = self.entries.iter().enumerate();
        // The first mark says what was recorded.
        let lines = marks.filter(|(_, entry)| entry.is_mark()).map(|(at, _)| at + 1);
        lines.skip(1).collect()
    }

    /// The first byte after everything that was written.
    pub fn end_bytes(&self) -> u64 {
        let end = |entry: &Entry| match entry {
            Entry::Write { sector, bytes } => {
                sector.saturating_mul(512).saturating_add(bytes.len() as u64)
            }
            Entry::Discard { sector, sectors } => {
                sector.saturating_add(*sectors).saturating_mul(512)
            }
            Entry::Flush | Entry::Mark(_) => 0,
        };
        self.entries.iter().map(end).max().unwrap_or(0)
    }

    /// Writes it to a file, which must not exist yet.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let file = fs::File::create_new(path)?;
        let mut out = io::BufWriter::with_capacity(1 << 20, file);
        self.write_to(&mut out)?;
        out.flush()?;
        out.get_ref().sync_all()
    }

    /// Writes it to a new file in `parent` and returns its path: `name` with a number.
    pub fn save_in(&self, parent: &Path, name: &str) -> Result<PathBuf, String> {
        let paths = (0..1000).map(|number| parent.join(format!("{name}-{number}.log-writes")));
        for path in paths {
            match self.save(&path) {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        }
        Err(format!("no name {name} is left in {}", parent.display()))
    }

    fn write_to(&self, out: &mut impl io::Write) -> io::Result<()> {
        let mut sector = [0; SECTOR_BYTES];
        sector[..8].copy_from_slice(&MAGIC.to_le_bytes());
        sector[8..16].copy_from_slice(&VERSION.to_le_bytes());
        sector[16..24].copy_from_slice(&(self.entries.len() as u64).to_le_bytes());
        sector[24..28].copy_from_slice(&(SECTOR_BYTES as u32).to_le_bytes());
        out.write_all(&sector)?;
        for entry in &self.entries {
            let none: &[u8] = &[];
            let (numbers, text, data) = match entry {
                Entry::Write { sector, bytes } => {
                    ([*sector, (bytes.len() / SECTOR_BYTES) as u64, 0, 0], none, &bytes[..])
                }
                Entry::Discard { sector, sectors } => ([*sector, *sectors, DISCARD, 0], none, none),
                Entry::Flush => ([0, 0, FLUSH, 0], none, none),
                Entry::Mark(text) => ([0, 0, MARK, text.len() as u64], text.as_bytes(), none),
            };
            sector.fill(0);
            for (place, number) in numbers.iter().enumerate() {
                sector[8 * place..8 * place + 8].copy_from_slice(&number.to_le_bytes());
            }
            sector[ENTRY_BYTES..ENTRY_BYTES + text.len()].copy_from_slice(text);
            out.write_all(&sector)?;
            out.write_all(data)?;
        }
        Ok(())
    }

    /// Reads one, also one made by the kernel's dm-log-writes: a write with FUA becomes a write
    /// followed by a flush.
    pub fn load(path: &Path) -> Result<Self, String> {
        let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&bytes).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let head = bytes.get(..SUPER_BYTES).ok_or("too short for a recording of dm-log-writes")?;
        if number(head, 0) != MAGIC {
            return Err(
                "this is not a recording of dm-log-writes: another magic number at byte 0".into()
            );
        }
        if number(head, 1) != VERSION {
            return Err(format!(
                "version {} of dm-log-writes is unknown here; only {VERSION} is known",
                number(head, 1)
            ));
        }
        let sector_bytes = u32::from_le_bytes([head[24], head[25], head[26], head[27]]);
        if sector_bytes as usize != SECTOR_BYTES {
            return Err(format!(
                "it has sectors of {sector_bytes} bytes; only {SECTOR_BYTES} bytes are supported"
            ));
        }
        let mut entries = Vec::new();
        let mut at = SECTOR_BYTES;
        for index in 0..number(head, 2) {
            let wrong = |why: &str| format!("entry {index} at byte {at}: {why}");
            let sector =
                bytes.get(at..at + SECTOR_BYTES).ok_or_else(|| wrong("the file ends before it"))?;
            let [first, sectors, flags, text_bytes] =
                [0, 1, 2, 3].map(|place| number(sector, place));
            let data_at = at + SECTOR_BYTES;
            let mut data_bytes = 0;
            if first.checked_add(sectors).is_none_or(|end| end > u64::MAX / SECTOR_BYTES as u64) {
                return Err(wrong("sectors that no disk has"));
            }
            match flags {
                _ if flags & MARK != 0 => {
                    let room = &sector[ENTRY_BYTES..];
                    let text = usize::try_from(text_bytes).ok().and_then(|len| room.get(..len));
                    let text =
                        text.ok_or_else(|| wrong("a mark that is longer than its sector"))?;
                    let text = String::from_utf8_lossy(text);
                    entries.push(Entry::Mark(text.trim_end_matches('\0').to_string()));
                }
                _ if flags & DISCARD != 0 => {
                    entries.push(Entry::Discard { sector: first, sectors })
                }
                _ if flags & !(FLUSH | FUA | 16) != 0 => return Err(wrong("unknown flags")),
                _ => {
                    if flags & FLUSH != 0 {
                        entries.push(Entry::Flush);
                    }
                    let whole = usize::try_from(sectors)
                        .ok()
                        .and_then(|count| count.checked_mul(SECTOR_BYTES));
                    let end = whole.and_then(|whole| data_at.checked_add(whole));
                    let data = end.and_then(|end| bytes.get(data_at..end));
                    let data = data.ok_or_else(|| wrong("the file ends within its data"))?;
                    data_bytes = data.len();
                    if !data.is_empty() {
                        entries.push(Entry::Write { sector: first, bytes: data.into() });
                    }
                    if flags & FUA != 0 {
                        entries.push(Entry::Flush);
                    }
                }
            }
            at = data_at + data_bytes;
        }
        Ok(Self { entries })
    }
}

fn number(bytes: &[u8], place: usize) -> u64 {
    bytes[8 * place..8 * place + 8]
        .iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

impl Entry {
    pub fn is_mark(&self) -> bool {
        matches!(self, Self::Mark(_))
    }

    /// Does to an image what it did to the disk.
    pub fn apply(&self, image: &mut Image) {
        match self {
            Self::Write { sector, bytes } => image.write(sector * SECTOR_BYTES as u64, bytes),
            Self::Discard { sector, sectors } => {
                image.clear(sector * SECTOR_BYTES as u64, sectors * SECTOR_BYTES as u64);
            }
            Self::Flush | Self::Mark(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> Recording {
        let mut recording = Recording::default();
        recording.entries.push(Entry::Write { sector: 0x0102, bytes: vec![0xAB; 1024].into() });
        recording.entries.push(Entry::Flush);
        recording.mark("done 7");
        recording.entries.push(Entry::Discard { sector: 8, sectors: 16 });
        recording
    }

    fn bytes_of(recording: &Recording) -> Vec<u8> {
        let mut bytes = Vec::new();
        recording.write_to(&mut bytes).expect("memory takes it");
        bytes
    }

    #[test]
    fn the_bytes_are_those_of_the_kernel() {
        let bytes = bytes_of(&tiny());
        assert_eq!(bytes.len(), 512 * (1 + 1 + 2 + 1 + 1 + 1));
        // struct log_write_super: magic, version, nr_entries, sectorsize.
        assert_eq!(bytes[..8], [0x72, 0x68, 0x73, 0x77, 0x66, 0x73, 0x6A, 0]);
        assert_eq!(bytes[8..28], [1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0]);
        assert!(bytes[28..512].iter().all(|&byte| byte == 0));
        // struct log_write_entry: sector, nr_sectors, flags, data_len.
        assert_eq!(bytes[512..520], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[520..528], [2, 0, 0, 0, 0, 0, 0, 0]);
        assert!(bytes[528..1024].iter().all(|&byte| byte == 0), "no flags, no mark");
        assert!(bytes[1024..2048].iter().all(|&byte| byte == 0xAB));
        assert_eq!(bytes[2048 + 16], 1, "a flush");
        assert_eq!((bytes[2560 + 16], bytes[2560 + 24]), (8, 6), "a mark and its length");
        assert_eq!(&bytes[2560 + 32..2560 + 39], b"done 7\0");
        assert_eq!((bytes[3072], bytes[3072 + 8], bytes[3072 + 16]), (8, 16, 4), "a discard");
        assert_eq!(Recording::parse(&bytes), Ok(tiny()));
    }

    #[test]
    fn a_file_holds_it_and_is_not_overwritten() {
        let made = tempfile::tempdir().expect("a directory");
        let path = made.path().join("inkstone-recording");
        tiny().save(&path).expect("saved");
        assert_eq!(Recording::load(&path), Ok(tiny()));
        assert_eq!(
            tiny().save(&path).expect_err("it is there").kind(),
            io::ErrorKind::AlreadyExists
        );
        fs::remove_file(&path).expect("removed");
        assert!(Recording::load(&path).expect_err("it is gone").contains("inkstone-recording"));
    }

    #[test]
    fn what_is_damaged_is_an_error() {
        let bytes = bytes_of(&tiny());
        for len in 0..bytes.len() {
            // Missing padding of the last entry counts too: the file must be whole.
            assert!(Recording::parse(&bytes[..len]).is_err(), "{len} bytes");
        }
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            Recording::parse(&bytes).expect_err("damaged")
        };
        assert!(with(0, 1).contains("magic"), "{}", with(0, 1));
        assert!(with(8, 2).contains("version 2"), "{}", with(8, 2));
        assert!(with(25, 16).contains("4096 bytes"), "{}", with(25, 16));
        assert!(with(2560 + 25, 9).contains("entry 2 at byte 2560"), "{}", with(2560 + 25, 9));
        assert!(with(528, 64).contains("flags"), "{}", with(528, 64));
        assert!(with(527, 0xFF).contains("no disk has"), "{}", with(527, 0xFF));
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut bytes = bytes.clone();
            for _ in 0..rng.usize(1..5) {
                let at = rng.usize(..bytes.len());
                bytes[at] = rng.u8(..);
            }
            let _ = Recording::parse(&bytes);
        }
    }

    #[test]
    fn the_kernels_fua_and_flush_with_data_mean_what_they_mean_there() {
        let mut bytes = bytes_of(&tiny());
        bytes[528] = 3;
        let entries = Recording::parse(&bytes).expect("sound").entries;
        assert!(matches!(entries[..3], [Entry::Flush, Entry::Write { .. }, Entry::Flush]));
    }

    #[test]
    fn long_marks_are_cut_between_letters() {
        let mut recording = Recording::default();
        recording.mark(&"ü".repeat(400));
        let read = Recording::parse(&bytes_of(&recording)).expect("sound");
        assert_eq!(read, recording);
        assert!(matches!(&read.entries[0], Entry::Mark(text) if text.len() == 478));
    }
}
