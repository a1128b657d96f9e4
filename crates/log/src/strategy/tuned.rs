//! The way of writing that measured best here, kept beside the log in the file `inkstone.tuned`.
//!
//! *Owns*: that file: its format, writing it, reading it, and whether it may be used. *May not
//! touch*: measuring (`inkstone tune` does that), segments.
//!
//! The file is lines of text, each a word and its value; the last line is the CRC-32C of all
//! others. It names the file system and device that it is valid for ([`Tuned::here`]). If anything
//! differs, it is void: the log uses the rule and says why. It can only name durable ways, so a
//! wrong, stale or forged file costs speed and nothing else.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::time::{SystemTime, UNIX_EPOCH};

use inkstone_format::checksum::crc32c;
use inkstone_io::{
    Access, AnyDirectory, Barriers, Capabilities, DioAlignment, Durability, EngineKind,
    NamedChoice, NoSizeSignal, OpenFile, Preparation, Reuse, Strategy, SyncKind,
};

use super::direct::no_direct;
use crate::choice::in_words;
use crate::error::{Error, Result};
use crate::options::Options;

/// The file's name in the log's directory.
pub const FILE: &str = "inkstone.tuned";
/// Written first, then renamed.
const NEW_FILE: &str = "inkstone.tuned.new";
const FIRST_LINE: &str = "inkstone tuned 1";
/// Every version of the file begins so.
const FIRST_WORDS: &[u8] = b"inkstone tuned ";
const SUM: &str = "crc32c ";
/// Larger than any file that this code writes.
const FILE_BYTES_MAX: u64 = 16 << 10;

/// A way of writing that was chosen by measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuned {
    /// When it was chosen, in seconds since 1970 (UTC).
    pub unix_s: u64,
    /// The way of writing: durable, and one that [`Options`] can ask for.
    pub strategy: Strategy,
    /// Why, as a sentence without a full stop.
    pub reason: String,
    /// The measured figures, a line each.
    pub figures: Vec<String>,
    /// The file system and device for which it is valid: names and values.
    pub here: Vec<(String, String)>,
}

impl Tuned {
    /// A choice for this file system and device, made now.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the way is not durable, the log cannot write in this way, or nothing
    /// is durable here.
    pub fn new(
        found: &Capabilities,
        strategy: Strategy,
        reason: &str,
        figures: &[String],
    ) -> Result<Self> {
        let unix_s =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let figures = figures.iter().map(|figure| one_line(figure)).collect();
        let tuned = Self { unix_s, strategy, reason: one_line(reason), figures, here: here(found) };
        tuned.check(found).map_err(Error::Invalid)?;
        Ok(tuned)
    }

    /// Writes it into the directory of a log and replaces what was tuned before; later openings use
    /// it. The log may be open.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a file of that name was not written by `inkstone tune`; errors of
    /// the file system. Then the directory has the old file or the new one, complete.
    ///
    /// # Durability
    /// On `Ok` it is on stable storage.
    pub fn write(&self, directory: impl Into<AnyDirectory>) -> Result<()> {
        let directory = &directory.into();
        check_is_ours(directory, FILE)?;
        check_is_ours(directory, NEW_FILE)?;
        match directory.remove(NEW_FILE) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let _no_signal = NoSizeSignal::here();
        let file = directory.open(NEW_FILE, &OpenFile::new_file())?;
        file.write_at(self.to_text().as_bytes(), 0)?;
        file.sync(SyncKind::All)?;
        directory.rename(NEW_FILE, FILE)?;
        Ok(directory.sync()?)
    }

    /// The day on which it was chosen: `2026-11-21`.
    pub fn date(&self) -> String {
        date(self.unix_s)
    }

    pub(super) fn in_words(&self) -> String {
        format!("tuned on {}: {}", self.date(), self.reason)
    }

    fn to_text(&self) -> String {
        let Strategy { preparation, reuse, access, durability, .. } = self.strategy;
        let mut text = format!(
            "{FIRST_LINE}\nunix-s {}\npreparation {preparation}\nreuse {reuse}\naccess \
             {access}\ndurability {durability}\nreason {}\n",
            self.unix_s, self.reason
        );
        for (name, value) in &self.here {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "here {name} {value}");
        }
        for figure in &self.figures {
            let _ = writeln!(text, "figure {figure}");
        }
        let sum = crc32c(text.as_bytes());
        let _ = writeln!(text, "{SUM}{sum:08x}");
        text
    }

    /// # Errors
    /// Why the text is not a valid choice.
    fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
        let version = text.lines().next().unwrap_or_default();
        if version != FIRST_LINE {
            return Err(format!("it does not begin with `{FIRST_LINE}`"));
        }
        let body = text.rfind(SUM).filter(|at| text[..*at].ends_with('\n'));
        let body = &text[..body.ok_or("it has no checksum: it is incomplete")?];
        if text[body.len()..] != format!("{SUM}{:08x}\n", crc32c(body.as_bytes())) {
            return Err("its checksum does not match: it is damaged, or was edited".into());
        }
        let value = |name: &str| {
            let mut lines =
                body.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            lines.next().ok_or_else(|| format!("it has no line `{name}`"))
        };
        let lines =
            |name: &'static str| body.lines().filter_map(move |line| line.strip_prefix(name));
        let pair = |line: &str| {
            line.split_once(' ').map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        Ok(Self {
            unix_s: value("unix-s")?.parse().map_err(|_| "its time is not a number".to_owned())?,
            strategy: Strategy {
                preparation: choice(value("preparation")?)?,
                reuse: choice(value("reuse")?)?,
                access: choice(value("access")?)?,
                durability: choice(value("durability")?)?,
                engine: EngineKind::Caller,
            },
            reason: value("reason")?.to_owned(),
            figures: lines("figure ").map(str::to_owned).collect(),
            here: lines("here ").filter_map(pair).collect(),
        })
    }

    /// Checks that it may be used on this file system and device.
    ///
    /// # Errors
    /// Why it may not be used.
    fn check(&self, found: &Capabilities) -> std::result::Result<(), String> {
        let Strategy { preparation, access, durability, .. } = self.strategy;
        // Only durable ways, whatever the file says.
        let asked = Options::new().preparation(preparation).access(access).durability(durability);
        asked
            .check()
            .and_then(|()| self.strategy.check().map_err(Error::Invalid))
            .map_err(|error| error.to_string())?;
        if let Some(memory) = found.memory_below() {
            return Err(format!(
                "this file system is in memory ({memory}), where no way is durable"
            ));
        }
        if found.mount.barriers == Barriers::Off {
            return Err(
                "the file system is mounted without barriers, where no way is durable".into()
            );
        }
        let now = here(found);
        for (name, value) in &now {
            let then =
                self.here.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
            if then != Some(value.as_str()) {
                let then = then.unwrap_or("nothing");
                return Err(format!(
                    "it was made where the {name} was {then}, and here the {name} is {value}; run \
                     `inkstone tune` again"
                ));
            }
        }
        match no_direct(found) {
            Some(why) if access == Access::Direct => Err(why),
            _ => Ok(()),
        }
    }
}

/// Refuses to replace a file that this code did not write. A writer that was killed may have left
/// less than the first words, or zeros.
fn check_is_ours(directory: &AnyDirectory, name: &str) -> Result<()> {
    let file = match directory.open(name, &OpenFile::existing().read_only()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        answer => answer?,
    };
    let mut bytes = [0; FIRST_WORDS.len()];
    let count = file.read_at(&mut bytes, 0)?;
    let bytes = &bytes[..count];
    if FIRST_WORDS.starts_with(bytes) || bytes.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    let path = directory.path().join(name);
    Err(Error::Invalid(format!(
        "{} is in the way: `inkstone tune` did not write it; move it away",
        path.display()
    )))
}

/// The tuned file beside a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Nothing was tuned.
    None,
    /// A file that cannot be used, and why.
    Void(String),
    /// A complete file. Whether it is valid here is checked later.
    Whole(Box<Tuned>),
}

impl Stored {
    /// Reads the file in the directory of a log. Never an error: anything wrong with the file makes
    /// it void.
    pub(crate) fn of(directory: &AnyDirectory, found: Option<&Capabilities>) -> Self {
        if found.is_none() {
            // There is nothing to compare it with.
            return Self::None;
        }
        match read(directory) {
            Ok(None) => Self::None,
            Ok(Some(bytes)) => {
                Tuned::parse(&bytes).map_or_else(Self::Void, |tuned| Self::Whole(Box::new(tuned)))
            }
            Err(error) => Self::Void(error.to_string()),
        }
    }

    /// The choice, if it can be used on this file system and device.
    ///
    /// # Errors
    /// Why there is a file and it cannot be used.
    pub(super) fn usable(
        self,
        found: Option<&Capabilities>,
    ) -> std::result::Result<Option<Tuned>, String> {
        match (self, found) {
            (Self::None, _) | (_, None) => Ok(None),
            (Self::Void(why), _) => Err(why),
            (Self::Whole(tuned), Some(found)) => tuned.check(found).map(|()| Some(*tuned)),
        }
    }
}

fn read(directory: &AnyDirectory) -> inkstone_io::Result<Option<Vec<u8>>> {
    let file = match directory.open(FILE, &OpenFile::existing().read_only()) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // The checksum refuses a longer file.
    let mut bytes = vec![0; file.len_bytes()?.min(FILE_BYTES_MAX) as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

fn choice<T: NamedChoice>(name: &str) -> std::result::Result<T, String> {
    T::from_name(name).ok_or_else(|| format!("it names an unknown {}: {name}", T::WHAT))
}

/// What must be the same for a choice to be valid: with another disk, file system or mount it is
/// void.
fn here(found: &Capabilities) -> Vec<(String, String)> {
    let device = found.device.as_ref();
    let told = |fact: Option<String>| fact.unwrap_or_else(|| "not-told".into());
    let flag =
        |fact: Option<bool>| told(fact.map(|yes| if yes { "yes".into() } else { "no".into() }));
    let direct = match found.direct {
        DioAlignment::Bytes { memory, offset } => format!("{memory}/{offset}"),
        DioAlignment::Refused => "refused".into(),
        DioAlignment::NotTold => "not-told".into(),
    };
    let facts = [
        ("file-system", found.mount.file_system.clone()),
        ("file-system-id", told(found.file_system_id.map(|id| format!("{id:016x}")))),
        ("mount-options", told(found.mount.options.clone())),
        ("journal", flag(found.journal)),
        ("direct-alignment", direct),
        ("device", told(device.map(|device| device.name.clone()))),
        ("model", told(device.and_then(|device| device.model.clone()))),
        ("volatile-cache", flag(device.and_then(|device| device.volatile_cache))),
        ("fua", flag(device.and_then(|device| device.fua))),
        ("loop-direct", flag(device.and_then(|device| device.loop_direct))),
    ];
    facts.into_iter().map(|(name, value)| (name.to_owned(), one_line(&value))).collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The day of a time in seconds since 1970, after Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms" (`civil_from_days`).
fn date(unix_s: u64) -> String {
    // A nonsensical time must still give a date.
    let days = (unix_s / 86_400).min(100_000_000) + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The ways of writing that the log supports and that are worth measuring: in blocks that are
/// written or only reserved, each by the system calls of the caller's thread.
pub fn candidates() -> Vec<Strategy> {
    use {Access::*, Durability as D};
    let written = [
        (Buffered, D::Fdatasync),
        (Buffered, D::ODsync),
        (Direct, D::Fdatasync),
        (Direct, D::ODsync),
        (Direct, D::RwfDsync),
    ];
    let reserved = [(Buffered, D::Fdatasync), (Direct, D::RwfDsync)];
    let way = |preparation, reuse| {
        move |(access, durability)| Strategy {
            preparation,
            reuse,
            access,
            durability,
            engine: EngineKind::Caller,
        }
    };
    let written = written.into_iter().map(way(Preparation::Zeros, Reuse::Reuse));
    written.chain(reserved.into_iter().map(way(Preparation::Fallocate, Reuse::New))).collect()
}

/// The name of a way in the log's messages: `zeros, reuse, direct, rwf-dsync`.
pub fn name(strategy: &Strategy) -> String {
    in_words(strategy)
}

#[cfg(test)]
#[path = "tuned_tests.rs"]
mod tests;
