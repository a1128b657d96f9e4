//! `inkstone tune` as people use it.

use crate::support::{directory, good, good_json, names, run, said, text};

#[test]
fn a_choice_is_kept_beside_the_log_shown_by_info_and_void_once_it_is_damaged() {
    let directory = directory();
    let at = directory.path();
    std::fs::create_dir(at.join("log")).expect("a directory");
    let said = text(&good(at, "tune log --dry-run", b""));
    assert!(said.contains("Nothing was saved."), "{said}");
    assert_eq!(names(&at.join("log")), [""; 0]);
    let tuned = good_json(at, "tune log --json");
    let file = at.join(tuned["file"].as_str().expect("a file"));
    assert!(tuned["written_bytes"].as_u64().expect("bytes") <= 64 << 20, "{tuned}");
    assert_eq!(good(at, "append log", b"one\n"), b"1\n");
    let writing = || good_json(at, "info log --json")["writing"].clone();
    let before = writing();
    assert!(before["reason"].as_str().expect("a reason").starts_with("tuned on "), "{before}");
    let way = ["preparation", "reuse", "access", "durability"]
        .map(|name| before[name].as_str().expect("a name").to_owned());
    assert_eq!(Some(way.join(", ").as_str()), tuned["chosen"].as_str());
    assert_eq!(before["warnings"].as_array().expect("warnings").len(), 0);
    // With it in the directory the log is whole, and a copy goes without it.
    assert!(text(&good(at, "verify log", b"")).contains("intact: 1 record"));
    good(at, "copy log copied", b"");
    assert!(!at.join("copied/inkstone.tuned").exists());
    std::fs::write(&file, "inkstone tuned 1\n").expect("written");
    let after = writing();
    let warned = after["warnings"][0].as_str().expect("a warning");
    assert!(warned.starts_with("inkstone.tuned is not used: it has no checksum"), "{warned}");
    assert_eq!(good(at, "append log", b"two\n"), b"2\n");
}

#[test]
fn a_choice_is_not_written_over_what_is_none() {
    const OWN: &str = "precious\nand more\n";
    let directory = directory();
    let at = directory.path();
    // Each measures for two seconds.
    std::thread::scope(|scope| {
        for (log, name, left) in [
            ("0", "inkstone.tuned", OWN),
            ("1", "inkstone.tuned.new", OWN),
            // Its own file is replaced, whatever its state.
            ("2", "inkstone.tuned", ""),
            ("3", "inkstone.tuned.new", "inkstone tuned 99\nedited\n"),
        ] {
            scope.spawn(move || {
                std::fs::create_dir(at.join(log)).expect("a directory");
                let file = at.join(log).join(name);
                std::fs::write(&file, left).expect("a file");
                let output = run(at, &["tune", log]);
                let told = said(&output);
                assert_eq!(output.status.success(), left != OWN, "{name}: {told}");
                if left == OWN {
                    assert!(told.contains(&format!("{name} is in the way")), "{told}");
                    assert_eq!(std::fs::read_to_string(file).expect("text"), OWN);
                }
            });
        }
    });
}
