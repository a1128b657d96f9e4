//! What articles and public threads say, as data: `statements.txt`.
//!
//! *Owns*: the form of that file, and what a statement asks of the tables. *May not touch*: figures
//! and answers (`crate::answers`). A statement names the rows of a table of its experiment, and the
//! band in which their figure must be; a band is ours if the source has only words.

use std::sync::LazyLock;

use crate::result::Judged;
use crate::stats::EFFECT_MIN;

/// A statement that can be checked by running something.
#[derive(Debug)]
pub struct Statement {
    /// Its name.
    pub id: &'static str,
    /// The experiment whose tables answer it.
    pub experiment: &'static str,
    /// The statement, in one sentence.
    pub says: &'static str,
    /// Where it was said, and its address if it has one.
    pub source: String,
    /// The same.
    pub link: Option<String>,
    /// The number of the article, if it is one.
    pub article: Option<u8>,
    /// The place of the table, if that is not the directory.
    pub(crate) place: Option<&'static str>,
    /// What it is about.
    pub(crate) asks: Asks,
    /// The band in which the figure must lie for the statement to hold.
    pub band: Band,
}

/// What is asked of the tables.
#[derive(Debug)]
pub(crate) enum Asks {
    /// How many times as fast a row is as another; with several others, as the nearest of them.
    Faster { table: &'static str, fast: Row, slow: Vec<Row> },
    /// What one commit of a row costs; with another row, how many times as much as one of that.
    Count { table: &'static str, row: Row, beside: Option<Row>, what: Counted },
    /// A figure of a row that has no noise.
    Figure { table: &'static str, row: &'static str, figure: &'static str },
    /// Nothing that runs here: why, and which command shows it.
    Elsewhere(&'static str),
}

/// A row of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// Its name.
    pub(crate) name: &'static str,
    /// The place of its table, if that is not the statement's.
    pub(crate) place: Option<&'static str>,
}

impl Row {
    fn read(text: &'static str) -> Self {
        match text.split_once(" @ ") {
            Some((name, place)) => Self { name, place: Some(place) },
            None => Self { name: text, place: None },
        }
    }
}

inkstone_io::named_choice! {
    /// What is counted for each commit.
    Counted, "count" {
        Faults = "faults", "page faults of the writing thread";
        OwnFlushes = "own flushes", "flushes that this process sent";
        Reads = "reads", "reads of the file's own blocks";
        Data = "data writes", "writes of the file's own blocks";
        Metadata = "metadata writes", "writes of metadata, in a journal or outside it";
        JournalWrites = "journal writes", "writes of the journal that a commit waited for";
        JournalKib = "KiB of journal", "their bytes";
        WrittenKib = "KiB written", "bytes of data, journal and metadata";
    }
}

/// The range in which a figure must lie, ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    /// The least.
    pub from: f64,
    /// The most; infinite if the statement names no limit.
    pub to: f64,
}

impl Band {
    /// Judges a figure with this interval.
    pub fn verdict(self, low: f64, high: f64) -> Judged {
        if low.is_nan() || high.is_nan() {
            Judged::CannotTell
        } else if low >= self.from && high <= self.to {
            Judged::Confirmed
        } else if high < self.from || low > self.to {
            Judged::Refuted
        } else {
            Judged::CannotTell
        }
    }

    /// `1.5 to 3`, `1.03 or more`, `0`.
    pub fn words(self) -> String {
        if self.to.is_infinite() {
            format!("{} or more", self.from)
        } else if self.from == self.to {
            self.from.to_string()
        } else if self.from == 0.0 {
            format!("{} or less", self.to)
        } else {
            format!("{} to {}", self.from, self.to)
        }
    }

    /// The inverse of [`Band::words`]; `faster` is the least effect that counts as one, as
    /// everywhere in the lab.
    fn read(words: &str) -> Option<Self> {
        let number = |word: &str| word.trim().parse::<f64>().ok();
        let (from, to) = if words == "faster" {
            (1.0 + EFFECT_MIN, f64::INFINITY)
        } else if let Some(from) = words.strip_suffix(" or more") {
            (number(from)?, f64::INFINITY)
        } else if let Some(to) = words.strip_suffix(" or less") {
            (0.0, number(to)?)
        } else if let Some((from, to)) = words.split_once(" to ") {
            (number(from)?, number(to)?)
        } else {
            (number(words)?, number(words)?)
        };
        Some(Self { from, to })
    }
}

/// The titles of the five articles.
pub const ARTICLES: [&str; 5] = [
    "Reading and writing files fast",
    "How to write a file faster",
    "fallocate in detail",
    "A check of article 2",
    "A single machine's disk I/O, the synchronous part",
];

/// Every statement, by experiment.
pub fn statements() -> &'static [Statement] {
    static ALL: LazyLock<Vec<Statement>> =
        LazyLock::new(|| read(include_str!("statements.txt")).unwrap_or_default());
    &ALL
}

/// Reads the file: its form stands at its top.
fn read(text: &'static str) -> Result<Vec<Statement>, String> {
    let mut all = Vec::new();
    let mut experiment = "";
    for block in text.split("\n\n") {
        let lines = || block.lines().filter(|line| !line.starts_with('#'));
        if let Some(name) = block.lines().find_map(|line| line.strip_prefix("## ")) {
            experiment = name;
        }
        let Some(first) = lines().next() else { continue };
        all.push(one(experiment, first, lines().skip(1)).ok_or_else(|| first.to_owned())?);
    }
    Ok(all)
}

fn one(
    experiment: &'static str,
    first: &'static str,
    lines: impl Iterator<Item = &'static str>,
) -> Option<Statement> {
    let (id, says) = first.split_once(": ")?;
    let (mut source, mut link, mut article) = (String::new(), None, None);
    let (mut place, mut asks, mut band) = (None, None, Band { from: 1.0, to: f64::INFINITY });
    for line in lines {
        let (word, rest) = line.trim().split_once(": ")?;
        match word {
            "article" => {
                let (number, more) = rest.split_at(1);
                article = Some(number.parse::<u8>().ok()?);
                let title = ARTICLES.get(usize::from(article?).checked_sub(1)?)?;
                source = format!("article {number} ({title}){more}");
            }
            "issue" => {
                let (repository, number) = rest.split_once('#')?;
                link = Some(format!("https://github.com/{repository}/issues/{number}"));
                source = rest.into();
            }
            "page" => {
                let (title, address) = rest.rsplit_once(' ')?;
                (source, link) = (title.into(), Some(address.into()));
            }
            "place" => place = Some(rest),
            "band" => band = Band::read(rest)?,
            "elsewhere" => asks = Some(Asks::Elsewhere(rest)),
            word => asks = Some(asked(word, rest)?),
        }
    }
    let asks = asks.filter(|_| !source.is_empty())?;
    Some(Statement { id, experiment, says, source, link, article, place, asks, band })
}

/// `TABLE: ROW / ROW / ...` or `TABLE: ROW [/ ROW]: WHAT`.
fn asked(word: &str, rest: &'static str) -> Option<Asks> {
    let (table, rest) = rest.split_once(": ")?;
    let rows = |text: &'static str| text.split(" / ").map(Row::read);
    Some(match word {
        "faster" => {
            let mut rows = rows(rest);
            let (fast, slow) = (rows.next()?, rows.collect::<Vec<_>>());
            (!slow.is_empty()).then_some(Asks::Faster { table, fast, slow })?
        }
        "count" => {
            let (of, what) = rest.rsplit_once(": ")?;
            let what = <Counted as inkstone_io::NamedChoice>::from_name(what)?;
            let mut rows = rows(of);
            Asks::Count { table, row: rows.next()?, beside: rows.next(), what }
        }
        "figure" => {
            let (row, figure) = rest.rsplit_once(": ")?;
            Asks::Figure { table, row, figure }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_whole_and_every_statement_has_all_it_needs() {
        let text = include_str!("statements.txt");
        let all = read(text).unwrap_or_else(|bad| panic!("not a statement: {bad}"));
        let blocks =
            text.matches("\n    band: ").count() + text.matches("\n    elsewhere: ").count();
        assert_eq!(all.len(), blocks);
        let mut ids: Vec<&str> = all.iter().map(|statement| statement.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all.len(), "a name twice");
        for Statement { id, says, band, experiment, .. } in &all {
            assert!(says.ends_with(['.', ')']) && band.from <= band.to, "{id}");
            assert!(crate::experiment::named(experiment).is_some(), "{id}: {experiment:?}");
        }
    }

    #[test]
    fn an_interval_is_judged_by_its_band() {
        let band = Band { from: 1.5, to: 3.0 };
        let said = [(1.6, 2.9), (3.1, 4.0), (1.0, 1.4), (1.4, 2.0), (2.0, 3.1), (f64::NAN, 2.0)];
        use Judged::{CannotTell, Confirmed, Refuted};
        let wanted = [Confirmed, Refuted, Refuted, CannotTell, CannotTell, CannotTell];
        assert_eq!(said.map(|(low, high)| band.verdict(low, high)), wanted);
        for words in ["1.5 to 3", "1.03 or more", "0.1 or less", "0"] {
            assert_eq!(Band::read(words).expect("a band").words(), words);
        }
        assert_eq!(Band::read("much"), None);
    }
}
