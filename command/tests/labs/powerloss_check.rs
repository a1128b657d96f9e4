//! `inkstone powerloss check`: what a command loses is found, what it keeps is not called lost, and
//! what cannot be judged is said in a sentence.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output};

use inkstone_host::{loops_backed_under, mounts_under};
use inkstone_powerloss::kernel::machine::FsKind;
use inkstone_powerloss::result::RunResult;

use super::powerloss_kernel::here;
use crate::support::{command, directory, names, run, said, side_by_side, signal, text, until};

/// So many seeds are tried while others sync all file systems of this machine.
const SEEDS: u32 = 8;
pub(crate) const SYNCED_BY_OTHERS: &str = "another process synced the whole file system meanwhile";

/// The words of a check of a script of the shell.
fn words<'a>(more: &'a str, script: &'a str) -> Vec<&'a str> {
    let more: Vec<&str> = more.split_whitespace().collect();
    let words = [&["powerloss", "check", "--directory", "."], &more[..]].concat();
    [&words[..], &["--", "sh", "-c", script]].concat()
}

/// Checks a script of the shell; again with the next seed, if another process of this machine has
/// synced all meanwhile.
fn check(at: &Path, more: &str, script: &str) -> Output {
    let mut outputs = (1..=SEEDS).map(|seed| {
        let more = format!("{more} --seed {seed}");
        run(at, words(&more, script).as_slice())
    });
    let is_clear = |output: &Output| !told(output).contains(SYNCED_BY_OTHERS);
    outputs.find(is_clear).expect("others sync all the time")
}

fn told(output: &Output) -> String {
    text(&output.stdout) + &said(output)
}

/// What was found of each name, by a check that shows a table.
fn found(at: &Path, more: &str, script: &str) -> Vec<(String, String)> {
    let output = check(at, &format!("{more} --json -"), script);
    assert_eq!(output.status.code(), Some(0), "{script}: {}", told(&output));
    let results: Vec<RunResult> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(results[0].states() > 2, "{results:?}");
    results[0].names.iter().map(|name| (name.name.clone(), name.found.to_string())).collect()
}

fn is_there(found: &[(String, String)], name: &str, words: &str) -> bool {
    found.iter().any(|(known, counts)| known == name && counts.contains(words))
}

#[test]
fn what_is_synced_is_kept_and_what_is_not_is_lost() {
    let kinds = here("what_is_synced_is_kept", &[FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs]);
    side_by_side(&kinds, |kind| {
        let place = directory();
        let at = place.path();
        let output = check(at, &format!("--fs {kind} --durable"), "echo new >f; sync f .");
        assert_eq!(output.status.code(), Some(0), "{kind}: {}", told(&output));
        assert!(told(&output).contains("kept: all 1 names are new in all "), "{}", told(&output));
        let output = check(at, &format!("--fs {kind} --durable"), "echo new >f");
        assert_eq!(output.status.code(), Some(1), "{kind}: {}", told(&output));
        let told = told(&output);
        // Whether it syncs is seen by flushes, and a kernel may send some by itself.
        assert!(told.contains("before its exit") && told.contains("loses: 1 of 1"), "{told}");
        let output = check(at, &format!("--fs {kind}"), "echo new >f");
        assert_eq!(output.status.code(), Some(0), "losing is no error where nothing was asked");
        assert!(names(at).is_empty(), "{:?}", names(at));
    });
}

/// A file system that commits every five seconds would do what the command has not.
#[test]
fn what_the_kernel_writes_back_by_itself_is_no_sync() {
    let kinds = here("what_the_kernel_writes_back", &[FsKind::Ext4, FsKind::Ext4DataJournal]);
    side_by_side(&kinds, |kind| {
        let place = directory();
        let output = check(place.path(), &format!("--fs {kind} --durable"), "echo new >f; sleep 7");
        assert_eq!(output.status.code(), Some(1), "{kind}: {}", told(&output));
        assert!(told(&output).contains("loses: 1 of 1"), "{kind}: {}", told(&output));
    });
}

/// The cause names what was not synced: of a rename, of a file that is truncated and written, of
/// one that is overwritten, and of a second name for a file that is synced. A sync that is not of
/// this file alone is not called its own.
#[test]
fn the_cause_of_a_loss_is_said() {
    let kinds = here("the_cause_of_a_loss_is_said", &[FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs]);
    side_by_side(&kinds, |kind| {
        let place = directory();
        let at = place.path();
        fs::create_dir(at.join("given")).unwrap();
        fs::write(at.join("given/f"), "the old text").unwrap();
        let more = format!("--fs {kind} --in given --json -");
        let directory = "the directory was not synced, by any call, between the command's start";
        let file = "`f` was not synced, by any call, between the command's start and its exit";
        for (script, words) in [
            ("echo new >t; sync t; mv t f", ["`f` is called `t` after the cut", directory]),
            ("echo new >f", ["`f` has 12 bytes after the cut, and 4 ", file]),
            ("printf new | dd of=f conv=notrunc", ["`f` is not as it is ", file]),
            ("sync f; ln f g", ["`g` is there ", directory]),
            ("sync -f .; echo b >g", ["`g` ", "the last sync of the whole file system until "]),
            // `h` gets the number of `g`.
            ("echo a >g; sync g; rm g; echo b >h", ["`h` is there ", directory]),
        ] {
            let output = check(at, &more, script);
            let results: Vec<RunResult> = serde_json::from_slice(&output.stdout).unwrap();
            let cause = &results[0].cause;
            assert!(cause[0].starts_with("the first loss, at its exit 0: `"), "{kind}: {cause:?}");
            for word in words {
                let is_said = cause.iter().any(|sentence| sentence.contains(word));
                assert!(is_said, "{kind}: {script}: {word:?}: {cause:#?}");
            }
            // The last sync is that of `g`; what differs of `f` is said by its other name.
            let is_told = cause
                .iter()
                .any(|it| it.contains("the last sync of `h`") || it.contains("`f` is torn"));
            assert!(!is_told, "{kind}: {script}: {cause:#?}");
        }
        let told = told(&check(at, &format!("--fs {kind} --in given"), "echo new >f"));
        assert!(told.contains("\n    cause: the first loss, at its exit 0: `f` old\n"), "{told}");
        let told = self::told(&check(at, &format!("--fs {kind} --in given"), "ln f g; sync f ."));
        assert!(!told.contains("cause:"), "nothing is lost: {told}");
    });
}

/// On a machine that others use a name may be durable by their doing: then neither that it is kept
/// nor a cause of its loss is said.
#[test]
fn a_sync_by_another_process_is_told_and_nothing_is_claimed() {
    let wanted = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs];
    let kinds = here("a_sync_by_another_process", &wanted);
    side_by_side(&kinds, |kind| {
        // The command may write below /tmp.
        let place = tempfile::tempdir_in("/tmp").unwrap();
        let at = place.path();
        let [begun, done] = ["begun", "done"].map(|name| at.join(name));
        let waits = format!(
            "echo new >f; : >{}; until [ -e {} ]; do sleep 0.01; done",
            begun.display(),
            done.display()
        );
        let kept = "cannot tell: all 1 names are new in all ";
        let lost = format!("    cause: {SYNCED_BY_OTHERS}: no cause is said\n");
        for (script, said) in [(waits.clone(), kept), (waits + "; echo more >>f", &lost)] {
            let more = format!("--fs {kind} --durable");
            let mut child = command(at, words(&more, &script).as_slice()).spawn().unwrap();
            until("the command has written", || {
                assert!(child.try_wait().unwrap().is_none(), "it ended before");
                begun.exists()
            });
            let mounts = mounts_under(&at.canonicalize().unwrap()).unwrap();
            let mounted = mounts.iter().map(|mount| &mount.target);
            for target in mounted.filter(|target| target.ends_with("mounted")) {
                assert!(Command::new("sync").arg("-f").arg(target).status().unwrap().success());
            }
            fs::write(&done, "").unwrap();
            let output = child.wait_with_output().unwrap();
            let told = told(&output);
            assert_eq!(output.status.code(), Some(1), "{kind}: {told}");
            assert!(told.contains(said) && told.contains(SYNCED_BY_OTHERS), "{kind}: {told}");
            for path in [&begun, &done] {
                fs::remove_file(path).unwrap();
            }
        }
    });
}

/// What each name may be after a crash, on ext4 and xfs.
#[test]
fn names_that_come_back_and_files_that_are_empty_have_their_words() {
    let kinds = here("names_that_come_back", &[FsKind::Ext4, FsKind::Xfs]);
    side_by_side(&kinds, |kind| {
        let place = directory();
        let at = place.path();
        fs::create_dir(at.join("given")).unwrap();
        for name in ["moved", "changed", "removed", "same"] {
            fs::write(at.join("given").join(name), format!("{name} before")).unwrap();
        }
        let script = "echo after >temporary; sync temporary; mv temporary changed; \
            mv moved there; rm removed; echo made >made";
        let found = found(at, &format!("--fs {kind} --in given --states 200"), script);
        for (name, words) in [
            ("moved", "old name back"),
            ("there", "missing"),
            ("removed", "old name back"),
            ("changed", "old"),
            ("made", "missing"),
        ] {
            assert!(is_there(&found, name, words), "{kind}: {name}: {words}: {found:?}");
            assert!(
                is_there(&found, name, "new"),
                "{kind}: {name}: at last it is there: {found:?}"
            );
        }
        assert!(!found.iter().any(|(name, _)| name == "same"), "{kind}: {found:?}");
        // What gzip does: the old one is gone before the new one is there.
        let script = "tr a-z A-Z <same >made; rm same";
        let output = check(at, &format!("--fs {kind} --in given --states 200"), script);
        assert!(
            told(&output).contains("the bytes of an old name are nowhere"),
            "{}",
            told(&output)
        );
        // The name reaches the disk by another program's sync, before the bytes do.
        let found = self::found(at, &format!("--fs {kind} --states 200"), "echo bytes >f");
        assert!(is_there(&found, "f", "empty"), "{kind}: {found:?}");
    });
}

#[test]
fn a_command_that_is_none_or_fails_is_not_judged() {
    if here("a_command_that_is_none", &[FsKind::Ext4]).is_empty() {
        return;
    }
    let place = directory();
    let at = place.path();
    for (script, more, words) in [
        ("echo x >f; echo why >&2; exit 3", "", "exit status: 3: why; so nothing is said"),
        ("kill -9 $$", "", "signal: 9"),
        ("sleep 100", "--limit 300ms", "has not ended within 300ms: give it more by --limit"),
        ("true", "", "has changed nothing in its directory"),
        ("echo x >f; rm -r \"$PWD\"", "", "sh has removed or renamed its directory"),
        ("echo x >/tmp/../inkstone-check-outside", "", "may write below /tmp and /dev alone"),
    ] {
        let output = check(at, more, script);
        assert_eq!(output.status.code(), Some(2), "{script}: {}", told(&output));
        assert!(said(&output).contains(words), "{script}: {}", told(&output));
        assert!(text(&output.stdout).is_empty() && names(at).is_empty(), "{script}");
    }
    assert!(!Path::new("/inkstone-check-outside").exists());
    let output = run(at, ["powerloss", "check", "--", "nonesuch-command", "x"].as_slice());
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("nonesuch-command cannot be started: No such file"));
}

/// A program beside the one who asks, as the help has it; one in the directory that is given is meant
/// before that.
#[test]
fn a_program_is_found_by_a_path_from_here() {
    if here("a_program_is_found", &[FsKind::Ext4]).is_empty() {
        return;
    }
    let place = directory();
    let at = place.path();
    let program = |name: &str, makes: &str| {
        let path = at.join(name);
        fs::write(&path, format!("#!/bin/sh\necho x >{makes}; sync {makes} .\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    fs::create_dir(at.join("given")).unwrap();
    program("mine", "from-here");
    for (more, makes) in [(&[][..], "from-here"), (&["--in", "given"], "given-one")] {
        let words = [&["powerloss", "check", "--directory", "."], more].concat();
        let output = run(at, [&words[..], &["--", "./mine"]].concat().as_slice());
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
        assert!(told(&output).contains(makes), "{}", told(&output));
        program("given/mine", "given-one");
    }
}

#[test]
fn who_is_left_behind_is_named_and_killed() {
    if here("who_is_left_behind", &[FsKind::Ext4]).is_empty() {
        return;
    }
    let place = directory();
    let script = "echo x >f; sync f .; setsid sh -c 'exec sleep 1000' & disown 2>/dev/null; true";
    let output = check(place.path(), "", script);
    let told = told(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("was killed 2 s after its exit") && told.contains(": sleep"), "{told}");
    assert!(told.contains("kept: all 1 names"), "{told}");
}

/// All that a directory has, with all time stamps.
fn stamps(at: &Path) -> Vec<(String, u64, i64, i64, i64, i64)> {
    let stamp = |name: String| {
        let it = fs::symlink_metadata(at.join(&name)).unwrap();
        (name, it.ino(), it.atime(), it.atime_nsec(), it.mtime_nsec(), it.ctime_nsec())
    };
    names(at).into_iter().map(stamp).collect()
}

#[test]
fn a_directory_is_copied_with_all_that_is_in_it_and_nothing_of_it_changes() {
    if here("a_directory_is_copied", &[FsKind::Ext4]).is_empty() {
        return;
    }
    let place = directory();
    let at = place.path();
    let made = "mkdir given && cd given && echo a >a && ln a b && ln -s nowhere link && \
        mkfifo pipe && mkdir below && echo c >below/c && chmod 600 a && truncate -s 1M sparse && \
        python3 -c 'import os, socket; os.setxattr(\"a\", \"user.mine\", b\"1\"); \
        socket.socket(socket.AF_UNIX).bind(\"socket\")'";
    assert!(Command::new("sh").args(["-c", made]).current_dir(at).status().unwrap().success());
    let before = stamps(&at.join("given"));
    let path = at.join("given").canonicalize().unwrap();
    let reads = format!(
        "set -e; [ a -ef b ]; [ -p pipe ]; [ -S socket ]; [ $(readlink link) = nowhere ]; \
         [ $(stat -c %a a) = 600 ]; cat below/c sparse >/dev/null; \
         python3 -c 'import os; assert os.getxattr(\"a\", \"user.mine\") == b\"1\"'; \
         ! echo x 2>/dev/null >{path}/a; echo more >>a; sync a",
        path = path.display()
    );
    let found = found(at, "--in given", &reads);
    assert_eq!(stamps(&path), before);
    assert!(is_there(&found, "a", "new") && is_there(&found, "b", "new"), "{found:?}");
    assert_eq!(found.len(), 2, "what it has not changed is the same: {found:?}");
}

#[test]
fn a_directory_that_cannot_be_copied_is_refused_with_the_reason() {
    if here("a_directory_that_cannot_be_copied", &[FsKind::Ext4]).is_empty() {
        return;
    }
    let place = directory();
    let at = place.path();
    let made = "mkdir device large && mknod device/null c 1 3 && touch file && \
        fallocate -l 100M large/file";
    assert!(Command::new("sh").args(["-c", made]).current_dir(at).status().unwrap().success());
    for (given, words) in [
        (".", "the lab's own disks are in it"),
        ("device", "null is a device"),
        ("large", "smaller directory, or a larger disk by --disk"),
        ("file", "it is no directory"),
        ("nowhere", "No such file"),
    ] {
        let output = check(at, &format!("--in {given}"), "echo x >f");
        assert_eq!(output.status.code(), Some(2), "{given}: {}", told(&output));
        assert!(said(&output).contains(words), "{given}: {}", told(&output));
    }
    let output = check(at, "--in large --disk 256MiB --states 4", "echo x >f");
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
}

#[test]
fn ctrl_c_and_a_kill_of_a_check_leave_no_process_and_no_mount() {
    if here("ctrl_c_and_a_kill_of_a_check", &[FsKind::Ext4]).is_empty() {
        return;
    }
    let place = directory();
    let at = &place.path().canonicalize().unwrap();
    let nothing = || (mounts_under(at).unwrap().len(), loops_backed_under(at).unwrap().len());
    let asleep = format!("sleep 1000.{}", std::process::id());
    let lives =
        || Command::new("pgrep").args(["-f", "-x", &asleep]).output().unwrap().status.success();
    for name in ["-INT", "-KILL"] {
        let words = ["powerloss", "check", "--directory", ".", "--", "sh", "-c"];
        let script = format!("echo x >f; {asleep}");
        let mut child = command(at, [&words[..], &[&script]].concat().as_slice()).spawn().unwrap();
        until("the command runs", || {
            assert!(child.try_wait().unwrap().is_none(), "it ended before");
            lives()
        });
        signal(name, child.id());
        let code = child.wait().unwrap().code();
        assert_eq!(code, if name == "-INT" { Some(130) } else { None });
        until("the command has ended, too", || !lives());
        if name == "-INT" {
            assert_eq!(nothing(), (0, 0));
        }
    }
    assert_eq!(check(at, "--states 2", "echo x >f").status.code(), Some(0));
    assert_eq!(nothing(), (0, 0), "the next start takes away what a kill has left");
}

/// A file that is truncated before it is written is lost by a cut in between; one that is replaced
/// is not.
#[test]
fn a_cut_in_the_middle_shows_what_is_truncated_first() {
    if here("a_cut_in_the_middle", &[FsKind::Ext4]).is_empty() {
        return;
    }
    if inkstone_host::find_tool("strace").is_none() {
        crate::support::not_run("a_cut_in_the_middle", "strace is not installed");
        return;
    }
    let place = directory();
    let at = place.path();
    fs::create_dir(at.join("given")).unwrap();
    fs::write(at.join("given/f"), "the old text").unwrap();
    let more = "--in given --during --states 100";
    let truncated = found(at, more, "echo the new text >f");
    assert!(is_there(&truncated, "f", "empty"), "{truncated:?}");
    let replaced = found(at, more, "echo the new text >t; sync t; mv t f; sync .");
    for bad in ["empty", "torn", "missing"] {
        assert!(!is_there(&replaced, "f", bad), "{replaced:?}");
    }
    assert!(is_there(&replaced, "f", "old") && is_there(&replaced, "f", "new"), "{replaced:?}");
}
