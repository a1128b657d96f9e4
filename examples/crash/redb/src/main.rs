//! redb as a writer and a reader: store write|read DIR default|none
use std::error::Error;

use redb::{Database, Durability, ReadableTable as _, TableDefinition};

const ITEMS: TableDefinition<u64, &str> = TableDefinition::new("items");

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let (what, setting) = (words[1].as_str(), words[3].as_str());
    let db = Database::create(format!("{}/items.redb", words[2]))?;
    loop {
        let mut change = db.begin_write()?;
        if setting == "none" {
            change.set_durability(Durability::None)?;
        }
        let item = {
            let mut items = change.open_table(ITEMS)?;
            if what == "read" {
                for item in items.iter()? {
                    println!("{}", item?.1.value());
                }
                return Ok(());
            }
            let number = items.last()?.map_or(1, |(number, _)| number.value() + 1);
            let item = format!("item {number}");
            items.insert(number, item.as_str())?;
            item
        };
        change.commit()?;
        println!("{item}");
    }
}
