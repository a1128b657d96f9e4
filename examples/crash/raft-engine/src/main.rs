//! raft-engine as a writer and a reader: store write|read DIR sync|no-sync. An item is an entry of
//! one group, at the index of its number.
use std::error::Error;

use protobuf::well_known_types::BytesValue;
use raft_engine::{Config, Engine, LogBatch, MessageExt};

struct Items;

impl MessageExt for Items {
    type Entry = BytesValue;

    fn index(item: &BytesValue) -> u64 {
        let words = String::from_utf8_lossy(&item.value);
        words.trim_start_matches("item ").parse().unwrap_or(0)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let engine = Engine::open(Config { dir: format!("{}/log", words[2]), ..Config::default() })?;
    let mut number = engine.last_index(1).unwrap_or(0);
    if words[1] == "read" {
        let mut items = Vec::new();
        if number > 0 {
            engine.fetch_entries_to::<Items>(1, 1, number + 1, None, &mut items)?;
        }
        for item in items {
            println!("{}", String::from_utf8_lossy(&item.value));
        }
        return Ok(());
    }
    loop {
        number += 1;
        let mut item = BytesValue::new();
        item.set_value(format!("item {number}").into_bytes());
        let mut batch = LogBatch::default();
        batch.add_entries::<Items>(1, &[item])?;
        engine.write(&mut batch, words[3] == "sync")?;
        println!("item {number}");
    }
}
