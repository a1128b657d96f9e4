//! SurrealKV as a writer and a reader:
//! store write|read DIR default|immediate|compaction|reopened
use std::error::Error;

use surrealkv::{Durability, LSMIterator as _, Tree, TreeBuilder};

fn open(directory: &str, is_small: bool) -> Result<Tree, Box<dyn Error>> {
    let tree = TreeBuilder::new().with_path(format!("{directory}/db").into());
    // So small that the tables of some 20 items are merged, again and again.
    let tree = if is_small { tree.with_max_memtable_size(64 << 10) } else { tree };
    Ok(tree.build()?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let is_small = words[3] == "compaction";
    let mut tree = open(&words[2], is_small)?;
    let mut number = 0;
    {
        let change = tree.begin()?;
        let mut items = change.range(b"0", b"9")?;
        items.seek_first()?;
        while items.valid() {
            number += 1;
            if words[1] == "read" {
                println!("{}", String::from_utf8_lossy(&items.value()?).trim_end());
            }
            items.next()?;
        }
    }
    while words[1] == "write" {
        number += 1;
        let item = format!("item {number}");
        let mut change = tree.begin()?;
        if words[3] != "default" {
            change.set_durability(Durability::Immediate);
        }
        let width = if is_small { 4096 } else { 0 };
        change.set(format!("{number:010}").as_bytes(), format!("{item:width$}").as_bytes())?;
        change.commit().await?;
        println!("{item}");
        // Each closing makes a table, and an opening merges four of them.
        if words[3] == "reopened" && number % 2 == 0 {
            tree.close().await?;
            drop(tree);
            tree = open(&words[2], is_small)?;
        }
    }
    Ok(())
}
