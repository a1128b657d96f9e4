//! Does redb keep what it acknowledges? `cargo test` says so: as root under power cuts.
#![cfg(test)]

use std::error::Error;
use std::fs::File;
use std::path::Path;

use inkstone_powerloss::{Lines, Played, Verdict, test};
use redb::{Database, Durability, ReadableTable as _, TableDefinition};

const ITEMS: TableDefinition<'_, u64, ()> = TableDefinition::new("items");

/// A crash within `create` leaves a file that is no database (redb 4.6): it gets its name last.
fn open(directory: &Path) -> Result<Database, Box<dyn Error>> {
    let [new, path] = ["new.redb", "items.redb"].map(|name| directory.join(name));
    if !path.exists() {
        let _ = std::fs::remove_file(&new);
        drop(Database::create(&new)?);
        std::fs::rename(&new, &path)?;
        File::open(directory)?.sync_all()?;
    }
    Ok(Database::open(path)?)
}

fn write(directory: &Path, durability: Durability, lines: &mut Lines) -> Played {
    let items = open(directory)?;
    loop {
        let mut change = items.begin_write()?;
        change.set_durability(durability)?;
        let mut table = change.open_table(ITEMS)?;
        let next = table.last()?.map_or(1, |(last, _)| last.value() + 1);
        table.insert(next, ())?;
        drop(table);
        change.commit()?;
        lines.say(next)?;
    }
}

fn read(directory: &Path, lines: &mut Lines) -> Played {
    let change = open(directory)?.begin_write()?;
    let table = change.open_table(ITEMS)?;
    table.iter()?.try_for_each(|item| Ok(lines.say(item?.0.value())?))
}

#[test]
fn what_is_acknowledged_with_immediate_survives() {
    let immediate = Durability::Immediate;
    test(|directory, lines| write(directory, immediate, lines), read).expect_survived();
}

/// A lie that even a kill finds: such commits stay in the memory of the process.
#[test]
fn what_is_acknowledged_with_none_is_lost() {
    let report = test(|directory, lines| write(directory, Durability::None, lines), read);
    assert_eq!(report.verdict, Verdict::Lost, "{report}");
}
