//! Files in the log's directory that are no plain files, that cannot be read, that have holes, or
//! that another user has made.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::{Arc, Mutex};

use inkstone::{Error, Event, Log, Lsn, Options, Reader, inspect};

use crate::host_support::{run, temporary};

const SEGMENT: &str = "00000000000000000001.ink";
const SPARE: &str = "00000000000000000099.free";
const OTHER: u32 = 12_345;

fn options() -> Options {
    Options::new().segment_bytes(64 << 10).record_bytes_max(8 << 10).buffer_bytes(16 << 10)
}

fn make(path: &Path) {
    let log = Log::open(path, options()).unwrap();
    log.append_durable(b"one").unwrap();
    log.close().unwrap();
}

/// What each way of opening or inspecting answers.
fn asked(path: &Path, elsewhere: &Path) -> Vec<(&'static str, Result<(), Error>)> {
    vec![
        ("open", Log::open(path, options()).map(drop)),
        ("reader", Reader::open(path, &options()).map(drop)),
        ("look", inspect::look(path).map(drop)),
        ("verify", inspect::verify(path).map(drop)),
        ("dump", inspect::dump(path, 0).map(drop)),
        ("copy", inspect::copy(path, elsewhere.join("copy"), &options()).map(drop)),
        ("salvage", inspect::salvage(path, elsewhere.join("salvaged"), &options()).map(drop)),
    ]
}

#[test]
fn a_segment_that_is_no_plain_file_is_an_error_that_says_so() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    for kind in ["link", "link to nothing", "directory", "pipe"] {
        let path = made.path().join(kind);
        make(&path);
        let (segment, moved) = (path.join(SEGMENT), made.path().join("moved.ink"));
        fs::rename(&segment, &moved).unwrap();
        match kind {
            "link" => symlink(&moved, &segment).unwrap(),
            "link to nothing" => symlink("nowhere", &segment).unwrap(),
            "directory" => fs::create_dir(&segment).unwrap(),
            _ => drop(run("mkfifo", &[segment.to_str().unwrap()])),
        }
        let names = || fs::read_dir(&path).unwrap().count();
        let before = names();
        for (way, answer) in asked(&path, made.path()) {
            let error = answer.expect_err(way).to_string();
            assert!(error.contains(SEGMENT), "{kind}, {way}: {error}");
            assert!(error.contains("no plain file"), "{kind}, {way}: {error}");
            assert!(error.contains("move its whole directory"), "{kind}, {way}: {error}");
        }
        assert_eq!(names(), before, "{kind}: nothing was made beside it");
    }
}

#[test]
fn a_spare_file_that_cannot_be_read_keeps_nobody_from_the_log() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let path = made.path().join("log");
    make(&path);
    symlink("nowhere", path.join(SPARE)).unwrap();
    for (way, answer) in asked(&path, made.path()) {
        answer.unwrap_or_else(|error| panic!("{way}: {error}"));
    }
    let report = inspect::verify(&path).unwrap();
    assert!(report.doubts.iter().any(|doubt| doubt.contains(SPARE)), "{:?}", report.doubts);
}

#[test]
fn the_holes_of_a_sparse_copy_are_filled_when_it_is_opened() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let path = made.path().join("log");
    make(&path);
    let segment = path.join(SEGMENT);
    run("fallocate", &["--dig-holes", segment.to_str().unwrap()]);
    let is_sparse = || {
        let facts = fs::metadata(&segment).unwrap();
        facts.blocks() * 512 < facts.len()
    };
    assert!(is_sparse(), "this file system keeps no holes");
    let said = || inspect::look(&path).unwrap().doubts.concat();
    assert!(said().contains("holes"), "{}", said());
    let log = Log::open(&path, options()).unwrap();
    assert!(!is_sparse(), "the head's holes");
    assert_eq!(log.reader().get(Lsn::FIRST).unwrap(), b"one");
    log.append_durable(b"two").unwrap();
    log.close().unwrap();
    drop(log);
    assert!(!said().contains("holes"), "{}", said());
}

#[test]
#[ignore = "needs root"]
fn what_root_makes_in_a_log_belongs_to_the_logs_owner() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let path = made.path().join("log");
    make(&path);
    for file in fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()) {
        chown(&file, Some(OTHER), Some(OTHER)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    }
    fs::remove_file(path.join("inkstone.lock")).unwrap();
    let log = Log::open(&path, options()).unwrap();
    for _ in 0..40 {
        log.append_durable(&[7; 8000]).unwrap();
    }
    log.truncate_after(Lsn::new(30)).unwrap();
    log.close().unwrap();
    drop(log);
    let files: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap()).collect();
    assert!(files.len() > 5, "{files:?}");
    for file in files {
        let facts = file.metadata().unwrap();
        let found = (facts.uid(), facts.gid(), facts.mode() & 0o7777);
        assert_eq!(found, (OTHER, OTHER, 0o640), "{:?}", file.file_name());
    }
}

/// Run by [`who_may_write_to_whose_log`].
#[test]
fn child_writes_to_a_log() {
    let (Ok(path), Ok(who)) = (std::env::var("INKSTONE_TEST_WHOSE"), std::env::var("WHO")) else {
        return;
    };
    if who == "root without CAP_CHOWN" {
        let error = Log::open(&path, options()).map(drop).expect_err("refused").to_string();
        assert!(error.contains(&format!("run this as user {OTHER}")), "{error}");
        return;
    }
    inkstone_host::give_up_root().unwrap();
    let log = Log::open(&path, options()).unwrap();
    for _ in 0..40 {
        log.append_durable(&[7; 8000]).unwrap();
    }
    log.close().unwrap();
}

#[test]
#[ignore = "needs root and setpriv"]
fn who_may_write_to_whose_log() {
    const NOBODY: u32 = 65_534;
    for (who, owner, group, mode) in [
        ("root without CAP_CHOWN", OTHER, OTHER, 0o600),
        ("the owner, in a group that he is not in", NOBODY, OTHER, 0o640),
        ("anybody, where all may write", OTHER, OTHER, 0o606),
    ] {
        let made = tempfile::tempdir_in(temporary()).unwrap();
        fs::set_permissions(made.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = made.path().join("log");
        make(&path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        for file in fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()) {
            chown(&file, Some(owner), Some(group)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        let before = fs::read_dir(&path).unwrap().count();
        let mut command = std::process::Command::new("setpriv");
        if who == "root without CAP_CHOWN" {
            command.args(["--bounding-set", "-chown"]);
        }
        let output = command
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "odd_files::child_writes_to_a_log", "--nocapture"])
            .env("INKSTONE_TEST_WHOSE", &path)
            .env("WHO", who)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("1 passed"), "{who}: {output:?}");
        let now = fs::read_dir(&path).unwrap().count();
        assert_eq!(now == before, who == "root without CAP_CHOWN", "{who}");
        // The owner can use what is new: he owns it, or all may.
        for file in fs::read_dir(&path).unwrap().map(|entry| entry.unwrap()) {
            let facts = file.metadata().unwrap();
            assert!(facts.uid() == owner || facts.mode() & 0o006 == 0o006, "{who}: {facts:?}");
        }
    }
}

/// However few records are left, an append finds room: no segment takes all of it.
#[test]
fn a_large_record_leaves_room_for_the_segment_after_its_own() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let options = Options::new().record_bytes_max(3 << 20).disk_budget_bytes(64 << 20);
    let log = Log::open(made.path().join("log"), options).unwrap();
    for _ in 0..60 {
        let last = log.append_durable(&[7; 3 << 20]).unwrap();
        log.truncate_before(last).unwrap();
    }
    log.close().unwrap();
}

/// A backup by hard links holds what it held. The log goes on, and says what it could not do.
#[test]
fn a_cut_leaves_no_mark_in_a_file_that_somebody_else_has_too() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let (path, backup) = (made.path().join("log"), made.path().join("backup.ink"));
    make(&path);
    fs::hard_link(path.join(SEGMENT), &backup).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let open = || {
        let told = Arc::clone(&told);
        let options = options().own_thread(false).listener(move |event| {
            if let Event::Fallback { what } = event {
                told.lock().unwrap().push(what.clone());
            }
        });
        Log::open(&path, options).unwrap()
    };
    let last_block = || fs::read(&backup).unwrap().split_off(60 << 10);
    let log = open();
    log.append_durable(b"two").unwrap();
    let before = last_block();
    log.truncate_after(Lsn::FIRST).unwrap();
    log.append_durable(b"three").unwrap();
    log.close().unwrap();
    open().close().unwrap();
    assert!(last_block() == before);
    let told: Vec<_> = std::mem::take(&mut *told.lock().unwrap());
    let told = || told.iter().filter(|what| what.contains("segment 1 got no mark of the cut"));
    assert_eq!(told().count(), 2, "the cut and the next opening");
    assert!(told().all(|what| what.contains("a share in its blocks")));
    // Alone again, it gets the mark by the next opening.
    fs::remove_file(&backup).unwrap();
    open().close().unwrap();
    let files = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let newest = files.filter(|file| file.extension().is_some_and(|end| end == "ink")).max();
    fs::remove_file(newest.unwrap()).unwrap();
    let refused = Log::open(&path, options()).map(drop).unwrap_err();
    assert_eq!(refused.corruption().unwrap().row, "D3", "{refused}");
}

/// Also while the writer lives, which still has the file.
#[test]
fn beside_its_writer_a_log_that_lost_the_segment_of_a_cut_is_damaged() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let path = made.path().join("log");
    make(&path);
    let log = Log::open(&path, options().own_thread(false)).unwrap();
    log.append_durable(b"two").unwrap();
    log.truncate_after(Lsn::FIRST).unwrap();
    log.append_durable(b"another two").unwrap();
    let files = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let newest = files.filter(|file| file.extension().is_some_and(|end| end == "ink")).max();
    fs::remove_file(newest.unwrap()).unwrap();
    let shown = Reader::open(&path, &options()).map(|reader| reader.get(Lsn::new(2)));
    let error = shown.expect_err("the log is not as it was before the cut");
    assert_eq!(error.corruption().expect("damage").row, "D3", "{error}");
}
