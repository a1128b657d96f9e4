//! A map in memory that survives: every change goes through a write-ahead log, and a snapshot now
//! and then keeps the log short.
//!
//! *Owns*: what a change and a snapshot look like. *May not touch*: durability; the log sees to
//! that.
//!
//! A snapshot is a batch of the map's entries at the end of the log, all or none; then everything
//! before it is given up.
//!
//! ```text
//! cargo run -p example-map-with-log -- DIR set KEY VALUE | get KEY | remove KEY | compact
//! ```
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use inkstone::{Log, Options};

/// A map whose changes are durable when the call returns.
struct DurableMap {
    log: Log,
    map: BTreeMap<String, String>,
}

const SET: u8 = 1;
const REMOVE: u8 = 2;
/// A snapshot begins: what came before does not count.
const CLEAR: u8 = 3;

impl DurableMap {
    fn open(path: &Path) -> Result<Self> {
        let log = Log::open(path, Options::default())?;
        let mut map = BTreeMap::new();
        let mut cursor = log.reader().from(log.first());
        while let Some(record) = cursor.next()? {
            apply(&mut map, record.bytes)?;
        }
        Ok(Self { log, map })
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        self.change(&entry(key, value)?)
    }

    fn remove(&mut self, key: &str) -> Result<()> {
        self.change(&[&[REMOVE], key.as_bytes()].concat())
    }

    /// The log first, then memory: what is shown is durable.
    fn change(&mut self, record: &[u8]) -> Result<()> {
        self.log.append_durable(record)?;
        apply(&mut self.map, record)
    }

    /// Writes the whole map as one batch, then gives up everything before it.
    fn compact(&mut self) -> Result<()> {
        let entries = self.map.iter().map(|(key, value)| entry(key, value));
        let records: Vec<_> =
            std::iter::once(Ok(vec![CLEAR])).chain(entries).collect::<Result<_>>()?;
        let append = self.log.append_batch(&records)?;
        let first = append.first_lsn();
        append.wait()?;
        self.log.truncate_before(first)?;
        Ok(())
    }
}

fn entry(key: &str, value: &str) -> Result<Vec<u8>> {
    let length = u16::try_from(key.len()).context("a key has at most 65535 bytes")?;
    Ok([&[SET], &length.to_le_bytes()[..], key.as_bytes(), value.as_bytes()].concat())
}

fn apply(map: &mut BTreeMap<String, String>, record: &[u8]) -> Result<()> {
    match record {
        [SET, low, high, rest @ ..] => {
            let length = usize::from(u16::from_le_bytes([*low, *high]));
            let (key, value) =
                rest.split_at_checked(length).context("a record that ends too early")?;
            map.insert(
                std::str::from_utf8(key)?.to_owned(),
                std::str::from_utf8(value)?.to_owned(),
            );
        }
        [REMOVE, key @ ..] => {
            map.remove(std::str::from_utf8(key)?);
        }
        [CLEAR] => map.clear(),
        _ => bail!("a record of an unknown kind"),
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [path, rest @ ..] = &arguments[..] else {
        bail!("DIR set KEY VALUE | get KEY | remove KEY | compact")
    };
    let mut map = DurableMap::open(path.as_ref())?;
    match rest.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["set", key, value] => map.set(key, value)?,
        ["get", key] => {
            println!("{}", map.map.get(key).with_context(|| format!("there is no {key:?}"))?)
        }
        ["remove", key] => map.remove(key)?,
        ["compact"] => map.compact()?,
        _ => bail!("set KEY VALUE | get KEY | remove KEY | compact"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_comes_back_also_after_a_snapshot() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let mut map = DurableMap::open(directory.path())?;
        for number in 0..50 {
            map.set(&format!("key {}", number % 10), &number.to_string())?;
        }
        map.remove("key 3")?;
        map.compact()?;
        map.set("key 4", "changed")?;
        let before = map.map.clone();
        drop(map);
        let map = DurableMap::open(directory.path())?;
        assert_eq!(map.map, before);
        assert_eq!(map.log.first().get(), 52, "what the snapshot replaced is given up");
        assert_eq!(map.map.len(), 9);
        Ok(())
    }
}
