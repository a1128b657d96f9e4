//! Writes the fuzzers' first inputs: the golden directories of the format, as inputs.
//!
//! *Owns*: nothing else. `seeds GOLDEN CORPUS`: reads `GOLDEN/*/N.seg`, writes a file per directory
//! and per way of summing into `CORPUS`, and checks that each gives back the files it was made
//! from.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use inkstone::{Log, Options};
use inkstone_fuzz::{Image, SEGMENT_BYTES, images, input_of, sums};
use inkstone_sim::{DiskOptions, SimDisk};

fn main() -> Result<(), Box<dyn Error>> {
    let [golden, corpus] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("seeds GOLDEN CORPUS".into());
    };
    std::fs::create_dir_all(corpus)?;
    let mut count = 0;
    for entry in std::fs::read_dir(golden)? {
        let directory = entry?.path();
        if !directory.is_dir() {
            continue;
        }
        let files = read(&directory)?;
        let name = directory.file_name().ok_or("a name")?.to_string_lossy().into_owned();
        // With the header's sums alone it is the directory as it is (but for a header that is
        // damaged there); with all of them made right, mutations get deep.
        for asked in [sums::HEADER, sums::ALL] {
            let input = input_of(asked, &files);
            if asked == sums::HEADER && name != "damaged" && images(&input) != files {
                return Err(format!("{name} is not what its input gives").into());
            }
            std::fs::write(Path::new(corpus).join(format!("{name}-{asked}")), input)?;
            count += 1;
        }
    }
    // The example of docs/format.md, as short as a log with a record is: what the canary begins
    // with.
    let example = Path::new(corpus).join("example");
    std::fs::create_dir_all(&example)?;
    std::fs::write(example.join("example"), input_of(sums::ALL, &[(1, written_example()?)]))?;
    println!("{count} inputs");
    if count == 0 { Err(format!("no directories in {golden}").into()) } else { Ok(()) }
}

/// The bytes of a log with the record `hello, disk`.
fn written_example() -> Result<Vec<u8>, Box<dyn Error>> {
    let disk = SimDisk::new(1, DiskOptions::default());
    let options =
        Options::new().segment_bytes(64 << 10).record_bytes_max(8 << 10).own_thread(false);
    let log = Log::open_in(Arc::new(disk.directory("/log")), options)?;
    log.append_durable(b"hello, disk")?;
    log.abandon();
    let files = disk.image();
    let segment =
        files.into_iter().find(|(path, _)| path.extension().is_some_and(|ink| ink == "ink"));
    Ok(segment.ok_or("a segment")?.1)
}

fn read(directory: &Path) -> Result<Vec<Image>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let number = path.file_stem().ok_or("a name")?.to_string_lossy().parse()?;
        let mut bytes = std::fs::read(&path)?;
        bytes.resize(SEGMENT_BYTES, 0);
        files.push((number, bytes));
    }
    files.sort();
    Ok(files)
}
