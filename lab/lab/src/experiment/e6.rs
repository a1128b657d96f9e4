//! The load that article 5 suggests for a device; two threads on one descriptor; calls that are
//! refused.
//!
//! *Owns*: fio's `rw=rw` made again, the other two. *May not touch*: the loop (`flight`), the
//! rounds.
//!
//! `rw=rw`: each job has a position to read and a position to write; both begin at the start of the
//! file and advance block by block. Which comes next is drawn. After as many blocks as the file
//! has, both begin again. As published, each job has 16 requests in flight through io_uring.

use std::fs::File as StdFile;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::Duration;

use inkstone_host::{EngineKind, LabFile};
use inkstone_io::{Access, AlignedBuf, Durability, File, OpenFile, Persist};

use crate::atlas::short_answer;
use crate::crowd::together;
use crate::result::{Unit, figure};
use crate::rounds::{Facts, Running, Sample, Scene, Trial, Turn, timed};
use crate::stage::{Session, WayError};

use super::flight::{Work, flights, fly};

const BLOCK_BYTES: u64 = 4096;
const FILE: &str = "mixed";
/// Jobs, each a thread, and the requests that each has in flight, as published.
const JOBS: usize = 8;
const DEPTH: usize = 16;

/// The load over a file of this size, in turns of at most so many seconds.
pub(super) fn mixed(file_bytes: u64, turn_s: u64) -> Trial {
    let title = "4 KiB, half reads and half durable writes, O_DIRECT + O_SYNC, through io_uring";
    Trial::new((FILE, title), Unit::OperationsPerS, (file_bytes, 8.0), move |scene| {
        scene.site.can_open(Access::Direct)?;
        let seed = fastrand::u64(..);
        drop(scene.session.written_file(FILE, file_bytes, Access::Direct, seed)?);
        let flights = flights(JOBS, EngineKind::Uring, DEPTH, BLOCK_BYTES as usize);
        let jobs = flights.map(|mut flights| {
            timed(move |turn, latency| {
                let how = OpenFile::existing().access(Access::Direct).durability(Durability::OSync);
                let file = Arc::new(turn.session.directory.open(FILE, &how)?);
                let turn = Turn { time: turn.time.min(Duration::from_secs(turn_s)), ..*turn };
                let job = |_| half_and_half(file_bytes / BLOCK_BYTES);
                let (count, total_ns) = fly(&mut flights, &turn, &file, seed, job)?;
                flights.iter_mut().for_each(|flight| flight.give_times(latency));
                Ok(Sample::of(count, total_ns))
            })
        });
        Ok(vec![Running::new(format!("{JOBS} jobs, {DEPTH} in flight"), jobs)])
    })
    .note(format!(
        "every byte that is read is checked; the same by fio: fio --name=mixed --rw=rw \
         --rwmixread=50 --bs=4096 --direct=1 --sync=1 --thread --group_reporting --time_based \
         --ioengine=io_uring --size={file_bytes} --numjobs={JOBS} --iodepth={DEPTH} \
         --runtime={turn_s}"
    ))
}

/// The requests of one job for a file of so many blocks.
fn half_and_half(blocks: u64) -> impl FnMut() -> Result<Option<Work>, WayError> {
    let mut random = fastrand::Rng::new();
    // The next block to read and to write.
    let (mut done, mut next) = (0, [0; 2]);
    move || {
        if done == blocks {
            (done, next) = (0, [0; 2]);
        }
        done += 1;
        let writes = random.bool();
        let block = &mut next[usize::from(writes)];
        let offset = *block * BLOCK_BYTES;
        *block += 1;
        // The file is opened with O_SYNC.
        let (len, write) = (BLOCK_BYTES as usize, writes.then_some(Persist::Later));
        Ok(Some(Work { offset, len, write }))
    }
}

const SHARED: &str = "shared-offset";
const RECORD_BYTES: usize = 64;
const THREADS: usize = 2;
/// Records of the file; each thread writes half of them. So many take longer than one turn of a
/// processor, if there is only one.
const RECORDS: u64 = 65_536;
/// How often the two write the file: they need not meet each time.
const TRIES: u32 = 5;

/// Two threads that write through one descriptor, each its own half of a file, with lseek and write
/// and with pwrite.
pub(super) fn shared_offset() -> Trial {
    let title =
        "65,536 records of 64 bytes by two threads through one descriptor, each its own half";
    let needs = (RECORDS * RECORD_BYTES as u64, 0.5);
    Trial::new((SHARED, title), Unit::Facts, needs, |scene| {
        let found = |seeks| {
            let mut most = 0;
            for _ in 0..TRIES {
                most = halves(scene.session, seeks)?.max(most);
            }
            may_have_met(seeks, most)?;
            let words = format!("{most} of {RECORDS}, the most of {TRIES} tries");
            let figures = vec![figure("records astray", Unit::Records, most as f64)];
            Ok(Facts { figures, words: vec![("records astray".into(), words)] })
        };
        let rows = [("lseek + write", true), ("pwrite", false)];
        rows.into_iter().map(|(name, seeks)| Running::facts(name, found(seeks))).collect()
    })
}

/// Two threads that never met, on a busy processor say, show nothing of a race.
fn may_have_met(seeks: bool, astray: u64) -> Result<(), WayError> {
    let why = || format!("in {TRIES} tries no two calls met, so nothing is shown");
    if seeks && astray == 0 { Err(WayError::Invalid(why())) } else { Ok(()) }
}

const REFUSED: &str = "refusals";
/// Aligned to nothing.
const OFF: u64 = 100;

/// What the kernel answers to calls that the articles say it refuses.
pub(super) fn refusals() -> Trial {
    type Row = fn(&Scene<'_>) -> Result<Facts, WayError>;
    const ROWS: [(&str, Row); 3] = [
        ("O_DIRECT, as found", as_found),
        ("O_DIRECT, 100 B off", |scene| {
            scene.site.can_open(Access::Direct)?;
            let block = AlignedBuf::zeroed(BLOCK_BYTES as usize);
            Ok(answered(unaligned(scene, Access::Direct)?.write_at(&block, OFF)))
        }),
        ("msync, 100 B off", |scene| {
            let file = unaligned(scene, Access::Mmap)?;
            file.map(1 << 16)?;
            Ok(answered(file.sync_mapped_exactly(OFF, BLOCK_BYTES as usize)))
        }),
    ];
    let title = "Calls that are not aligned, and what the kernel answers";
    Trial::new((REFUSED, title), Unit::Facts, (1 << 20, 0.2), |scene| {
        ROWS.iter().map(|(name, row)| Running::facts(*name, row(scene))).collect()
    })
}

fn as_found(scene: &Scene<'_>) -> Result<Facts, WayError> {
    let bytes = scene.site.place.direct_align_bytes;
    let bytes = bytes.ok_or_else(|| WayError::Invalid("the kernel does not tell it".into()))?;
    Ok(Facts {
        figures: vec![figure("alignment", Unit::Bytes, f64::from(bytes))],
        words: vec![("answer".into(), format!("multiples of {bytes} B"))],
    })
}

fn unaligned(scene: &Scene<'_>, access: Access) -> Result<LabFile, WayError> {
    drop(scene.session.written_file(REFUSED, 1 << 16, Access::Buffered, 1)?);
    Ok(scene.session.directory.open(REFUSED, &OpenFile::existing().access(access))?)
}

fn answered(answer: inkstone_io::Result<()>) -> Facts {
    let refused = f64::from(u8::from(answer.is_err()));
    let words = answer.map_or_else(|error| short_answer(&error), |()| "ok".into());
    Facts {
        figures: vec![figure("refused", Unit::Calls, refused)],
        words: vec![("answer".into(), words)],
    }
}

fn halves(session: &Session<'_>, seeks: bool) -> Result<u64, WayError> {
    let file = session.new_file(SHARED, &OpenFile::new_file())?;
    file.set_len(RECORDS * RECORD_BYTES as u64)?;
    together(&mut [(); THREADS], |thread, ()| {
        let mut record = [0; RECORD_BYTES];
        let half = RECORDS / THREADS as u64;
        for number in thread as u64 * half..(thread as u64 + 1) * half {
            session.check()?;
            record[..8].copy_from_slice(&(number + 1).to_le_bytes());
            let offset = number * RECORD_BYTES as u64;
            if seeks {
                seek_and_write(&file, &record, offset)?;
            } else {
                file.write_at(&record, offset)?;
            }
        }
        Ok(())
    })?;
    misplaced(&file)
}

/// Two calls on the descriptor that both threads share. The access `seek` of a way holds a lock
/// over both, as a program must.
fn seek_and_write(file: &LabFile, record: &[u8], offset: u64) -> Result<(), WayError> {
    let mut shared: &StdFile = file.std_file();
    let sought = shared.seek(SeekFrom::Start(offset)).and_then(|_| shared.write_all(record));
    sought.map_err(|error| inkstone_io::Error::new("lseek and write", file.path(), error).into())
}

fn misplaced(file: &LabFile) -> Result<u64, WayError> {
    let mut all = AlignedBuf::zeroed(RECORDS as usize * RECORD_BYTES);
    file.read_at(&mut all, 0)?;
    let is_astray = |(number, record): &(u64, &[u8])| record[..8] != number.to_le_bytes();
    Ok((1..).zip(all.chunks(RECORD_BYTES)).filter(is_astray).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_reads_and_writes_in_order_and_begins_again() {
        let mut next = half_and_half(64);
        for _ in 0..3 {
            let mut seen = [Vec::new(), Vec::new()];
            for work in (0..64).filter_map(|_| next().expect("a request")) {
                seen[usize::from(work.write.is_some())].push(work.offset / BLOCK_BYTES);
            }
            for blocks in &seen {
                assert!(!blocks.is_empty() && (0..).zip(blocks).all(|(at, &block)| at == block));
            }
        }
    }

    #[test]
    fn the_load_runs_and_every_byte_is_right() {
        use crate::experiment::testing::{not_run, run};
        match run(&mixed(256 << 10, 1), Some(Duration::from_secs(1))) {
            Err(error) if error.to_string().contains("O_DIRECT") => {
                not_run("mixed", error.to_string());
            }
            found => assert!(found.expect("a result").has_content()),
        }
    }

    #[test]
    fn a_race_that_was_not_seen_is_not_refuted() {
        assert!(may_have_met(true, 0).is_err());
        assert!(may_have_met(true, 1).is_ok() && may_have_met(false, 0).is_ok());
    }

    #[test]
    fn two_threads_on_one_descriptor_lose_records_with_lseek_and_none_with_pwrite() {
        let found = crate::experiment::testing::run(&shared_offset(), None).expect("a result");
        let most = |name: &str| found.way(name).expect("a way").figure("records astray");
        assert!(most("lseek + write") > Some(0.0) && most("pwrite") == Some(0.0), "{found:?}");
    }
}
