//! An event store: events of many streams in one log, found again by stream.
//!
//! *Owns*: what an event looks like as a record. *May not touch*: durability; the log sees to that.
//!
//! ```text
//! cargo run -p example-event-store -- DIR add STREAM TEXT    adds an event; durable when it ends
//! cargo run -p example-event-store -- DIR show STREAM        all events of a stream
//! ```
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use inkstone::{Log, Lsn, Options};

/// Events by stream, each stream's positions kept in memory.
struct EventStore {
    log: Log,
    streams: BTreeMap<String, Vec<Lsn>>,
}

impl EventStore {
    /// Opens the store and reads the log once, to know which event belongs to which stream.
    fn open(path: &Path) -> Result<Self> {
        let log = Log::open(path, Options::default())?;
        let mut streams: BTreeMap<String, Vec<Lsn>> = BTreeMap::new();
        let mut cursor = log.reader().from(log.first());
        while let Some(record) = cursor.next()? {
            let (stream, _) = decode(record.bytes)?;
            streams.entry(stream.to_owned()).or_default().push(record.lsn);
        }
        Ok(Self { log, streams })
    }

    /// Adds events to a stream, all or none. They are durable when this returns.
    fn add(&mut self, stream: &str, events: &[&str]) -> Result<Lsn> {
        let records: Vec<_> =
            events.iter().map(|event| encode(stream, event)).collect::<Result<_>>()?;
        let append = self.log.append_batch(&records)?;
        let first = append.first_lsn();
        let last = append.wait()?;
        let known = self.streams.entry(stream.to_owned()).or_default();
        known.extend((first.get()..=last.get()).map(Lsn::new));
        Ok(last)
    }

    fn events(&self, stream: &str) -> Result<Vec<String>> {
        let reader = self.log.reader();
        let lsns = self.streams.get(stream).map(Vec::as_slice).unwrap_or_default();
        lsns.iter().map(|&lsn| Ok(decode(&reader.get(lsn)?)?.1.to_owned())).collect()
    }
}

/// One byte for the length of the stream's name, the name, the event.
fn encode(stream: &str, event: &str) -> Result<Vec<u8>> {
    let length = u8::try_from(stream.len()).context("a stream's name has at most 255 bytes")?;
    Ok([&[length], stream.as_bytes(), event.as_bytes()].concat())
}

fn decode(record: &[u8]) -> Result<(&str, &str)> {
    let (&length, rest) = record.split_first().context("a record without a stream")?;
    let (stream, event) =
        rest.split_at_checked(usize::from(length)).context("a record that ends too early")?;
    Ok((std::str::from_utf8(stream)?, std::str::from_utf8(event)?))
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [path, "add", stream, event] => {
            println!("{}", EventStore::open(path.as_ref())?.add(stream, &[event])?);
        }
        [path, "show", stream] => {
            for event in EventStore::open(path.as_ref())?.events(stream)? {
                println!("{event}");
            }
        }
        _ => bail!("DIR add STREAM TEXT, or DIR show STREAM"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_back_by_stream_after_reopening() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let mut store = EventStore::open(directory.path())?;
        store.add("orders", &["placed 7", "paid 7"])?;
        store.add("stock", &["taken 3"])?;
        store.add("orders", &["sent 7"])?;
        drop(store);
        let store = EventStore::open(directory.path())?;
        assert_eq!(store.events("orders")?, ["placed 7", "paid 7", "sent 7"]);
        assert_eq!(store.events("stock")?, ["taken 3"]);
        assert!(store.events("nothing")?.is_empty());
        Ok(())
    }
}
