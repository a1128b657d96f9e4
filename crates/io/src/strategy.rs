//! The ways of writing: preparation x reuse x access x durability, and which of them can be
//! combined.
//!
//! *Owns*: the names, and the rule that refuses a contradiction with its reason. *May not touch*:
//! files. The lab measures these ways and the log chooses among some of them, by the same names;
//! [`OsFile`](crate::OsFile) has those that the log can choose, and `inkstone-host` has all, with
//! the engines that make the calls.

use std::fmt;

/// A choice among a fixed list of names, as a person types them.
pub trait NamedChoice: Sized + Copy + 'static {
    /// What the choice is called in messages: `preparation`.
    const WHAT: &'static str;
    /// Every choice, in the order of the documentation.
    const ALL: &'static [Self];
    /// The name as typed.
    fn name(self) -> &'static str;
    /// One line that says what it does.
    fn summary(self) -> &'static str;

    /// The choice of this name; `None` for an unknown one.
    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|choice| choice.name() == name)
    }
}

/// Defines an enum whose variants each have a name that people type and a line that describes it;
/// see [`NamedChoice`]. The line is also the documentation of the variant.
#[macro_export]
macro_rules! named_choice {
    ($(#[$doc:meta])* $type:ident, $what:literal {
        $($variant:ident = $name:literal, $summary:literal;)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $type { $(#[doc = $summary] $variant,)+ }

        impl $crate::NamedChoice for $type {
            const WHAT: &'static str = $what;
            const ALL: &'static [Self] = &[$(Self::$variant,)+];
            fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
            fn summary(self) -> &'static str {
                match self { $(Self::$variant => $summary,)+ }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad($crate::NamedChoice::name(*self))
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = String;
            fn from_str(name: &str) -> ::std::result::Result<Self, String> {
                <Self as $crate::NamedChoice>::from_name(name).ok_or_else(|| {
                    let known: Vec<_> = <Self as $crate::NamedChoice>::ALL
                        .iter()
                        .map(|choice| $crate::NamedChoice::name(*choice))
                        .collect();
                    format!("no {} is called {name:?}: one of {}", $what, known.join(", "))
                })
            }
        }
    };
}

named_choice! {
    /// What is done to a file's blocks before the first write that counts.
    Preparation, "preparation" {
        None = "none", "nothing: the file grows with each write";
        Fallocate = "fallocate", "fallocate mode 0 for the whole size: blocks reserved, unwritten";
        KeepSize = "keep-size",
            "fallocate KEEP_SIZE: blocks reserved past the end, the size grows with each write";
        PosixFallocate = "posix-fallocate",
            "posix_fallocate: the C library's call, which falls back to writing";
        FallocateSteps = "fallocate-steps", "fallocate mode 0, a step ahead of the writer";
        KeepSizeSteps = "keep-size-steps", "fallocate KEEP_SIZE, a step ahead of the writer";
        ZeroRange = "zero-range",
            "fallocate ZERO_RANGE: reads as zeros, but the blocks stay unwritten";
        Sparse = "sparse", "ftruncate to the whole size: a hole, whose blocks each write allocates";
        Zeros = "zeros", "zeros really written, then one sync: the blocks are written and owned";
        WriteZeroes = "write-zeroes",
            "fallocate WRITE_ZEROES (Linux 6.17): the device writes the zeros";
    }
}

impl Preparation {
    /// Whether the blocks are reserved one step at a time, while the writer writes.
    pub fn in_steps(self) -> bool {
        matches!(self, Self::FallocateSteps | Self::KeepSizeSteps)
    }
}

named_choice! {
    /// Which blocks are written.
    Reuse, "reuse" {
        New = "new", "a file that did not exist";
        Reuse = "reuse", "an old file of the same size, written before";
    }
}

named_choice! {
    /// The way in which bytes get into the file.
    Access, "access" {
        Buffered = "buffered", "pwrite through the page cache";
        Seek = "seek", "lseek then write, through the page cache";
        Direct = "direct", "pwrite with O_DIRECT: past the page cache, aligned";
        Mmap = "mmap", "stores into a shared mapping";
        Stream = "stream", "fwrite and fflush: a C stream with its own buffer";
        StreamGather = "stream-gather",
            "fwrite alone: a C stream with 64 KiB that gathers, and writes when they are full (not \
             durable)";
    }
}

named_choice! {
    /// What makes a write durable before it is acknowledged.
    Durability, "durability" {
        None = "none", "nothing: not durable";
        Fsync = "fsync", "fsync after each write: data and all metadata";
        Fdatasync = "fdatasync",
            "fdatasync after each write: data and the metadata needed to read it";
        FdatasyncFsync = "fdatasync-fsync", "fdatasync, then fsync, after each write";
        FdatasyncFsync64 = "fdatasync-fsync-64",
            "fdatasync after each write, and an fsync after every 64th";
        OSync = "o-sync", "the file opened with O_SYNC";
        ODsync = "o-dsync", "the file opened with O_DSYNC";
        RwfDsync = "rwf-dsync", "RWF_DSYNC on each write";
        Msync = "msync", "msync(MS_SYNC) of the range written";
    }
}

impl Durability {
    /// Whether this *claims* that an acknowledged write is on the medium.
    pub fn claims_durable(self) -> bool {
        self != Self::None
    }

    /// Whether the write itself carries the durability, so that no sync follows.
    pub fn with_the_write(self) -> bool {
        matches!(self, Self::OSync | Self::ODsync | Self::RwfDsync)
    }
}

/// One complete way of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Strategy {
    /// What is done to the blocks beforehand.
    pub preparation: Preparation,
    /// Which blocks are written.
    pub reuse: Reuse,
    /// The way in which bytes get into the file.
    pub access: Access,
    /// What makes a write durable.
    pub durability: Durability,
}

impl Strategy {
    /// Refuses a combination that contradicts itself.
    ///
    /// # Errors
    /// The reason, as a sentence without a full stop.
    pub fn check(&self) -> Result<(), String> {
        let Self { preparation, reuse, access, durability } = *self;
        if preparation.in_steps() && reuse == Reuse::Reuse {
            return Err(format!(
                "preparation {preparation} is for a file that grows, and reuse means one that does \
                 not"
            ));
        }
        if durability == Durability::Msync && access != Access::Mmap {
            return Err(format!("durability msync syncs a mapping, and access {access} has none"));
        }
        if access == Access::Mmap && durability.with_the_write() {
            return Err(format!(
                "durability {durability} belongs to a write call, and access mmap makes none"
            ));
        }
        if access == Access::StreamGather && durability != Durability::None {
            return Err(format!(
                "durability {durability} is of each write, and access stream-gather keeps writes \
                 in the process until its buffer is full"
            ));
        }
        if access == Access::Stream && durability == Durability::RwfDsync {
            return Err(
                "durability rwf-dsync is a flag of pwritev2, which a C stream does not call".into(),
            );
        }
        if access == Access::Seek && durability == Durability::RwfDsync {
            return Err(
                "durability rwf-dsync is a flag of pwritev2, and access seek means write".into()
            );
        }
        Ok(())
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { preparation, reuse, access, durability } = self;
        write!(f, "{preparation}/{reuse}/{access}/{durability}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each<T: NamedChoice + fmt::Debug + PartialEq>() {
        for &choice in T::ALL {
            assert_eq!(T::from_name(choice.name()), Some(choice));
            assert!(
                choice
                    .name()
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            );
        }
    }

    #[test]
    fn names_lead_back_to_their_choice() {
        each::<Preparation>();
        each::<Reuse>();
        each::<Access>();
        each::<Durability>();
    }

    #[test]
    fn every_refusal_names_what_it_refuses() {
        let mut refused = 0;
        for &access in Access::ALL {
            for &durability in Durability::ALL {
                let strategy = Strategy {
                    preparation: Preparation::None,
                    reuse: Reuse::New,
                    access,
                    durability,
                };
                if let Err(reason) = strategy.check() {
                    refused += 1;
                    let names = [access.name(), durability.name()];
                    assert!(names.iter().any(|name| reason.contains(name)), "{strategy}: {reason}");
                }
            }
        }
        assert!(refused > 0 && refused < Access::ALL.len() * Durability::ALL.len());
    }
}
