//! okaywal as a writer and a reader: store write|read DIR
use std::error::Error;
use std::io::{self, Read as _};

use okaywal::{Entry, EntryId, LogManager, ReadChunkResult, SegmentReader, WriteAheadLog};

/// What an opening finds: it counts the items, or prints them.
#[derive(Debug)]
struct Found {
    prints: bool,
    number: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl LogManager for Found {
    fn recover(&mut self, entry: &mut Entry<'_>) -> io::Result<()> {
        while let ReadChunkResult::Chunk(mut chunk) = entry.read_chunk()? {
            let mut item = String::new();
            chunk.read_to_string(&mut item)?;
            if !chunk.check_crc()? {
                return Err(io::Error::other("a wrong checksum"));
            }
            self.number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if self.prints {
                println!("{item}");
            }
        }
        Ok(())
    }

    fn checkpoint_to(
        &mut self,
        _: EntryId,
        _: &mut SegmentReader,
        _: &WriteAheadLog,
    ) -> io::Result<()> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let prints = words[1] == "read";
    let found = Found { prints, number: Default::default() };
    let number = found.number.clone();
    let log = WriteAheadLog::recover(format!("{}/log", words[2]), found)?;
    let mut number = number.load(std::sync::atomic::Ordering::Relaxed);
    while !prints {
        number += 1;
        let item = format!("item {number}");
        let mut entry = log.begin_entry()?;
        entry.write_chunk(item.as_bytes())?;
        entry.commit()?;
        println!("{item}");
    }
    Ok(())
}
