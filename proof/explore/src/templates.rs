//! The logs that histories begin with: made once, and copied for each schedule.
//!
//! *Owns*: what they hold. *May not touch*: what becomes of the copies.

use std::sync::{Arc, OnceLock};

use inkstone::Log;
use inkstone_sim::{DiskOptions, SimDisk};

use crate::disk::PATH;
use crate::ledger::payload;
use crate::setup::{Before, plain};

pub struct Template {
    pub disk: SimDisk,
    pub records: u64,
}

static TEMPLATES: OnceLock<Vec<Template>> = OnceLock::new();

/// Makes the logs that histories begin with. Once, in a schedule of its own.
pub fn make_templates() {
    TEMPLATES.get_or_init(|| Before::ALL.into_iter().map(Template::new).collect());
}

impl Template {
    /// The one that was made for this.
    pub fn of(before: Before) -> &'static Self {
        &TEMPLATES.get().expect("templates come first")[before as usize]
    }

    fn new(before: Before) -> Self {
        let with = |sizes: &[usize]| {
            let disk = SimDisk::new(7, DiskOptions::default());
            if sizes.is_empty() {
                return (Self { disk, records: 0 }, 0);
            }
            let directory = Arc::new(disk.directory(PATH));
            let log = Log::open_in(directory, plain()).expect("a new log");
            for (number, bytes) in sizes.iter().enumerate() {
                log.append_durable(&payload(number as u32, *bytes)).expect("appended");
            }
            let segments = log.stats().segments;
            log.close().expect("closed");
            (Self { disk, records: sizes.len() as u64 }, segments)
        };
        match before {
            Before::Nothing => with(&[]).0,
            Before::Few => with(&[100, 20, 3000, 50]).0,
            Before::Several => with(&[18_000; 7]).0,
            Before::NearlyFull => {
                let one = with(&[100]).1;
                let fits = (1..).take_while(|count| with(&vec![6000; *count]).1 == one).last();
                with(&vec![6000; fits.unwrap_or(1)]).0
            }
        }
    }
}
