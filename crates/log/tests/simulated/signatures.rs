//! A program that has only this crate can name what its signatures and fields hold, and turn its
//! errors into the standard library's.

use std::path::Path;

use inkstone::system::{NamedChoice, Reuse};
use inkstone::{Access, Directory, Durability, Log, Options, OsDirectory, Preparation};

/// As a program would keep it.
struct Way {
    preparation: Preparation,
    reuse: Reuse,
    access: Access,
    durability: Durability,
}

impl From<inkstone::system::Strategy> for Way {
    fn from(strategy: inkstone::system::Strategy) -> Self {
        let inkstone::system::Strategy { preparation, reuse, access, durability } = strategy;
        Self { preparation, reuse, access, durability }
    }
}

fn capabilities(path: &Path) -> Result<Option<inkstone::system::Capabilities>, inkstone::IoError> {
    OsDirectory::open(path)?.capabilities()
}

/// Any implementation of the log's traits.
fn files<D: Directory>(directory: &D) -> Result<Vec<String>, inkstone::IoError> {
    let open = inkstone::system::seam::OpenFile::existing().read_only();
    let _: D::File = directory.open("inkstone.lock", &open)?;
    directory.list()
}

#[test]
fn the_way_of_writing_and_what_it_follows_from() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = Log::open(directory.path(), Options::small()).expect("opened");
    let way = Way::from(log.choice().strategy);
    let words =
        [way.preparation.name(), way.reuse.name(), way.access.name(), way.durability.name()];
    assert_eq!(words.join("/"), log.choice().strategy.to_string());
    let found: inkstone::system::Capabilities =
        capabilities(directory.path()).expect("asked").expect("known");
    let inkstone::system::MountFacts { file_system, barriers, .. } = &found.mount;
    assert!(!file_system.is_empty() && *barriers != inkstone::system::Barriers::Off, "{found:?}");
    assert_eq!(inkstone::rule(&found).strategy.access, log.choice().strategy.access);
    assert!(
        files(&OsDirectory::open(directory.path()).expect("opened")).expect("listed").len() > 1,
        "a lock and a segment"
    );
}
