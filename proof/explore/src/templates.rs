//! The logs that histories begin with: made once, and copied for each schedule.
//!
//! *Owns*: what they hold. *May not touch*: what becomes of the copies.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use inkstone::Log;
use inkstone_sim::{DiskOptions, SimDisk, Times};
use inkstone_subject::log::history::Op;
use inkstone_subject::log::past::{Callers, Past};
use inkstone_subject::log::words::{Answer, Told};
use inkstone_subject::{Past as _, SOLE};

use crate::disk::PATH;
use crate::setup::{Before, plain};

pub struct Template {
    pub disk: SimDisk,
    pub past: Past,
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
            let [write, flush, fua_write] = [20, 180, 200].map(Duration::from_micros);
            let times = Some(Times { write, flush, fua_write });
            let disk = SimDisk::new(7, DiskOptions { times, ..DiskOptions::default() });
            let mut past = Past::new(Callers::Many);
            if sizes.is_empty() {
                return (Self { disk, past }, 0);
            }
            let directory = Arc::new(disk.directory(PATH));
            let log = Log::open_in(directory, plain()).expect("a new log");
            for bytes in sizes {
                let call = Op::Append(*bytes).plan(&past);
                past.began(SOLE, &call);
                let lsn = log.append_durable(call.records()[0].payload()).expect("appended").get();
                let answer = Answer::Done(Some((lsn, lsn)));
                past.ended(SOLE, &Told { answer, ends: None, back: None }, false)
                    .expect("so it is");
            }
            let segments = log.stats().segments;
            log.close().expect("closed");
            past.opening();
            (Self { disk, past }, segments)
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
