//! The engines that submit entries to the kernel, on a system without them.
//!
//! *Owns*: the error that says so. *May not touch*: requests; there is no engine here.

use crate::error::{Error, Result};
use crate::file::OsFile;
use crate::seam::{Completion, Engine, Request};
use crate::strategy::{EngineKind, NamedChoice};

/// There is none.
#[derive(Debug)]
pub(crate) enum Entries {}

impl Entries {
    pub(crate) fn open(kind: EngineKind, _depth: usize) -> Result<Self> {
        let why = "only Linux has it: use engine caller or pool";
        Err(Error::unsupported("open engine", kind.name(), why))
    }

    pub(crate) fn notice(&self) -> Option<&Error> {
        match *self {}
    }
}

impl Engine for Entries {
    type File = OsFile;

    fn submit(&mut self, _: Request<OsFile>) -> Result<()> {
        match *self {}
    }

    fn complete(&mut self) -> Result<Option<Completion>> {
        match *self {}
    }

    fn in_flight(&self) -> usize {
        match *self {}
    }
}
