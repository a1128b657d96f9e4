#!/usr/bin/env bash
# s2-lite with its write-ahead log on Inkstone: takes the crate's source from the registry, applies
# `inkstone.patch`, puts the databases of its tests on this log, and passes its arguments to cargo
# in the copy:
#
#     doors/slatedb/s2-lite/build.sh build --bin server   # target/s2-lite/debug/server
#     doors/slatedb/s2-lite/build.sh build --release --bin server       # .../release/server
#     doors/slatedb/s2-lite/build.sh test                 # its own tests
#     target/s2-lite/debug/server --local-root DIR --wal-inkstone DIR --port 8080
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=0.43.4
root=$(cd "$here/../../.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")/s2-lite
copy=$target/source
mkdir -p "$target/fetch/src"
if [ -z "$(find "$copy/.patched" -newer "$here/inkstone.patch" -newer "$here/builder.rs" \
    -newer "$here/build.sh" 2>/dev/null)" ]; then
    # A package whose only dependency is s2-lite, so that cargo fetches it and checks its checksum.
    cat >"$target/fetch/Cargo.toml" <<END
[package]
name = "fetch"
version = "0.0.0"
edition = "2024"
[workspace]
[dependencies]
s2-lite = "=$version"
END
    : >"$target/fetch/src/lib.rs"
    source=$(cargo metadata --quiet --format-version 1 --manifest-path "$target/fetch/Cargo.toml" |
        python3 -c 'import json, sys
print(next(package["manifest_path"] for package in json.load(sys.stdin)["packages"]
           if package["name"] == "s2-lite"))')
    rm -rf "$copy"
    # With its lock file, which names the versions that it was tested with.
    cp -r "$(dirname "$source")" "$copy"
    chmod -R u+w "$copy"
    cd "$copy"
    # The server gets the features of tokio that the tests need, so that SlateDB is built once.
    sed -i '/^\[dependencies.tokio\]$/,/^$/s/"sync"/"sync", "test-util"/' Cargo.toml
    cat >>Cargo.toml <<END

[dependencies.inkstone-slatedb-0-17]
path = "$root/doors/slatedb/v0_17"

[workspace]

[profile.dev]
debug = 0
opt-level = 1

[profile.release]
debug = 0
END
    # Every other `Db::builder` is in a test: there each database is on this log.
    grep -rlE '\bDb::builder\(' src tests --include=*.rs | grep -v src/server.rs |
        while read -r file; do
            crate=crate
            case $file in tests/*) crate=s2_lite ;; esac
            sed -i -E "s/(slatedb::)?\bDb::builder\(/$crate::inkstone_builder::builder(/" "$file"
        done
    # Where nothing may be durable before a flush, the log has no thread.
    sed -i 's/::builder(db_path/::with_interval(flush_interval, db_path/' \
        tests/backend/common/setup.rs
    sed -i 's/::builder("\/test"/::with_interval(settings.flush_interval, "\/test"/' \
        src/backend/streamer.rs
    sed -i 's/::builder("test", Arc::new(/::with_interval(None, "test", Arc::new(/' \
        src/backend/core.rs
    cp "$here/builder.rs" src/inkstone_builder.rs
    # Some tests advance a simulated clock, and a flush takes real time.
    cat >>src/inkstone_builder.rs <<END

pub async fn advance(by: Duration) {
    std::thread::sleep(Duration::from_millis(2));
    tokio::time::advance(by).await;
}
END
    sed -i 's/tokio::time::advance(/s2_lite::inkstone_builder::advance(/' tests/backend/common/*.rs
    echo 'pub mod inkstone_builder;' >>src/lib.rs
    patch --quiet -p1 <"$here/inkstone.patch"
    touch .patched
fi
profile=debug
case " $* " in *" --release "*) profile=release ;; esac
if [ ! -d "$target/$profile/deps" ]; then
    echo "s2-lite and its dependencies are built now, some 400 packages: this takes about 32" \
        "minutes of processor time at opt-level 1, and longer with --release" >&2
fi
cd "$copy"
exec cargo "$1" --target-dir "$target" "${@:2}"
