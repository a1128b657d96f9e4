//! commitlog as a writer and a reader: store write|read DIR default|flush
use std::error::Error;

use commitlog::message::MessageSet as _;
use commitlog::{CommitLog, LogOptions, ReadLimit};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let mut log = CommitLog::new(LogOptions::new(format!("{}/log", words[2])))?;
    let mut number = log.next_offset();
    if words[1] == "read" {
        let mut next = 0;
        while next < number {
            let found = log.read(next, ReadLimit::default())?;
            for item in found.iter() {
                println!("{}", String::from_utf8_lossy(item.payload()));
                next = item.offset() + 1;
            }
            if found.is_empty() {
                return Err(format!("nothing at offset {next} of {number}").into());
            }
        }
        return Ok(());
    }
    loop {
        number += 1;
        let item = format!("item {number}");
        log.append_msg(&item)?;
        if words[3] == "flush" {
            log.flush()?;
        }
        println!("{item}");
    }
}
