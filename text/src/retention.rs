//! Which rotated files are removed.
//!
//! *Owns*: the limits of [`Keep`], and removing the files above them. *May not touch*: the current
//! file; compressing.
//!
//! The thread that rotates makes room *before* it rotates a file: so there are never more files
//! than asked for, however far compression lags behind, and whether or not it works. A file and its
//! compressed form count as one.

use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};

use inkstone_io::{Directory as _, OsDirectory, Result, kept_by_age};

use crate::event::{Cause, Event, Events};
use crate::names::{self, Rotated};
use crate::options::Keep;
use crate::time::Clock;

#[derive(Debug)]
pub(crate) struct Retention {
    pub(crate) name: String,
    pub(crate) keep: Keep,
    pub(crate) clock: Clock,
    /// Held while a file is removed in all its forms, and while a compressed form gets its name: so
    /// a removed file cannot come back.
    pub(crate) forms: Mutex<()>,
    pub(crate) events: Events,
    /// Why a file could not be removed. The rotating thread and the janitor share it.
    pub(crate) failing: Mutex<Cause>,
}

impl Retention {
    /// Removes files above the limits. `arriving`: a file of this many bytes is about to be
    /// rotated, and counts. A file that cannot be removed is an event; the rotation continues.
    pub(crate) fn make_room(&self, directory: &OsDirectory, arriving: Option<u64>) {
        let removed = self.remove_excess(directory, arriving);
        // If nothing was to be removed, it is unknown whether an earlier failure persists.
        if matches!(removed, Ok(0)) {
            return;
        }
        let is_news = self.failing.lock().unwrap_or_else(PoisonError::into_inner).is_news(&removed);
        if let Err(error) = removed
            && is_news
        {
            self.events.tell(&Event::HousekeepingFailed(&error));
        }
    }

    /// Removes every file it can; returns how many, or the first error.
    fn remove_excess(&self, directory: &OsDirectory, arriving: Option<u64>) -> Result<usize> {
        if self.keep == Keep::new() {
            return Ok(0);
        }
        let excess = self.excess(directory, arriving)?;
        let mut result = Ok(());
        // Oldest first: if this ends early, the remaining files have no gap.
        for rotated in excess.iter().rev() {
            result = result.and(self.remove(directory, rotated));
        }
        result.map(|()| excess.len())
    }

    /// Newest first.
    fn excess(&self, directory: &OsDirectory, arriving: Option<u64>) -> Result<Vec<Rotated>> {
        // The time in a name only gives the order: the clock may have been wrong then.
        let (mut there, mut times, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        let files = rotated_files(directory, &self.name)?;
        for forms in
            files.chunk_by(|one, other| (one.seconds, one.number) == (other.seconds, other.number))
        {
            let names =
                forms.iter().filter(|form| !form.is_part()).map(|form| form.name(&self.name));
            // A person may have removed it by now.
            let named: Vec<_> = names
                .filter_map(|name| directory.look(&name).transpose())
                .collect::<Result<_>>()?;
            let Some(modified) = named.iter().map(|named| named.facts.modified).min() else {
                continue;
            };
            there.push(forms[0].clone());
            times.push(modified);
            sizes.push(named.iter().map(|named| named.facts.len_bytes).sum::<u64>());
        }
        let young = |age| kept_by_age(&times, age, self.clock.now());
        let mut most = self.keep.age.map_or(there.len(), young);
        if let Some(files) = self.keep.files {
            most = most.min(files.saturating_sub(usize::from(arriving.is_some())));
        }
        if let Some(bytes) = self.keep.bytes {
            let mut sum = arriving.unwrap_or(0);
            let fits = |size: &&u64| {
                sum = sum.saturating_add(**size);
                sum <= bytes
            };
            most = most.min(sizes.iter().take_while(fits).count());
        }
        Ok(there.split_off(most.min(there.len())))
    }

    fn remove(&self, directory: &OsDirectory, rotated: &Rotated) -> Result<()> {
        let _forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        let plain = names::plain(&self.name, rotated.seconds, rotated.number);
        let mut result = remove(directory, &plain);
        for extension in names::EXTENSIONS {
            result = result.and(remove(directory, &format!("{plain}.{extension}")));
        }
        result
    }
}

/// The rotated files of a log, newest first, those not yet whole too.
pub(crate) fn rotated_files(directory: &OsDirectory, log: &str) -> Result<Vec<Rotated>> {
    // Regular files only: this crate made no directory or link with such a name.
    let names = directory.list()?;
    let mut files: Vec<_> = names.iter().filter_map(|name| names::parse(log, name)).collect();
    files.sort_unstable();
    files.reverse();
    Ok(files)
}

/// Removes a file; a file that is gone already is no failure.
pub(crate) fn remove(directory: &OsDirectory, name: &str) -> Result<()> {
    match directory.remove(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::time;
    use std::fs;
    use std::path::Path;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    const DAY: u64 = 86_400;

    fn retention(keep: Keep, now: SystemTime) -> Retention {
        let clock = Clock::of(move || now);
        let (events, failing) =
            (Events::to(|event: &Event<'_>| panic!("{event}")), Mutex::default());
        Retention {
            name: "a.log".to_owned(),
            keep,
            clock,
            forms: Mutex::default(),
            events,
            failing,
        }
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
    fn each_limit_keeps_the_newest_and_foreign_files_are_not_touched() {
        let foreign =
            ["a.log", "a.log.1", "a.log.20261121T160533Z", "a.log.20261121T160533Z.1.bak", "b.log"];
        let now = SystemTime::now();
        let seconds = time::seconds(now);
        for (keep, arriving, expected) in [
            (Keep::new(), None, vec![0, 1, 2, 3]),
            (Keep::new().files(2), None, vec![0, 1]),
            (Keep::new().files(2), Some(10), vec![0]),
            (Keep::new().bytes(25), None, vec![0, 1]),
            (Keep::new().bytes(25), Some(10), vec![0]),
            (Keep::new().days(2), None, vec![0, 1, 2]),
            (Keep::new().days(2).files(1), None, vec![0]),
            (Keep::new().files(0), None, vec![]),
        ] {
            let directory = tempfile::tempdir().expect("a directory");
            let folder = directory.path();
            for name in foreign {
                fs::write(folder.join(name), "ten bytes.").expect("written");
            }
            let old: Vec<_> =
                (0..4).map(|age| names::plain("a.log", seconds - age * DAY, 0)).collect();
            for (age, name) in (0..).zip(&old) {
                write_at(&folder.join(name), now - Duration::from_secs(age * DAY));
            }
            fs::create_dir(folder.join(names::plain("a.log", 0, 0)))
                .expect("a directory of such a name");
            let held = OsDirectory::open(folder).expect("held");
            retention(keep, now).make_room(&held, arriving);
            let kept: Vec<_> = (0..4).filter(|age| folder.join(&old[*age]).exists()).collect();
            assert_eq!(kept, expected, "{keep:?}");
            let others = left(folder).len() - kept.len();
            assert_eq!(others, foreign.len() + 1, "{:?}", left(folder));
        }
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
        let held = OsDirectory::open(folder).expect("held");
        let now = SystemTime::now();
        retention(Keep::new().files(2), now).make_room(&held, None);
        assert_eq!(left(folder).len(), 3);
        retention(Keep::new().files(1), now).make_room(&held, None);
        assert_eq!(left(folder), ["a.log.20261121T160534Z.0.gz"]);
    }

    fn write_at(path: &Path, modified: SystemTime) {
        fs::write(path, "ten bytes.").expect("written");
        let file = fs::File::options().write(true).open(path).expect("open");
        file.set_modified(modified).expect("dated");
    }

    /// A machine without a clock chip starts in 1970. Names only rise, so those files go on with
    /// the time of the last one before.
    #[test]
    fn files_of_a_clock_that_was_not_set_yet_are_as_young_as_those_behind_them() {
        let right = 1_795_277_133;
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        let week_ago = right - 7 * DAY;
        // With files of an earlier week, and without any.
        for (named, gone) in [(week_ago, 1), (60, 0)] {
            let directory = tempfile::tempdir().expect("a directory");
            let folder = directory.path();
            if gone > 0 {
                write_at(&folder.join(names::plain("a.log", named, 0)), at(week_ago));
            }
            for number in 1..4 {
                write_at(
                    &folder.join(names::plain("a.log", named, number)),
                    at(60 + u64::from(number)),
                );
            }
            let held = OsDirectory::open(folder).expect("held");
            let make_room = |now| retention(Keep::new().days(3), at(now)).make_room(&held, None);
            make_room(64);
            assert_eq!(left(folder).len(), 3 + gone, "in 1970");
            make_room(right);
            assert_eq!(left(folder).len(), 3, "the clock is set: they are minutes old");
            write_at(&folder.join(names::plain("a.log", right + 9, 0)), at(right + 9));
            make_room(right + 2 * DAY);
            assert_eq!(left(folder).len(), 4);
            make_room(right + 4 * DAY);
            assert_eq!(left(folder), [""; 0], "nothing stays for ever");
        }
    }

    /// Names of 2099: one written when the clock was ahead, and one of each of the three days after
    /// it was put right.
    #[test]
    fn files_of_a_clock_that_was_ahead_go_when_those_behind_them_are_old() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path();
        let right = UNIX_EPOCH + Duration::from_secs(1_795_277_133);
        let ahead = UNIX_EPOCH + Duration::from_secs(4_070_908_800);
        let written =
            [ahead, right, right + Duration::from_secs(DAY), right + Duration::from_secs(2 * DAY)];
        for (number, modified) in written.iter().enumerate() {
            write_at(&folder.join(names::plain("a.log", 4_070_908_800, number as u32)), *modified);
        }
        let held = OsDirectory::open(folder).expect("held");
        for (days, expected) in [(2, 4), (3, 2), (4, 1), (5, 0)] {
            let now = right + Duration::from_secs(days * DAY - 60);
            retention(Keep::new().days(2), now).make_room(&held, None);
            assert_eq!(left(folder).len(), expected, "after {days} days: {:?}", left(folder));
        }
    }
}
