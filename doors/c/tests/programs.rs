//! The C and C++ programs of `tests/c`, compiled with every warning an error and run.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::process::Command;

/// Compiles a program and runs it in a directory of its own.
fn run(source: &str, flags: &[&str], last_line: &str) {
    let directory = tempfile::tempdir().unwrap();
    let logs = directory.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    let Some(program) = support::compile(source, flags, directory.path()) else { return };
    let output = Command::new(program).arg(&logs).output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && out.lines().last() == Some(last_line),
        "{}\n{out}\n{err}",
        output.status
    );
}

#[test]
fn bad_use_that_can_be_seen_is_an_error_that_says_what_is_wrong() {
    run("tests/c/bad_use.c", &[], "every misuse that can be seen was refused");
}

#[test]
fn every_function_does_what_it_says() {
    // C++ too must take what the header and this program have.
    run("tests/c/whole.c", &["-Wc++-compat"], "every function did what it says");
}

#[test]
fn streams_are_written_read_and_followed() {
    run("tests/c/streams.c", &["-Wc++-compat"], "streams do what they say");
}

#[test]
fn callbacks_listeners_and_sixty_four_threads() {
    run("tests/c/callbacks.c", &[], "each callback was called once");
}

#[test]
fn sixty_four_writers_whose_callbacks_use_a_lock_of_the_program() {
    run("tests/c/threads.c", &[], "each writer got its callbacks");
}

#[test]
fn a_thread_needs_no_more_stack_than_the_header_says() {
    run("tests/c/stack.c", &[], "the stack was enough");
}

fn the_cpp_door(flags: &[&str]) {
    run("tests/c/door.cpp", flags, "the C++ door does what it says");
}

// Apart, so that they are compiled side by side.
#[test]
fn the_cpp_door_of_cpp_17() {
    the_cpp_door(&["-std=c++17"]);
}

#[test]
fn the_cpp_door_of_cpp_20() {
    the_cpp_door(&["-std=c++20"]);
}

#[test]
fn the_cpp_door_without_exceptions() {
    the_cpp_door(&["-std=c++17", "-fno-exceptions", "-fno-rtti"]);
}

#[test]
fn the_cpp_door_of_cpp_20_without_exceptions() {
    the_cpp_door(&["-std=c++20", "-fno-exceptions", "-fno-rtti"]);
}

/// Whether a function of C++ that does this with a log compiles; `None` if there is no compiler.
fn compiles(statement: &str) -> Option<bool> {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("function.cpp");
    let text =
        format!("#include <inkstone.hpp>\nvoid use(inkstone::log &log) {{ {statement}; }}\n");
    std::fs::write(&source, text).unwrap();
    let output = Command::new(support::tool("c++")?)
        .args(["-std=c++17", "-Werror=unused-result", "-c", "-o", "/dev/null"])
        .arg("-I")
        .arg(support::root().join("include"))
        .arg(source)
        .output()
        .unwrap();
    Some(output.status.success())
}

#[test]
fn cpp_that_would_be_a_fault_at_run_time_does_not_compile() {
    // What is bad, and the same made good.
    let pairs = [
        ("auto a = log.append(nullptr)", "auto a = log.append(\"\")"),
        (
            "auto a = log.append_parts({\"a\", nullptr})",
            "auto a = log.append_parts({\"a\", \"b\"})",
        ),
        ("auto a = log.append(std::vector<int>{1})", "auto a = log.append(std::vector<char>{1})"),
        (
            "auto &o = inkstone::options().set(\"access\", \"direct\"); o.get()",
            "auto o = inkstone::options().set(\"access\", \"direct\"); o.get()",
        ),
        ("log.close()", "log.close().value()"),
        ("auto other = log; other.get()", "auto other = std::move(log); other.get()"),
        (
            "auto a = log.append_batch(std::vector<int>{1})",
            "auto a = log.append_batch(std::vector<std::string>{\"a\"})",
        ),
        ("inkstone_close(log.get(), nullptr)", "if (inkstone_close(log.get(), nullptr)) return"),
    ];
    for (bad, good) in pairs {
        let Some(good_compiles) = compiles(good) else { return };
        assert!(good_compiles, "{good}");
        assert_eq!(compiles(bad), Some(false), "{bad}");
    }
}

#[test]
#[ignore = "needs python3"]
fn a_python_program_that_ends_with_callbacks_due_waits_for_them() {
    let Some(python) = support::tool("python3") else { return };
    for _ in 0..3 {
        let directory = tempfile::tempdir().unwrap();
        let output = Command::new(&python)
            .arg(support::root().join("../../examples/c/callbacks.py"))
            .arg(support::shared_library())
            .arg(directory.path())
            .output()
            .unwrap();
        assert!(
            output.status.success() && output.stdout == b"10000 durable, 0 failed\n",
            "{output:?}"
        );
    }
}

#[test]
fn the_programs_use_every_function() {
    let header = std::fs::read_to_string(support::root().join("include/inkstone.h")).unwrap();
    let (_, body) = header.split_once("*/").unwrap();
    let sources: String = ["bad_use", "whole", "callbacks", "streams"]
        .iter()
        .map(|name| {
            std::fs::read_to_string(support::root().join(format!("tests/c/{name}.c"))).unwrap()
        })
        .collect();
    let code = body.lines().filter(|line| !line.starts_with("//"));
    let names: Vec<&str> = code
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("inkstone_"))
        .collect();
    assert!(names.len() > 60, "{names:?}");
    for name in names {
        assert!(sources.contains(&format!("{name}(")), "no program uses {name}");
    }
}
