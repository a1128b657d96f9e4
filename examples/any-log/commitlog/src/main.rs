//! The crate commitlog as writer and reader for `inkstone powerloss any`.
//!
//! *Owns*: its two commands. *May not touch*: the judgement.
//!
//! `any-log-commitlog write DIR [SEGMENT_BYTES]` appends messages until it is killed, and prints a
//! line for each after `flush` has returned; `any-log-commitlog read DIR [SEGMENT_BYTES]` prints
//! the messages that are there.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::Write as _;

use commitlog::message::MessageSet as _;
use commitlog::{CommitLog, LogOptions, ReadLimit};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, directory) = match &arguments[..] {
        [command, directory, ..] => (command.as_str(), directory),
        _ => return Err("write DIR [SEGMENT_BYTES] or read DIR [SEGMENT_BYTES]".into()),
    };
    let mut options = LogOptions::new(directory);
    if let Some(bytes) = arguments.get(2) {
        options.segment_max_bytes(bytes.parse()?);
    }
    let log = CommitLog::new(options)?;
    match command {
        "write" => write(log),
        "read" => read(&log),
        other => Err(format!("{other}: write or read").into()),
    }
}

fn write(mut log: CommitLog) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    loop {
        let line = format!("item {}", log.next_offset());
        log.append_msg(&line)?;
        log.flush()?;
        writeln!(out, "{line}")?;
        out.flush()?;
    }
}

fn read(log: &CommitLog) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    let mut next = 0;
    loop {
        let messages = log.read(next, ReadLimit::max_bytes(1 << 16))?;
        for message in messages.iter() {
            out.write_all(message.payload())?;
            out.write_all(b"\n")?;
            next = message.offset() + 1;
        }
        if messages.is_empty() {
            return Ok(());
        }
    }
}
