//! What article 1's two buffers save the thread that logs, and what memory that is taken beforehand
//! saves it, for claims.
//!
//! *Owns*: the rows. *May not touch*: how lines are gathered and written (`practice`), the load,
//! the rounds.

use std::time::Duration;

use crate::experiment::ExperimentResult;
use crate::experiment::definition::{Experiment, Scene, Size};
use crate::experiment::rounds::{Frame, Row, measure};
use crate::stage::CellError;

use super::load::{Lines, Load, Writers};
use super::practice::Memory;
use super::ways::{FILE_BYTES, Writer};

/// A buffer is full after 547 lines, so that the 99.9th percentile of a write is one that hands a
/// buffer over.
const BUFFER_BYTES: usize = 64 << 10;
const PACED: Load = Load::Paced { at_most: Duration::from_secs(1) };
const ROWS: [(&str, usize, bool); 4] = [
    ("two buffers, taken beforehand", 2, false),
    ("two buffers, taken when needed", 2, true),
    ("one buffer, taken beforehand", 1, false),
    ("one buffer, taken when needed", 1, true),
];

/// One thread at 100,000 lines a second, by the number of buffers and when their memory is taken.
#[derive(Debug)]
pub(crate) struct Buffers;

impl Experiment for Buffers {
    fn name(&self) -> &'static str {
        "buffers"
    }

    fn sized(_: Size) -> Self {
        Self
    }

    fn room_needed_bytes(&self) -> u64 {
        8 * FILE_BYTES
    }

    fn rows(&self) -> usize {
        ROWS.len()
    }

    fn claims_s(&self) -> f64 {
        8.0
    }

    fn measure(&self, scene: Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> {
        let Scene { site, session, pace, progress } = scene;
        let lines = Lines::new(pace.seed);
        let rows = ROWS.map(|(name, buffers, when_needed)| {
            let memory = Memory { buffer_bytes: BUFFER_BYTES, buffers, when_needed };
            let open =
                Box::new(move |folder: &std::path::Path| Writer::practice(folder, false, memory));
            Row::new(name, "buffers", None, Ok(Writers::opened_by(open, PACED, 1, &lines)))
        });
        let frame = Frame {
            name: "buffers",
            title: "Text lines by 1 thread, 100,000 a second, gathered in buffers of 64 KiB: how long one write takes"
                .into(),
            x_name: None,
            unit: "ns, p99.9 of a write",
            baseline: ROWS[0].0.into(),
        };
        Ok(vec![measure(site, session, pace, &frame, rows.into(), progress)])
    }
}
