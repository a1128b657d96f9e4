//! The published tables, each with the command that makes it here.
//!
//! *Owns*: the list; docs/notebook/lab.md has the same commands, which a test compares. *May not touch*: running them.

/// One table, or one that docs/notebook/lab.md has beside the articles'.
#[derive(Debug)]
pub(crate) struct Part {
    /// Name of its files.
    pub(crate) name: &'static str,
    /// Section of the articles.
    pub(crate) section: &'static str,
    /// The arguments of `inkstone lab`, without the size.
    command: &'static str,
    /// The published size.
    published: &'static str,
    /// A small size that takes seconds.
    small: &'static str,
    pub(crate) needs_root: bool,
}

impl Part {
    /// The arguments of `inkstone lab`.
    pub(crate) fn words(&self, is_small: bool) -> Vec<&'static str> {
        let size = if is_small { self.small } else { self.published };
        self.command.split_whitespace().chain(size.split_whitespace()).collect()
    }

    /// As a person types it.
    pub(crate) fn line(&self, is_small: bool) -> String {
        format!("inkstone lab {}", self.words(is_small).join(" "))
    }
}

const SMALL_CELLS: &str = "--size 64KiB --rounds 1 --bill-commits 0";
const SMALL_IMAGES: &str = "--size 64KiB --rounds 1 --bill-commits 16 --image-size 336MiB";
const SMALL_LOAD: &str = "--seconds 1s --rounds 1";

const fn part(
    name: &'static str,
    section: &'static str,
    command: &'static str,
    published: &'static str,
    small: &'static str,
) -> Part {
    Part { name, section, command, published, small, needs_root: false }
}

const fn root(part: Part) -> Part {
    Part { needs_root: true, ..part }
}

/// The quick ones first, so that a missing requirement shows early.
pub(crate) const PARTS: &[Part] = &[
    part("e4", "E4", "fallocate", "--published", "--size 1MiB"),
    part("e6", "E6", "write --preset e6", "", SMALL_CELLS),
    part("wal", "E1", "write --preset wal --rounds 20", "", "--size 64KiB --bill-commits 0"),
    part("claims", "all", "claims", "", "--only overwrite-twice --rounds 5 --time-scale 0.01"),
    root(part(
        "claims-e2",
        "E2",
        "claims --only fdatasync-journal,fdatasync-no-journal,journal-amplifies,journal-slows",
        "",
        "--rounds 5 --time-scale 0.01",
    )),
    part("e8-small", "E8", "read", "", SMALL_LOAD),
    part("e5", "E5", "log", "--published", SMALL_LOAD),
    root(part(
        "e3",
        "E3",
        "filesystems --preset e1 --file-systems ext4 --loops direct --write-size 4KiB,512B --timeline",
        "",
        SMALL_IMAGES,
    )),
    part("e10", "E10", "practice", "--published", SMALL_LOAD),
    part("e9", "E9", "text", "--published", SMALL_LOAD),
    part("e6-mixed", "E6", "mixed", "--published", SMALL_LOAD),
    part("e8", "E8", "read", "--published", SMALL_LOAD),
    part("e7", "E7", "pool", "--published", SMALL_LOAD),
    part("e1-order", "E1", "write --preset e1-order", "--published", SMALL_CELLS),
    part("e1-fsync", "E1", "write --preset e1 --durability fsync", "--published", SMALL_CELLS),
    part("e1", "E1", "write --preset e1", "--published", SMALL_CELLS),
    part("e1-removed", "E1", "write --preset e1-removed", "--published", SMALL_CELLS),
    root(part("e2", "E2", "filesystems --preset e2", "--published", SMALL_IMAGES)),
    root(part(
        "zero-range",
        "E2",
        "zero-range",
        "--published --rounds 7",
        "--file-systems ext4 --size 64KiB --rounds 5",
    )),
    root(part(
        "e1-device",
        "E1",
        "write --preset e1-removed --precondition none,fill,trim",
        "--published --rounds 7",
        "--fill-size 1MiB --size 64KiB --rounds 5 --bill-commits 0",
    )),
];
