#!/usr/bin/env bash
# An hour of lasting writes by slatedb-local with SlateDB's defaults, its compactor and a clone that
# stays: the files of the log use no more than their bound at any time, and each acknowledged row is
# there. Times and sizes are those of an hour and the defaults, divided by SCALE, so that the rate
# is a real one: with 16 an hour is 225 s, the bound 64 MiB, a checkpoint of the compactor lives
# 56 s. With RATE there are at most so many rows a second, since an hour's fill the disk otherwise.
#
#     SCALE=16 doors/slatedb/an-hour.sh SLATEDB-LOCAL DIR
#     SCALE=1 RATE=80 doors/slatedb/an-hour.sh SLATEDB-LOCAL DIR
set -euo pipefail
scale=${SCALE:-16}
local=$(realpath "$1")
directory=$2
mkdir -p "$directory"
trap 'kill -9 $writer 2>/dev/null || true' EXIT
export LOG_BYTES_MAX=$(((1 << 30) / scale))
look() {
    find "$directory/wal/store" -type f -printf '%s\n' 2>/dev/null |
        awk '{ sum += $1 } END { print sum + 0 }'
}
ms() { echo "$(($1 * 1000 / scale))ms"; }
slate=(env
    "SLATEDB_MANIFEST_POLL_INTERVAL=$(ms 1)"
    "SLATEDB_L0_SST_SIZE_BYTES=$((67108864 / scale))"
    "SLATEDB_MAX_UNFLUSHED_BYTES=$((1073741824 / scale))"
    "SLATEDB_COMPACTOR_OPTIONS.POLL_INTERVAL=$(ms 5)"
    "SLATEDB_COMPACTOR_OPTIONS.CHECKPOINT_LIFETIME=$(ms 900)"
    "SLATEDB_GARBAGE_COLLECTOR_OPTIONS.WAL_OPTIONS.INTERVAL=$(ms 60)"
    "SLATEDB_GARBAGE_COLLECTOR_OPTIONS.WAL_OPTIONS.MIN_AGE=$(ms 60)"
    "$local")
# The keys only. While this sleeps the pipe is full, and the writer waits.
mkfifo "$directory/printed"
awk -v "rate=${RATE:-0}" '{ print $1 } rate && NR % rate == 0 { fflush(); system("sleep 1") }' \
    <"$directory/printed" >"$directory/acknowledged" &
reader=$!
"${slate[@]}" "$directory" fill 1000000000 16000 >"$directory/printed" &
writer=$!
most=0 sum=0 looks=0 full=0
# Looks are counted and not seconds: a machine that stops the writer may stop this, too.
while [ $looks -lt $((3600 / scale)) ]; do
    sleep 1
    kill -0 $writer || exit 1
    bytes=$(look)
    # One look may count a file that was removed beside one that was made later.
    [ "$bytes" -le "$LOG_BYTES_MAX" ] || bytes=$(look)
    [ "$bytes" -le "$LOG_BYTES_MAX" ] || { echo "$bytes bytes, more than the bound"; exit 1; }
    most=$((bytes > most ? bytes : most)) sum=$((sum + bytes)) looks=$((looks + 1))
    full=$((full + (bytes > LOG_BYTES_MAX * 3 / 4)))
    [ $looks != $((360 / scale)) ] || "${slate[@]}" "$directory" clone clone
done
{ kill -9 $writer && wait $writer; } 2>/dev/null || true
wait $reader
rows=$(grep -c . "$directory/acknowledged")
"${slate[@]}" "$directory" scan row- | awk '{ print $1 }' >"$directory/found"
# The last row may have been printed in part.
missing=$(head -n -1 "$directory/acknowledged" | comm -23 - "$directory/found" | wc -l)
echo "$looks looks: at most $most bytes of $LOG_BYTES_MAX, $((sum / looks)) in the mean, above" \
    "three quarters $full times; $rows rows of 16,000 bytes acknowledged, $missing missing"
[ "$missing" = 0 ]
