//! Two threads that write through one descriptor, each its own half of a file: counted, not timed,
//! for claims.
//!
//! *Owns*: the rows. *May not touch*: the rounds.

use std::fs::File as StdFile;
use std::io::{Seek, SeekFrom, Write};

use inkstone_host::LabFile;
use inkstone_io::{AlignedBuf, File, OpenFile};

use crate::crowd::together;
use crate::stage::CellError;

use super::ExperimentResult;
use super::definition::{Experiment, Scene, Size};
use super::rounds::{Arm, Frame, Row, Sample, Turn, counted, measure};

const FILE: &str = "shared-offset";
const RECORD_BYTES: usize = 64;
const THREADS: usize = 2;
/// Records of the file; each thread writes half of them. So many take longer than one turn of a
/// processor, if there is only one.
const RECORDS: u64 = 65_536;

/// lseek and write, and pwrite, by two threads.
#[derive(Debug)]
pub(crate) struct SharedOffset;

impl Experiment for SharedOffset {
    fn name(&self) -> &'static str {
        "shared-offset"
    }

    fn sized(_: Size) -> Self {
        Self
    }

    fn room_needed_bytes(&self) -> u64 {
        RECORDS * RECORD_BYTES as u64
    }

    fn rows(&self) -> usize {
        2
    }

    fn measure(&self, scene: Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> {
        let Scene { site, session, pace, progress } = scene;
        let row = |name: &str, seeks| Row::new(name, "records", None, Ok(Halves { seeks }));
        let rows = vec![row("lseek + write", true), row("pwrite", false)];
        let frame = Frame {
            name: "shared-offset",
            title: "65,536 records of 64 bytes by two threads through one descriptor, each its own half"
                .into(),
            x_name: None,
            unit: "records astray",
            baseline: String::new(),
        };
        let found = measure(site, session, &pace.for_counts(), &frame, rows, progress);
        session.clear(FILE)?;
        Ok(vec![found])
    }
}

struct Halves {
    seeks: bool,
}

impl Arm for Halves {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, CellError> {
        let file = turn.session.new_file(FILE, &OpenFile::new_file())?;
        file.set_len(RECORDS * RECORD_BYTES as u64)?;
        together(&mut [(); THREADS], |thread, ()| {
            let mut record = [0; RECORD_BYTES];
            let half = RECORDS / THREADS as u64;
            for number in thread as u64 * half..(thread as u64 + 1) * half {
                turn.session.check()?;
                record[..8].copy_from_slice(&(number + 1).to_le_bytes());
                let offset = number * RECORD_BYTES as u64;
                if self.seeks {
                    seek_and_write(&file, &record, offset)?;
                } else {
                    file.write_at(&record, offset)?;
                }
            }
            Ok(())
        })?;
        Ok(counted(misplaced(&file)?))
    }
}

/// Two calls on the descriptor that both threads share. The access `seek` of a cell holds a lock
/// over both, as a program must.
fn seek_and_write(file: &LabFile, record: &[u8], offset: u64) -> Result<(), CellError> {
    let mut shared: &StdFile = file.std_file();
    let sought = shared.seek(SeekFrom::Start(offset)).and_then(|_| shared.write_all(record));
    sought.map_err(|error| inkstone_io::Error::new("lseek and write", file.path(), error).into())
}

fn misplaced(file: &LabFile) -> Result<u64, CellError> {
    let mut all = AlignedBuf::zeroed(RECORDS as usize * RECORD_BYTES);
    file.read_at(&mut all, 0)?;
    let is_astray = |(number, record): &(u64, &[u8])| record[..8] != number.to_le_bytes();
    Ok((1..).zip(all.chunks(RECORD_BYTES)).filter(is_astray).count() as u64)
}
