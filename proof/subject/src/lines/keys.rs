//! Items without an order: keys with versions, and items that are there or not.
//!
//! *Owns*: the clauses about a key. *May not touch*: the order of lines.
//!
//! The rule: a key has the version that was acknowledged last, or one that was tried since, or, if
//! none was acknowledged, the one that an earlier reading has shown. What nobody tried is not there.
//! An item is a key with one version. So there is no item too many that could be in flight, and a
//! reader is stopped at the first line that nobody tried.

use std::collections::{BTreeMap, HashSet};

use super::{LOST, Line, SHOWN, Shown, TRIED, TWICE, words};
use crate::{Broken, Who, clause};

/// The version of a key that was removed.
const REMOVED: &[u8] = b"-";

#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    /// A line is an item; otherwise it is a key and its version.
    are_items: bool,
    keys: BTreeMap<Line, Key>,
    /// The key of each call of this writer, and the number of its version.
    calls: Vec<(Line, usize)>,
}

/// `None` is a version: it is not there.
type Version = Option<Line>;

#[derive(Debug, Clone)]
struct Key {
    /// In the order in which they were tried; the first one was there before.
    versions: Vec<Version>,
    /// The first one that may be there, and why none before it may.
    oldest: usize,
    clause: &'static str,
}

impl Key {
    fn of(version: Version) -> Self {
        Self { versions: vec![version], oldest: 0, clause: SHOWN }
    }

    /// Why the oldest one or a newer one must be there.
    fn why(&self) -> &'static str {
        if self.clause == SHOWN { "an earlier reading showed it" } else { "it was acknowledged" }
    }
}

impl Keys {
    pub(super) fn of_items() -> Self {
        Self { are_items: true, ..Self::default() }
    }

    /// The key of a line, and its version.
    fn split<'a>(&self, line: &'a [u8]) -> (&'a [u8], Version) {
        let blank = line.iter().position(|byte| *byte == b' ').filter(|_| !self.are_items);
        let (key, version) = blank.map_or((line, &[][..]), |at| (&line[..at], &line[at + 1..]));
        (key, Some(version.to_vec()).filter(|version| version != REMOVED))
    }

    pub(super) fn began(&mut self, who: Who, line: &Line) {
        let (name, version) = self.split(line);
        let key = self.keys.entry(name.to_vec()).or_insert_with(|| Key::of(None));
        key.versions.push(version);
        self.calls.resize(who as usize + 1, (name.to_vec(), key.versions.len() - 1));
    }

    pub(super) fn ended(&mut self, who: Who) {
        let Some((name, number)) = self.calls.get(who as usize) else { return };
        if let Some(key) = self.keys.get_mut(name)
            && key.oldest <= *number
        {
            (key.oldest, key.clause) = (*number, LOST);
        }
    }

    pub(super) fn certain(&self) -> usize {
        self.keys.values().filter(|key| key.versions[key.oldest].is_some()).count()
    }

    pub(super) fn is_decided(&self, shown: &Shown) -> bool {
        shown.lines.last().is_some_and(|line| self.number(line).is_none())
    }

    /// Which of its key's versions a line is.
    fn number(&self, line: &[u8]) -> Option<usize> {
        let (name, version) = self.split(line);
        let versions = &self.keys.get(name)?.versions;
        versions.iter().rposition(|known| version.is_some() && *known == version)
    }

    pub(super) fn check(&mut self, shown: &Shown) -> Result<(), Broken> {
        let mut seen = HashSet::new();
        for (at, line) in (1..).zip(&shown.lines) {
            let (name, _) = self.split(line);
            let number = self.number(line);
            clause(TRIED, number.is_some(), || {
                format!("line {at} is {}, which nobody tried", words(line))
            })?;
            // A line that is there a second time is for the clause of all promises.
            let is_first = seen.insert(name.to_vec()) || shown.twice.is_some();
            clause(TWICE, is_first, || {
                format!("line {at} is {}, a second version of its key", words(line))
            })?;
            if number.is_some() {
                self.check_key(name, number, &words(line))?;
            }
        }
        let missing = self.keys.keys().filter(|name| !seen.contains(*name));
        missing.clone().try_for_each(|name| {
            let gone = self.keys[name].versions.iter().rposition(Option::is_none);
            self.check_key(name, gone, "missing")
        })
    }

    /// `found`: the number of the version that is there; `None`: it is none of them.
    fn check_key(&self, name: &[u8], found: Option<usize>, what: &str) -> Result<(), Broken> {
        let Some(key) = self.keys.get(name) else { return Ok(()) };
        clause(key.clause, found.is_some_and(|found| found >= key.oldest), || {
            let kind = if self.are_items { "item" } else { "key" };
            let oldest = match &key.versions[key.oldest] {
                _ if self.are_items => String::new(),
                None => " instead of removed".into(),
                Some(version) => format!(" instead of version {}", words(version)),
            };
            format!("{kind} {} is {what}{oldest}; {}", words(name), key.why())
        })
    }

    /// What was shown is a promise.
    pub(super) fn learn(&mut self, shown: &Shown) {
        let split = shown.lines.iter().map(|line| self.split(line));
        self.keys = split.map(|(name, version)| (name.to_vec(), Key::of(version))).collect();
        self.calls.clear();
    }
}
