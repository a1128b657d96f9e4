//! The ways of writing that a lab compares: those of [`Strategy`], each with an engine.
//!
//! *Owns*: the engines' names, and the rule that refuses a contradiction with its reason. *May not
//! touch*: files.

use std::fmt;

use inkstone_io::{Access, Durability, Preparation, Reuse, Strategy, named_choice};

named_choice! {
    /// What makes the system calls.
    EngineKind, "engine" {
        Caller = "caller", "the calling thread itself";
        Uring = "uring", "io_uring: one entry for the write, one for the sync";
        UringLinked = "uring-linked", "io_uring: the write linked to its fsync, one submission";
        Aio = "aio", "Linux AIO: io_submit and io_getevents";
    }
}

/// One complete way of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LabStrategy {
    /// What is done to the blocks beforehand.
    pub preparation: Preparation,
    /// Which blocks are written.
    pub reuse: Reuse,
    /// The way in which bytes get into the file.
    pub access: Access,
    /// What makes a write durable.
    pub durability: Durability,
    /// What makes the system calls.
    pub engine: EngineKind,
}

impl LabStrategy {
    /// Refuses a combination that contradicts itself.
    ///
    /// # Errors
    /// The reason, as a sentence without a full stop.
    pub fn check(&self) -> Result<(), String> {
        let Self { preparation, reuse, access, durability, engine } = *self;
        Strategy { preparation, reuse, access, durability }.check()?;
        let memory_or_stream =
            matches!(access, Access::Mmap | Access::Stream | Access::StreamGather);
        let is_blocking = engine == EngineKind::Caller;
        if memory_or_stream && !is_blocking {
            return Err(format!(
                "engine {engine} writes by file descriptor, and access {access} does not"
            ));
        }
        if access == Access::Seek && !is_blocking {
            return Err(format!(
                "engine {engine} takes an offset with each write, and access seek means lseek"
            ));
        }
        if engine == EngineKind::UringLinked
            && !matches!(durability, Durability::Fsync | Durability::Fdatasync)
        {
            return Err(format!(
                "engine uring-linked links a write to its fsync or fdatasync, not to {durability}"
            ));
        }
        Ok(())
    }
}

impl fmt::Display for LabStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { preparation, reuse, access, durability, engine } = self;
        write!(f, "{preparation}/{reuse}/{access}/{durability}/{engine}")
    }
}

#[cfg(test)]
mod tests {
    use inkstone_io::NamedChoice as _;

    use super::*;

    #[test]
    fn every_refusal_names_what_it_refuses() {
        let mut refused = 0;
        for &access in Access::ALL {
            for &durability in Durability::ALL {
                for &engine in EngineKind::ALL {
                    let (preparation, reuse) = (Preparation::None, Reuse::New);
                    let strategy = LabStrategy { preparation, reuse, access, durability, engine };
                    let Err(reason) = strategy.check() else { continue };
                    refused += 1;
                    let names = [access.name(), durability.name(), engine.name()];
                    let is_named = names.iter().any(|name| reason.contains(name));
                    assert!(is_named, "{strategy}: {reason}");
                }
            }
        }
        let all = Access::ALL.len() * Durability::ALL.len() * EngineKind::ALL.len();
        assert!(refused > 0 && refused < all);
        assert!(EngineKind::ALL.iter().all(|e| EngineKind::from_name(e.name()) == Some(*e)));
    }
}
