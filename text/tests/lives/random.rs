//! Logs that are written, killed, cut, moved, removed, filled, made old and started again at
//! random, with a model of what must be in their files then: each accepted line once, whole and in
//! order.
//!
//! A world is a directory with one log, which several processes write one after the other. A life
//! is such a process, a forked child. Between two lives the test does what administrators,
//! supervisors and full disks do. `INKSTONE_TEXT_SEED=7 cargo test -p inkstone-appender --test
//! lives -- random::` runs one world again. Without it the worlds are 1, 2, 3 and so on for ten
//! seconds; `INKSTONE_TEXT_SECONDS=600` explores others for so long.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::common::{
    DAY, EACCES, EIO, ENOSPC, Hooked, LONG, MS, Mood, MoodyDisk, Told, append, error, line, memory,
    names, say, set_modified, small, stage_in, stages_in, turn, wait_until,
};
use fastrand::Rng;
use inkstone_appender::{
    Builder, Keep, LogWriter, OsDirectory, Rotation, Survive, stamp, waiting_lines,
};
use inkstone_host::in_forked_child;
use inkstone_io::AppendFile;

/// A rotated file that is too old, where files are kept for ten days.
const TOO_OLD: &str = "a.log.20200101T000000Z.0";
const LEFT: [&str; 2] = [".a.log.inkstone-next", "a.log.20200101T000001Z.0.gz.part"];
const SOME_MOODS: [Mood; 6] = [
    Mood::Works,
    Mood::Fails(ENOSPC),
    Mood::Fails(EIO),
    Mood::FailsHalfway(ENOSPC),
    Mood::FailsHalfway(EIO),
    Mood::FailsBeyond(ENOSPC),
];

/// What one process does with an open log. Lines are numbers.
#[derive(Debug, Clone)]
enum Step {
    Put(Range<u64>),
    Flush,
    /// The disk behaves so from now on; waits for the failure, if there will be one.
    Mood(Mood),
    /// The file is moved away, and the log is reopened.
    Move,
    /// The file is removed, or its bytes are.
    Lose {
        is_cut: bool,
    },
    /// And puts a line.
    LoseStage(u64),
    /// The directory is moved away, or removed, and another one is in its place.
    Replace {
        is_moved: bool,
    },
}

#[derive(Debug, Clone)]
struct Life {
    survive: Survive,
    rotation: Rotation,
    steps: Vec<Step>,
    is_closed: bool,
}

/// Exit codes of a life.
const ENDED: u8 = 1;
const ENDED_IN_DOUBT: u8 = 2;

pub(crate) struct World {
    root: tempfile::TempDir,
    memory: tempfile::TempDir,
    random: Rng,
    /// Seconds, for the names of files.
    clock: Arc<AtomicU64>,
    /// So many lines were put.
    lines: u64,
    /// Those that were seen to be right: the others may be there twice, if that was said.
    seen: u64,
    is_doubted: bool,
    /// A file is not where it was, so that it is unknown which lines it has.
    may_doubt: bool,
    /// Bytes of the log were removed, so lines come again in another order.
    is_disordered: bool,
    /// The log's file was cut, perhaps within a line.
    is_cut: bool,
    /// Lines that were in a file that was removed or cut.
    lost: BTreeSet<u64>,
    /// Those that are there twice, as was said.
    doubled: BTreeSet<u64>,
    trace: Vec<String>,
}

/// Whether a line is longer than two buffers.
fn is_long(number: u64) -> bool {
    number % 17 == 16
}

/// The byte that most of a line is made of.
fn filler(number: u64) -> u8 {
    b'a' + (number % 26) as u8
}

fn text_of(number: u64) -> String {
    line(0, number, if is_long(number) { 9000 } else { 60 + number as usize % 3 * 40 })
}

/// The lines in some files, which belong together in this order.
#[derive(Debug, Default)]
struct Seen {
    whole: Vec<u64>,
    /// Those of which there is a beginning, which goes on nowhere.
    torn: Vec<u64>,
    /// The bytes of which rests of long lines are, whose beginnings are elsewhere.
    rests: Vec<u8>,
    /// The beginning of a line that ends the last file.
    open: String,
}

impl Seen {
    fn of(texts: &[String]) -> Self {
        let mut seen = Self::default();
        for text in texts {
            for (at, part) in text.split_inclusive('\n').enumerate() {
                seen.see(part, at == 0);
            }
        }
        seen
    }

    /// The next part of a file, up to a line end.
    fn see(&mut self, part: &str, begins_file: bool) {
        let (own, theirs) = part.split_at(part.find('<').unwrap_or(part.len()));
        let behind = theirs.trim_matches(|sign| "<>0123456789\n".contains(sign));
        let begun = std::mem::take(&mut self.open);
        // A line may be cut behind its first byte.
        let is_rest = !own.starts_with("th") && !matches!(own.trim_end_matches('\n'), "" | "t");
        let both = format!("{begun}{own}");
        let goes_on = |number| text_of(number).starts_with(both.trim_end_matches('\n'));
        let is_both = is_rest && begins_file && number_of(&begun).is_some_and(goes_on);
        if is_rest && !is_both {
            self.tear(&begun, "");
            return self.go_on(own);
        }
        let own = if is_both { both } else { self.tear(&begun, own) };
        if number_of(&own).is_some_and(|number| own == text_of(number)) {
            self.whole.extend(number_of(&own));
        } else if theirs.is_empty() && !own.ends_with('\n') {
            self.open = own;
        } else {
            self.tear(own.trim_end_matches('\n'), "");
        }
        if !behind.is_empty() {
            // Nothing goes behind the half of somebody's but the rest of such a line.
            self.go_on(behind);
        }
    }

    /// A line longer than a buffer goes on where it was cut, if its beginning is in no buffer.
    fn go_on(&mut self, rest: &str) {
        // It may have been cut within its last word.
        let bytes = rest.trim_end_matches([' ', 'e', 'n', 'd', '\n']).as_bytes();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{rest:?} goes on from nowhere");
        self.rests.push(*bytes.first().unwrap_or(&b'e'));
    }

    fn has(&self, number: u64) -> bool {
        let goes_on = || self.rests.iter().any(|rest| [filler(number), b'e'].contains(rest));
        self.whole.contains(&number) || is_long(number) && self.torn.contains(&number) && goes_on()
    }

    /// Counts the beginning of a line, which goes on elsewhere.
    fn tear(&mut self, begun: &str, next: &str) -> String {
        if !begun.is_empty() {
            let is_beginning = match number_of(begun) {
                Some(number) => text_of(number).starts_with(begun),
                // The number may be cut.
                None => "thread 0 line ".starts_with(begun.trim_end_matches(char::is_numeric)),
            };
            assert!(is_beginning, "no beginning of a line: {begun:?}");
            self.torn.extend(number_of(begun));
        }
        next.to_owned()
    }
}

fn number_of(text: &str) -> Option<u64> {
    let rest = text.strip_prefix("thread 0 line ")?;
    rest.split_once(' ')?.0.parse().ok()
}

/// The files of a log, oldest first.
fn paths_in(folder: &Path) -> Vec<PathBuf> {
    let mut names = if folder.exists() { names(folder) } else { Vec::new() };
    names.retain(|name| name.starts_with("a.log.") && !name.ends_with(".part"));
    names.sort_by_key(|name| {
        let (stamp, number) = name.rsplit_once('.').expect("a number");
        (stamp.to_owned(), number.parse::<u64>().ok())
    });
    names.push("a.log".into());
    names.into_iter().map(|name| folder.join(name)).filter(|path| path.exists()).collect()
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir(root.path().join("at")).expect("made");
        let memory = memory();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let clock = Arc::new(AtomicU64::new(now.as_secs()));
        let random = Rng::with_seed(seed);
        let (lost, trace) = (BTreeSet::new(), Vec::new());
        Self {
            root,
            memory,
            random,
            clock,
            lines: 0,
            seen: 0,
            is_doubted: false,
            may_doubt: false,
            is_disordered: false,
            is_cut: false,
            lost,
            doubled: BTreeSet::new(),
            trace,
        }
    }

    fn at(&self) -> PathBuf {
        self.root.path().join("at")
    }

    fn log(&self) -> PathBuf {
        self.at().join("a.log")
    }

    /// A name in the world that nothing has yet.
    fn free(&self, what: &str) -> PathBuf {
        let path = |number: u32| self.root.path().join(format!("{what}.{number:03}"));
        (0..).map(path).find(|path| !path.exists()).expect("there is an end")
    }

    /// The name of a file that is rotated now; later ones come behind it.
    fn rotated_name(&self) -> PathBuf {
        let seconds = self.clock.fetch_add(2, Ordering::Relaxed) + 1;
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let stamp = stamp(time).replace(['-', ':'], "");
        self.at().join(format!("a.log.{}Z.0", &stamp[.."20261121T160533".len()]))
    }

    fn builder(&self, survive: Survive) -> (Builder, Told) {
        let (told, clock) = (Told::default(), Arc::clone(&self.clock));
        let now =
            move || SystemTime::UNIX_EPOCH + Duration::from_secs(clock.load(Ordering::Relaxed));
        let builder = small(LogWriter::builder(self.log())).buffers_bytes(128 << 10);
        let builder = builder.flush_every(MS).survive(survive).stage_directory(self.memory.path());
        (builder.drain_timeout(Duration::ZERO).clock(now).on_event(told.hook()), told)
    }

    /// What is in the log's files, and in directories that it had before.
    fn look(&self) -> Seen {
        let root = names(self.root.path()).into_iter().filter(|name| name.starts_with("old."));
        let folders = root.map(|name| self.root.path().join(name)).chain([self.at()]);
        let paths: Vec<_> = folders.flat_map(|folder| paths_in(&folder)).collect();
        Seen::of(&paths.iter().map(|path| crate::common::read(path)).collect::<Vec<_>>())
    }

    /// A copy of what is about to be lost.
    fn keep_lost(&self, path: &Path) {
        if path.exists() {
            fs::copy(path, self.free("lost")).expect("copied");
        }
    }

    /// Takes what was lost off the lines that must be there.
    fn take_lost(&mut self) {
        let mut paths = names(self.root.path());
        paths.retain(|name| name.starts_with("lost."));
        let paths: Vec<_> = paths.into_iter().map(|name| self.root.path().join(name)).collect();
        let seen =
            Seen::of(&paths.iter().map(|path| crate::common::read(path)).collect::<Vec<_>>());
        // One that is longer than a buffer goes on where it was cut.
        let begun = number_of(&seen.open).into_iter().chain(seen.torn);
        let begun = begun.filter(|number| is_long(*number));
        let ended = (0..self.lines).filter(|number| is_long(*number));
        let ended = ended
            .filter(|number| [filler(*number), b'e'].iter().any(|byte| seen.rests.contains(byte)));
        self.lost.extend(seen.whole.into_iter().chain(begun).chain(ended));
        self.is_disordered |= !paths.is_empty();
        paths.iter().for_each(|path| fs::remove_file(path).expect("removed"));
    }

    /// The lines that must be there and are not.
    fn missing(&self, seen: &Seen) -> Vec<u64> {
        (0..self.lines).filter(|line| !self.lost.contains(line) && !seen.has(*line)).collect()
    }

    fn waits(&self) -> usize {
        waiting_lines(self.memory.path()).expect("listed").len()
    }

    fn has_stage(&self) -> bool {
        !stages_in(self.memory.path()).is_empty()
    }

    fn plan_life(&mut self) -> Life {
        let random = &mut self.random;
        let survive = if random.bool() { Survive::Kill } else { Survive::PowerLoss(LONG) };
        let rotation = match random.u8(..3) {
            0 => Rotation::new().at_bytes(16 << 10),
            1 => Rotation::new().every(DAY),
            _ => Rotation::new(),
        };
        let (mut steps, mut mood) = (Vec::new(), Mood::Works);
        for _ in 0..random.usize(1..9) {
            let flows = mood == Mood::Works;
            let step = match random.u8(..16) {
                0..=5 => {
                    let first = self.lines;
                    self.lines += random.u64(1..12);
                    Step::Put(first..self.lines)
                }
                7 if flows => Step::Flush,
                8..=10 => {
                    mood = SOME_MOODS[random.usize(..SOME_MOODS.len())];
                    // Something to fail with.
                    let first = self.lines;
                    self.lines += 3;
                    steps.push(Step::Mood(mood));
                    Step::Put(first..self.lines)
                }
                11 => Step::Move,
                12 if !matches!(mood, Mood::FailsBeyond(_)) => Step::Lose { is_cut: random.bool() },
                13 => {
                    self.lines += 1;
                    Step::LoseStage(self.lines - 1)
                }
                // After a kill its lines would wait for the directory that it had.
                14 if flows => {
                    let first = self.lines;
                    self.lines += 3;
                    steps.push(Step::Replace { is_moved: random.bool() });
                    steps.push(Step::Put(first..self.lines));
                    return Life { survive, rotation, steps, is_closed: true };
                }
                _ => continue,
            };
            steps.push(step);
        }
        Life { survive, rotation, steps, is_closed: random.u8(..3) == 0 }
    }

    /// Runs a life in this process, which is a child of the test.
    fn live(&self, life: &Life, first: u64) -> u8 {
        let (builder, told) = self.builder(life.survive);
        let disk = MoodyDisk::new(Mood::Works);
        let opened = builder.rotate(life.rotation).drain_timeout(Duration::ZERO);
        let (log, guard) = opened.open_on(disk.clone()).expect("opened");
        let code = match guard.recovery() {
            Some(recovery) if recovery.doubt.is_some() => ENDED_IN_DOUBT,
            _ => ENDED,
        };
        let (mut is_failing, mut is_lossy) = (false, false);
        for step in &life.steps {
            // What is lost is known only while nothing is being written.
            let rests = matches!(step, Step::Lose { .. } | Step::Replace { .. });
            if rests && is_failing {
                wait_until("a failure", || log.trouble().is_some());
            } else if rests {
                guard.flush(LONG).expect("flushed");
            }
            is_lossy |= rests;
            match step {
                Step::Put(numbers) => numbers.clone().for_each(|number| say(&log, text_of(number))),
                Step::Flush => guard.flush(LONG).expect("flushed"),
                Step::Mood(mood) => {
                    disk.set(*mood);
                    is_failing = matches!(mood, Mood::Fails(_) | Mood::FailsHalfway(_));
                }
                Step::Move => {
                    // It may be missing for a moment, and then it was rotated.
                    let _ = fs::rename(self.log(), self.rotated_name());
                    log.reopen();
                }
                Step::Lose { is_cut } => {
                    self.keep_lost(&self.log());
                    if *is_cut && self.log().exists() {
                        let file = fs::File::options().write(true).open(self.log());
                        file.and_then(|file| file.set_len(0)).expect("cut");
                    } else {
                        let _ = fs::remove_file(self.log());
                    }
                }
                Step::LoseStage(number) => {
                    let stage = stage_in(self.memory.path());
                    let before = told.count("a new stage was created");
                    fs::remove_file(stage).expect("removed");
                    say(&log, text_of(*number));
                    wait_until("a stage", || told.count("a new stage was created") > before);
                }
                Step::Replace { is_moved } => {
                    if *is_moved {
                        fs::rename(self.at(), self.free("old")).expect("moved");
                    } else {
                        paths_in(&self.at()).iter().for_each(|path| self.keep_lost(path));
                        // The log may just be making a file there.
                        while fs::remove_dir_all(self.at()).is_err() {}
                    }
                    fs::create_dir(self.at()).expect("made");
                    log.reopen();
                    wait_until("the file", || self.log().exists());
                }
            }
        }
        if !life.is_closed {
            if is_failing {
                wait_until("a failure", || log.trouble().is_some());
            }
            std::mem::forget(guard);
            return code;
        }
        let closed = guard.close();
        let stats = log.stats();
        assert_eq!(stats.lines, stats.written_lines + stats.unwritten_lines, "{stats:?}");
        assert!(closed.is_ok() == (stats.unwritten_lines == 0), "{closed:?} {stats:?}");
        let is_plain = |step: &Step| match step {
            Step::Put(_) | Step::LoseStage(_) => true,
            Step::Mood(mood) => *mood == Mood::Works,
            _ => false,
        };
        if life.steps.iter().all(is_plain) {
            assert!(closed.is_ok(), "{closed:?}");
        }
        if let Err(error) = closed {
            let told = format!("{} lines were not written", stats.unwritten_lines);
            let told =
                [told.as_str(), "the next opening"].map(|told| error.to_string().contains(told));
            assert_eq!(told, [true; 2], "{error}");
        }
        // A line is written if its last byte is in a file.
        let written: BTreeSet<_> =
            self.look().whole.into_iter().filter(|number| *number >= first).collect();
        let bytes: usize = written.iter().map(|number| text_of(*number).len()).sum();
        let is_counted = stats.written_lines == written.len() as u64
            && (bytes as u64..=stats.bytes).contains(&stats.written_bytes);
        assert!(is_lossy || is_counted, "{} {bytes} {stats:?}", written.len());
        code
    }

    /// What others do while no process has the log.
    fn meanwhile(&mut self) {
        let (log, what) = (self.log(), self.random.u8(..12));
        self.trace.push(format!("meanwhile {what}"));
        match what {
            0..=2 if log.exists() => {
                let (before, behind) = (self.random.bool(), self.random.bool());
                let [before, behind] = [before, behind].map(|has| if has { "\n" } else { "" });
                append(&log, &format!("{before}<1>{behind}"));
            }
            // What a write that was told to have failed has reached all the same.
            3 if log.exists() => {
                let open = Seen::of(&[crate::common::read(&log)]).open;
                if let Some(rest) = number_of(&open)
                    .filter(|number| !is_long(*number))
                    .and_then(|number| text_of(number).strip_prefix(&open).map(str::to_owned))
                {
                    append(&log, &rest);
                }
            }
            4 if log.exists() => {
                self.keep_lost(&log);
                let file = fs::File::options().write(true).open(&log).expect("open");
                let len = file.metadata().expect("its facts").len();
                // The rest of a long line would go on behind another one.
                let is_all = self.random.bool() || (self.seen..self.lines).any(is_long);
                file.set_len(if is_all { 0 } else { self.random.u64(..=len) }).expect("cut");
                (self.is_cut, self.may_doubt) = (true, true);
            }
            5 => {
                self.may_doubt = true;
                self.keep_lost(&log);
                let number = fs::metadata(&log).map(|facts| facts.ino()).unwrap_or(0);
                let _ = fs::remove_file(&log);
                // Another file may have its number.
                let other = self.at().join("a.log.20200101T000002Z.0");
                fs::write(&other, "<1>".repeat(2000) + "\n").expect("written");
                if fs::metadata(&other).is_ok_and(|facts| facts.ino() != number) {
                    fs::remove_file(&other).expect("removed");
                }
            }
            6 if log.exists() => fs::rename(&log, self.rotated_name()).expect("moved"),
            7 => {
                let held = OsDirectory::open(self.at()).expect("held");
                // One that is there already is as good.
                let _ = AppendFile::create_private(&held, LEFT[0]);
                fs::write(self.at().join(LEFT[1]), "half").expect("written");
            }
            // Another log of this path, as in another container.
            8 => {
                let aside = self.root.path().join("aside");
                fs::rename(self.at(), &aside).expect("moved");
                let waits = self.waits();
                let (_log, guard) = self.builder(Survive::Kill).0.open().expect("another log");
                assert_eq!(guard.recovery(), None);
                guard.close().expect("closed");
                assert_eq!((crate::common::read(&log).as_str(), self.waits()), ("", waits));
                fs::remove_dir_all(self.at()).expect("removed");
                fs::rename(&aside, self.at()).expect("back");
            }
            9..=11 => self.refused_start(),
            _ => {}
        }
        self.take_lost();
    }

    /// A start that finds a disk that does not take the lines that wait.
    fn refused_start(&mut self) {
        let mood = SOME_MOODS[self.random.usize(1..SOME_MOODS.len())];
        let is_full = matches!(
            mood,
            Mood::Fails(ENOSPC) | Mood::FailsHalfway(ENOSPC) | Mood::FailsBeyond(ENOSPC)
        );
        let cannot_open = mood == Mood::Fails(EIO) && self.random.bool();
        let rotates = self.random.bool();
        self.trace.push(format!("start with {mood:?}, {cannot_open}, {rotates}"));
        let rotation = Rotation::new();
        let rotation = if rotates { rotation.at_bytes(16 << 10) } else { rotation };
        let builder = self.builder(Survive::Kill).0.rotate(rotation);
        let builder = if is_full { builder } else { builder.keep(Keep::new().days(10)) };
        if !is_full {
            self.put_too_old();
        }
        let (waits, before) = (self.waits(), names(&self.at()));
        let opened = if cannot_open {
            builder.open_on(
                Hooked::appending(|_, _| Err(error(EIO))).opening(|_, _| Err(error(EACCES))),
            )
        } else {
            builder.open_on(MoodyDisk::new(mood))
        };
        match opened {
            Ok((_log, guard)) => {
                assert!(!cannot_open);
                self.is_doubted |=
                    guard.recovery().is_some_and(|recovery| recovery.doubt.is_some());
                guard.close().expect("nothing was put");
            }
            Err(told) => {
                let [before, behind] = [before, names(&self.at())].map(|mut names| {
                    names.retain(|name| name != "a.log" && name != LEFT[0]);
                    names
                });
                assert!(rotates || behind == before, "{mood:?}: {told} {before:?} {behind:?}");
                assert!(cannot_open || told.to_string().contains("stay in memory"), "{told}");
                assert_eq!((self.waits(), self.has_stage()), (waits, waits > 0), "{told}");
                self.is_doubted |= waits > 0 && self.may_doubt;
            }
        }
    }

    fn put_too_old(&self) {
        // A single old time would be taken for a clock that was behind.
        for (name, days) in [(TOO_OLD, 30), ("a.log.20200101T000002Z.0", 27)] {
            let path = self.at().join(name);
            fs::write(&path, "").expect("written");
            set_modified(&path, SystemTime::now() - days * DAY);
        }
    }

    /// A disk that is full while a file that is too old is there, and for some calls after that.
    fn full_disk(&self, times: u64) -> Hooked {
        let (too_old, times) = (self.at().join(TOO_OLD), AtomicU64::new(times));
        let is_full = Arc::new(move || {
            let fewer = |times: u64| times.checked_sub(1);
            let is_early = times.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok();
            if too_old.exists() || is_early { Err(error(ENOSPC)) } else { Ok(()) }
        });
        let has_room = Arc::clone(&is_full);
        let disk =
            Hooked::appending(move |file, bytes| is_full().and_then(|()| file.append(bytes)));
        disk.opening(move |at, name| if at.look(name)?.is_some() { Ok(()) } else { has_room() })
    }

    /// A start in peace, and what must be there then.
    fn start(&mut self) {
        self.take_lost();
        let before = self.look();
        let (missing, waits) = (self.missing(&before), self.waits());
        assert!(missing.is_empty() || waits > 0, "{missing:?} are gone");
        let what = self.random.u8(..6);
        self.trace.push(format!("start {what}"));
        let survive = if self.random.bool() { Survive::Kill } else { Survive::PowerLoss(LONG) };
        let builder = self.builder(survive).0.drain_timeout(LONG);
        let disk = MoodyDisk::new(if what == 0 { Mood::FailsToSync(EIO) } else { Mood::Works });
        let is_empty = fs::metadata(self.log()).is_ok_and(|facts| facts.len() == 0);
        let is_there = self.log().exists();
        let opened = match what {
            1 => {
                self.put_too_old();
                // Only a start with lines that wait tries often.
                let times = self.random.u64(..4) * u64::from(is_there || waits > 0);
                let full = self.full_disk(times);
                builder.keep(Keep::new().days(10)).open_on(full)
            }
            2 if is_there => {
                set_modified(&self.log(), SystemTime::now() - 3 * DAY);
                builder.rotate(Rotation::new().every(DAY)).open_on(disk.clone())
            }
            3 => builder.rotate(Rotation::new().at_bytes(16 << 10)).open_on(disk.clone()),
            _ => builder.open_on(disk.clone()),
        };
        let (_log, guard) = opened.unwrap_or_else(|error| panic!("{error}"));
        let recovery = guard.recovery().cloned();
        assert!(missing.is_empty() || recovery.is_some(), "{missing:?} were not said");
        let is_doubted = recovery.as_ref().is_some_and(|recovery| recovery.doubt.is_some());
        let is_durable = survive != Survive::Kill;
        let has_bytes = (is_there && !is_empty) || recovery.as_ref().is_some_and(|of| of.bytes > 0);
        if is_durable && has_bytes && what != 1 {
            assert!(disk.syncs() > 0, "they may not be durable");
            assert_eq!(guard.flush(LONG).is_err(), what == 0);
        }
        assert_eq!(guard.close().is_err(), is_durable && has_bytes && what == 0);
        // They were put before it was due.
        if what == 2 && is_there && has_bytes {
            assert_eq!(crate::common::read(&self.log()), "");
        }
        let names = names(&self.at());
        assert!(!LEFT.iter().any(|left| names.iter().any(|name| name == left)), "{names:?}");
        assert!(what != 1 || !names.iter().any(|name| name == TOO_OLD), "{names:?}");
        assert!(!self.has_stage() && self.waits() == 0);
        self.check(is_doubted);
    }

    fn check(&mut self, is_doubted: bool) {
        self.is_doubted |= is_doubted;
        assert!(self.may_doubt || !self.is_doubted, "each file is where it was");
        let seen = self.look();
        assert_eq!(self.missing(&seen), [0; 0], "they are missing");
        let mut counts = BTreeMap::<u64, u64>::new();
        seen.whole.iter().for_each(|number| *counts.entry(*number).or_default() += 1);
        let may_double =
            |number: u64| self.is_doubted && number >= self.seen || self.doubled.contains(&number);
        let doubled: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
        assert!(doubled.iter().all(|(number, _)| may_double(**number)), "{doubled:?}");
        let is_whole = |number| self.lost.contains(&number) || seen.has(number);
        // It may be cut before its number.
        let is_it = |number: u64| text_of(number).starts_with(&seen.open) && is_whole(number);
        let is_over = seen.open.is_empty() || (0..self.lines).any(is_it);
        assert!(is_over || self.is_cut, "the log ends within {}", seen.open);
        let long = (0..self.lines).filter(|number| is_long(*number)).map(filler);
        let long: Vec<_> = long.collect();
        assert!(
            seen.rests.iter().all(|rest| *rest == b'e' || long.contains(rest)),
            "{:?}",
            seen.rests
        );
        self.is_disordered |= self.is_doubted;
        assert!(self.is_disordered || seen.whole.is_sorted(), "{:?}", seen.whole);
        self.doubled.extend(doubled.into_iter().map(|(number, _)| *number));
        self.seen = self.lines;
        (self.is_doubted, self.may_doubt) = (false, false);
    }

    pub(crate) fn run(&mut self) {
        for _ in 0..self.random.usize(1..6) {
            let first = self.lines;
            let life = self.plan_life();
            self.trace.push(format!("{life:?}"));
            let lose = |step: &Step| matches!(step, Step::Lose { .. } | Step::Replace { .. });
            self.may_doubt |= life.steps.iter().any(lose);
            let code = in_forked_child(|| self.live(&life, first)).expect("a child");
            assert!(matches!(code, ENDED | ENDED_IN_DOUBT), "the child failed: {code}");
            // The child's own clock went on.
            self.clock.fetch_add(100, Ordering::Relaxed);
            self.is_doubted |= code == ENDED_IN_DOUBT;
            self.take_lost();
            (0..self.random.u8(..4)).for_each(|_| self.meanwhile());
            if self.random.u8(..4) > 0 {
                self.start();
            }
        }
        self.start();
    }
}

#[test]
fn whatever_happens_each_line_is_there_once_and_whole() {
    let Some(_turn) = turn("random") else { return };
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let one = number("INKSTONE_TEXT_SEED");
    let explores = number("INKSTONE_TEXT_SECONDS");
    let time = Duration::from_secs(explores.unwrap_or(10));
    let (since, mut worlds) = (Instant::now(), 0_u64);
    while worlds == 0 || one.is_none() && since.elapsed() < time {
        let other = if explores.is_some() { fastrand::u64(..) } else { worlds + 1 };
        let seed = one.unwrap_or(other);
        let mut world = World::new(seed);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
        if ran.is_err() {
            let _ = writeln!(std::io::stderr(), "{}", world.trace.join("\n"));
            panic!("INKSTONE_TEXT_SEED={seed} shows it again, mostly");
        }
        worlds += 1;
    }
    println!("{worlds} worlds in {:?}", since.elapsed());
}
