//! Kills a writer at random moments, as often as asked (300), and checks what is left: `cargo run
//! --release -p inkstone-appender --example kills [KILLS]`. It ends with an error at the first line
//! lost, doubled or torn.

#[path = "../tests/common/kills.rs"]
mod kills;

use std::path::Path;
use std::process::Command;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, path, first] = arguments.as_slice()
        && word == "victim"
    {
        return kills::victim(Path::new(path), kills::numbers(first));
    }
    let count = arguments.first().map_or(Ok(300), |count| count.parse());
    let Ok(count) = count else {
        eprintln!("how many kills? {:?} is no number", arguments[0]);
        std::process::exit(2);
    };
    let directory = tempfile::tempdir_in(".").expect("a directory here");
    let seen = kills::rounds(directory.path(), count, |path, first| {
        let mut victim = Command::new(std::env::current_exe().expect("this program"));
        victim.args(["victim", path, first]);
        victim
    });
    println!(
        "{} kills of 4 threads at full speed: {} lines, 0 lost, 0 doubled, 0 torn; {} starts appended {} bytes; {} rotations",
        seen.kills, seen.lines, seen.recovered, seen.recovered_bytes, seen.rotations
    );
}
