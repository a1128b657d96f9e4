//! What a sum takes by the length of what is summed: this crate beside the crate `crc32c`.
//!
//! ```text
//! cargo run --release -p inkstone-format --example lengths
//! ```
//!
//! Sums of neighbouring runs of a MiB that is in the cache, each by itself; the fastest of 40
//! rounds in turn, ns a call.

use std::hint::black_box;
use std::time::Instant;

const LENGTHS: [usize; 12] = [8, 24, 36, 64, 128, 256, 384, 512, 640, 767, 1024, 4096];
const BYTES: usize = 1 << 20;
const ROUNDS: usize = 40;

fn ns_a_call(bytes: &[u8], len: usize, sum: impl Fn(&[u8]) -> u32) -> f64 {
    let begin = Instant::now();
    let runs = bytes.chunks_exact(len);
    let count = runs.len();
    for run in runs {
        black_box(sum(black_box(run)));
    }
    begin.elapsed().as_nanos() as f64 / count as f64
}

fn main() {
    let bytes: Vec<u8> =
        (0..BYTES as u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    println!("bytes  inkstone-format  crc32c  (ns a call)");
    for len in LENGTHS {
        let mut fastest = [f64::INFINITY; 2];
        for _ in 0..ROUNDS {
            let ours = ns_a_call(&bytes, len, inkstone_format::checksum::crc32c);
            let theirs = ns_a_call(&bytes, len, crc32c::crc32c);
            fastest = [fastest[0].min(ours), fastest[1].min(theirs)];
        }
        println!("{len:>5}  {:>15.1}  {:>6.1}", fastest[0], fastest[1]);
    }
}
