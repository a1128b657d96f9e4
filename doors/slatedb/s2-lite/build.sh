#!/usr/bin/env bash
# s2-lite with its write-ahead log on Inkstone: takes the crate's source as the registry gives it,
# applies `inkstone.patch`, and hands everything else to cargo, in the copy:
#
#     doors/slatedb/s2-lite/build.sh build              # the server: target/s2-lite/debug/server
#     doors/slatedb/s2-lite/build.sh test               # its own tests, each database on this log
#     doors/slatedb/s2-lite/build.sh run --bin server -- --local-root DIR --wal-inkstone DIR --port 8080
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=0.43.4
root=$(cd "$here/../../.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")/s2-lite
copy=$target/source
mkdir -p "$target/fetch/src"
if [ ! -e "$copy/.patched" ] || [ "$here/inkstone.patch" -nt "$copy/.patched" ] ||
    [ "$here/build.sh" -nt "$copy/.patched" ]; then
    # A package that needs it alone: cargo fetches and checks its sum.
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n[dependencies]\ns2-lite = "=%s"\n' \
        "$version" >"$target/fetch/Cargo.toml"
    : >"$target/fetch/src/lib.rs"
    source=$(cargo metadata --quiet --format-version 1 --manifest-path "$target/fetch/Cargo.toml" |
        python3 -c 'import json, sys; print(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == "s2-lite"))')
    rm -rf "$copy"
    cp -r "$(dirname "$source")" "$copy"
    chmod -R u+w "$copy"
    # Its lock file names what it was tested with.
    (cd "$copy" && patch --quiet -p1 <"$here/inkstone.patch")
    cat >>"$copy/Cargo.toml" <<END

[dependencies.inkstone-slatedb-0-17]
path = "$root/doors/slatedb/v0_17"

[workspace]

[profile.dev]
debug = 0
END
    # In its own tests each database is on this log too.
    mkdir -p "$copy/src" && cp "$here/builder.rs" "$copy/src/inkstone_builder.rs"
    touch "$copy/.patched"
fi
cd "$copy"
command=$1
shift
if [ "$command" = test ]; then
    # A second copy, so that the server is not built again.
    tested=$target/tested
    rm -rf "$tested"
    cp -r "$copy" "$tested"
    cd "$tested"
    grep -rlE '\bDb::builder\(' src tests --include=*.rs | grep -v -e src/server.rs -e inkstone_builder |
        while read -r file; do
            prefix=crate
            case $file in tests/*) prefix=s2_lite ;; esac
            sed -i -E "s/(slatedb::)?\bDb::builder\(/$prefix::inkstone_builder::builder(/" "$file"
        done
    sed -i '1i #![allow(unused_imports)]\npub mod inkstone_builder;' src/lib.rs
fi
exec cargo "$command" --target-dir "$target" "$@"
