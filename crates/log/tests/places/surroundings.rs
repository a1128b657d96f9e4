//! What a log meets around it: a pipe that has a name of its own, other users, no /proc, an overlay
//! that never syncs.
//!
//! *Owns*: directories below cargo's temporary directory, processes, and for some tests mounts, for
//! which it must be root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::host_support::{BTRFS, EXT4, FileSystem, can_run, not_run, temporary};
use inkstone::{Error, Log, Lsn, Options, Reader, inspect};
use inkstone_host::{Mount, give_up_root, without_descriptors};

/// Where the child of a test opens a log.
const CHILD: &str = "INKSTONE_TEST_SURROUNDINGS_IN";
/// The mode that it asks for, in octal digits.
const MODE: &str = "INKSTONE_TEST_SURROUNDINGS_MODE";

fn options() -> Options {
    Options::new().segment_bytes(64 << 10).record_bytes_max(8 << 10).buffer_bytes(16 << 10)
}

/// Runs the test `name` of this program alone, by way of the shell, in the directory.
fn in_child(before: &str, name: &str, directory: &Path, mode: &str) -> Output {
    let program = std::env::current_exe().unwrap();
    let command = format!("{before} exec {program:?} --exact surroundings::{name} --nocapture");
    let mut shell = Command::new(if before.contains("umount") { "unshare" } else { "sh" });
    if before.contains("umount") {
        shell.args(["-m", "sh"]);
    }
    shell.args(["-c", &command]).env(CHILD, directory).env(MODE, mode).output().unwrap()
}

fn check(output: &Output) -> String {
    let said = [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    said
}

/// Run by [`files_and_directories_have_the_mode_that_was_asked_for`].
#[test]
fn child_makes_a_log_with_a_mode() {
    let (Ok(path), Ok(mode)) = (std::env::var(CHILD), std::env::var(MODE)) else { return };
    let options = match mode.as_str() {
        "default" => options(),
        mode => options().file_mode(u32::from_str_radix(mode, 8).unwrap()),
    };
    let log = Log::open(path, options.create_parents(true)).unwrap();
    for _ in 0..40 {
        log.append_durable(&[7; 5000]).unwrap();
    }
    log.truncate_before(Lsn::new(30)).unwrap();
    log.close().unwrap();
    drop(log);
}

#[test]
fn files_and_directories_have_the_mode_that_was_asked_for() {
    for (umask, mode, of_files, of_directories) in [
        ("000", "default", 0o600, 0o700),
        ("000", "640", 0o640, 0o750),
        ("000", "664", 0o664, 0o775),
        ("027", "666", 0o640, 0o750),
    ] {
        let made = tempfile::tempdir_in(temporary()).unwrap();
        let log = made.path().join("a/b");
        check(&in_child(&format!("umask {umask};"), "child_makes_a_log_with_a_mode", &log, mode));
        let mode_of = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        for path in [made.path().join("a"), log.clone()] {
            assert_eq!(mode_of(&path), of_directories, "{}", path.display());
        }
        let mut count = 0;
        for entry in fs::read_dir(&log).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(
                mode_of(&path),
                of_files,
                "{} with umask {umask}, mode {mode}",
                path.display()
            );
            count += 1;
        }
        assert!(count >= 3 && log.join("inkstone.lock").exists());
    }
}

/// Run by [`a_log_works_where_there_is_no_proc`].
#[test]
fn child_uses_a_log_without_proc() {
    let Ok(path) = std::env::var(CHILD) else { return };
    assert!(!Path::new("/proc/self").exists());
    for lsn in 1..=3 {
        let log = Log::open(&path, options()).unwrap();
        assert_eq!(log.append_durable(b"record").unwrap(), Lsn::new(lsn));
        log.close().unwrap();
        drop(log);
    }
    let reader = Reader::open(&path, &options()).unwrap();
    assert!(reader.records(Lsn::FIRST).take(4).filter_map(Result::ok).count() == 3);
    let choice = inspect::choice(&path).unwrap();
    println!("{choice}\n{}", choice.warnings.concat());
}

#[test]
#[ignore = "needs root"]
fn a_log_works_where_there_is_no_proc() {
    if !inkstone_io::is_root() {
        not_run("a_log_works_where_there_is_no_proc", "it needs root");
        return;
    }
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let here = inspect::choice(made.path()).unwrap();
    let output =
        in_child("umount -l /proc &&", "child_uses_a_log_without_proc", made.path(), "default");
    let said = check(&output);
    assert!(said.contains("mount options") && said.contains("are unknown"), "{said}");
    // What is known of the directory itself is known there too.
    assert!(said.contains(&here.to_string()), "{said}\n{here}");
}

/// An overlay whose layers and place are directories in `place`; `option` follows their names.
pub(crate) fn overlay(place: &Path, option: &str) -> inkstone_io::Result<Mount> {
    let [lower, upper, work, merged] =
        ["lower", "upper", "work", "merged"].map(|name| place.join(name));
    // One that was volatile is not mounted again.
    let _ = fs::remove_dir_all(work.join("work"));
    for layer in [&lower, &upper, &work, &merged] {
        fs::create_dir_all(layer).unwrap();
    }
    let [lower, upper, work] = [lower, upper, work].map(|layer| layer.display().to_string());
    let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}{option}");
    Mount::new(Path::new("overlay"), &merged, "overlay", &layers)
}

#[test]
#[ignore = "needs root"]
fn an_overlay_that_never_syncs_is_warned_about() {
    let test = "an_overlay_that_never_syncs_is_warned_about";
    if !inkstone_io::is_root() {
        not_run(test, "it needs root");
        return;
    }
    let made = tempfile::tempdir_in(temporary()).unwrap();
    for (option, is_warned) in [(",volatile", true), ("", false)] {
        let mount = match overlay(made.path(), option) {
            Ok(mount) => mount,
            Err(error) => {
                not_run(test, error.to_string());
                return;
            }
        };
        let log = Log::open(mount.target().join("log"), options()).unwrap();
        log.append_durable(b"record").unwrap();
        let warnings = log.choice().warnings.concat();
        log.close().unwrap();
        drop(log);
        mount.unmount().unwrap();
        assert_eq!(warnings.contains("is a volatile overlay"), is_warned, "{warnings}");
    }
}

/// Segments of up to 4 MiB; the first has 1 MiB.
fn growing() -> Options {
    options().segment_bytes(4 << 20)
}

/// Run by [`a_limit_on_the_size_of_files_is_kept_and_no_signal_comes`], with a limit of 2,048,000
/// bytes.
#[test]
fn child_uses_a_log_with_a_limit_on_the_size_of_files() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let path = Path::new(&path);
    assert_eq!(inkstone_io::file_bytes_max(), 2_048_000);
    let check = |refused: Error| {
        assert!(matches!(refused, Error::NoRoom { .. }), "{refused}");
        assert!(refused.to_string().contains("ulimit -f"), "{refused}");
    };
    // A signal would end this process at the change of the segment.
    for (name, options) in [("threads", growing()), ("alone", growing().own_thread(false))] {
        let log = Log::open(path.join(name), options).unwrap();
        // Segments are as large as the limit lets them be.
        for lsn in 1..=600 {
            assert_eq!(log.append_durable(&[7; 8000]).unwrap(), Lsn::new(lsn), "{name}");
        }
        assert_eq!(log.reader().records(Lsn::FIRST).filter_map(Result::ok).count(), 600);
        log.close().unwrap();
        drop(log);
    }
    // Made where there was no limit.
    let large = path.join("large");
    check(Log::open(&large, growing()).unwrap_err());
    assert_eq!(Reader::open(&large, &growing()).unwrap().records(Lsn::FIRST).count(), 150);
    assert_eq!(inspect::copy(&large, path.join("copied"), &growing()).unwrap().records, 150);
    // Only its older segments are above the limit, and a cut leaves its marks at their ends.
    let older = || Log::open(path.join("older"), options().segment_bytes(1 << 20)).unwrap();
    let log = older();
    log.truncate_after(Lsn::new(200)).unwrap();
    assert_eq!(log.append_durable(b"after the cut").unwrap(), Lsn::new(201));
    log.abandon();
    assert_eq!(older().last(), Lsn::new(201));
}

#[test]
fn a_limit_on_the_size_of_files_is_kept_and_no_signal_comes() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let log = Log::open(made.path().join("large"), growing()).unwrap();
    (0..150).for_each(|_| drop(log.append(&[7; 8000]).unwrap()));
    log.close().unwrap();
    drop(log);
    for options in [growing(), options().segment_bytes(1 << 20)] {
        let log = Log::open(made.path().join("older"), options).unwrap();
        (0..1000).for_each(|_| drop(log.append(&[7; 8000]).unwrap()));
        log.close().unwrap();
    }
    let name = "child_uses_a_log_with_a_limit_on_the_size_of_files";
    check(&in_child("ulimit -f 4000;", name, made.path(), "default"));
}

/// A mount point that is not mounted would get its log on another disk.
#[test]
fn a_missing_parent_is_named_and_made_only_where_that_is_asked_for() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let (missing, path) = (made.path().join("mnt"), made.path().join("mnt/disk/log"));
    let whole = made.path().join("whole");
    let log = Log::open(&whole, options()).unwrap();
    log.append_durable(b"a record").unwrap();
    log.close().unwrap();
    drop(log);
    let refused = [
        Log::open(&path, options()).map(drop).unwrap_err(),
        inspect::copy(&whole, &path, &options()).map(drop).unwrap_err(),
        inspect::salvage(&whole, &path, &options()).map(drop).unwrap_err(),
    ];
    for refused in refused {
        assert!(
            matches!(&refused, Error::NoLog { missing: Some(named), .. } if *named == missing),
            "{refused:?}"
        );
        let text = refused.to_string();
        assert!(text.contains(&format!("no directory {}", missing.display())), "{text}");
        assert!(text.contains("mount") && text.contains("create_parents"), "{text}");
    }
    assert!(!missing.exists());
    Log::open(&path, options().create_parents(true)).unwrap().close().unwrap();
    // Only the log's own directory is missing.
    Log::open(path.with_file_name("another"), options()).unwrap().close().unwrap();
    let copy = made.path().join("copies/log");
    inspect::copy(&whole, &copy, &options().create_parents(true)).unwrap();
}

/// Run by [`a_process_without_descriptors_tries_again`].
#[test]
fn child_runs_out_of_descriptors() {
    let Ok(path) = std::env::var(CHILD) else { return };
    for (name, options) in [("threads", Options::small()), ("alone", options().own_thread(false))] {
        let log = Log::open(Path::new(&path).join(name), options).unwrap();
        let append = || log.append_durable(&[7; 8000]);
        let (refused, last, again) = without_descriptors(|| {
            let refused = std::iter::repeat_with(append).find_map(Result::err).unwrap();
            (refused, log.last(), append().unwrap_err())
        })
        .unwrap();
        for refused in [refused, again] {
            assert!(
                matches!(&refused, Error::Io(error) if error.is_out_of_descriptors()),
                "{name}: {refused}"
            );
            assert!(refused.is_retryable(), "{name}: {refused}");
        }
        assert_eq!(log.append_durable(&[7; 8000]).unwrap().get(), last.get() + 1, "{name}");
        assert_eq!(
            log.reader().records(Lsn::FIRST).filter_map(Result::ok).count() as u64,
            last.get() + 1
        );
        log.close().unwrap();
    }
}

#[test]
fn a_process_without_descriptors_tries_again() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    check(&in_child("", "child_runs_out_of_descriptors", made.path(), "default"));
}

/// Run by [`reads_by_lsn_work_with_few_descriptors`].
#[test]
fn child_reads_with_few_descriptors() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let options = options().free_segments_max(0);
    let log = Log::open(&path, options.clone()).unwrap();
    for _ in 0..2000 {
        log.append_durable(&[7; 8000]).unwrap();
    }
    let readers = [log.reader(), Reader::open(&path, &options).unwrap()];
    for reader in &readers {
        for lsn in (1..=2000).step_by(3) {
            reader.get(Lsn::new(lsn)).unwrap_or_else(|error| panic!("LSN {lsn}: {error}"));
        }
    }
    // The program takes all others.
    let others: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
    assert!(!others.is_empty());
    for reader in &readers {
        for lsn in (1..=2000).step_by(3) {
            reader.get(Lsn::new(lsn)).unwrap_or_else(|error| panic!("LSN {lsn}: {error}"));
        }
    }
    // A change of the segment takes those that are kept open for reads.
    for _ in 0..400 {
        log.append_durable(&[7; 8000]).unwrap();
        readers[0].get(Lsn::new(1)).unwrap();
    }
}

#[test]
fn reads_by_lsn_work_with_few_descriptors() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let path = made.path().join("log");
    check(&in_child("ulimit -n 64;", "child_reads_with_few_descriptors", &path, ""));
}

/// Run by [`a_daemon_that_gives_up_root_keeps_its_log`].
#[test]
fn child_gives_up_root() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let log = Log::open(Path::new(&path).join("log"), Options::new()).unwrap();
    log.append_durable(b"as root").unwrap();
    give_up_root().unwrap();
    for lsn in 2..=20 {
        assert_eq!(log.append_durable(b"as nobody").unwrap(), Lsn::new(lsn));
    }
    log.close().unwrap();
    drop(log);
}

#[test]
#[ignore = "needs root"]
fn a_daemon_that_gives_up_root_keeps_its_log() {
    for (kind, mib, args) in [("btrfs", 128, BTRFS), ("ext4", 64, EXT4)] {
        let test = format!("a_daemon_that_gives_up_root_keeps_its_log on {kind}");
        if !can_run(&test, &[&format!("mkfs.{kind}")]) {
            continue;
        }
        let made = FileSystem::new(kind, mib, args);
        // Over ext4 an overlay, of which as little is known.
        let over = (kind == "ext4").then(|| overlay(made.target(), "").unwrap());
        let path = over.as_ref().map_or(made.target(), Mount::target).to_path_buf();
        let output = in_child("", "child_gives_up_root", &path, "default");
        let last = Log::open(path.join("log"), Options::new()).map(|log| log.last());
        over.map_or(Ok(()), Mount::unmount).unwrap();
        made.remove();
        check(&output);
        assert_eq!(last.unwrap(), Lsn::new(20), "{kind}");
    }
}
