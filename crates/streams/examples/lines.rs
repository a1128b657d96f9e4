//! A writer and a reader for `inkstone powerloss any`, which cuts the power and compares the
//! reader's lines with the writer's.
//!
//! `lines write DIRECTORY` prints a line when it is durable. The lines go to eight streams, each in
//! a batch that sets the stream's note and truncates a record that was appended in vain. Another
//! stream fills the sections and is truncated, so lines are moved all the time.
//! `lines read DIRECTORY` prints the lines in their order, and fails if a stream's note is not its
//! last line.

use std::io::Write;

use inkstone_streams::{Batch, Error, Options, Result, Streams, StreamsReader};

const STREAMS: u64 = 8;
const FILLER: u64 = 100;

fn options() -> Options {
    Options::new().log(inkstone::Options::small()).section_bytes(16 << 10)
}

/// What the streams have.
struct Found {
    /// The lines of all streams, by their numbers.
    lines: Vec<(u64, String)>,
    /// For each stream the number after its last line.
    nexts: Vec<u64>,
}

fn find(reader: &StreamsReader) -> Result<Found> {
    let (mut lines, mut nexts) = (Vec::new(), vec![1; STREAMS as usize]);
    for stream in 0..STREAMS {
        let bounds = match reader.bounds(stream) {
            Err(Error::NoStream { .. }) => continue,
            other => other?,
        };
        let mut last = Vec::new();
        for record in reader.records(stream, bounds.first) {
            let record = record?;
            let text = String::from_utf8_lossy(&record.bytes).into_owned();
            let Some(item) = text.strip_prefix("line ") else { continue };
            lines.push((item.parse().expect("a number"), text));
            nexts[stream as usize] = record.number + 1;
            last = record.bytes;
        }
        assert_eq!(reader.note(stream)?, last, "the note of stream {stream}");
    }
    lines.sort();
    Ok(Found { lines, nexts })
}

fn write(directory: &str) -> Result<()> {
    let streams = Streams::open(directory, options())?;
    if streams.bounds(FILLER).is_err() {
        let mut batch = Batch::new();
        (0..STREAMS).for_each(|stream| _ = batch.create(stream, 1));
        streams.apply(batch.create(FILLER, 1))?.wait()?;
    }
    let Found { lines, mut nexts } = find(&streams.reader())?;
    let mut out = std::io::stdout();
    for item in lines.len() as u64.. {
        let (stream, line) = (item * 5 % STREAMS, format!("line {item}"));
        let next = &mut nexts[stream as usize];
        for _ in 0..item % 4 {
            drop(streams.append(FILLER, &[b'x'; 1500])?);
        }
        if item % 3 == 0 {
            drop(streams.append(stream, b"for nothing")?);
        }
        let filled = streams.bounds(FILLER)?.next;
        let mut batch = Batch::new();
        batch.truncate_after(stream, *next - 1).append_at(stream, *next, line.as_bytes());
        batch.note(stream, line.as_bytes()).truncate_before(FILLER, filled);
        streams.apply(&batch)?.wait()?;
        *next += 1;
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    streams.close()
}

fn read(directory: &str) -> Result<()> {
    let reader = match StreamsReader::open(directory, &options()) {
        Err(Error::Log(inkstone::Error::NoLog { .. })) => return Ok(()),
        other => other?,
    };
    find(&reader)?.lines.iter().for_each(|(_, line)| println!("{line}"));
    Ok(())
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", directory] => write(directory),
        ["read", directory] => read(directory),
        _ => {
            eprintln!("usage: lines write|read DIRECTORY");
            return std::process::ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}
