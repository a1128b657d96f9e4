//! Shared pages, on a system without them.
//!
//! *Owns*: the types, of which there is no value here. *May not touch*: anything. Readers in other
//! processes poll the files.

use std::fs::File;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use crate::fork::ForkMark;
use crate::held::Held;

/// How many numbers a shared page has.
pub const PAGE_WORDS: usize = 5;

/// There is none: only Linux has it.
#[derive(Debug)]
pub enum SharedPage {}

impl SharedPage {
    pub(crate) fn of(_lock: &File, _mark: ForkMark) -> Option<Self> {
        None
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        match *self {}
    }

    pub(crate) fn end(&self) {
        match *self {}
    }

    /// Shares bytes; never called here.
    pub fn share(&self, _file: u64, _at: u64, _bytes: &[u8]) {
        match *self {}
    }

    /// Publishes words; never called here.
    pub fn publish(&self, _number: u64, _words: [u64; PAGE_WORDS], _polls_go_on: bool) {
        match *self {}
    }

    /// Never called here.
    pub fn owes_pollers(&self) -> bool {
        match *self {}
    }

    /// Wakes who polls; never called here.
    pub fn wake_pollers(&self) {
        match *self {}
    }
}

/// There is none: only Linux has it.
#[derive(Debug)]
pub enum SharedPageReader {}

impl SharedPageReader {
    pub(crate) fn open(
        _process: u32,
        _descriptor: u32,
        _lock: &File,
        _held: &Arc<Held>,
        _name: &str,
    ) -> Option<Self> {
        None
    }

    /// Never called here.
    pub fn is_kept(&self) -> bool {
        match *self {}
    }

    /// Never called here.
    pub fn has_lost_its_lock(&self) -> bool {
        match *self {}
    }

    /// Never called here.
    pub fn has_ended(&self) -> bool {
        match *self {}
    }

    /// Never called here.
    pub fn rings(&self) -> u32 {
        match *self {}
    }

    /// Never called here.
    pub fn read(&self) -> Option<[u64; PAGE_WORDS]> {
        match *self {}
    }

    /// Never called here.
    pub fn copy_recent(&self, _file: u64, _at: u64, _to: &mut [u8]) -> bool {
        match *self {}
    }

    /// Never called here.
    pub fn sleep(&self, _rings: u32, _time: Duration) -> bool {
        match *self {}
    }

    /// Never called here.
    pub fn poll(&self, _rings: u32, _time: Duration) -> bool {
        match *self {}
    }
}
