//! What the files of a text log cost at the block layer, from traces: as the log has them, and as
//! article 1 practises it.
//!
//! *Owns*: the rows, and what is counted of each. *May not touch*: how events become requests
//! (`crate::bill`).
//!
//! Each turn writes the same number of lines into files of one size, closes and syncs them, all
//! under trace. By default the log leaves allocation to the file system until write-back; a log
//! that survives a power loss syncs after about each buffer. Both are measured.

use std::path::Path;
use std::time::Duration;

use inkstone_appender::{LogWriter, Rotation, Survive};
use inkstone_host::{BlockTrace, ExtentMap, monotonic_ns, own_threads};
use inkstone_io::{Directory as _, File as _, OpenFile, OsDirectory, SyncKind};

use crate::bench::bill::add_files;
use crate::bill::attribute::Evidence;
use crate::bill::layer::layers_of;
use crate::bill::{Layer, bill_of};
use crate::experiment::rounds::{Arm, Frame, Pace, Row, Sample, Scene, Turn, figure};
use crate::experiment::words::{figure_of, row};
use crate::experiment::{ExperimentResult, Figure, Unit};
use crate::pass::CommitSpan;
use crate::result::{Finding, LayerBill};
use crate::site::Site;
use crate::stage::{CellError, Session};
use crate::table::numbers::{bytes, per};

use super::load::{FOLDER, Lines, new_folder, take_away};
use super::practice::AS_THE_TEXT_LOG;
use super::ways::{FILE_BYTES, LINE_BYTES, Writer};

/// Bytes of one turn: eight files.
const TURN_BYTES: u64 = 8 * FILE_BYTES;
/// Shorter than the time to write a buffer.
const SYNC_EVERY: Duration = Duration::from_millis(1);

const DEMAND: &str = "on demand";
const PRACTICE: &str = "used again, as article 1 practises it";
/// Rows of each bill.
pub(super) const COUNT: usize = 2;

/// Where the blocks of the files come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocks {
    OnDemand,
    /// Written files, prepared before the counting begins.
    UsedAgain,
}

/// When the lines reach the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Synced {
    /// With the file system's write-back; the lab syncs at the end.
    AtTheEnd,
    /// After about each buffer: the log survives a power loss.
    AsItGoes,
}

impl Synced {
    pub(super) const ALL: [Self; 2] = [Self::AtTheEnd, Self::AsItGoes];

    fn words(self) -> &'static str {
        match self {
            Self::AtTheEnd => "written back",
            Self::AsItGoes => "synced continuously",
        }
    }
}

/// Both bills side by side.
pub(super) fn bill(
    scene: &mut Scene<'_>,
    lines: &Lines,
    synced: Synced,
    pace: &Pace,
) -> ExperimentResult {
    let site = scene.site;
    let rows = [(DEMAND, Blocks::OnDemand), (PRACTICE, Blocks::UsedAgain)].map(|(name, blocks)| {
        Row::new(name, synced.words(), None, Ok(Billed { site, lines, synced, blocks }))
    });
    let frame = Frame {
        name: match synced {
            Synced::AtTheEnd => "text-bill",
            Synced::AsItGoes => "text-bill-synced",
        },
        title: format!(
            "A text log in files of 1 MiB, {}: what it costs at the block layer",
            synced.words()
        ),
        x_name: None,
        unit: Unit::LinesPerS,
        baseline: DEMAND.into(),
    };
    let mut found = scene.measure_at(pace, &frame, rows.into());
    found.notes = vec![
        match synced {
            Synced::AtTheEnd => "written back: the log as it is by default; the lab syncs its files at the end of a turn".into(),
            Synced::AsItGoes => "synced continuously: Survive::PowerLoss, about once for each buffer".into(),
        },
        "each turn writes 8 MiB of lines, closes the log and syncs every file, under trace; counts are per MiB of lines, the \
         median over turns"
            .into(),
    ];
    if !site.private {
        found.notes.push(
            "other processes use this file system too: their journal writes, metadata and flushes are counted as well"
                .into(),
        );
    }
    found.finding = finding(&found, synced, site.private);
    found
}

struct Billed<'a> {
    site: &'a Site,
    lines: &'a Lines,
    synced: Synced,
    blocks: Blocks,
}

impl Billed<'_> {
    fn open(&self, folder: &Path) -> Result<Writer, CellError> {
        if self.blocks == Blocks::UsedAgain {
            return Writer::practice(folder, self.synced == Synced::AsItGoes, AS_THE_TEXT_LOG);
        }
        let rotation = Rotation::new().at_bytes(FILE_BYTES);
        let survive = match self.synced {
            Synced::AtTheEnd => Survive::Nothing,
            Synced::AsItGoes => Survive::PowerLoss(SYNC_EVERY),
        };
        let (log, guard) = LogWriter::builder(folder.join("lines.log"))
            .rotate(rotation)
            .survive(survive)
            .open()?;
        Ok(Writer::Log(log, guard))
    }

    /// Writes, closes and syncs; returns the threads that took part besides the caller.
    fn write(
        &self,
        session: &Session<'_>,
        folder: &Path,
        ready: Option<Writer>,
    ) -> Result<Vec<u32>, CellError> {
        let refused = |error: std::io::Error| CellError::Invalid(format!("writing lines: {error}"));
        let writer = ready.map_or_else(|| self.open(folder), Ok)?;
        for number in 0..TURN_BYTES / LINE_BYTES as u64 {
            if number % 4096 == 0 {
                session.check()?;
            }
            writer.put(self.lines.get(number)).map_err(refused)?;
        }
        let threads = own_threads();
        writer.close().map_err(refused)?;
        let opened = OsDirectory::open(folder)?;
        for name in opened.list()? {
            opened.open(&name, &OpenFile::existing())?.sync(SyncKind::All)?;
        }
        opened.sync()?;
        Ok(threads)
    }
}

impl Arm for Billed<'_> {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, CellError> {
        let folder = turn.session.directory.path().join(FOLDER);
        new_folder(&folder)?;
        turn.session.directory.sync()?;
        let mut layers = layers_of(&self.site.capabilities.directory);
        layers.truncate(1);
        let Some(layer) = layers.first_mut() else {
            return Err(CellError::Invalid("there is no block device to watch".into()));
        };
        layer.private = self.site.private;
        let ready = (self.blocks == Blocks::UsedAgain).then(|| self.open(&folder)).transpose()?;
        let trace = BlockTrace::start(&layer.numbers)?;
        let start_ns = monotonic_ns();
        let written = self.write(turn.session, &folder, ready);
        let ack_ns = monotonic_ns();
        let trace = trace.stop()?;
        let own_threads = written?;
        add_files(layer, &folder)?;
        layers.iter_mut().for_each(Layer::settle);
        let evidence = Evidence {
            trace: &trace,
            layers: &layers,
            commits: &[CommitSpan { start_ns, ack_ns }],
            own_threads: &own_threads,
            own_workers: false,
            counted: &vec![None],
            timeline_commits: 0,
        };
        let (bill, _) = bill_of(&evidence);
        if bill.lost_events > 0 {
            let why = format!(
                "the kernel dropped {} trace events: nothing can be counted",
                bill.lost_events
            );
            return Err(CellError::Invalid(why));
        }
        let mut figures = bill.layers.first().map(counts).unwrap_or_default();
        figures.push(figure("extents of a file", Unit::PerFile, extents_per_file(&folder)?));
        take_away(&folder)?;
        turn.session.settle();
        Ok(Sample { amount: TURN_BYTES / LINE_BYTES as u64, total_ns: ack_ns - start_ns, figures })
    }
}

/// Per MiB of lines.
fn counts(layer: &LayerBill) -> Vec<Figure> {
    let mib = TURN_BYTES as f64 / f64::from(1 << 20);
    let journal = [layer.journal_writes, layer.timer_journal_writes, layer.other_journal_writes];
    let of = |name: &str, requests: u64| figure(name, Unit::PerMib, requests as f64 / mib);
    let journalled =
        journal.iter().chain([&layer.metadata_writes]).map(|tally| tally.bytes).sum::<u64>() as f64
            / mib;
    vec![
        of("data writes", layer.data_writes.requests),
        of("journal writes", journal.iter().map(|tally| tally.requests).sum()),
        of("metadata writes", layer.metadata_writes.requests + layer.unattributed_writes.requests),
        figure("journal and metadata", Unit::BytesPerMib, journalled),
        of("flushes", layer.flushes + layer.fua_writes),
    ]
}

/// The mean over the files that have lines.
fn extents_per_file(folder: &Path) -> Result<f64, CellError> {
    let opened = OsDirectory::open(folder)?;
    let (mut files, mut extents) = (0, 0);
    for name in opened.list()? {
        let file = opened.open(&name, &OpenFile::existing().read_only())?;
        if file.len_bytes()? > 0 {
            files += 1;
            extents += ExtentMap::of(file.std_file(), file.path())?.physical_ranges().len();
        }
    }
    Ok(extents as f64 / f64::from(files.max(1)))
}

/// How the counts of both compare.
fn finding(found: &ExperimentResult, synced: Synced, private: bool) -> Option<Finding> {
    let said = |name: &str| {
        let row = row(found, name)?;
        if !private {
            // On a shared disk only the file's own blocks can be distinguished, by their place.
            return Some(format!("{} data writes", per(figure_of(row, "data writes")?)));
        }
        let kinds = [
            ("data", "data writes"),
            ("journal", "journal writes"),
            ("metadata", "metadata writes"),
        ];
        let counted = kinds.map(|(word, what)| Some((word, figure_of(row, what)?)));
        let counted = counted.into_iter().collect::<Option<Vec<_>>>()?;
        let said =
            counted.iter().filter(|(_, n)| *n > 0.0).map(|(word, n)| format!("{} {word}", per(*n)));
        let bytes = bytes(figure_of(row, "journal and metadata")?);
        Some(format!(
            "{} writes ({bytes}B of journal and metadata)",
            said.collect::<Vec<_>>().join(" and ")
        ))
    };
    let sentence = format!(
        "A MiB of text log, {}, takes {} with blocks allocated on demand, and {} in reused files.",
        synced.words(),
        said(DEMAND)?,
        said(PRACTICE)?,
    );
    Some(Finding { sentence, naive: Some(DEMAND.into()), ..Finding::default() })
}
