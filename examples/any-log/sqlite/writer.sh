#!/bin/sh
# The writer for `inkstone powerloss any`: one row after the other in a SQLite database, each in a
# transaction of its own, and a line for each after its COMMIT has returned.
#
#   writer.sh DIR [wal|delete|truncate|persist] [full|normal|extra|off]
#
# SQLite documents WAL with synchronous=NORMAL as not durable at a loss of power; a kill takes
# nothing from either.
set -eu
dir=$1
journal=${2:-wal}
synchronous=${3:-full}

{
    # What a pragma answers is no acknowledgement.
    echo ".output /dev/null"
    echo ".timeout 10000"
    echo "PRAGMA journal_mode=$journal;"
    echo "PRAGMA synchronous=$synchronous;"
    echo "CREATE TABLE IF NOT EXISTS items(number INTEGER PRIMARY KEY, body TEXT NOT NULL);"
    echo ".output"
    # The shell takes one statement after the other, so the SELECT comes after the COMMIT, and reads
    # what is there.
    next='coalesce(max(number), 0) + 1'
    yes "BEGIN; INSERT INTO items SELECT $next, 'item ' || ($next) FROM items; COMMIT;
SELECT body FROM items ORDER BY number DESC LIMIT 1;"
    # -bail: after an error nothing is acknowledged; stdbuf: a line is told at once.
} | stdbuf -oL sqlite3 -batch -bail "$dir/items.db"
