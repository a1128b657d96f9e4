//! A writer killed at random moments, a few times: the example `kill_rounds`, which can do it for longer.

#![allow(dead_code, reason = "the example is a program of its own")]

#[path = "../examples/kill_rounds.rs"]
mod kill_rounds;

/// No harness: the program starts itself as the one that is killed.
fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    kill_rounds::run(20);
}
