#!/bin/sh
# The reader for `inkstone powerloss any`: the rows that writer.sh has written, in order. A database
# that does not pass SQLite's own check is an error.
#
#   reader.sh DIR
set -eu
db=$1/items.db
ask() { sqlite3 -batch -bail -cmd ".timeout 10000" "$db" "$1"; }

[ -e "$db" ] || exit 0
check=$(ask "PRAGMA integrity_check;")
if [ "$check" != ok ]; then
    echo "integrity_check: $check" >&2
    exit 1
fi
[ "$(ask "SELECT count(*) FROM sqlite_schema WHERE name = 'items';")" = 1 ] || exit 0
ask "SELECT body FROM items ORDER BY number;"
