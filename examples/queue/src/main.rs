//! A queue on disk with two readers. Each remembers, in a log of its own, how far it has come; what
//! both have read is given up.
//!
//! *Owns*: what a reader remembers. *May not touch*: durability; the logs see to that.
//!
//! ```text
//! cargo run -p example-queue -- DIR push          each line of standard input is an item
//! cargo run -p example-queue -- DIR take first    prints what the first reader has not had yet
//! ```
#![forbid(unsafe_code)]

use std::io::BufRead as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use inkstone::{Cursor, Log, Lsn, Options};

const READERS: [&str; 2] = ["first", "second"];

/// A reader that goes on where it was when its process ended.
struct Remembering {
    items: Cursor,
    place: Log,
    done: Lsn,
}

impl Remembering {
    fn open(path: &Path, name: &str, queue: &Log) -> Result<Self> {
        // Small: only the last number in it counts.
        let options = Options::new().segment_bytes(64 << 10).record_bytes_max(64);
        let place = Log::open(path.join(name), options)?;
        let last = place.last();
        let done = if last >= place.first() {
            let bytes = place.reader().get(last)?;
            Lsn::new(u64::from_le_bytes(bytes[..].try_into().context("a place has 8 bytes")?))
        } else {
            Lsn::ZERO
        };
        let items = queue.reader().from(done.next().context("the queue is at its end")?);
        Ok(Self { items, place, done })
    }

    /// Hands out the next item, if there is one, and remembers it when `use_it` has succeeded:
    /// after a crash an item may be handed out again, and none is missed.
    fn take(&mut self, use_it: impl FnOnce(&[u8]) -> Result<()>) -> Result<bool> {
        let Some(item) = self.items.next()? else { return Ok(false) };
        use_it(item.bytes)?;
        let done = item.lsn;
        let lsn = self.place.append_durable(&done.get().to_le_bytes())?;
        self.place.truncate_before(lsn)?;
        self.done = done;
        Ok(true)
    }
}

/// Gives up what every reader has had.
fn give_up(queue: &Log, readers: &[Remembering]) -> Result<()> {
    if let Some(done) = readers.iter().map(|reader| reader.done).min() {
        queue.truncate_before(done.next().unwrap_or(done))?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [path, rest @ ..] = &arguments[..] else { bail!("DIR push, or DIR take first|second") };
    let path = Path::new(path);
    // Each log has a directory of its own in this one, which may be missing too.
    let queue = Log::open(path.join("queue"), Options::default().create_parents(true))?;
    match rest.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["push"] => {
            for line in std::io::stdin().lock().lines() {
                // Not waited for: the log commits many of them at once.
                drop(queue.append(line?.as_bytes())?);
            }
            queue.close()?;
        }
        ["take", name] if READERS.contains(&name) => {
            let mut readers = Vec::new();
            for reader in READERS {
                readers.push(Remembering::open(path, reader, &queue)?);
            }
            let mine = READERS.iter().position(|reader| *reader == name).context("a reader")?;
            while readers[mine].take(|item| {
                println!("{}", String::from_utf8_lossy(item));
                Ok(())
            })? {}
            give_up(&queue, &readers)?;
        }
        _ => bail!("push, or take first|second"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_has_every_item_and_what_both_had_is_given_up() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path();
        let mut taken = [Vec::new(), Vec::new()];
        for round in 0..3 {
            let queue = Log::open(path.join("queue"), Options::default())?;
            let mut readers = Vec::new();
            for reader in READERS {
                readers.push(Remembering::open(path, reader, &queue)?);
            }
            std::thread::scope(|scope| -> Result<()> {
                for (reader, taken) in readers.iter_mut().zip(&mut taken) {
                    scope.spawn(move || {
                        while taken.len() < 20 * (round + 1) {
                            let take = |item: &[u8]| {
                                taken.push(item.to_vec());
                                Ok(())
                            };
                            reader.take(take).expect("a reader beside the writer");
                        }
                    });
                }
                for number in 0..20 {
                    queue.append_durable(format!("{round} {number}").as_bytes())?;
                }
                Ok(())
            })?;
            give_up(&queue, &readers)?;
            assert_eq!(queue.first().get(), 20 * (round as u64 + 1) + 1);
        }
        assert_eq!(taken[0], taken[1]);
        assert_eq!(taken[0].len(), 60);
        Ok(())
    }
}
