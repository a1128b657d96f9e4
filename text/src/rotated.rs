//! Rotated files: their names, and which of them are removed.
//!
//! *Owns*: `NAME.STAMP.N`, followed by `.gz` when compressed, and by `.part` while that
//! is not whole yet; the limits of [`Keep`], and removing the files above them. *May not touch*:
//! the current file; compressing. A name that this does not parse is not ours, and its file is left
//! alone.
//!
//! The thread that rotates makes room *before* it rotates a file: so there are never more files
//! than asked for, however far compression lags behind, and whether or not it works. A file and its
//! compressed form count as one.
//!
//! A directory may have very many other files, so it is listed once. What this log does itself is
//! known; a file that others have removed is one less.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use inkstone_io::{Directory as _, Error, Named, OsDirectory, Result, kept_by_age, since_start};

use crate::event::Events;
use crate::options::Keep;
use crate::time::Clock;

/// How many bytes the longest name of a rotated file has behind the log's own.
pub(crate) const BYTES_BEHIND: usize = ".20261121T160533Z.4294967295.gz.part".len();

/// The digits of a second within its day.
const OF_A_DAY: u64 = 1_000_000;
const STAMP_BYTES: usize = "20261121T160533Z".len();

/// When a file was rotated: the second, by its digits in UTC (20261121160533), and the number
/// within it.
pub(crate) type Rotated = (u64, u32);

/// `NAME.STAMP.N`.
pub(crate) fn plain(log: &str, (second, number): Rotated) -> String {
    let (day, second) = (second / OF_A_DAY, second % OF_A_DAY);
    format!("{log}.{day:08}T{second:06}Z.{number}")
}

/// The one after this one.
pub(crate) fn after((second, number): Rotated) -> Rotated {
    number.checked_add(1).map_or((second + 1, 0), |number| (second, number))
}

/// The name of the next file until it takes the place of the current one.
pub(crate) fn next(log: &str) -> String {
    format!(".{log}.inkstone-next")
}

/// Whose name it is, if it is that of a rotated file of the log, in one of its forms.
pub(crate) fn parse(log: &str, name: &str) -> Option<Rotated> {
    let rest = name.strip_prefix(log)?.strip_prefix('.')?;
    let (stamp, rest) = rest.split_once('.').filter(|(stamp, _)| stamp.len() == STAMP_BYTES)?;
    let (day, second) = stamp.strip_suffix('Z')?.split_once('T')?;
    let (number, extension) = rest.split_once('.').unwrap_or((rest, ""));
    let second = day.parse::<u64>().ok()? * OF_A_DAY + second.parse::<u64>().ok()?;
    let rotated = (second, number.parse().ok()?);
    let form = if extension.is_empty() { String::new() } else { format!(".{extension}") };
    let is_known = ["", "gz", "gz.part"].contains(&extension);
    // `+1`, `01` and names that end with a dot parse as well, but this crate never wrote them.
    (is_known && plain(log, rotated) + &form == name).then_some(rotated)
}

/// The rotated files of a log as they were listed, with what this log has done since.
#[derive(Debug)]
struct Listed {
    directory: Weak<OsDirectory>,
    files: BTreeSet<Rotated>,
    /// What a killed process has not finished: parts, and compressed forms beside their plain
    /// files, which would have each of their lines twice.
    unfinished: Vec<String>,
}

impl Listed {
    fn is_of(&self, directory: &Arc<OsDirectory>) -> bool {
        std::ptr::eq(self.directory.as_ptr(), Arc::as_ptr(directory))
    }
}

#[derive(Debug)]
pub(crate) struct Retention {
    name: String,
    keep: Keep,
    clock: Clock,
    /// Held while a file is removed in all its forms, and while a compressed form gets its name: so
    /// a removed file cannot come back.
    pub(crate) forms: Mutex<()>,
    events: Events,
    listed: Mutex<Option<Listed>>,
}

impl Retention {
    pub(crate) fn new(name: &str, keep: Keep, clock: Clock, events: Events) -> Self {
        let (name, forms, listed) = (name.to_owned(), Mutex::default(), Mutex::default());
        Self { name, keep, clock, forms, events, listed }
    }

    /// The rotated files in this directory; lists it if that was not done yet.
    pub(crate) fn files(&self, directory: &Arc<OsDirectory>) -> Result<BTreeSet<Rotated>> {
        let mut listed = self.listed();
        if let Some(listed) = listed.as_ref().filter(|listed| listed.is_of(directory)) {
            return Ok(listed.files.clone());
        }
        let found = self.list(directory)?;
        Ok(listed.insert(found).files.clone())
    }

    /// A file of this directory was rotated.
    pub(crate) fn add(&self, directory: &Arc<OsDirectory>, rotated: Rotated) {
        if let Some(listed) = self.listed().as_mut().filter(|listed| listed.is_of(directory)) {
            listed.files.insert(rotated);
        }
    }

    /// Removes what a killed process has not finished.
    pub(crate) fn remove_unfinished(&self, directory: &Arc<OsDirectory>) -> Result<()> {
        self.files(directory)?;
        let unfinished =
            self.listed().as_mut().map(|listed| std::mem::take(&mut listed.unfinished));
        let removed = unfinished.iter().flatten().map(|name| remove(directory, name));
        removed.fold(Ok(()), Result::and)
    }

    fn list(&self, directory: &Arc<OsDirectory>) -> Result<Listed> {
        let names = names(directory, &self.name)?;
        let is_unfinished = |name: &&String| {
            let plain = name.strip_suffix(".gz").map(str::to_owned);
            name.ends_with(".part")
                || plain.is_some_and(|plain| names.binary_search(&plain).is_ok())
        };
        let unfinished = names.iter().filter(is_unfinished).cloned().collect();
        let files = names.iter().filter_map(|name| parse(&self.name, name)).collect();
        Ok(Listed { directory: Arc::downgrade(directory), files, unfinished })
    }

    fn listed(&self) -> MutexGuard<'_, Option<Listed>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keeps_all(&self) -> bool {
        self.keep == Keep::new()
    }

    /// Removes files above the limits. `is_arriving`: a file is about to be rotated, and counts. A
    /// file that cannot be removed is an event; the rotation continues.
    pub(crate) fn make_room(&self, directory: &Arc<OsDirectory>, is_arriving: bool) {
        if self.keeps_all() {
            return;
        }
        let removed = match self.excess(directory, is_arriving) {
            // Nothing was to be removed: it is unknown whether an earlier failure persists.
            Ok(excess) if excess.is_empty() => return,
            // Oldest first: if this ends early, the remaining files have no gap.
            Ok(excess) => excess
                .iter()
                .rev()
                .map(|rotated| self.remove(directory, *rotated))
                .fold(Ok(()), Result::and),
            Err(error) => Err(error),
        };
        self.events.tell_failure("remove", &removed);
    }

    /// Newest first.
    fn excess(&self, directory: &Arc<OsDirectory>, is_arriving: bool) -> Result<Vec<Rotated>> {
        // The time in a name only gives the order: the clock may have been wrong then.
        let (mut there, mut times) = (Vec::new(), Vec::new());
        for rotated in self.files(directory)?.into_iter().rev() {
            // A person may have removed it by now.
            if let Some(named) = look(directory, &self.name, rotated)? {
                there.push(rotated);
                times.push(named.facts.modified);
            }
        }
        let by_age =
            self.keep.age.map(|age| kept_by_age(&times, age, self.clock.now(), since_start()));
        self.tell_jump(directory, by_age.and_then(|kept| kept.jump));
        let mut most = by_age.map_or(there.len(), |kept| kept.count);
        if let Some(files) = self.keep.files {
            most = most.min(files.saturating_sub(usize::from(is_arriving)));
        }
        Ok(there.split_off(most.min(there.len())))
    }

    /// Says once that files look older than they can be.
    fn tell_jump(&self, directory: &OsDirectory, jump: Option<Duration>) {
        let Some(jump) = jump else { return };
        let days = jump.as_secs() / 86_400;
        let why = format!(
            "the files' times jump by {days} days, longer than the log can have lived: the clock \
             was behind, or the log has rested"
        );
        let error = Error::invalid("remove old files of", directory.path().join(&self.name), why);
        let advice = "nothing is removed for that time; remove by hand what you know to be old";
        self.events.tell_failure("tell how old", &Err(error.advise(advice)));
    }

    fn remove(&self, directory: &OsDirectory, rotated: Rotated) -> Result<()> {
        let _forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        let plain = plain(&self.name, rotated);
        remove(directory, &plain).and(remove(directory, &format!("{plain}.gz")))?;
        if let Some(listed) = self.listed().as_mut() {
            listed.files.remove(&rotated);
        }
        Ok(())
    }
}

/// The names of the rotated files of a log, in all their forms, sorted.
fn names(directory: &OsDirectory, log: &str) -> Result<Vec<String>> {
    // Regular files only: this crate made no directory or link with such a name.
    let mut names = directory.plain_files_of(log)?;
    names.retain(|name| parse(log, name).is_some());
    Ok(names)
}

/// The entry of a rotated file that is whole, plain or compressed.
pub(crate) fn look(directory: &OsDirectory, log: &str, rotated: Rotated) -> Result<Option<Named>> {
    let plain = plain(log, rotated);
    match directory.look(&plain)? {
        None => directory.look(&format!("{plain}.gz")),
        named => Ok(named),
    }
}

/// Removes a file; a file that is gone already is no failure.
pub(crate) fn remove(directory: &OsDirectory, name: &str) -> Result<()> {
    match directory.remove(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The newest of these: the next file is named after it.
pub(crate) fn newest(files: &BTreeSet<Rotated>) -> Rotated {
    files.last().copied().unwrap_or((0, 0))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::event::Event;
    use crate::time::{digits, seconds};
    use std::fs;
    use std::path::Path;
    use std::time::SystemTime;

    const DAY: u64 = 86_400;

    fn retention(keep: Keep, now: SystemTime) -> Retention {
        let events = Events::to(|event: &Event<'_>| panic!("{event}"));
        Retention::new("a.log", keep, Clock::of(move || now), events)
    }

    /// The names in a directory, in order.
    pub(crate) fn left(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).expect("a directory");
        let mut names: Vec<_> = names
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn names_are_known_again_and_nothing_else_is() {
        for (number, form) in [(0, ""), (7, ".gz"), (3, ".gz.part")] {
            let rotated = (20_261_121_160_533, number);
            assert_eq!(parse("app.log", &(plain("app.log", rotated) + form)), Some(rotated));
        }
        let foreign = [
            "app.log",
            "app.log.1",
            "app.log.20261121T160533Z",
            "app.log.20261121T160533Z.",
            "app.log.20261121T160533Z.1.",
            "app.log.20261121T160533Z.01",
            "app.log.20261121T160533Z.+1",
            "app.log.20261121T160533Z.1.bak",
            "app.log.20261121T160533Z.1.gz.old",
            "app.log.20261121T160533Z.99999999999",
            "app.log.20261121T16053Z.1",
            "app.log.2026112T1160533Z.1",
            "app.log.99920261121T160533Z.1",
            "app.log.old.20261121T160533Z.1",
            "app.logs.20261121T160533Z.1",
            "my.app.log.20261121T160533Z.1",
            ".app.log.inkstone-next",
        ];
        for name in foreign {
            assert_eq!(parse("app.log", name), None, "{name}");
        }
    }

    #[test]
    fn each_limit_keeps_the_newest_and_foreign_files_are_not_touched() {
        let foreign =
            ["a.log", "a.log.1", "a.log.20261121T160533Z", "a.log.20261121T160533Z.1.bak", "b.log"];
        let now = SystemTime::now();
        let second = |age: u64| digits(seconds(now) - age * DAY);
        for (keep, is_arriving, expected) in [
            (Keep::new(), false, vec![0, 1, 2, 3]),
            (Keep::new().files(2), false, vec![0, 1]),
            (Keep::new().files(2), true, vec![0]),
            (Keep::new().days(2), false, vec![0, 1, 2]),
            (Keep::new().days(2).files(1), false, vec![0]),
            (Keep::new().files(0), false, vec![]),
        ] {
            let directory = tempfile::tempdir().expect("a directory");
            let folder = directory.path();
            for name in foreign {
                fs::write(folder.join(name), "ten bytes.").expect("written");
            }
            let old: Vec<_> = (0..4).map(|age| plain("a.log", (second(age), 0))).collect();
            for (age, name) in (0..).zip(&old) {
                write_at(&folder.join(name), now - Duration::from_secs(age * DAY));
            }
            fs::create_dir(folder.join(plain("a.log", (0, 0))))
                .expect("a directory of such a name");
            let held = Arc::new(OsDirectory::open(folder).expect("held"));
            retention(keep, now).make_room(&held, is_arriving);
            let kept: Vec<_> = (0..4).filter(|age| folder.join(&old[*age]).exists()).collect();
            assert_eq!(kept, expected, "{keep:?}");
            let others = left(folder).len() - kept.len();
            assert_eq!(others, foreign.len() + 1, "{:?}", left(folder));
        }
    }

    /// A clock that was years behind while they were written, a second each.
    #[test]
    fn what_looks_older_than_the_log_can_be_stays_and_is_told_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path();
        let now = SystemTime::now();
        for second in 0..9 {
            let time = now - Duration::from_secs(1200 * DAY - second);
            write_at(&folder.join(plain("a.log", (digits(seconds(time)), 0))), time);
        }
        let (told, keep) = (Arc::new(Mutex::new(Vec::new())), Keep::new().days(30));
        let theirs = Arc::clone(&told);
        let tell =
            move |event: &Event<'_>| theirs.lock().expect("no panic").push(event.to_string());
        let clock = Clock::of(move || now);
        let retention = Retention::new("a.log", keep, clock, Events::to(tell));
        let held = Arc::new(OsDirectory::open(folder).expect("held"));
        (0..2).for_each(|_| retention.make_room(&held, false));
        assert_eq!(left(folder).len(), 9);
        let told = told.lock().expect("no panic");
        assert!(told.len() == 1 && told[0].contains("jump by 1199 days"), "{told:?}");
    }

    #[test]
    fn a_file_and_its_compressed_form_are_one_and_go_together() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path();
        for name in [
            "a.log.20261121T160533Z.0",
            "a.log.20261121T160533Z.0.gz",
            "a.log.20261121T160534Z.0.gz",
        ] {
            fs::write(folder.join(name), "ten bytes.").expect("written");
        }
        let held = Arc::new(OsDirectory::open(folder).expect("held"));
        let now = SystemTime::now();
        retention(Keep::new().files(2), now).make_room(&held, false);
        assert_eq!(left(folder).len(), 3);
        retention(Keep::new().files(1), now).make_room(&held, false);
        assert_eq!(left(folder), ["a.log.20261121T160534Z.0.gz"]);
    }

    #[test]
    fn a_directory_is_listed_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |rotated| directory.path().join(plain("a.log", rotated));
        let held = Arc::new(OsDirectory::open(directory.path()).expect("held"));
        let retention = retention(Keep::new().files(2), SystemTime::now());
        let files = || retention.files(&held).expect("listed").into_iter().collect::<Vec<_>>();
        let [first, second, others, own] = [(5, 0), (5, 1), (6, 0), (7, 0)];
        [first, second].iter().for_each(|file| fs::write(path(*file), "").expect("written"));
        assert_eq!(files(), [first, second]);
        [own, others].iter().for_each(|file| fs::write(path(*file), "").expect("written"));
        retention.add(&held, own);
        fs::remove_file(path(second)).expect("removed");
        assert_eq!(files(), [first, second, own]);
        // Neither a file that is gone counts nor one that is not known.
        retention.make_room(&held, false);
        assert!([first, others, own].into_iter().all(|file| path(file).exists()));
        retention.make_room(&held, true);
        assert_eq!((files(), path(first).exists()), (vec![second, own], false));
        let other = Arc::new(OsDirectory::open(directory.path()).expect("held"));
        let listed = retention.files(&other).expect("listed");
        assert!(listed.into_iter().eq([others, own]));
    }

    fn write_at(path: &Path, modified: SystemTime) {
        fs::write(path, "ten bytes.").expect("written");
        let file = fs::File::options().write(true).open(path).expect("open");
        file.set_modified(modified).expect("dated");
    }
}
