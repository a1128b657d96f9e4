#!/usr/bin/env bash
# SlateDB's own tests on this log: those of custom WALs, and those of a database that accept a WAL.
# They are copied from the registry's source, never committed. The tests stay as they are, but open
# each database with a log.
#
#     doors/slatedb/own-tests.sh [arguments of cargo test]
#     doors/slatedb/own-tests.sh copy                      # only copies them
set -euo pipefail
cd "$(dirname "$0")"
source=$(cargo metadata --quiet --locked --format-version 1 | python3 -c '
import json, sys
print(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"]
           if p["name"] == "slatedb" and p["version"].startswith("0.18")))')
source=$(dirname "$source")/tests
to=theirs/tests/copied
rm -rf theirs/tests
mkdir -p "$to"
# Not here: foyer_cache_flush, which is about a cache that this build leaves out.
for test in configurable_block_size custom_wal db prefix_filter range_filter read_tracing \
    scan_model transactions; do
    {
        echo "#![allow(warnings)]"
        cat "$source/$test.rs"
    } >"$to/$test.rs"
    sed -i -E 's/\b(slatedb::)?Db::(builder|open)\(/slatedb_own_tests::\2(/' "$to/$test.rs"
done
# Their WAL gives way to the log of the same name; everything from `fn test_settings` on stays.
python3 - "$to/custom_wal.rs" <<'END'
import re, sys
path = sys.argv[1]
text = open(path).read()
text, n = re.subn(r"/// A deliberately small WAL.*?(?=fn test_settings\(\))",
                  "use slatedb_own_tests::{BTreeMapWal, BTreeMapWalAdmin};\n\n", text, flags=re.S)
assert n == 1
text = text.replace("slatedb_own_tests::builder(path,", "Db::builder(path,")
open(path, "w").write(text)
END
{
    echo "//! SlateDB's own tests; see own-tests.sh."
    for test in "$to"/*.rs; do
        name=$(basename "$test" .rs)
        # They have their own format.
        [ "$name" = main ] || printf '\n#[rustfmt::skip]\nmod %s;\n' "$name"
    done
} >"$to/main.rs"
[ "${1:-}" != copy ] || exit 0
# Not run: db::test_replay_wal_then_write, which blocks an upload by a fail point. Those are
# compiled into SlateDB only when its own package is tested.
case " $* " in *" -- "*) ;; *) set -- "$@" -- ;; esac
exec cargo test --locked --workspace --exclude inkstone-slatedb-0-17 --test copied "$@" \
    --skip db::test_replay_wal_then_write
