//! The libraries that were built for this test, and the tools of C programmers.

#![allow(dead_code, reason = "each test program uses some of it")]
#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo has put what this test stands on.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

/// The shared library.
pub(crate) fn shared_library() -> PathBuf {
    let library = built().join("libinkstone_capi.so");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

/// The static library.
pub(crate) fn static_library() -> PathBuf {
    let library = built().join("libinkstone_capi.a");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

/// A tool, or `None` and a line that says what did not run.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let places = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&places).map(|place| place.join(name)).find(|path| path.is_file());
    if found.is_none() {
        eprintln!("NOT RUN: what needs {name}, which is not installed");
    }
    found
}

/// The crate's own directory.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What the static library needs beside it on Linux, as docs/doors.md says.
pub(crate) const SYSTEM: [&str; 3] = ["-lm", "-lpthread", "-ldl"];

const C: [&str; 3] = ["-std=c11", "-D_GNU_SOURCE", "-Wstrict-prototypes"];

/// The C++ header is compiled with the flags of its user's program, so it has to be clean under
/// more of them.
const CPP: [&str; 5] = ["-Wpedantic", "-Wshadow", "-Wconversion", "-Wold-style-cast", "-Weffc++"];

/// Compiles a C or C++ program of this crate's tests against the static library; `None` if there is
/// no compiler.
pub(crate) fn compile(source: &str, flags: &[&str], to: &Path) -> Option<PathBuf> {
    let program = to.join(Path::new(source).file_stem().unwrap());
    let is_c = source.ends_with(".c");
    let output = Command::new(tool(if is_c { "cc" } else { "c++" })?)
        .args(if is_c { &C[..] } else { &CPP[..] })
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wcast-qual"])
        .args(flags)
        .arg("-I")
        .arg(root().join("include"))
        .arg("-o")
        .arg(&program)
        .arg(root().join(source))
        .arg(static_library())
        .args(SYSTEM)
        .output()
        .unwrap();
    assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}
