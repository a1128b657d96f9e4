//! sled as a writer and a reader: store write|read DIR default|flush
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let db = sled::open(format!("{}/db", words[2]))?;
    let mut number = db.len() as u64;
    if words[1] == "read" {
        for item in db.iter() {
            println!("{}", String::from_utf8_lossy(&item?.1));
        }
        return Ok(());
    }
    loop {
        number += 1;
        let item = format!("item {number}");
        db.insert(number.to_be_bytes(), item.as_bytes())?;
        if words[3] == "flush" {
            db.flush()?;
        } else {
            std::thread::sleep(std::time::Duration::from_millis(4));
        }
        println!("{item}");
    }
}
