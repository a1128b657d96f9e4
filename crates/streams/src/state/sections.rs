//! The sections that the log has, with the bytes that live in each.
//!
//! *Owns*: which sections there are, and where a new record lies. *May not touch*: streams
//! (`state.rs`), the places of one section (`section.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use inkstone::Lsn;

use crate::record::Sealed;
use crate::state::runs::Live;
use crate::state::section::{Broken, Directory, Section};

/// The sections of the log.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    pub(super) list: BTreeMap<u32, Section>,
    pub(crate) live_bytes: u64,
    pub(crate) log_bytes: u64,
}

impl Live for Sections {
    fn gain(&mut self, section: u32, bytes: u32) {
        if let Some(section) = self.list.get_mut(&section) {
            section.live_bytes += u64::from(bytes);
            self.live_bytes += u64::from(bytes);
        }
    }

    fn lose(&mut self, section: u32, bytes: u32) {
        if let Some(section) = self.list.get_mut(&section) {
            section.live_bytes = section.live_bytes.saturating_sub(u64::from(bytes));
            self.live_bytes = self.live_bytes.saturating_sub(u64::from(bytes));
        }
    }
}

impl Sections {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Section> {
        self.list.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Section> {
        self.list.get_mut(&number)
    }

    pub(crate) fn iter_from(&self, number: u32) -> impl Iterator<Item = &Section> {
        self.list.range(number..).map(|(_, section)| section)
    }

    pub(crate) fn front(&self) -> Option<&Section> {
        self.list.first_key_value().map(|(_, section)| section)
    }

    /// The section that records are appended to.
    pub(crate) fn active(&self) -> Option<&Section> {
        self.list.last_key_value().map(|(_, section)| section)
    }

    pub(super) fn active_mut(&mut self) -> &mut Section {
        self.list.last_entry().expect("a record was entered").into_mut()
    }

    /// Notes where a record is, and returns its section.
    pub(super) fn place(&mut self, stream: u64, number: u64, lsn: Lsn) -> u32 {
        let active = self.active_mut();
        let offset = u32::try_from(lsn.get() - active.first.get()).unwrap_or(u32::MAX);
        if let Directory::Growing(places) = &mut active.directory {
            places.add(stream, number, offset);
        }
        active.number
    }

    /// Forgets where records of a stream from a number on are in the section that is entered.
    pub(crate) fn forget_places(&mut self, stream: u64, from: u64) {
        if let Some(mut active) = self.list.last_entry()
            && let Directory::Growing(places) = &mut active.get_mut().directory
        {
            places.forget(stream, from);
        }
    }

    pub(super) fn seal(&mut self, number: u32, end: Lsn) {
        let Some(section) = self.list.get_mut(&number) else { return };
        if let Directory::Growing(places) = &mut section.directory {
            section.directory = Directory::Sealing { places: std::mem::take(places), end };
        }
    }

    /// Notes that the directory of a section is in the log, as an opening reads it.
    pub(super) fn is_written(&mut self, sealed: &Sealed) -> std::result::Result<(), Broken> {
        if self.active().is_none_or(|active| sealed.number >= active.number) {
            return Err(format!("section {} has a directory before its end", sealed.number));
        }
        let section =
            self.list.entry(sealed.number).or_insert(Section::new(sealed.number, sealed.first, 0));
        if section.directory.written().is_some() {
            return Ok(());
        }
        section.first = sealed.first;
        section.bytes = sealed.bytes;
        section.directory =
            Directory::Written { end: sealed.end, written: Arc::clone(&sealed.written) };
        Ok(())
    }

    /// Forgets the sections that end at or before this record.
    pub(crate) fn forget_before(&mut self, first: Lsn) {
        while let Some(front) = self.list.first_entry()
            && front.get().end().is_some_and(|end| end <= first)
        {
            let section = front.remove();
            self.log_bytes = self.log_bytes.saturating_sub(section.bytes);
        }
    }
}
