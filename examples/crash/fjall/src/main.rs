//! fjall as a writer and a reader: store write|read DIR default|sync-all|create
use fjall::{Database, KeyspaceCreateOptions, PersistMode};

fn main() -> fjall::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let db = Database::builder(format!("{}/db", words[2])).open()?;
    let items = db.keyspace("items", KeyspaceCreateOptions::default)?;
    let mut number = 0;
    for item in items.iter() {
        let item = item.value()?;
        number += 1;
        if words[1] == "read" {
            println!("{}", String::from_utf8_lossy(&item));
        }
    }
    while words[1] == "write" {
        number += 1;
        items.insert(format!("{number:010}"), format!("item {number}"))?;
        if words[3] != "default" {
            db.persist(PersistMode::SyncAll)?;
        }
        println!("item {number}");
    }
    Ok(())
}
