//! `include/inkstone_text.h` is what the functions of this crate make.
//!
//! After a change of a function: `INKSTONE_HEADER=write cargo test -p inkstone-text-capi --test
//! header`.

use std::path::Path;

fn made() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("a configuration");
    let builder = cbindgen::Builder::new().with_config(config);
    let mut text = Vec::new();
    let bindings = builder.with_src(root.join("src/lib.rs")).generate().expect("a header");
    bindings.write(&mut text);
    String::from_utf8(text).expect("a text")
}

#[test]
fn the_header_is_what_the_functions_make() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/inkstone_text.h");
    let made = made();
    if std::env::var("INKSTONE_HEADER").as_deref() == Ok("write") {
        std::fs::write(&path, &made).expect("written");
    }
    assert!(
        made == std::fs::read_to_string(&path).expect("a header"),
        "it is not current: INKSTONE_HEADER=write cargo test -p inkstone-text-capi --test header"
    );
    assert!(made.lines().count() <= 150, "too long to read in ten minutes");
}
