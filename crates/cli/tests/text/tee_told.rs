//! The messages of `inkstone tee` where no process reads them.

use std::io::Read as _;

use crate::support::{ends, full_pipe, until};
use crate::with_tee::{put, tee, text};

#[test]
fn a_stderr_that_is_full_stops_no_line_of_the_log_and_hears_of_everything_later() {
    let directory = tempfile::tempdir().expect("a directory");
    let logs = directory.path().join("logs");
    let file = logs.join("s.log");
    let (mut reader, writer) = full_pipe();
    let mut tee = tee(&file, &["--flush-every", "1ms"]).stderr(writer).spawn().expect("inkstone");
    put(&mut tee, "one\n");
    until("a line", || text(&file) == "one\n");
    std::fs::remove_dir_all(&logs).expect("removed");
    put(&mut tee, "two\n");
    // Time to fail at writing it, and to report so. If it were too short, this would only show
    // less.
    std::thread::sleep(std::time::Duration::from_secs(1));
    std::fs::create_dir(&logs).expect("made");
    until("the log goes on", || text(&file) == "two\n");
    let told = std::thread::spawn(move || {
        let mut told = String::new();
        reader.read_to_string(&mut told).map(|_| told)
    });
    put(&mut tee, "three\n");
    drop(tee.stdin.take());
    ends(&mut tee);
    assert_eq!(tee.wait().expect("its end").code(), Some(0));
    assert_eq!(text(&file), "two\nthree\n");
    let told = told.join().expect("a thread").expect("text");
    for words in ["cannot be written", "written again"] {
        assert!(told.contains(words), "{}", told.trim());
    }
}
