//! Gives the shared library its soname, the name by which programs load it.
//!
//! *Owns*: that name. *May not touch*: where the file goes (`install.sh`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // The number is that of the ABI.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libinkstone_text.so.1");
        // A program that unloads the library (dlclose) keeps its code: threads of a log may run in
        // it.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
