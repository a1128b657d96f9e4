//! What the lines of a process show of how the log handled a fault, and what they contradict by
//! themselves.
//!
//! *Owns*: reading the lines so. *May not touch*: what must be found afterwards
//! ([`crate::in_use::promised`]).

use std::collections::HashMap;

use crate::in_use::lines::{Call, Class, Line, Made, Refusal};

/// Errors that a disk or a file system may give for a fault below: EIO, ENOSPC, EROFS, ESHUTDOWN,
/// EUCLEAN.
const ERRNOS: [i32; 5] = [5, 28, 30, 108, 117];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) poison: Option<Refusal>,
    /// Calls that were refused because the disk was full.
    pub(crate) no_room: u64,
    /// Acknowledged after that.
    pub(crate) went_on: bool,
    pub(crate) refused_openings: Vec<Refusal>,
    /// Openings that succeeded, without the first.
    pub(crate) openings: u64,
    /// The durable records could not all be read.
    pub(crate) unreadable: Option<Refusal>,
    pub(crate) broken: Vec<String>,
}

/// What a file system may do in the mount in which its disk failed; the log cannot prevent it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Excuses {
    /// Reads fail: it has shut itself down, or the fault is about reads.
    pub(crate) reads_fail: bool,
    /// It shows old bytes of a file whose new ones are in its journal: with data=journal, when the
    /// write to their own place failed. The log reports damage, as it must;
    /// after the next mount everything is there.
    pub(crate) shows_old_bytes: bool,
}

pub(crate) fn met(lines: &[Line], directory: &str, excuses: Excuses) -> Met {
    let mut met = Met::default();
    let mut poison: Option<Refusal> = None;
    let mut begun_poisoned: HashMap<(u32, Call), bool> = HashMap::new();
    let mut acknowledged = 0;
    for line in lines {
        match line {
            Line::Begin(made) => {
                if made.call == Call::Open {
                    poison = None;
                }
                begun_poisoned.insert((made.writer, made.call), poison.is_some());
            }
            Line::Done(made, lsn) => {
                if matches!(made.call, Call::Append | Call::Wait | Call::Sync) {
                    acknowledged = acknowledged.max(*lsn);
                }
                let was_durable = poison.as_ref().is_some_and(|poison| *lsn <= poison.durable);
                match made.call {
                    // A wait for what was durable when the log was poisoned succeeds all the same.
                    Call::Wait if was_durable => {}
                    Call::Append
                    | Call::Gather
                    | Call::Wait
                    | Call::Sync
                    | Call::TruncateBefore
                        if begun_poisoned.get(&(made.writer, made.call)) == Some(&true) =>
                    {
                        met.broken.push(format!(
                            "{} returned LSN {lsn}, although it began after a call had returned \
                             the poison",
                            words(made)
                        ));
                    }
                    Call::Append | Call::Sync => met.went_on |= met.no_room > 0,
                    Call::Open if made.number > 0 => met.openings += 1,
                    _ => {}
                }
            }
            Line::Failed(made, why) => met.refused(made, why, &mut poison, directory, excuses),
            Line::Shown(_, last) if *last < acknowledged => met.broken.push(format!(
                "reopened without a power loss, LSN {acknowledged} was acknowledged, but the last \
                 is {last}"
            )),
            Line::Shown(..) | Line::Rests => {}
        }
    }
    met
}

fn words(made: &Made) -> String {
    format!("writer {}: {:?} {}", made.writer, made.call, made.number)
}

impl Met {
    fn refused(
        &mut self,
        made: &Made,
        why: &Refusal,
        poison: &mut Option<Refusal>,
        directory: &str,
        excuses: Excuses,
    ) {
        let words =
            format!("{} failed with {:?} {}: {}", words(made), why.class, why.errno, why.text);
        match (made.call, why.class) {
            (Call::Open, Class::Corrupt) if made.number > 0 && excuses.shows_old_bytes => {
                self.refused_openings.push(why.clone());
            }
            (Call::Open, Class::Corrupt) => {
                self.broken.push(format!("a sound log was called corrupt: {words}"))
            }
            (Call::Open, _) if made.number > 0 => self.refused_openings.push(why.clone()),
            (Call::Read, Class::Io) if excuses.reads_fail => self.unreadable = Some(why.clone()),
            (Call::Read, _) => self.broken.push(format!("durable records cannot be read: {words}")),
            (_, Class::NoRoom) => self.no_room += 1,
            (_, Class::Poisoned) => {
                let first = poison.get_or_insert_with(|| why.clone());
                if first != why {
                    let text = &first.text;
                    let other = format!("another cause than the first one, {text:?}: {words}");
                    self.broken.push(other);
                }
                let is_named = ERRNOS.contains(&why.errno)
                    && !why.operation.is_empty()
                    && why.path.starts_with(directory);
                if !is_named {
                    self.broken.push(format!("a poison that does not name its cause: {words}"));
                }
                self.poison.get_or_insert_with(|| why.clone());
            }
            // A refusal without poison: the log is as before.
            (Call::Open | Call::TruncateBefore | Call::Append | Call::Gather, Class::Io)
                if ERRNOS.contains(&why.errno) =>
            {
                self.refused_openings.push(why.clone());
            }
            _ => self.broken.push(format!("an unexpected kind of error: {words}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poison(text: &str) -> Refusal {
        let (operation, path) = ("fdatasync".into(), "/mnt/log/1.ink".into());
        Refusal { class: Class::Poisoned, durable: 3, errno: 5, operation, path, text: text.into() }
    }

    #[test]
    fn lines_that_contradict_themselves_are_found() {
        let made = |call, number| Made { writer: 0, call, number, count: 1 };
        let append = |number| made(Call::Append, number);
        let lines = |second: Line| {
            vec![
                Line::Begin(append(0)),
                Line::Failed(append(0), poison("a")),
                Line::Begin(append(1)),
                second,
            ]
        };
        let none = Excuses::default();
        let sound = met(&lines(Line::Failed(append(1), poison("a"))), "/mnt", none);
        assert_eq!((sound.broken.len(), sound.poison), (0, Some(poison("a"))));
        for second in [
            Line::Done(append(1), 4),
            Line::Failed(append(1), poison("b")),
            Line::Failed(append(1), Refusal { errno: 0, ..poison("a") }),
            Line::Failed(append(1), Refusal { path: "/".into(), ..poison("a") }),
            Line::Failed(append(1), Refusal { class: Class::Other, ..poison("a") }),
            Line::Failed(made(Call::Read, 1), Refusal { class: Class::Io, ..poison("a") }),
        ] {
            assert!(!met(&lines(second.clone()), "/mnt", none).broken.is_empty(), "{second:?}");
        }
        let corrupt = |life| {
            Line::Failed(made(Call::Open, life), Refusal { class: Class::Corrupt, ..poison("a") })
        };
        let old = Excuses { shows_old_bytes: true, ..none };
        let broken = |life, excuses| met(&[corrupt(life)], "/mnt", excuses).broken.len();
        assert_eq!((broken(1, none), broken(0, old), broken(1, old)), (1, 1, 0));
    }
}
