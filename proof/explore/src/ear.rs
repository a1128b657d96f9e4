//! Listeners: one that asks the log, one that panics, one that holds segments as an archiver does.
//!
//! *Owns*: what they hear and hold. *May not touch*: when they are told.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use inkstone::{Event, Log, Options, SealedSegment};
use inkstone_io::{Directory, File, OpenFile};
use inkstone_sim::SimDisk;

use crate::broken::{Kind, fail};
use crate::disk::PATH;
use crate::setup::Listener;
use crate::tasks::Planned;

/// What a listener of ours knows.
pub struct Ear {
    pub log: OnceLock<Weak<Log>>,
    disk: SimDisk,
    heard: AtomicU32,
    /// Segments that are held, and what was in their files.
    archived: Mutex<Vec<(SealedSegment, Vec<u8>)>>,
}

impl Ear {
    fn hears(&self, listener: Listener, event: &Event) {
        let Some(weak) = self.log.get() else { return };
        if let (Listener::Archives, Event::SegmentSealed(sealed)) = (listener, event) {
            let archived = (sealed.clone(), self.bytes_of(sealed));
            self.archived.lock().unwrap_or_else(PoisonError::into_inner).push(archived);
        }
        if let Some(log) = weak.upgrade() {
            log.last();
            log.stats();
        }
        if listener == Listener::Panics && self.heard.fetch_add(1, Ordering::Relaxed) == 1 {
            Planned::once();
        }
    }

    fn bytes_of(&self, sealed: &SealedSegment) -> Vec<u8> {
        let name = sealed.path.file_name().unwrap_or_default().to_string_lossy();
        let mut bytes = Vec::new();
        if let Ok(file) = self.disk.directory(PATH).open(&name, &OpenFile::existing().read_only()) {
            bytes.resize(file.len_bytes().unwrap_or(0) as usize, 0);
            let _ = file.read_at(&mut bytes, 0);
            // In the last block a cut may leave its mark.
            bytes.truncate(bytes.len().saturating_sub(4096));
        }
        bytes
    }

    /// What is held is not used for anything else.
    pub fn check_archive(&self) {
        for (sealed, bytes) in
            self.archived.lock().unwrap_or_else(PoisonError::into_inner).drain(..)
        {
            if self.bytes_of(&sealed) != bytes {
                fail!(Kind::Pinned, "segment {} is held, and its file has changed", sealed.number);
            }
        }
    }
}

pub fn listen(options: Options, listener: Listener, disk: &SimDisk) -> (Options, Arc<Ear>) {
    let ear = Arc::new(Ear {
        log: OnceLock::new(),
        disk: disk.clone(),
        heard: AtomicU32::new(0),
        archived: Mutex::default(),
    });
    if listener == Listener::None {
        return (options, ear);
    }
    let theirs = Arc::clone(&ear);
    (options.listener(move |event| theirs.hears(listener, event)), ear)
}
