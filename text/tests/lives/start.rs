//! Starts: what they say and leave, whom files are given to, and what a killed process has left in
//! a stage. What starts do to lines is in `random.rs`.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{
    EIO, ENOSPC, Hooked, LONG, Mood, MoodyDisk, Told, error, is_refused, kept, memory, names,
    next_start, place, quick, read, say, set_mode, small, stage_in, stages_in, turn, wait_until,
};
use inkstone_appender::{Builder, Keep, LogWriter, Rotation, Survive, take_lines, waiting_lines};
use inkstone_host::{Mount, alone, fork_child, in_forked_child};
use inkstone_io::{StageFile, is_root};

const LINES: &str = "line 1\nline 2\nline 3\nline 4\n";

/// A process that puts the lines on a disk of this mood, and is killed.
fn killed(builder: Builder, mood: Mood) {
    crate::common::killed(builder, MoodyDisk::new(mood), |log| say(log, LINES));
}

/// All of them in one file are more than a small disk has room for: no start would ever succeed.
#[test]
fn lines_that_waited_are_rotated_and_the_oldest_files_make_room_for_them() {
    let Some(_turn) = turn("a small disk") else { return };
    let (directory, path) = place();
    let folder = directory.path().to_path_buf();
    let builder = || small(kept(&path)).drain_timeout(Duration::ZERO);
    crate::common::killed(builder(), MoodyDisk::new(Mood::Fails(ENOSPC)), |log| {
        crate::common::put(log, 0..400);
    });
    let has_room = move |more: usize| {
        let bytes = |name: &String| fs::metadata(folder.join(name)).map_or(0, |facts| facts.len());
        names(&folder).iter().map(bytes).sum::<u64>() + more as u64 <= 40 << 10
    };
    let disk = Hooked::appending(move |file, bytes| {
        if has_room(bytes.len()) { file.append(bytes) } else { Err(error(ENOSPC)) }
    });
    let rotating = builder().rotate(Rotation::new().at_bytes(16 << 10)).keep(Keep::new().files(1));
    let (_log, guard) = rotating.open_on(disk).expect("there is room for the newest");
    guard.close().expect("closed");
    let files = crate::common::files(directory.path(), "a.log");
    let lengths: Vec<_> = files.iter().map(|(_, text)| text.len()).collect();
    assert!(lengths.len() == 2 && lengths.iter().all(|len| *len <= 16 << 10), "{lengths:?}");
    let text: String = files.into_iter().map(|(_, text)| text).collect();
    let (found, others) = crate::common::numbers_of(&text);
    assert!(found.iter().copied().eq(found[0]..400) && others.is_empty(), "{others:?}");
}

/// A daemon: opens its log, forks, and lives on in the child.
#[test]
fn a_child_opens_the_log_that_its_parent_has_closed() {
    let Some(_turn) = turn("a daemon") else { return };
    if !alone("start::a_child_opens_the_log_that_its_parent_has_closed") {
        return;
    }
    let (_directory, path) = place();
    let (log, guard) = kept(&path).open().expect("opened");
    say(&log, "the parent's\n");
    let (mut closed, mut tell) = std::io::pipe().expect("a pipe");
    let child = fork_child(|| {
        std::io::Read::read_exact(&mut closed, &mut [0]).expect("told");
        let (log, guard) = kept(&path).open().expect("nobody else has it");
        say(&log, "the child's\n");
        u8::from(is_refused(kept(&path)) && guard.close().is_ok())
    });
    let child = child.expect("a child");
    guard.close().expect("closed");
    tell.write_all(b"x").expect("told");
    assert_eq!(child.wait().expect("its end"), 1);
    assert_eq!(read(&path), "the parent's\nthe child's\n");
}

/// Rotating and compressing such a name could never work, and options change: so it is refused,
/// before anything is made.
#[test]
fn a_name_that_leaves_no_room_for_those_of_rotated_files_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let builder = |bytes: usize| LogWriter::builder(directory.path().join("n".repeat(bytes)));
    let error = builder(220).open().expect_err("too long").to_string();
    assert!(error.contains("220 bytes") && error.contains("at most 219 bytes"), "{error}");
    assert_eq!(names(directory.path()), [""; 0]);
    next_start(builder(219));
}

/// The directory comes back under another path: its lines are found there.
#[test]
fn lines_are_found_where_their_directory_is() {
    let Some(_turn) = turn("a directory that moves") else { return };
    let (memory, made) = (memory(), tempfile::tempdir().expect("a directory"));
    let [path, moved] = ["logs/a.log", "moved/a.log"].map(|name| made.path().join(name));
    killed(kept(&path).stage_directory(memory.path()), Mood::FailsHalfway(ENOSPC));
    fs::rename(made.path().join("logs"), made.path().join("moved")).expect("moved");
    assert!(next_start(kept(&moved).stage_directory(memory.path())).is_some());
    assert_eq!((read(&moved).as_str(), stages_in(memory.path())), (LINES, vec![]));
}

/// A stage of a dead process in which nothing waits, and one that was never made whole, would fill
/// the memory: any start removes them.
#[test]
fn a_start_removes_each_stage_that_nobody_needs() {
    let Some(_turn) = turn("stages that nobody needs") else { return };
    let (memory, made) = (memory(), tempfile::tempdir().expect("a directory"));
    let log = |name: &str| kept(&made.path().join(name)).stage_directory(memory.path());
    let dies = |name: &str| {
        let code = in_forked_child(|| {
            let (log, guard) = log(name).open().expect("opened");
            say(&log, LINES);
            guard.flush(LONG).expect("flushed");
            std::mem::forget((log, guard));
            1
        });
        assert_eq!(code.expect("a child"), 1);
    };
    ["a.log", "b.log", "c.log"].into_iter().for_each(dies);
    let living = log("d.log").open().expect("opened");
    fs::write(memory.path().join("foreign"), "").expect("written");
    assert_eq!(stages_in(memory.path()).len(), 1, "each start has removed the one before");
    killed(log("e.log"), Mood::Fails(ENOSPC));
    let waits = waiting_lines(memory.path()).expect("listed");
    assert_eq!(waits.len(), 1, "{waits:?}");
    next_start(log("f.log"));
    assert_eq!(stages_in(memory.path()).len(), 2, "one lives, and in one are lines");
    // A stage begins small.
    let blocks: u64 = stages_in(memory.path())
        .iter()
        .map(|path| fs::metadata(path).expect("there").blocks())
        .sum();
    assert!(blocks * 512 < 3 << 20, "{blocks}");
    living.1.close().expect("closed");
    assert_eq!(names(memory.path()).len(), 2);
}

/// Whatever was done to a stage, its log opens, what can be read is in it once, and the rest is set
/// aside and said.
#[test]
fn a_stage_that_was_changed_is_said_and_what_can_be_read_of_it_is_there() {
    let Some(_turn) = turn("a changed stage") else { return };
    let change = |file: &File, at: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("there");
        file.write_all_at(&[byte[0] ^ 1], at).expect("changed");
    };
    let text_at = |stage: &Path| {
        let bytes = fs::read(stage).expect("read");
        let is_text = |window: &[u8]| window == LINES.as_bytes();
        bytes.windows(LINES.len()).position(is_text).expect("its lines") as u64
    };
    type Change<'a> = &'a dyn Fn(&File, &Path);
    let changes: [(&str, Change<'_>, bool); 5] = [
        ("some of its bytes were changed", &|file, at| change(file, text_at(at) + 9), true),
        ("or cut", &|file, at| file.set_len(text_at(at) + 9).expect("cut"), true),
        ("its head was changed", &|file, _| change(file, 20), false),
        ("its head was changed", &|file, _| file.set_len(50).expect("cut"), false),
        ("or cut", &|file, _| file.set_len(4100).expect("cut"), false),
    ];
    for (said, change, has_lines) in changes {
        let (memory, (_directory, path)) = (memory(), place());
        let open = || kept(&path).stage_directory(memory.path());
        killed(open(), Mood::Fails(ENOSPC));
        let stage = stage_in(memory.path());
        let file = File::options().read(true).write(true).open(&stage).expect("open");
        change(&file, &stage);
        let told = Told::default();
        let (log, guard) = open().on_event(told.hook()).open().expect("opened");
        say(&log, "behind it\n");
        guard.close().expect("closed");
        assert_eq!(read(&path), "behind it\n");
        let aside = stage_in(memory.path());
        let is_said = told.count(said) == 1 && told.count(aside.to_str().expect("text")) == 1;
        assert!(is_said && told.all().len() == 1, "{said}: {told:?}");
        assert_eq!(waiting_lines(memory.path()).expect("listed").len(), 1, "{said}");
        let mut printed = Vec::new();
        assert_eq!(take_lines(&aside, &mut printed).is_ok(), has_lines, "{said}");
        assert_eq!(printed.len(), if has_lines { LINES.len() } else { 0 }, "{said}");
    }
    let (memory, (_directory, path)) = (memory(), place());
    let open = || kept(&path).stage_directory(memory.path());
    // Where nothing was, nothing is missing: neither for a start that is refused nor for the next.
    killed(open(), Mood::Fails(ENOSPC));
    let stage = stage_in(memory.path());
    let file = File::options().write(true).open(&stage).expect("open");
    file.set_len(text_at(&stage) + LINES.len() as u64).expect("cut");
    let refused = open().drain_timeout(Duration::ZERO).open_on(MoodyDisk::new(Mood::Fails(EIO)));
    assert!(refused.is_err());
    let told = Told::default();
    assert!(next_start(open().on_event(told.hook())).is_some());
    let left = (told.count("changed"), stages_in(memory.path()), read(&path));
    assert_eq!(left, (0, vec![], LINES.to_owned()), "{told:?}");
    fs::remove_file(&path).expect("removed");
    // Others may read it, and no more: no reason to leave its lines.
    killed(open(), Mood::Fails(ENOSPC));
    set_mode(&stage_in(memory.path()), 0o620);
    let refused = open().must_survive().open().expect_err("others could have written it");
    assert!(refused.to_string().contains("chmod 600"), "{refused}");
    // Whoever has put it there: a service has its log.
    let told = Told::default();
    assert!(next_start(open().on_event(told.hook())).is_none());
    assert_eq!((told.count("a kill would lose lines"), told.count("chmod 600")), (1, 1));
    set_mode(&stage_in(memory.path()), 0o644);
    // A start without survival says that they are there.
    let told = Told::default();
    let without = open().survive(Survive::Nothing).on_event(told.hook());
    assert!(next_start(without).is_none());
    assert_eq!((told.count("does not append them"), told.all().len()), (1, 1), "{told:?}");
    assert!(next_start(open()).is_some());
    assert_eq!(read(&path), LINES);
}

/// In an overlay without `xino` a directory has another number at each mount, so no start would
/// find the stage: the log says so and goes on, or is refused if lines must survive.
#[test]
#[ignore = "needs root"]
fn where_a_directory_has_no_lasting_identity_it_is_said_or_refused() {
    const TEST: &str = "an overlay without xino";
    let Some((lower, _mount)) = small_memory(TEST, 1 << 20) else { return };
    let (made, memory) = (tempfile::tempdir().expect("a directory"), memory());
    let [upper, work, merged] = ["upper", "work", "merged"].map(|name| made.path().join(name));
    [&upper, &work, &merged].into_iter().for_each(|path| fs::create_dir(path).expect("made"));
    let [below, above, work] = [lower.path(), &upper, &work].map(|path| path.display());
    let options = format!("xino=off,lowerdir={below},upperdir={above},workdir={work}");
    let mounted = Mount::new(Path::new("overlay"), &merged, "overlay", &options);
    let Ok(mount) = mounted else {
        return eprintln!("NOT RUN: {TEST}: {:?}", mounted.err());
    };
    let path = merged.join("a.log");
    let (builder, told) = quick(&path);
    let builder = builder.survive(Survive::Kill).stage_directory(memory.path());
    let (log, guard) = builder.open().expect("opened");
    say(&log, LINES);
    guard.close().expect("closed");
    assert_eq!((read(&path).as_str(), stages_in(memory.path())), (LINES, vec![]));
    let told = told.all();
    assert!(told.len() == 1 && told[0].contains("a kill would lose lines"), "{told:?}");
    let refused = kept(&path).stage_directory(memory.path()).must_survive().open();
    let refused = refused.expect_err("they must survive").to_string();
    assert!(refused.contains("no identity that lasts"), "{refused}");
    drop(log);
    mount.unmount().expect("nobody has it open");
}

/// A small file system in memory.
fn small_memory(test: &str, bytes: u64) -> Option<(tempfile::TempDir, Mount)> {
    let directory = tempfile::tempdir().expect("a directory");
    let options = format!("size={bytes}");
    let mounted = Mount::new(Path::new("tmpfs"), directory.path(), "tmpfs", &options);
    match mounted {
        Ok(mount) if is_root() => Some((directory, mount)),
        refused => {
            eprintln!("NOT RUN: {test}: mounting needs root ({:?})", refused.err());
            None
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_stage_for_which_there_is_no_room_is_an_error_and_one_that_cannot_be_made_anew_is_told() {
    let Some(_turn) = turn("a full stage") else { return };
    let Some((memory, mount)) = small_memory("a full stage", 4 << 20) else { return };
    let (_directory, path) = place();
    let (builder, told) = quick(&path);
    let builder = builder.survive(Survive::Kill).stage_directory(memory.path());
    // What waits there has the room.
    let filler = memory.path().join("filler");
    fs::write(&filler, vec![1; 4000 << 10]).expect("written");
    let other = stage_in_use(memory.path());
    let error = kept(&path).stage_directory(memory.path()).open().expect_err("no room").to_string();
    for words in ["No space", "tee --recover", other.to_str().expect("text"), "(8192 bytes)"] {
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(read(&path), "");
    fs::remove_file(&filler).expect("removed");
    // Fewer buffers than were asked for, and a line that is too long for them.
    let (log, guard) = builder.open().expect("opened");
    say(&log, "x".repeat(6 << 20) + "\n");
    guard.flush(LONG).expect("lines go on");
    wait_until("a notice", || read(&path).contains("1 lines dropped"));
    assert!(told.count("No space") > 0, "{told:?}");
    drop(File::create(&path).expect("cut"));
    fs::remove_file(other).expect("removed");
    // The stage keeps its memory for as long as it is mapped.
    fs::remove_file(stage_in(memory.path())).expect("removed");
    wait_until("a word about it", || told.count("No space") > 1);
    say(&log, "one\n");
    guard.flush(LONG).expect("lines go on");
    guard.close().expect("closed");
    assert_eq!(read(&path), "one\n");
    // It has the memory mapped.
    drop(log);
    drop(mount);
}

/// No page of a stage is looked at that nothing was put into: it would need memory.
#[test]
#[ignore = "needs root"]
fn lines_are_brought_back_from_a_memory_that_is_full() {
    let Some(_turn) = turn("a full memory") else { return };
    let Some((memory, mount)) = small_memory("a full memory", 4 << 20) else { return };
    let (_directory, path) = place();
    let open = || small(kept(&path)).stage_directory(memory.path());
    killed(open(), Mood::Fails(ENOSPC));
    let filler = File::create(memory.path().join("filler")).expect("made");
    while (&filler).write_all(&[1; 4096]).is_ok() {}
    // A page that is missing would end the process.
    let code = in_forked_child(|| u8::from(next_start(open()).is_some()));
    assert_eq!(code.expect("it ends by itself"), 1);
    assert_eq!(read(&path), LINES);
    drop(filler);
    drop(mount);
}

/// A stage of somebody's, in which two pages are.
fn stage_in_use(directory: &Path) -> PathBuf {
    let path = StageFile::path_in(directory, "another");
    fs::write(&path, [1; 8192]).expect("written");
    path
}
