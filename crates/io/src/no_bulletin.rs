//! Bulletins, on a system without them.
//!
//! *Owns*: the types, of which there is no value here. *May not touch*: anything. Readers in other
//! processes poll the files.

use std::fs::File;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::fork::ForkMark;

/// How many numbers a bulletin has.
pub const BULLETIN_WORDS: usize = 5;

/// There is none: only Linux has it.
#[derive(Debug)]
pub enum Bulletin {}

impl Bulletin {
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

    /// Posts words; never called here.
    pub fn post(&self, _number: u64, _words: [u64; BULLETIN_WORDS], _naps_go_on: bool) {
        match *self {}
    }

    /// Never called here.
    pub fn owes_nappers(&self) -> bool {
        match *self {}
    }

    /// Wakes who naps; never called here.
    pub fn wake_nappers(&self) {
        match *self {}
    }
}

/// There is none: only Linux has it.
#[derive(Debug)]
pub enum BulletinReader {}

impl BulletinReader {
    pub(crate) fn open(_process: u32, _descriptor: u32, _lock: &File) -> Option<Self> {
        None
    }

    /// Never called here.
    pub fn is_same(&self, _other: &Self) -> bool {
        match *self {}
    }

    /// Never called here.
    pub fn is_kept(&self) -> bool {
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
    pub fn read(&self) -> Option<[u64; BULLETIN_WORDS]> {
        match *self {}
    }

    /// Never called here.
    pub fn has_still(&self, _at: [usize; 2], _words: [u64; 2]) -> bool {
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
    pub fn nap(&self, _rings: u32, _time: Duration) -> bool {
        match *self {}
    }
}
