//! What the log's path may lead to, who owns the files, and files that are moved meanwhile.

mod common;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use common::{LINE, LONG, all_text, check_lines, names, place, put, wait_until};
use inkstone_appender::{Builder, Event, Keep, LogWriter, Rotation};
use inkstone_io::is_root;

fn small(path: &Path) -> Builder {
    let builder = LogWriter::builder(path).buffers_bytes(64 << 10).buffer_bytes(4 << 10);
    builder.rotate(Rotation::new().at_bytes(16 << 10))
}

#[test]
fn what_a_link_leads_to_is_rotated_where_it_lies() {
    for is_there in [true, false] {
        let (directory, path) = place();
        let elsewhere = directory.path().join("elsewhere");
        if is_there {
            std::fs::create_dir(&elsewhere).expect("made");
            std::fs::write(elsewhere.join("b.log"), "").expect("written");
        }
        symlink("elsewhere/b.log", directory.path().join("second")).expect("a link");
        symlink("second", &path).expect("a link");
        let (log, guard) = small(&path).keep(Keep::new().files(1000)).open().expect("opened");
        put(&log, 0..1000);
        guard.close().expect("closed");
        assert!(log.stats().rotations > 3, "{:?}", log.stats());
        assert_eq!(names(directory.path()), ["a.log", "elsewhere", "second"]);
        assert!(path.is_symlink() && names(&elsewhere).len() > 4);
        let (lines, _) = check_lines(&all_text(&elsewhere, "b.log"), LINE);
        assert_eq!(lines[&0], (0..1000).collect::<Vec<u64>>());
    }
}

#[test]
fn what_is_no_plain_file_is_refused_and_nobody_waits_for_a_pipe() {
    let (directory, path) = place();
    let refused =
        |path: &Path| LogWriter::builder(path).open().expect_err("not a regular file").to_string();
    if Command::new("mkfifo").arg(&path).status().is_ok_and(|status| status.success()) {
        assert!(refused(&path).contains("not a regular file"), "{}", refused(&path));
        symlink(&path, directory.path().join("link")).expect("a link");
        assert!(refused(&directory.path().join("link")).contains("not a regular file"));
    } else {
        eprintln!("NOT RUN: a pipe is refused: there is no mkfifo");
    }
    for path in [Path::new("/dev/null"), directory.path()] {
        assert!(refused(path).contains("not a regular file"), "{}", refused(path));
    }
    let own = directory.path().join("own");
    symlink("own", &own).expect("a link");
    assert!(refused(&own).contains("symbolic links"), "{}", refused(&own));
}

/// While the log is open: a pipe is retried until a file is there; a link is followed, and an event
/// says that it is not rotated.
#[test]
fn a_target_that_is_replaced_meanwhile_is_told_and_loses_no_line() {
    let (directory, path) = place();
    let told = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&told);
    let builder = small(&path).on_event(move |event: &Event<'_>| {
        theirs.lock().expect("no panic").push(event.to_string());
    });
    let told = |word: &str| {
        told.lock().expect("no panic").iter().filter(|told| told.contains(word)).count()
    };
    let (log, guard) = builder.open().expect("opened");
    put(&log, 0..100);
    guard.flush(LONG).expect("flushed");
    let moved = directory.path().join("moved");
    std::fs::rename(&path, &moved).expect("moved");
    if Command::new("mkfifo").arg(&path).status().is_ok_and(|status| status.success()) {
        log.reopen();
        put(&log, 100..200);
        wait_until("a word about the pipe", || told("no plain file") == 1);
        std::fs::remove_file(&path).expect("removed");
    } else {
        eprintln!("NOT RUN: a pipe while the log is open: there is no mkfifo");
        put(&log, 100..200);
    }
    guard.flush(LONG).expect("flushed");
    let second = directory.path().join("second");
    std::fs::rename(&path, &second).expect("moved");
    let big = directory.path().join("big");
    symlink("big", &path).expect("a link");
    log.reopen();
    wait_until("the file that the link leads to", || big.exists());
    put(&log, 200..1000);
    guard.flush(LONG).expect("flushed");
    put(&log, 1000..1100);
    guard.close().expect("closed");
    assert_eq!(told("symbolic link"), 1, "told, and once");
    let mut text = std::fs::read_to_string(&moved).expect("text");
    // Lines put before the pipe was there may have gone to either.
    for name in names(directory.path()).iter().filter(|name| name.starts_with("a.log.")) {
        text += &std::fs::read_to_string(directory.path().join(name)).expect("text");
    }
    text += &std::fs::read_to_string(&second).expect("text");
    text += &std::fs::read_to_string(&big).expect("text");
    let (lines, _) = check_lines(&text, LINE);
    assert_eq!(lines[&0], (0..1100).collect::<Vec<u64>>());
}

/// A user who may write to the log's directory could make root write anywhere.
#[test]
fn a_link_of_another_user_is_not_followed() {
    if !is_root() {
        eprintln!("NOT RUN: a link of another user: giving one away needs root");
        return;
    }
    let (directory, path) = place();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "root's own\n").expect("written");
    let make = || {
        symlink("secret", &path).expect("a link");
        std::os::unix::fs::lchown(&path, Some(65534), Some(65534)).expect("given away");
    };
    make();
    let refused = LogWriter::builder(&path).open().expect_err("another user's").to_string();
    assert!(refused.contains("another user") && refused.contains("a.log"), "{refused}");
    std::fs::remove_file(&path).expect("removed");
    let told = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&told);
    let builder = small(&path).on_event(move |event: &Event<'_>| {
        theirs.lock().expect("no panic").push(event.to_string());
    });
    let (log, guard) = builder.open().expect("opened");
    std::fs::remove_file(&path).expect("removed");
    make();
    log.reopen();
    put(&log, 0..100);
    wait_until("a word about the link", || {
        told.lock().expect("no panic").iter().any(|told| told.contains("another user"))
    });
    std::fs::remove_file(&path).expect("removed");
    guard.close().expect("closed");
    assert_eq!(std::fs::read_to_string(&secret).expect("text"), "root's own\n");
    let (lines, _) = check_lines(&std::fs::read_to_string(&path).expect("text"), LINE);
    assert_eq!(lines[&0], (0..100).collect::<Vec<u64>>());
}

fn owner(path: &Path) -> (u32, u32, u32) {
    let facts = std::fs::metadata(path).expect("there");
    (facts.uid(), facts.gid(), facts.mode() & 0o7777)
}

#[test]
fn rotation_keeps_owner_and_mode() {
    let (directory, path) = place();
    std::fs::write(&path, "old\n").expect("written");
    let expected = if is_root() {
        std::os::unix::fs::chown(&path, Some(65534), Some(4)).expect("given away");
        (65534, 4, 0o640)
    } else {
        eprintln!("NOT RUN: another owner is kept: that needs root");
        let (user, group, _) = owner(&path);
        (user, group, 0o640)
    };
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("mode");
    // The second finds what the first has left.
    for _ in 0..2 {
        let builder = small(&path).rotate(Rotation::new().at_bytes(16 << 10).at_start());
        #[cfg(feature = "gzip")]
        let builder = builder.compress(inkstone_appender::Compression::Gzip);
        let (log, guard) = builder.open().expect("opened");
        put(&log, 0..1000);
        guard.flush(LONG).expect("flushed");
        #[cfg(feature = "gzip")]
        wait_until("a compressed file", || {
            names(directory.path()).iter().any(|name| name.ends_with(".gz"))
        });
        // And when another user moves it away.
        std::fs::rename(&path, directory.path().join("moved")).expect("moved");
        log.reopen();
        wait_until("the file", || path.exists());
        guard.close().expect("closed");
        let names = names(directory.path());
        assert!(names.len() > 3, "{names:?}");
        for name in names {
            assert_eq!(owner(&directory.path().join(&name)), expected, "{name}");
        }
    }
}

/// A user who may write to the log's directory puts something where the next file is created: its
/// target does not change owner.
#[test]
fn what_others_put_where_the_next_file_is_made_is_not_given_away() {
    for what in ["a symbolic link", "a hard link", "a file with something in it"] {
        let (directory, path) = place();
        std::fs::write(&path, "old\n").expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("mode");
        if is_root() {
            std::os::unix::fs::chown(&path, Some(65534), Some(4)).expect("given away");
        } else {
            eprintln!("NOT RUN: {what}: that no owner is given needs root; the mode is looked at");
        }
        let (log, guard) = small(&path).open().expect("opened");
        let mut expected = owner(&path);
        let secret = directory.path().join("secret");
        std::fs::write(&secret, "root's own\n").expect("written");
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("mode");
        let before = owner(&secret);
        let next = directory.path().join(".a.log.inkstone-next");
        match what {
            "a symbolic link" => symlink(&secret, &next).expect("a link"),
            "a hard link" => std::fs::hard_link(&secret, &next).expect("a link"),
            _ => std::fs::rename(&secret, &next).expect("moved"),
        }
        let held = std::fs::File::open(&next).expect("the secret");
        // No log gets the setuid and setgid bits.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o6640)).expect("mode");
        std::fs::rename(&path, directory.path().join("moved")).expect("moved");
        log.reopen();
        wait_until("the file", || path.exists());
        put(&log, 0..10);
        guard.close().expect("closed");
        let secret = held.metadata().expect("held");
        assert_eq!((secret.uid(), secret.gid(), secret.mode() & 0o7777), before, "{what}");
        assert_eq!(secret.len(), 11, "{what}");
        assert!(!path.is_symlink() && !next.is_symlink());
        assert_eq!(std::fs::metadata(&path).expect("there").nlink(), 1, "{what}");
        expected.2 = 0o640;
        assert_eq!(owner(&path), expected, "{what}");
    }
}

#[test]
fn the_mode_of_the_first_file_can_be_chosen() {
    for (mode, expected) in [(0o600, 0o600), (0o440, 0o640)] {
        let (directory, path) = place();
        let (log, guard) = small(&path).file_mode(mode).open().expect("opened");
        put(&log, 0..1000);
        guard.close().expect("closed");
        for name in names(directory.path()) {
            assert_eq!(owner(&directory.path().join(&name)).2, expected, "{name}");
        }
    }
}

/// What logrotate does with `create`, and with `copytruncate`.
#[test]
fn logrotate_by_hand_loses_no_line() {
    let (directory, path) = place();
    let (log, guard) = LogWriter::builder(&path)
        .buffers_bytes(64 << 10)
        .buffer_bytes(4 << 10)
        .open()
        .expect("opened");
    let mut text = String::new();
    for round in 0..10 {
        put(&log, round * 200..round * 200 + 100);
        // `create`: moved away, a new one created, and a HUP.
        let old = directory.path().join("a.log.1");
        std::fs::rename(&path, &old).expect("moved");
        std::fs::File::create(&path).expect("made");
        log.reopen();
        // It is reopened between two buffers; lines put before may be in either.
        put(&log, round * 200 + 100..round * 200 + 200);
        wait_until("lines in the new file", || {
            std::fs::metadata(&path).is_ok_and(|facts| facts.len() > 0)
        });
        guard.flush(LONG).expect("flushed");
        text += &std::fs::read_to_string(&old).expect("text");
        // `copytruncate`, while nothing is written: bytes written between the copy and the
        // truncation are always lost.
        let copy = directory.path().join("a.log.2");
        std::fs::copy(&path, &copy).expect("copied");
        std::fs::File::options().write(true).open(&path).expect("open").set_len(0).expect("cut");
        text += &std::fs::read_to_string(&copy).expect("text");
    }
    guard.close().expect("closed");
    assert!(!std::fs::read(&path).expect("read").contains(&0), "no hole");
    let (lines, others) = check_lines(&text, LINE);
    assert_eq!((lines[&0].clone(), others.len()), ((0..2000).collect::<Vec<u64>>(), 0));
}
