//! A program that has only this crate can name what its signatures and fields hold, and turn its
//! errors into the standard library's.

use std::path::Path;

use inkstone::system::{EngineKind, NamedChoice, Reuse};
use inkstone::{Access, Directory, Durability, Log, Options, OsDirectory, Preparation};

/// As a program would keep it.
struct Way {
    preparation: Preparation,
    reuse: Reuse,
    access: Access,
    durability: Durability,
    engine: EngineKind,
}

impl From<inkstone::system::Strategy> for Way {
    fn from(strategy: inkstone::system::Strategy) -> Self {
        let inkstone::system::Strategy { preparation, reuse, access, durability, engine } =
            strategy;
        Self { preparation, reuse, access, durability, engine }
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
    let words = [
        way.preparation.name(),
        way.reuse.name(),
        way.access.name(),
        way.durability.name(),
        way.engine.name(),
    ];
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

#[test]
fn a_program_of_io_errors_uses_the_question_mark() {
    fn last(path: &Path) -> std::io::Result<inkstone::Lsn> {
        let log = Log::open(path, Options::small().create(false))?;
        Ok(log.last())
    }
    let directory = tempfile::tempdir().expect("a directory");
    let error = last(directory.path()).expect_err("there is none");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    let text = error.to_string();
    assert!(text.contains("there is no log in") && text.contains("check the path"), "{text}");
    let inside = error
        .into_inner()
        .expect("the log's error")
        .downcast::<inkstone::Error>()
        .expect("its type");
    assert!(matches!(*inside, inkstone::Error::NoLog { .. }), "{inside}");
}
