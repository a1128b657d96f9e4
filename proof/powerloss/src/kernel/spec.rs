//! What a writer does: a history from a seed, on a log that writes in one way.
//!
//! *Owns*: the durable ways of writing, the options that follow from a seed, their text form. *May
//! not touch*: the writing.

use std::fmt;
use std::str::FromStr;

use inkstone::{Access, Durability, Options, Preparation};
use inkstone_io::named_choice;

use super::machine::FsKind;
use crate::history::{Op, history};
use crate::mistake::{Mistake, build_in};
use crate::sim::variant::small;

named_choice! {
    /// A durable way of writing that the log's options can choose.
    Way, "strategy" {
        BufferedFdatasync = "buffered-fdatasync", "through the page cache, then fdatasync";
        BufferedFsync = "buffered-fsync", "through the page cache, then fsync";
        BufferedRwfDsync = "buffered-rwf-dsync", "through the page cache with RWF_DSYNC on each write";
        BufferedODsync = "buffered-o-dsync", "through the page cache, opened with O_DSYNC";
        BufferedOSync = "buffered-o-sync", "through the page cache, opened with O_SYNC";
        DirectFdatasync = "direct-fdatasync", "O_DIRECT, then fdatasync";
        DirectFsync = "direct-fsync", "O_DIRECT, then fsync";
        DirectRwfDsync = "direct-rwf-dsync", "O_DIRECT with RWF_DSYNC on each write";
        DirectODsync = "direct-o-dsync", "O_DIRECT, opened with O_DSYNC";
        DirectOSync = "direct-o-sync", "O_DIRECT, opened with O_SYNC";
    }
}

named_choice! {
    /// What is written.
    Subject, "subject" {
        Log = "log", "a log";
        Raft = "raft", "a raft log on a log";
    }
}

impl Way {
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

/// What the writer does; everything else follows from it. Its text is in the recording and on the
/// writer's command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// On which file system.
    pub kind: FsKind,
    /// How the log writes.
    pub way: Way,
    /// The seed of the history and of the other options.
    pub seed: u64,
    /// Operations.
    pub length: usize,
    /// A mistake in the log, to see that it is found.
    pub mistake: Option<Mistake>,
    /// What is written.
    pub subject: Subject,
}

const HEAD: &str = "inkstone-powerloss 1";

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, way, seed, length, .. } = self;
        write!(f, "{HEAD} fs={kind} strategy={way} seed={seed} length={length}")?;
        if self.subject != Subject::Log {
            write!(f, " subject={}", self.subject)?;
        }
        self.mistake.map_or(Ok(()), |mistake| write!(f, " mistake={mistake}"))
    }
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = text
            .strip_prefix(HEAD)
            .ok_or_else(|| format!("{text:?} does not begin with {HEAD:?}"))?;
        let (mut kind, mut way, mut seed, mut length, mut mistake) = (None, None, None, None, None);
        let mut subject = Subject::Log;
        for word in words.split_whitespace() {
            let (name, value) =
                word.split_once('=').ok_or_else(|| format!("{word:?} in {text:?}"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{word:?}: not a number"));
            match name {
                "fs" => kind = Some(value.parse()?),
                "strategy" => way = Some(value.parse()?),
                "seed" => seed = Some(number()?),
                "length" => length = Some(number()? as usize),
                "mistake" => mistake = Some(value.parse()?),
                "subject" => subject = value.parse()?,
                _ => return Err(format!("{word:?} in {text:?} is unknown")),
            }
        }
        match (kind, way, seed, length) {
            (Some(kind), Some(way), Some(seed), Some(length)) => {
                Ok(Self { kind, way, seed, length, mistake, subject })
            }
            _ => Err(format!("{text:?}: fs, strategy, seed and length are needed")),
        }
    }
}

impl Spec {
    /// What the writer does with a log.
    pub fn operations(&self) -> Vec<Op> {
        history(self.seed, self.length)
    }

    /// Whether the log has threads of its own: every other seed.
    pub fn has_threads(&self) -> bool {
        self.seed % 2 == 1
    }

    /// The options of the log that is written. A log that is only checked has no threads.
    pub fn options(&self, own_thread: bool) -> Options {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ 0x6B65_726E_656C_2121);
        let options = small()
            .access(self.way.access())
            .durability(self.way.durability())
            .preparation(if rng.bool() { Preparation::Zeros } else { Preparation::Fallocate })
            .pad_groups(rng.bool())
            .free_segments_max(rng.usize(..4))
            .buffer_bytes(if rng.bool() { 8 << 10 } else { 32 << 10 })
            .own_thread(own_thread);
        build_in(options, self.mistake)
    }

    /// The options of the checker: the same log, without threads and without the mistake.
    pub fn checker(&self) -> Options {
        Self { mistake: None, ..*self }.options(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkstone_io::NamedChoice;

    #[test]
    fn its_words_say_it_all() {
        for (index, &way) in Way::ALL.iter().enumerate() {
            let kind = FsKind::ALL[index % FsKind::ALL.len()];
            let spec = Spec {
                kind,
                way,
                seed: u64::MAX - index as u64,
                length: index,
                mistake: None,
                subject: Subject::Log,
            };
            assert_eq!(spec.to_string().parse(), Ok(spec));
            let raft = Spec { subject: Subject::Raft, ..spec };
            assert_eq!(raft.to_string().parse(), Ok(raft));
            spec.options(index % 2 == 0).check().expect("the log can be told");
            assert_eq!(way.to_string().starts_with("direct"), way.access() == Access::Direct);
            assert!(way.to_string().ends_with(&way.durability().to_string()), "{way}");
        }
        let bad = |words: &str| format!("{HEAD} {words}").parse::<Spec>().expect_err("no spec");
        assert!(bad("fs=ext4 strategy=direct-fsync seed=1").contains("length"));
        assert!(bad("fs=ext5").contains("ext4-nojournal"));
        assert!(bad("speed=1").contains("speed"));
        assert!("dm-log".parse::<Spec>().is_err());
    }
}

#[cfg(all(test, inkstone_mistakes))]
mod mistaken {
    use super::*;

    #[test]
    fn its_words_name_the_mistake() {
        let mistake = Some(Mistake::NoSync);
        let (kind, way) = (FsKind::Ext4, Way::BufferedFdatasync);
        let spec = Spec { kind, way, seed: 1, length: 2, mistake, subject: Subject::Log };
        assert_eq!(spec.to_string().parse(), Ok(spec));
        assert_eq!(spec.checker().mistake(), None);
    }
}
