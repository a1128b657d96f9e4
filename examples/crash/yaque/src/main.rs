//! yaque as a writer and a reader: store write|read DIR. Its sender is recovered first, as its
//! documentation says for a sender that was killed.
use std::error::Error;

use yaque::{QueueIter, Sender, recovery};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let queue = format!("{}/queue", words[2]);
    let mut number = 0;
    if std::fs::exists(&queue)? {
        recovery::recover(&queue)?;
        for item in QueueIter::open(&queue)? {
            number += 1;
            if words[1] == "read" {
                println!("{}", String::from_utf8_lossy(&item?));
            }
        }
    }
    if words[1] == "read" {
        return Ok(());
    }
    let mut sender = Sender::open(&queue)?;
    loop {
        number += 1;
        let item = format!("item {number}");
        futures::executor::block_on(sender.send(&item))?;
        println!("{item}");
    }
}
