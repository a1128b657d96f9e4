//! A copy that finds something in its way overwrites no file, and the map of a salvaged log is
//! there before the log. A copy that a signal stops: `exit_codes.rs`. Copies that are killed,
//! failures of the disk and power cuts at every moment: `crates/log/tests/simulated/copying.rs`.

use crate::support::{
    damage, directory, good, json, line, lines, names, refused, run, said, segments, text,
};

#[test]
fn a_directory_with_other_things_in_it_takes_a_copy_and_keeps_them() {
    let directory = directory();
    let at = directory.path();
    good(at, "append log -q", b"a\nb\n");
    // Like the root of a disk that was mounted for it.
    std::fs::create_dir_all(at.join("disk/lost+found")).expect("a directory");
    good(at, "copy log disk", b"");
    assert_eq!(good(at, "cat disk", b""), b"a\nb\n");
    std::os::unix::fs::symlink("elsewhere", at.join("link")).expect("a link");
    std::fs::create_dir(at.join("elsewhere")).expect("a directory");
    good(at, "copy log link", b"");
    assert_eq!(good(at, "cat elsewhere", b""), b"a\nb\n");
    // A mark that a power cut has left without all of its text is a mark.
    for left in ["", "A copy of a log into", "\0\0\0\0"] {
        std::fs::create_dir(at.join("new")).expect("a directory");
        std::fs::write(at.join("new/inkstone.incomplete"), left).expect("a mark");
        std::fs::write(at.join("new/00000000000000000001.ink"), "its beginning").expect("a piece");
        good(at, "copy log new", b"");
        assert_eq!(good(at, "cat new", b""), b"a\nb\n");
        std::fs::remove_dir_all(at.join("new")).expect("removed");
    }
}

#[test]
fn the_map_of_a_salvaged_log_is_there_before_the_log_is() {
    let directory = directory();
    let at = directory.path();
    good(at, "append log -q --segment-size 64KiB", &lines(1..=5000, ""));
    damage(&segments(&at.join("log"))[0], &line(10, ""));
    // If the map cannot be written, there is no log either.
    std::fs::create_dir_all(at.join("new/salvage.json")).expect("a directory in its place");
    refused(at, "salvage log new", 1, "salvage.json");
    assert_eq!(names(&at.join("new")), ["inkstone.lock", "salvage.json"]);
    std::fs::remove_dir(at.join("new/salvage.json")).expect("removed");
    good(at, "salvage log new", b"");
    assert!(text(&good(at, "verify new", b"")).contains("intact: 4999 records"));
}

/// Foreign files with one of our names.
const OWN: &str = "precious\nand more\n";

#[test]
fn a_copy_leaves_what_is_not_its_own() {
    let directory = directory();
    let at = directory.path();
    good(at, "append log -q --segment-size 64KiB", &b"a line\n".repeat(5000));
    for (name, must_be_refused) in [
        ("inkstone.lock", false),
        ("inkstone.room", false),
        ("inkstone.incomplete", true),
        ("salvage.json", true),
        ("salvage.json.new", false),
        ("00000000000000000001.ink", true),
        ("00000000000000000003.new", true),
        ("00000000000000000007.free", true),
        ("notes", false),
    ] {
        for command in ["copy", "salvage"] {
            let new = at.join("new");
            std::fs::create_dir(&new).expect("a directory");
            std::fs::write(new.join(name), OWN).expect("a file");
            let output = run(at, &[command, "log", "new"]);
            let told = said(&output);
            let left = std::fs::read_to_string(new.join(name)).unwrap_or_default();
            assert_eq!(left, OWN, "{command} beside {name}: {told}");
            match output.status.code() {
                Some(1) => {
                    let says = told.contains("is in the way") || told.contains("already holds");
                    assert!(says, "{command} beside {name}: {told}");
                    assert_eq!(names(&new), [name], "{command}: something was made");
                }
                code => {
                    assert!(code == Some(0) && !must_be_refused, "{command}, {name}: {told}");
                    good(at, "verify new", b"");
                }
            }
            std::fs::remove_dir_all(&new).expect("removed");
        }
    }
    // Nor does a log write over a lock file of somebody's.
    std::fs::create_dir(at.join("other")).expect("a directory");
    std::fs::write(at.join("other/inkstone.lock"), OWN).expect("a file");
    good(at, "append other -q", b"a\n");
    good(at, "truncate other --before 2", b"");
    assert_eq!(std::fs::read_to_string(at.join("other/inkstone.lock")).expect("text"), OWN);
}

#[test]
fn a_copy_has_the_same_records_under_the_same_lsns() {
    let directory = directory();
    let at = directory.path();
    good(at, "append log -q --segment-size 64KiB", &lines(1..=2000, &"z".repeat(290)));
    good(at, "truncate log --before 700", b"");
    let told = text(&good(at, "copy log new", b""));
    assert_eq!(told, "copied 1301 records to new: LSN 700 to 2000\n");
    assert_eq!(good(at, "cat new", b""), good(at, "cat log", b""));
    assert_eq!(good(at, "get new 1234", b""), good(at, "get log 1234", b""));
    assert_eq!(good(at, "append new", b"more\n"), b"2001\n");
    assert!(text(&good(at, "verify new", b"")).contains("intact: 1302 records"));
    // An empty log, which begins where the old one would continue.
    good(at, "truncate log --before 2001", b"");
    good(at, "copy log none", b"");
    assert_eq!(good(at, "append none", b"more\n"), b"2001\n");
    let copied = json(&good(at, "copy new again --json", b""));
    assert_eq!((copied["first"].as_u64(), copied["last"].as_u64()), (Some(700), Some(2001)));
}
