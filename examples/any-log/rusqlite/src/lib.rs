//! Does SQLite keep what it acknowledges? `cargo test` says so: as root under power cuts.
#![cfg(test)]

use std::path::Path;

use inkstone_powerloss::{Crash, Lines, Played, Verdict, test};
use rusqlite::Connection;

fn open(directory: &Path, synchronous: &str) -> rusqlite::Result<Connection> {
    let items = Connection::open(directory.join("items.db"))?;
    items.pragma_update(None, "journal_mode", "wal")?;
    items.pragma_update(None, "synchronous", synchronous)?;
    items.execute("CREATE TABLE IF NOT EXISTS item (id INTEGER PRIMARY KEY)", ())?;
    Ok(items)
}

fn write(directory: &Path, synchronous: &str, lines: &mut Lines) -> Played {
    let items = open(directory, synchronous)?;
    loop {
        items.execute("INSERT INTO item DEFAULT VALUES", ())?;
        lines.say(items.last_insert_rowid())?;
    }
}

fn read(directory: &Path, lines: &mut Lines) -> Played {
    let items = open(directory, "full")?;
    let mut ids = items.prepare("SELECT id FROM item ORDER BY id")?;
    let ids = ids.query_map((), |row| row.get::<_, i64>(0))?;
    ids.into_iter().try_for_each(|id| Ok(lines.say(id?)?))
}

#[test]
fn what_is_acknowledged_with_synchronous_full_survives() {
    test(|directory, lines| write(directory, "full", lines), read).expect_survived();
}

/// A lie, and what finds it: a kill does not.
#[test]
fn what_is_acknowledged_with_synchronous_off_is_lost_in_a_power_cut() {
    let report = test(|directory, lines| write(directory, "off", lines), read);
    let is_cut = report.crash == Crash::PowerCut;
    let expected = if is_cut { Verdict::Lost } else { Verdict::Survived };
    assert_eq!(report.verdict, expected, "{report}");
}
