//! Which setting of the watched program answers a cause.
//!
//! *Owns*: the settings, each with its source and with what proves that the program has another
//! value now. *May not touch*: why a sync costs what it does (`cause`).
//!
//! A setting is here only if `.ci/watch-real` found its cause in the real program, applied it, and
//! measured the gain. docs/watch.md has the same table, with the figures.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::cause::Cause;

/// A setting of the watched program that answers the cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The program.
    pub program: &'static str,
    /// The setting, as users write it.
    pub setting: &'static str,
    /// What it does.
    pub effect: &'static str,
    /// Its documentation.
    pub source: &'static str,
}

/// All settings.
pub const SETTINGS: [Advice; 2] = [EVERY_SECOND, WAL];

const EVERY_SECOND: Advice = Advice {
    program: "Redis",
    setting: "appendfsync everysec",
    effect: "the default: one sync a second in place of one for each command; a power loss can \
             take the last second of writes",
    source: "https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/",
};
const WAL: Advice = Advice {
    program: "SQLite",
    setting: "PRAGMA journal_mode = WAL, with synchronous = FULL",
    effect: "a commit is one sync of one file in place of three or four syncs",
    source: "https://www.sqlite.org/wal.html",
};

/// What was seen of a file's syncs.
#[derive(Debug, Clone)]
pub struct Asked<'a> {
    /// The name of the process that asked for them.
    pub program: &'a str,
    /// Its root directory, as this process sees it.
    pub root: &'a Path,
    /// The file, as that process names it.
    pub path: &'a Path,
    /// Why they cost what they do.
    pub cause: Cause,
    /// Syncs each second by the process's first thread.
    pub first_thread_per_second: f64,
    /// Syncs each second by its other threads.
    pub others_per_second: f64,
}

/// With fewer syncs a second than this, a log is not synced for each commit.
const OFTEN_PER_SECOND: f64 = 2.0;

/// The setting that answers this cause; `None` if the program has none, or already has it.
pub fn advice(asked: &Asked<'_>) -> Option<Advice> {
    let Asked { program, path, cause, .. } = *asked;
    let name = path.file_name()?.to_str()?;
    // Only with `always` the thread that serves commands makes the syncs.
    let is_always = program == "redis-server"
        && name.ends_with(".incr.aof")
        && asked.first_thread_per_second > OFTEN_PER_SECOND.max(9.0 * asked.others_per_second);
    Some(match cause {
        Cause::Grows if is_always => EVERY_SECOND,
        _ if has_rollback_journal(asked.root, path) => WAL,
        _ => return None,
    })
}

/// Whether this is the journal of an SQLite database that is not in WAL mode: the database beside
/// it says so in bytes 18 and 19 (https://www.sqlite.org/fileformat2.html, section 1.3.3).
fn has_rollback_journal(root: &Path, journal: &Path) -> bool {
    let database = journal.to_str().and_then(|path| path.strip_suffix("-journal"));
    let Some(database) = database.and_then(|path| path.strip_prefix('/')) else { return false };
    header(&root.join(database))
        .is_some_and(|header| header.starts_with(b"SQLite format 3\0") && header[18..] == [1, 1])
}

fn header(path: &PathBuf) -> Option<[u8; 20]> {
    // Opening anything else may wait or have an effect.
    fs::metadata(path).ok()?.is_file().then_some(())?;
    let mut header = [0; 20];
    File::open(path).ok()?.read_exact(&mut header).ok()?;
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked<'a>(program: &'a str, path: &'a Path, cause: Cause) -> Asked<'a> {
        let root = Path::new("/");
        let (first_thread_per_second, others_per_second) = (100.0, 0.0);
        Asked { program, root, path, cause, first_thread_per_second, others_per_second }
    }

    #[test]
    fn redis_that_syncs_each_second_or_saves_gets_no_advice() {
        let log = Path::new("/r/appendonlydir/appendonly.aof.1.incr.aof");
        let always = asked("redis-server", log, Cause::Grows);
        assert_eq!(advice(&always), Some(EVERY_SECOND));
        let every_second =
            Asked { first_thread_per_second: 0.0, others_per_second: 1.0, ..always.clone() };
        assert_eq!(advice(&every_second), None);
        assert_eq!(advice(&Asked { path: Path::new("/r/temp-7.rdb"), ..always.clone() }), None);
        assert_eq!(advice(&Asked { program: "other", ..always }), None);
    }

    #[test]
    fn the_database_itself_says_whether_it_has_a_rollback_journal() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = Path::new("/app.db-journal");
        let of = |path| {
            let root = directory.path();
            let any = asked("anything", path, Cause::CreatedAgain);
            advice(&Asked { root, ..any })
        };
        assert_eq!(of(path), None, "no database");
        for (mode, wanted) in [(1, Some(WAL)), (2, None)] {
            let header = [&b"SQLite format 3\0"[..], &[16, 0, mode, mode, 0, 64]].concat();
            fs::write(directory.path().join("app.db"), header).expect("a database");
            assert_eq!(of(path), wanted, "mode {mode}");
            assert_eq!(of(Path::new("/app.db")), None);
        }
        fs::write(directory.path().join("app.db"), [1; 100]).expect("a file");
        assert_eq!(of(path), None, "no database of SQLite");
        assert_eq!(of(Path::new("/var/lib/kafka-journal")), None);
    }

    #[test]
    fn the_page_has_the_same_settings() {
        let page = include_str!("../../../../docs/watch.md");
        for setting in SETTINGS {
            let Advice { setting, source, .. } = setting;
            let rows = page.lines().filter(|line| line.starts_with("| "));
            let mut of_it = rows.filter(|row| row.contains(&format!("`{setting}`")));
            assert!(of_it.any(|row| row.contains(source)), "docs/watch.md: {setting}");
        }
    }
}
