//! What a writer of ours does, as words: on its command line, and at the beginning of a recording.
//!
//! *Owns*: reading words, the durable ways of writing, the lines between a writer and who records
//! it. *May not touch*: the writing.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{BufRead, Write};
use std::str::FromStr;

use inkstone::{Access, Durability};
use inkstone_io::{NamedChoice as _, named_choice};

use crate::kernel::machine::FsKind;

named_choice! {
    /// A durable way of writing that the log's options can choose.
    Way, "strategy" {
        BufferedFdatasync = "buffered-fdatasync", "through the page cache, then fdatasync";
        BufferedFsync = "buffered-fsync", "through the page cache, then fsync";
        BufferedRwfDsync = "buffered-rwf-dsync",
            "through the page cache with RWF_DSYNC on each write";
        BufferedODsync = "buffered-o-dsync", "through the page cache, opened with O_DSYNC";
        BufferedOSync = "buffered-o-sync", "through the page cache, opened with O_SYNC";
        DirectFdatasync = "direct-fdatasync", "O_DIRECT, then fdatasync";
        DirectFsync = "direct-fsync", "O_DIRECT, then fsync";
        DirectRwfDsync = "direct-rwf-dsync", "O_DIRECT with RWF_DSYNC on each write";
        DirectODsync = "direct-o-dsync", "O_DIRECT, opened with O_DSYNC";
        DirectOSync = "direct-o-sync", "O_DIRECT, opened with O_SYNC";
    }
}

impl Way {
    /// Those of these that a file system has, and those that it lacks.
    pub(crate) fn on(kind: FsKind, ways: &[Self]) -> (Vec<Self>, Vec<Self>) {
        ways.iter().partition(|way| way.access() == Access::Buffered || kind.has_direct())
    }

    pub(crate) fn list(ways: &[Self]) -> String {
        if ways.len() == Self::ALL.len() {
            return format!("all {} ways of writing", ways.len());
        }
        ways.iter().map(Self::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Whether it writes past the page cache.
    pub fn access(self) -> Access {
        match self {
            Self::BufferedFdatasync
            | Self::BufferedFsync
            | Self::BufferedRwfDsync
            | Self::BufferedODsync
            | Self::BufferedOSync => Access::Buffered,
            _ => Access::Direct,
        }
    }

    /// What makes a commit durable.
    pub fn durability(self) -> Durability {
        match self {
            Self::BufferedFdatasync | Self::DirectFdatasync => Durability::Fdatasync,
            Self::BufferedFsync | Self::DirectFsync => Durability::Fsync,
            Self::BufferedRwfDsync | Self::DirectRwfDsync => Durability::RwfDsync,
            Self::BufferedODsync | Self::DirectODsync => Durability::ODsync,
            Self::BufferedOSync | Self::DirectOSync => Durability::OSync,
        }
    }
}

/// Words of the form `name=value` behind a head that says whose they are.
pub(crate) struct Words<'a> {
    text: &'a str,
    words: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    pub(crate) fn of(text: &'a str, head: &str) -> Result<Self, String> {
        let rest = text
            .strip_prefix(head)
            .ok_or_else(|| format!("{text:?} does not begin with {head:?}"))?;
        let words = rest.split_whitespace().map(|word| {
            word.split_once('=').ok_or_else(|| format!("{word:?} in {text:?} is no word of it"))
        });
        Ok(Self { text, words: words.collect::<Result<_, _>>()? })
    }

    /// The value of this name, if there is one.
    pub(crate) fn get<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, String> {
        let Some(word) = self.words.get(name) else { return Ok(None) };
        let wrong = |why: T::Err| format!("{:?}: {name}={word}: {why}", self.text);
        word.parse().map(Some).map_err(wrong)
    }

    /// The value of this name.
    pub(crate) fn needed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<T, String> {
        self.get(name)?.ok_or_else(|| format!("{:?}: {name} is missing", self.text))
    }
}

/// Gives a type its text form: each name with the field's value; behind `?` those that may have
/// none.
macro_rules! in_words {
    (
        $type:ident, $head:ident,
        $($field:ident = $name:literal),+ ? $($may:ident = $may_name:literal),*
    ) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($head)?;
                $(write!(f, concat!(" ", $name, "={}"), self.$field)?;)+
                $(if let Some(value) = self.$may {
                    write!(f, concat!(" ", $may_name, "={}"), value)?;
                })*
                Ok(())
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let words = $crate::words::Words::of(text, $head)?;
                Ok(Self { $($field: words.needed($name)?,)+ $($may: words.get($may_name)?,)* })
            }
        }
    };
}
pub(crate) use in_words;

/// The line of a writer that has failed: the rest says why.
pub const FAILED: &str = "failed";
/// The line of a writer that has done everything.
pub const END: &str = "end";
/// The answer to each line of a writer that goes step by step.
pub const GO: &str = "go";

/// A writer that says lines. If it goes step by step, it waits until whoever records has noted the
/// line.
pub(crate) struct Teller<'a, R> {
    input: R,
    output: &'a mut (dyn Write + Send),
    is_in_step: bool,
}

impl<'a, R: BufRead> Teller<'a, R> {
    pub(crate) fn new(input: R, output: &'a mut (dyn Write + Send), is_in_step: bool) -> Self {
        Self { input, output, is_in_step }
    }

    /// Says a line; what it is answered.
    pub(crate) fn ask(&mut self, line: &str) -> Result<String, String> {
        let gone = |what: &dyn Display| format!("after {line:?} the recorder has ended: {what}");
        // One write a line: a kill leaves whole lines.
        let said = self.output.write_all(format!("{line}\n").as_bytes());
        said.and_then(|()| self.output.flush()).map_err(|error| gone(&error))?;
        if !self.is_in_step {
            return Ok(GO.to_owned());
        }
        let mut answer = String::new();
        match self.input.read_line(&mut answer) {
            Ok(0) => Err(gone(&"no answer")),
            Ok(_) => Ok(answer.trim_end().to_owned()),
            Err(error) => Err(gone(&error)),
        }
    }

    pub(crate) fn say(&mut self, line: &str) -> Result<(), String> {
        let answer = self.ask(line)?;
        if answer == GO { Ok(()) } else { Err(format!("to {line:?} it is answered {answer:?}")) }
    }

    /// Says how it ended.
    pub(crate) fn end(&mut self, done: Result<(), String>) -> Result<(), String> {
        match &done {
            Ok(()) => self.say(END),
            Err(why) => {
                // The recorder may have ended already.
                let _ = self.say(&format!("{FAILED} {}", why.replace('\n', " ")));
                done
            }
        }
    }
}
