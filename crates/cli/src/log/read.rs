//! `inkstone cat` and `inkstone get`.
//!
//! *Owns*: records on stdout. *May not touch*: how they are found.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use inkstone::{Error, Lsn, Options, Reader};

use super::{CatArguments, Separator, said};

/// How soon a signal is noticed while nothing comes.
const NOTICE: Duration = Duration::from_millis(50);
const BUFFER_BYTES: usize = 256 << 10;

/// Prints records in order.
pub(super) fn cat(arguments: &CatArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let separator = arguments.framing.separator();
    let reader = Reader::open(&arguments.directory, &Options::new()).map_err(said)?;
    let from = arguments.from.map_or_else(|| reader.first(), Lsn::new);
    let to = Lsn::new(arguments.to.unwrap_or(u64::MAX));
    anyhow::ensure!(from <= to || arguments.to.is_none(), "--to {to} lies before the first record, {from}");
    // A writer may be faster than this: it ends where the log ended when it began.
    let to = if arguments.follow { to } else { to.min(reader.durable()) };
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout());
    let mut cursor = reader.from(from);
    let mut is_idle = false;
    while cursor.next_lsn() <= to && !stop.load(Ordering::Relaxed) {
        let next = if is_idle { cursor.next_within(NOTICE) } else { cursor.next() };
        match next {
            Ok(Some(record)) => {
                write(&mut out, record.bytes, separator)?;
                is_idle = false;
            }
            Ok(None) if arguments.follow => {
                out.flush()?;
                is_idle = true;
            }
            Ok(None) => break,
            Err(Error::GivenUp { lsn, first }) if arguments.follow => {
                out.flush()?;
                eprintln!(
                    "inkstone: the records from LSN {lsn} to before {first} were given up; going on at {first}"
                );
                cursor.seek(first);
            }
            Err(Error::Cut { lsn, last }) if arguments.follow => {
                out.flush()?;
                eprintln!(
                    "inkstone: the records after LSN {last} were taken off, some of those before {lsn} that stand here among them; going on behind {last}"
                );
            }
            Err(error) => {
                out.flush()?;
                return Err(said(error));
            }
        }
    }
    out.flush()?;
    Ok(if stop.load(Ordering::Relaxed) { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// Prints one record.
pub(super) fn get(directory: &Path, lsn: u64, separator: Separator) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(lsn > 0, "there is no LSN 0; the first is 1");
    let reader = Reader::open(directory, &Options::new()).map_err(said)?;
    let record = reader.get(Lsn::new(lsn)).map_err(said)?;
    let mut out = BufWriter::new(std::io::stdout());
    write(&mut out, &record, separator)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn write(out: &mut impl Write, record: &[u8], separator: Separator) -> anyhow::Result<()> {
    match separator {
        Separator::Byte(end) => {
            out.write_all(record)?;
            out.write_all(&[end])?;
        }
        Separator::Length => {
            out.write_all(&u32::try_from(record.len())?.to_le_bytes())?;
            out.write_all(record)?;
        }
    }
    Ok(())
}
