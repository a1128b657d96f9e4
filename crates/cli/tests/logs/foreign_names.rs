//! Foreign files with one of our names: nothing overwrites or removes them.

use crate::support::{directory, good, run, text};

const OWN: &str = "precious\nand more\n";

#[test]
fn a_copy_leaves_what_is_not_its_own() {
    let directory = directory();
    let at = directory.path();
    good(at, &["append", "log", "-q", "--segment-size", "64KiB"], &b"a line\n".repeat(5000));
    let names = [
        "inkstone.lock",
        "inkstone.room",
        "inkstone.tuned",
        "inkstone.tuned.new",
        "inkstone.incomplete",
        "salvage.json",
        "salvage.json.new",
        "00000000000000000001.ink",
        "00000000000000000001.new",
        "00000000000000000007.free",
        "notes",
    ];
    for command in ["copy", "salvage"] {
        for name in names {
            let new = at.join("new");
            std::fs::create_dir(&new).expect("a directory");
            std::fs::write(new.join(name), OWN).expect("a file");
            let output = run(at, &[command, "log", "new"]);
            let said = text(&output.stderr);
            let left = std::fs::read_to_string(new.join(name)).unwrap_or_default();
            assert_eq!(left, OWN, "{command} beside {name}: {said}");
            let is_refused = output.status.code() == Some(1);
            if is_refused {
                assert!(
                    said.contains("is in the way") || said.contains("already holds a log"),
                    "{name}: {said}"
                );
                let count = std::fs::read_dir(&new).expect("the directory").count();
                assert_eq!(count, 1, "{command} beside {name}: something was made");
            } else {
                assert_eq!(output.status.code(), Some(0), "{command} beside {name}: {said}");
                assert!(text(&good(at, &["verify", "new"], b"")).contains("intact: 5000 records"));
            }
            let must_be_refused =
                name == "inkstone.incomplete" || name == "salvage.json" || name.starts_with("000");
            assert!(is_refused || !must_be_refused, "{command} beside {name}");
            std::fs::remove_dir_all(&new).expect("removed");
        }
    }
}

#[test]
fn a_mark_that_a_power_cut_left_without_its_text_is_a_mark() {
    let directory = directory();
    let at = directory.path();
    good(at, &["append", "log", "-q"], b"a\nb\n");
    let whole = "A copy of a log into this directory has not ended, so what is here is no log.\nIn an older wording.";
    for left in [&whole[..0], &whole[..20], "\0\0\0\0", whole] {
        std::fs::create_dir(at.join("new")).expect("a directory");
        std::fs::write(at.join("new/inkstone.incomplete"), left).expect("a mark");
        std::fs::write(at.join("new/00000000000000000001.ink"), "its beginning").expect("a piece");
        good(at, &["copy", "log", "new"], b"");
        assert_eq!(good(at, &["cat", "new"], b""), b"a\nb\n");
        std::fs::remove_dir_all(at.join("new")).expect("removed");
    }
}

#[test]
fn a_lock_file_of_somebodys_is_locked_and_kept() {
    let directory = directory();
    let at = directory.path();
    std::fs::create_dir(at.join("log")).expect("a directory");
    std::fs::write(at.join("log/inkstone.lock"), OWN).expect("a file");
    good(at, &["append", "log", "-q"], b"a\n");
    good(at, &["truncate", "log", "--before", "2"], b"");
    assert_eq!(std::fs::read_to_string(at.join("log/inkstone.lock")).expect("text"), OWN);
}

#[test]
fn a_choice_is_not_written_over_what_is_none() {
    let directory = directory();
    let at = directory.path();
    // Each measures for two seconds.
    let tune = |log: &str, name: &str, left: &str| {
        std::fs::create_dir(at.join(log)).expect("a directory");
        std::fs::write(at.join(log).join(name), left).expect("a file");
        run(at, &["tune", log])
    };
    std::thread::scope(|scope| {
        for (number, name) in ["inkstone.tuned", "inkstone.tuned.new"].into_iter().enumerate() {
            scope.spawn(move || {
                let log = format!("theirs {number}");
                let output = tune(&log, name, OWN);
                let said = text(&output.stderr);
                assert_eq!(output.status.code(), Some(1), "{name}: {said}");
                assert!(said.contains(&format!("{name} is in the way")), "{said}");
                assert_eq!(std::fs::read_to_string(at.join(log).join(name)).expect("text"), OWN);
            });
            // Its own file is replaced, whatever its state.
            for (left, text) in ["", "inkstone tuned 99\nedited\n"].into_iter().enumerate() {
                scope.spawn(move || {
                    let output = tune(&format!("own {number} {left}"), name, text);
                    assert_eq!(output.status.code(), Some(0), "{name}: {output:?}");
                });
            }
        }
    });
}
