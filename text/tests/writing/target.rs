//! What the log's path may lead to, who owns the files, and files and directories that are moved
//! meanwhile.

use std::fs;
use std::io::ErrorKind::NotFound;
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::{
    LINE, LONG, Told, all_text, has_lines, line, names, next_start, place, put, read, rotating,
    set_mode, wait_until,
};
use inkstone_appender::{Keep, LogWriter, Rotation};
use inkstone_io::is_root;

fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().expect("mkfifo runs");
    assert!(made.success(), "{made}");
}

/// The disk of the directory above may not be mounted.
#[test]
fn a_missing_directory_is_made_and_one_above_it_is_not() {
    let (directory, _) = place();
    let disk = directory.path().join("disk");
    let error = LogWriter::builder(disk.join("logs/a.log")).open().expect_err("no disk");
    assert!(error.kind() == NotFound && error.to_string().contains("mount"), "{error}");
    assert!(!disk.exists());
    let (_log, guard) = LogWriter::builder(disk.join("a.log")).open().expect("opened");
    guard.close().expect("closed");
}

#[test]
fn what_is_no_plain_file_is_refused_and_nobody_waits_for_a_pipe() {
    let (directory, path) = place();
    let refused = |path: &Path, why: &str| {
        let error = LogWriter::builder(path).open().expect_err("not a regular file").to_string();
        assert!(error.contains(why), "{error}");
    };
    let link = directory.path().join("link");
    make_pipe(&path);
    symlink(&path, &link).expect("a link");
    refused(&path, "not a regular file");
    refused(&link, "not a regular file");
    refused(Path::new("/dev/null"), "not a regular file");
    refused(directory.path(), "not a regular file");
    // Nor a link to a file.
    fs::remove_file(&path).expect("removed");
    fs::write(&path, "").expect("written");
    refused(&link, "of a link, name the target");
}

/// While the log is open: it is retried until a file is there. A user who may write to the log's
/// directory could make root write anywhere, by a link.
#[test]
fn a_target_that_is_replaced_meanwhile_is_told_and_loses_no_line() {
    for (is_link, told_as) in [(false, "a pipe"), (true, "a symbolic link")] {
        let (directory, path) = place();
        let told = Told::default();
        let [moved, secret] = ["moved", "secret"].map(|name| directory.path().join(name));
        fs::write(&secret, "root's own\n").expect("written");
        let (log, guard) = rotating(&path).on_event(told.hook()).open().expect("opened");
        put(&log, 0..100);
        guard.flush(LONG).expect("flushed");
        fs::rename(&path, &moved).expect("moved");
        if is_link {
            symlink("secret", &path).expect("a link");
        } else {
            make_pipe(&path);
        }
        log.reopen();
        put(&log, 100..200);
        wait_until("a word about it", || told.count(told_as) == 1);
        fs::remove_file(&path).expect("removed");
        guard.flush(LONG).expect("flushed");
        guard.close().expect("closed");
        // Lines put before it was there may have gone to either.
        has_lines(&(read(&moved) + &all_text(directory.path(), "a.log")), 0..200);
        assert_eq!(read(&secret), "root's own\n");
    }
}

fn owner(path: &Path) -> (u32, u32, u32) {
    let facts = fs::metadata(path).expect("there");
    (facts.uid(), facts.gid(), facts.mode() & 0o7777)
}

/// The log's file, of another user if this one may give it away.
fn give_away(path: &Path) -> (u32, u32, u32) {
    fs::write(path, "old\n").expect("written");
    if is_root() {
        chown(path, Some(65534), Some(4)).expect("given away");
    } else {
        eprintln!("NOT RUN: another owner: that needs root; the mode is looked at");
    }
    set_mode(path, 0o640);
    owner(path)
}

#[test]
fn rotation_keeps_owner_and_mode() {
    let (directory, path) = place();
    let expected = give_away(&path);
    // The second finds what the first has left.
    for _ in 0..2 {
        let builder = rotating(&path).rotate(Rotation::new().at_bytes(16 << 10));
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
        fs::rename(&path, directory.path().join("moved")).expect("moved");
        log.reopen();
        wait_until("the file", || path.exists());
        guard.close().expect("closed");
        let names = names(directory.path());
        assert!(names.len() > 3, "{names:?}");
        for name in names {
            assert_eq!(owner(&directory.path().join(&name)), expected, "{name}");
        }
    }
    // A rotation was killed between its two renames.
    fs::rename(&path, directory.path().join(".a.log.inkstone-next")).expect("renamed");
    next_start(rotating(&path));
    assert_eq!((owner(&path), fs::metadata(&path).expect("there").len()), (expected, 0));
}

/// A user who may write to the log's directory puts something where the next file is created: its
/// target does not change owner.
#[test]
fn what_others_put_where_the_next_file_is_made_is_not_given_away() {
    for what in ["a symbolic link", "a hard link", "a file with something in it"] {
        let (directory, path) = place();
        let expected = give_away(&path);
        let (log, guard) = rotating(&path).open().expect("opened");
        let [secret, next] =
            ["secret", ".a.log.inkstone-next"].map(|name| directory.path().join(name));
        fs::write(&secret, "root's own\n").expect("written");
        set_mode(&secret, 0o600);
        let before = owner(&secret);
        match what {
            "a symbolic link" => symlink(&secret, &next).expect("a link"),
            "a hard link" => fs::hard_link(&secret, &next).expect("a link"),
            _ => fs::rename(&secret, &next).expect("moved"),
        }
        let held = fs::File::open(&next).expect("the secret");
        // No log gets the setuid and setgid bits.
        set_mode(&path, 0o6640);
        fs::rename(&path, directory.path().join("moved")).expect("moved");
        log.reopen();
        wait_until("the file", || path.exists());
        // Nor by a rotation.
        put(&log, 0..200);
        guard.close().expect("closed");
        assert!(log.stats().rotations > 0 && !next.is_symlink());
        let secret = held.metadata().expect("held");
        assert_eq!((secret.uid(), secret.gid(), secret.mode() & 0o7777), before, "{what}");
        assert_eq!(secret.len(), 11, "{what}");
        assert!(!path.is_symlink());
        assert_eq!(fs::metadata(&path).expect("there").nlink(), 1, "{what}");
        assert_eq!(owner(&path), expected, "{what}");
    }
}

/// A log's directory is moved away, with another one in its place: rotating and removing stay where
/// the log is, until it is reopened by its name.
#[test]
fn another_logs_files_in_its_old_place_are_not_touched() {
    let made = tempfile::tempdir().expect("a directory");
    let [logs, old] = ["logs", "old"].map(|name| made.path().join(name));
    let path = logs.join("a.log");
    let (log, guard) = rotating(&path).keep(Keep::new().files(2)).open().expect("opened");
    put(&log, 0..50);
    guard.flush(LONG).expect("flushed");
    fs::rename(&logs, &old).expect("moved");
    fs::create_dir(&logs).expect("made");
    let others = [
        "a.log",
        "a.log.20251121T160533Z.0",
        "a.log.20251121T160534Z.0",
        "a.log.20251121T160535Z.0",
    ];
    for name in others {
        fs::write(logs.join(name), "somebody's\n").expect("written");
    }
    put(&log, 50..1000);
    guard.flush(LONG).expect("flushed");
    assert!(log.stats().rotations > 3, "{:?}", log.stats());
    assert_eq!(names(&logs), others);
    assert!(others.iter().all(|name| read(&logs.join(name)) == "somebody's\n"));
    // The janitor may remove older files meanwhile.
    let texts = names(&old).into_iter().map(|name| fs::read_to_string(old.join(name)));
    let is_last = |text: String| text.ends_with(&line(0, 999, LINE));
    assert!(texts.flatten().any(is_last), "the last line is nowhere");
    // Reopened, it follows its name. The janitor is in this directory then, and removes what has
    // the names of older files. Only the log itself stays.
    log.reopen();
    wait_until("the file of its name", || {
        put(&log, 1000..1001);
        guard.flush(LONG).expect("flushed");
        read(&path) != "somebody's\n"
    });
    guard.close().expect("closed");
    let text = read(&path);
    assert!(text.starts_with("somebody's\n") && text.ends_with(&line(0, 1000, LINE)), "{text}");
}
