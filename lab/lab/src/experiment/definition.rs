//! What an experiment is: its name, the room it needs, its steps, how it is measured; and what its
//! command is called.
//!
//! *Owns*: the trait, and the plain data that it is described with. *May not touch*: any one
//! experiment. The list of them is in [`super::list`]; the command line, `lab all`, `lab aa --of`,
//! `lab e1` to `e10`, `lab claims`, `lab compare` and the report know an experiment by that list
//! alone.

use std::fmt;

use inkstone_io::NamedChoice;

use crate::progress::Progress;
use crate::site::Site;
use crate::stage::{CellError, Session};

use super::ExperimentResult;
use super::rounds::{Pace, steps_of};

/// One experiment at one size.
pub trait Experiment: fmt::Debug + Send + Sync {
    /// Its name. Its results are called the same, or the same and more behind a dash: `depth`,
    /// `depth-size`.
    fn name(&self) -> &'static str;

    /// It at this size.
    fn sized(size: Size) -> Self
    where
        Self: Sized;

    /// Its own command on the command line; `None`: only claims run it.
    fn command(&self) -> Option<OwnCommand> {
        None
    }

    /// The options of its command, each with the value that it sets.
    fn settings(&mut self) -> Vec<Setting<'_>> {
        Vec::new()
    }

    /// Bytes of disk that it needs at the same time.
    fn room_needed_bytes(&self) -> u64;

    /// Rows that have a turn in each round.
    fn rows(&self) -> usize;

    /// The steps that it reports to its progress.
    fn steps(&self, pace: &Pace) -> u64 {
        steps_of(pace, self.rows())
    }

    /// Runs it, and removes its files.
    ///
    /// # Errors
    /// A failure of all rows: the file could not be created, or the user wants to stop before there
    /// is any result.
    fn measure(&self, scene: Scene<'_>) -> Result<Vec<ExperimentResult>, CellError>;

    /// Seconds that `lab claims` gives it.
    fn claims_s(&self) -> f64 {
        2.0
    }

    /// Whether it compares counts of what reached the device, and no times: then it needs a device
    /// that nobody else writes to.
    fn is_counted(&self) -> bool {
        false
    }

    /// Whether its figures are those of memory and processors rather than of the disk: then two
    /// results differ by more.
    fn is_of_memory(&self) -> bool {
        false
    }

    /// Whether a result of this name is one of its.
    fn gives(&self, result: &str) -> bool {
        result
            .strip_prefix(self.name())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

/// Where an experiment is measured, how often and how long, and where it shows its progress.
#[expect(missing_debug_implementations, reason = "progress is a terminal")]
pub struct Scene<'a> {
    /// The place.
    pub site: &'a Site,
    /// Its directory, and the user's wish to stop.
    pub session: &'a Session<'a>,
    /// How often and how long.
    pub pace: &'a Pace,
    /// Where it shows its progress.
    pub progress: &'a mut Progress,
}

/// How large an experiment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// That of its own command: an answer within a minute.
    Usual,
    /// That of the articles.
    Published,
    /// A part of `lab all --quick`.
    Quick,
    /// A part of `lab all --standard`.
    Standard,
    /// A part of `lab all --full`.
    Full,
    /// For `lab aa --of`: every row twice.
    Twins,
    /// For `lab claims`.
    Claims,
}

impl Size {
    /// The bytes of an experiment's file, where nothing speaks for another size.
    pub(crate) fn file_bytes(self) -> u64 {
        match self {
            Self::Quick | Self::Twins | Self::Claims => 16 << 20,
            Self::Usual | Self::Standard => 64 << 20,
            Self::Full => 512 << 20,
            Self::Published => 1 << 30,
        }
    }
}

/// An experiment's own command, and what else is said and known about it.
#[derive(Debug, Clone, Copy)]
pub struct OwnCommand {
    /// What `--help` says about it.
    pub help: &'static str,
    /// The subject of a page that shows it alone: `A pool of threads`.
    pub subject: &'static str,
    /// Seconds that it takes, without `--seconds` and `--published`.
    pub seconds: u64,
    /// Its share of the time of `lab all`.
    pub weight: f64,
}

/// An option of an experiment's command.
#[derive(Debug)]
pub struct Setting<'a> {
    /// As it is typed, without the dashes.
    pub name: &'static str,
    /// What `--help` says about it.
    pub help: &'static str,
    /// What it sets.
    pub value: SettingValue<'a>,
}

/// What an option sets, and which values it takes.
#[derive(Debug)]
pub enum SettingValue<'a> {
    /// Bytes of a file, in whole blocks. `--published` names them too.
    FileBytes(&'a mut u64),
    /// A number within these bounds. `--published` names it too.
    Number(&'a mut u64, u64, u64),
    /// Numbers of threads, or of requests in flight.
    Threads(&'a mut Vec<usize>),
    /// Some names out of a list.
    Names(&'a mut dyn Chosen),
}

impl<'a> Setting<'a> {
    /// `--size`, of an experiment with one file.
    pub(crate) fn file_bytes(bytes: &'a mut u64) -> Self {
        Self {
            name: "size",
            help: "Bytes of the file [default: 64MiB]",
            value: SettingValue::FileBytes(bytes),
        }
    }
}

/// Names chosen out of a list.
pub trait Chosen: fmt::Debug {
    /// What each choice is called in messages, its name and its summary.
    fn choices(&self) -> Vec<(&'static str, &'static str, &'static str)>;
    /// Takes those of these names, in this order.
    fn choose(&mut self, names: &[String]);
}

impl<T: NamedChoice + fmt::Debug> Chosen for Vec<T> {
    fn choices(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        T::ALL.iter().map(|choice| (T::WHAT, choice.name(), choice.summary())).collect()
    }

    fn choose(&mut self, names: &[String]) {
        *self = names.iter().filter_map(|name| T::from_name(name)).collect();
    }
}
