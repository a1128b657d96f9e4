//! What a writer has said, line by line, as it was heard.
//!
//! *Owns*: what a line of a writer means under a promise. *May not touch*: what is right.
//!
//! Where items have an order, a line is an item that is durable now. Elsewhere several clients are
//! at work, and the lab must know what was in flight. So a client says `try ITEM` before it asks for
//! an item, and `ok ITEM` when the item was acknowledged; where there are keys, an item is
//! `KEY VERSION`, and the version `-` removes the key.

use std::collections::HashMap;
use std::time::Duration;

use super::past::Past;
use super::{Line, Promise, Told, words};
use crate::{Broken, Past as _, Who};

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub struct Heard {
    promise: Promise,
    tried: Vec<Line>,
    /// One for each line.
    lines: Vec<Said>,
    /// Items that were tried and not acknowledged yet.
    open: HashMap<Line, Who>,
    /// The newest try of each key.
    newest: HashMap<Line, Who>,
    acknowledged: usize,
}

#[derive(Debug, Clone, Copy)]
enum Said {
    Tried,
    Acknowledged(Who, Duration),
}

impl Heard {
    pub fn of(promise: Promise) -> Self {
        Self { promise, ..Self::default() }
    }

    /// A line was heard, so long after the writer's start.
    ///
    /// # Errors
    /// It is none that such a writer says.
    pub fn push(&mut self, line: &[u8], at: Duration) -> Result<(), String> {
        let who = self.tried.len() as Who;
        let said = match self.promise {
            Promise::Order | Promise::Prefix { .. } => {
                self.tried.push(line.to_vec());
                Said::Acknowledged(who, at)
            }
            Promise::Set | Promise::Map => match (item(line, b"try "), item(line, b"ok ")) {
                (Some(item), _) => {
                    let is_whole = self.promise == Promise::Set || item.contains(&b' ');
                    if !is_whole {
                        return Err(format!("says {}, where KEY VERSION belongs", words(item)));
                    }
                    if self.open.insert(item.to_vec(), who).is_some() {
                        return Err(format!("tries {} a second time at once", words(item)));
                    }
                    self.tried.push(item.to_vec());
                    self.newest.insert(key(item).to_vec(), who);
                    Said::Tried
                }
                (_, Some(item)) => match self.open.remove(item) {
                    // Which of two at once came last, nobody can tell.
                    Some(who) if self.promise == Promise::Map && self.newest[key(item)] != who => {
                        return Err(format!(
                            "says that {} is done after a newer version of that key was tried: \
                             one client at a time may write a key, and waits for `ok`",
                            words(item)
                        ));
                    }
                    Some(who) => Said::Acknowledged(who, at),
                    None => {
                        let item = words(item);
                        return Err(format!("says that {item} is done, and never said `try`"));
                    }
                },
                _ => {
                    let line = words(line);
                    return Err(format!("says {line}, which begins with neither `try ` nor `ok `"));
                }
            },
        };
        self.acknowledged += usize::from(matches!(said, Said::Acknowledged(..)));
        self.lines.push(said);
        Ok(())
    }

    pub fn lines(&self) -> usize {
        self.lines.len()
    }

    pub fn acknowledged(&self) -> usize {
        self.acknowledged
    }

    /// Tells a past all that was tried, and what was acknowledged in so many lines. What is tried
    /// is on its way before the line about it is heard, so all of it may be there.
    ///
    /// # Errors
    /// As [`crate::Past::ended`].
    pub fn tell(&self, past: &mut Past, lines: usize) -> Result<(), Broken> {
        (0..).zip(&self.tried).for_each(|(who, item)| past.began(who, item));
        self.lines.iter().take(lines).try_for_each(|said| match said {
            Said::Acknowledged(who, at) => past.ended(*who, &Told::Done(*at), false),
            Said::Tried => Ok(()),
        })
    }
}

fn item<'a>(line: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    line.strip_prefix(word).filter(|item| !item.is_empty())
}

/// What stands before the version.
fn key(item: &[u8]) -> &[u8] {
    item.split(|byte| *byte == b' ').next().unwrap_or(item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_no_such_writer_says_is_refused() {
        let refused = |promise, lines: &[&str]| {
            let mut heard = Heard::of(promise);
            let each = lines.iter().map(|line| heard.push(line.as_bytes(), Duration::ZERO));
            each.collect::<Result<(), _>>().err().unwrap_or_default()
        };
        assert_eq!(refused(Promise::Order, &["try 1", "anything"]), "");
        assert_eq!(refused(Promise::Set, &["try a b", "try c", "ok c", "try c", "ok a b"]), "");
        assert_eq!(refused(Promise::Map, &["try a 1", "ok a 1", "try a 2", "try b 2"]), "");
        // It has given up the first one.
        assert_eq!(refused(Promise::Map, &["try a 1", "try a 2", "ok a 2"]), "");
        for (promise, lines, words) in [
            (Promise::Set, &["1"][..], "says \"1\", which begins with neither"),
            (Promise::Set, &["ok 1"], "says that \"1\" is done, and never said `try`"),
            (Promise::Set, &["try 1", "try 1"], "tries \"1\" a second time at once"),
            (Promise::Map, &["try a 1", "try a 2", "ok a 2", "ok a 1"], "a newer version of that"),
            (Promise::Map, &["try a 1", "try a 2", "ok a 1"], "one client at a time may write a"),
            (Promise::Map, &["try a"], "says \"a\", where KEY VERSION belongs"),
        ] {
            assert!(refused(promise, lines).contains(words), "{lines:?}");
        }
    }
}
