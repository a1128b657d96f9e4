#!/usr/bin/env bash
# Mutations that a good engineer could make, each built into a copy of this crate: the model must
# catch every one, or the tests of whole databases where that is what breaks.
#
#     doors/slatedb/mistaken.sh [PART OF A NAME]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")
copy=$target/slatedb-mistaken
only=${1:-}
missed=0
# A mistake is compiled as it is, whatever clippy says.
unset RUSTC_WORKSPACE_WRAPPER
tests() {
    (cd "$copy/doors/slatedb" && cargo test --quiet --locked --workspace \
        --exclude inkstone-slatedb-0-17 --target-dir "$target" --test "${test:-model}" "$@") \
        >"$copy/out" 2>&1
}
mistake() { # mistake NAME FILE FROM TO: the text FROM is there once, and becomes TO
    [[ $1 == *"$only"* ]] || return 0
    rm -rf "$copy"
    mkdir -p "$copy/doors" "$copy/examples"
    cp -r "$here" "$copy/doors/slatedb"
    cp -r "$root/examples/slatedb-local" "$copy/examples/"
    # The crates that it stands on stay where they are.
    for room in crates proof lab text LICENSE-MIT LICENSE-APACHE Cargo.toml; do
        ln -s "$root/$room" "$copy/$room"
    done
    python3 - "$copy/doors/slatedb/src/$2" "$3" "$4" <<'END'
import sys
path, old, new = sys.argv[1:]
text = open(path).read()
assert text.count(old) == 1, f"{path}: {old!r} is there {text.count(old)} times"
open(path, "w").write(text.replace(old, new))
END
    if ! tests --no-run; then
        cat "$copy/out"
        echo "$1: does not build"
        exit 1
    fi
    if tests; then
        echo "MISSED: $1"
        missed=1
    else
        echo "noticed: $1: $(grep -m1 -A1 "panicked at" "$copy/out" | tail -1 | cut -c1-90)"
    fi
}
mistake "the fence is forgotten" writer.rs \
    'let _ = other.close(WalError::Fenced);' \
    'let _ = other.close(WalError::Closed);'
mistake "a flush is told early" state.rs \
    'if state.told_id >= last {' \
    'if state.told_id < last || state.told_id >= last {'
mistake "a batch is parted" state.rs \
    'let waiting = Waiting::begin(self, record.len(), rows.len());' \
    'let waiting = Waiting::begin(self, record.len(), rows.len());
        if let [first, .., last] = rows {
            let part = encode(&[first.clone(), last.clone()]).unwrap_or_default();
            self.log.append(&part).map(drop).ok();
        }'
mistake "collection goes beyond a reference" gc.rs \
    '.filter_map(lowest).min()' \
    '.filter_map(lowest).max()'
mistake "a clone shares the log of its source" admin.rs \
    'let target = to.wals.place.create(&to.name).map_err(of_io)?;' \
    'let to = self; let target = to.wals.place.create(&to.name).map_err(of_io)?;'
mistake "a clone takes more than the checkpoint" admin.rs \
    'self.each(&reader, first, last, |_, bytes| {' \
    'self.each(&reader, first, reader.durable(), |_, bytes| {'
mistake "a clone is not marked as unfinished" admin.rs 'begin_unfinished(&target)?;' ''
mistake "a replay begins one too late" writer.rs \
    'let first = seen.replay_after.saturating_add(1);' \
    'let first = seen.replay_after.saturating_add(2);'
mistake "a clone without rows has no log" admin.rs \
    'let options = to.tuning().log.clone().create(true).begin_at(first).owner(id);' \
    'if last < first {
            return finish(&target).map(|()| None);
        }
        let options = to.tuning().log.clone().create(true).begin_at(first).owner(id);'
mistake "a log that never had a row is adopted" writer.rs \
    'Some((directory, (id, _))) => self.open_empty(directory, id, known),' \
    'Some((directory, (id, _))) => {
                let options = self.tuning().log.clone().create(false);
                let name = Named { id, first: known.get() + 1 };
                found(Log::open_in(directory, options), id, |log| Ok(Found::Begun(log, name)))
            }'
mistake "the object comes before the log" writer.rs \
    'let name = Named { id, first: first.get() };' \
    'let name = Named { id, first: first.get() };
        futures_util::FutureExt::now_or_never(self.name(name, PutMode::Create));'
mistake "the log gets no object" writer.rs \
    'if self.name(name, mode).await? {' \
    'if matches!(mode, PutMode::Create | PutMode::Overwrite) {'
mistake "the writer of another database is fenced" writer.rs \
    'if named.map(|named| named.id) != Some(other.owner()) {' \
    'if named.is_some_and(|named| named.id == [0; 16]) {'
mistake "the collector does not ask whose log it is" gc.rs \
    'let Some(found) = self.reader().await? else { return Ok(()) };' \
    'let wal = self.clone();
        let Some(found) = blocking(move || wal.look()).await? else { return Ok(()) };'
mistake "a reader does not ask whose log it is" iterator.rs \
    'match self.wal.reader().await {' \
    'let wal = self.wal.clone();
                match blocking(move || wal.look()).await {'
mistake "a log is begun anew again and again" writer.rs \
    'self.begins_anew.store(false, Ordering::Relaxed);' ''
mistake "a batch that failed is no end" state.rs \
    'state.life = Life::Ending(of_log(error));' \
    'drop(error);'
mistake "the end does not say that closing failed" state.rs \
    'let reason = result.as_ref().err().unwrap_or(reason).clone();' \
    'let reason = reason.clone();'
test=databases
mistake "the log has no bound" bound.rs \
    'self.log.clone().disk_budget_bytes(budget);' \
    'self.log.clone().disk_budget_bytes(budget.saturating_mul(9));'
mistake "surplus files are used again and again" bound.rs \
    'match is_large || held.files_bytes > most {' \
    'match is_large {'
mistake "what the tree lacks is given back" state.rs \
    'let end = tree_has.min(self.log.last().get());' \
    'let end = tree_has.max(self.log.last().get());'
mistake "a full log waits for no memtable" writer.rs \
    'if !self.shared.is_flushing(tree_has) {' \
    'if !self.shared.is_flushing(u64::MAX) {'
mistake "padding is not counted" state.rs \
    'state.held.note(id, taken.unwrap_or(rest));' \
    'state.held.note(id, if taken.is_some() { record_bytes } else { rest });'
mistake "a checkpoint without its rows is shown" iterator.rs \
    'let error = self.wal.truncated(id, self.end, given_back).await;' \
    'drop(given_back); let error = WalError::WalTruncated(id);'
mistake "a checkpoint on an older log is shown" wals.rs \
    'let lost = self.lacks(reader, end.map_or(id, |end| end - 1), id - 1);' \
    'let lost = WalError::WalTruncated(id);'
mistake "a reader that follows shows an older log" wals.rs \
    '&& !found.as_ref().is_some_and(has_writer)' \
    '&& found.as_ref().is_some_and(has_writer)'
exit $missed
