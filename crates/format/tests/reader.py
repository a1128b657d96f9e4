#!/usr/bin/env python3
"""A second reader of Inkstone's format, version 1, written from docs/format.md alone.

    reader.py SEGMENT...    files whose names are the segment's number, with any suffix: 1.seg 2.seg
    reader.py DIRECTORY     all of them
    reader.py --stream      directories of segments from stdin, for the tests (see `stream`)

Prints: verdict, row of the document's tables, position, records, digest, first live LSN, next LSN.
The digest is the CRC-32C of all live records, each as LSN (8 bytes) and payload.
"""
import functools, os, struct, sys

MAGIC, MARK = b"\x89INKS\r\n\x1a", b"\xa7IG1"
VERSION = 1
ZERO_BLOCK = bytes(4096)

TABLE = []
for value in range(256):
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    TABLE.append(value)


def more(sum_, data):
    state, table = ~sum_ & 0xFFFFFFFF, TABLE
    for byte in data:
        state = state >> 8 ^ table[(state ^ byte) & 255]
    return ~state & 0xFFFFFFFF


@functools.lru_cache(maxsize=1 << 16)
def crc(data):
    return more(0, data)


@functools.lru_cache(maxsize=1 << 16)
def after(sum_, data):
    return more(sum_, data)


class Header:
    """A good copy of a segment header."""

    def __init__(self, copy):
        (self.version, self.flags, self.log, self.number, self.size, self.first, self.first_live,
         self.epoch, self.promise, self.before, self.before_end, self.roll,
         self.index) = struct.unpack_from("<II16s8QII", copy, 8)
        self.kind, self.owner = copy[104:108], copy[112:128]
        self.cuts, self.older = struct.unpack_from("<QQ", copy, 128)
        self.kept = struct.unpack_from("<64Q", copy, 144)
        self.lost_to = struct.unpack_from("<Q", copy, 656)[0]

    def history_holds(self):
        """Whether the history of cuts is one, and agrees with the rest."""
        if any(self.kept[self.cuts:]) or (self.cuts <= 64 and self.older):
            return False
        if self.cuts == 0:
            return self.roll != 3
        kept = self.kept[(self.cuts - 1) % 64]
        return self.cuts < self.epoch and (self.roll != 3 or kept + 1 == self.first)

    def holds(self, copy, index):
        begins = self.before == 0 and self.first_live == self.first
        return (self.index == index and not any(copy[108:112]) and not any(copy[664:1020])
                and self.history_holds()
                and self.number >= 1 and self.epoch >= 1
                and 65536 <= self.size <= 1 << 32 and self.size % 4096 == 0
                and 1 <= self.first_live <= self.first and self.promise < self.first
                and self.roll in (1, 2, 3) and self.before < self.number
                and (self.roll == 1) == (self.before == 0)
                and (self.roll != 1 or begins)
                and (self.before_end == 0 if self.before == 0 else
                     4096 <= self.before_end <= 1 << 32 and self.before_end % 8 == 0))


def classify(data):
    """('short' | 'zero' | 'unknown' | 'damaged' | 'valid', header or the log id that a damaged one
    tells)."""
    if len(data) < 4096:
        return "short", None
    if data[:4096] == ZERO_BLOCK:
        return "zero", None
    good, unknown, told = [], False, None
    for index, at in enumerate((0, 2048)):
        copy = bytes(data[at:at + 1024])
        if copy[:8] != MAGIC:
            continue
        told = told or copy[16:32]
        if struct.unpack_from("<I", copy, 1020)[0] != crc(copy[:1020]):
            continue
        header = Header(copy)
        if header.version != VERSION or header.flags != 0:
            unknown = True
        elif header.holds(copy, index):
            good.append(header)
    if unknown:
        return "unknown", None
    if good:
        return "valid", max(good, key=lambda header: (header.number, header.epoch))
    return "damaged", told


def groups_end(size):
    """Where the room of the index begins, before the block for marks."""
    index = 16 + 16 * -(-size // 8192) if size >= 131072 else 0
    return size - 4096 - (index + 4095) // 4096 * 4096


def cut_mark(header, data):
    """(cuts, successor) of the newest mark at the end of the segment's file, or None."""
    found = None
    seed = crc(b"IK1CTMRK" + header.log + struct.pack("<Q", header.number))
    for at in (header.size - 4096, header.size - 4096 + 512):
        copy = bytes(data[at:at + 512])
        if len(copy) < 512 or copy[:4] != b"\xa7IC1":
            continue
        sum_, cuts, successor, end, epoch = struct.unpack_from("<I4Q", copy, 4)
        if (sum_ == after(seed, copy[:4] + copy[8:]) and successor > header.number
                and 1 <= cuts < epoch and end >= 4096 and end % 8 == 0
                and (found is None or cuts > found[0])):
            found = cuts, successor
    return found


def group_at(log, number, data, at):
    """(length, count, first LSN, epoch, promise, promised end) of a group header whose sum is
    right, or None."""
    if data[at:at + 4] != MARK:
        return None
    head = bytes(data[at:at + 48])
    seed = crc(b"IK1GROUP" + log + struct.pack("<Q", number))
    if len(head) < 48:
        return None
    summed = struct.pack("<Q", at) + head[:4] + head[8:]
    if struct.unpack_from("<I", head, 4)[0] != after(seed, summed):
        return None
    group = struct.unpack_from("<II4Q", head, 8)
    return group if group[3] >= 1 else None


def promise_holds(group, at):
    return group[4] < group[2] and 4096 <= group[5] <= at and group[5] % 8 == 0


def look_ahead(log, number, data, start, end, epoch):
    """The groups found from `start` on."""
    found, at = [], data.find(MARK, start, end)
    while at >= 0:
        if at % 8 == 0 and at + 48 <= end:
            group = group_at(log, number, data, at)
            if group and group[3] >= epoch and promise_holds(group, at):
                found.append(group)
        at = data.find(MARK, at + 1, end)
    return found


class Reading:
    """A segment, read up to its stop."""

    def __init__(self, header, data, limit, needed):
        self.header, self.data, self.limit = header, data, limit
        self.needed = needed
        self.at, self.lsn, self.epoch = 4096, header.first, header.epoch
        self.end, self.next, self.live, self.sealed = 4096, header.first, header.first_live, False
        self.records, self.facts = [], None
        while self.facts is None:
            self.group()

    def stop(self, found, wrong=None, inside=False):
        self.facts = (found, wrong, inside)

    def group(self):
        at, data = self.at, self.data
        if self.sealed or self.limit - at < 48 or at + 48 > len(data):
            return self.stop("end")
        head = bytes(data[at:at + 48])
        if not any(head):
            return self.stop("zeros")
        group = group_at(self.header.log, self.header.number, data, at)
        if group is None:
            lsn, epoch = struct.unpack_from("<QQ", head, 16)
            is_next = head[:4] == MARK and lsn == self.lsn and epoch
            return self.stop("garbage" if is_next else "remains")
        length, count, first, epoch, _, _ = group
        if epoch < self.epoch:
            return self.stop("sound", "lower")
        if (length > 536870912 or at + length > groups_end(self.header.size) or length % 8
                or not 1 <= count <= (length - 48) // 24):
            return self.stop("sound", "length")
        if first != self.lsn:
            return self.stop("sound", "lsn")
        if not promise_holds(group, at):
            return self.stop("sound", "grammar")
        self.frames(at + length, count, epoch)

    def frames(self, group_end, count, epoch):
        """Reads the frames of a group; takes it over if it is whole."""
        self.at += 48
        seen, open_, live, sealed, records = 0, False, self.live, False, []
        while self.at != group_end and self.at < self.limit:
            failed = self.frame(min(group_end, self.limit), seen == count, epoch)
            if not isinstance(failed, dict):
                return self.stop(*failed, inside=True)
            frame = failed
            kind, batch = frame["kind"], frame["batch"]
            grammar = (kind in range(1, 8) and batch in range(4) and frame["zero"] == 0
                       and (batch in (2, 3)) == open_ and (batch == 0 or kind == 1)
                       and not (kind == 2 and seen > 0)
                       and not (seen == 0 and epoch > self.epoch and kind != 2)
                       and not (sealed and kind != 6))
            if not grammar:
                return self.stop("sound", "grammar", True)
            failed = self.body(frame)
            if failed:
                return self.stop(*failed, inside=True)
            if not self.says(kind, frame["payload"], epoch):
                return self.stop("sound", "grammar", True)
            open_ = batch in (1, 2)
            if kind == 1:
                records.append((self.lsn, frame["payload"]))
                self.lsn += 1
            elif kind == 4:
                live = max(live, struct.unpack("<Q", frame["payload"])[0])
            elif kind == 5:
                sealed = True
            elif kind == 7:
                self.lsn = struct.unpack("<Q", frame["payload"])[0] + 1
            seen += 1
            self.at = frame["end"]
        if self.at == group_end and (seen != count or open_):
            return self.stop("sound", "grammar", True)
        self.end, self.next, self.epoch = self.at, self.lsn, epoch
        self.live, self.sealed = live, sealed
        self.records += records
        if self.at != group_end:
            self.stop("end")

    def frame(self, limit, all_seen, epoch):
        at = self.at
        if limit - at < 24 or all_seen:
            return "sound", "grammar"
        if at + 24 > len(self.data):
            return ("end",)
        head = bytes(self.data[at:at + 24])
        if not any(head):
            return ("zeros",)
        length, kind, batch, zero, lsn, payload_sum, sum_ = struct.unpack("<IBBHQII", head)
        seed = crc(b"IK1FRAME" + self.header.log + struct.pack("<Q", self.header.number))
        if after(seed, struct.pack("<QQ", at, epoch) + head[:20]) != sum_:
            return ("garbage",)
        end = at + 24 + (length + 7) // 8 * 8
        if length > 268435456 or end > limit:
            return "sound", "length"
        if lsn != self.lsn:
            return "sound", "lsn"
        return {"kind": kind, "batch": batch, "zero": zero, "length": length, "sum": payload_sum,
                "end": end}

    def body(self, frame):
        if frame["end"] > len(self.data):
            return ("end",)
        begin, end = self.at + 24, self.at + 24 + frame["length"]
        payload = bytes(self.data[begin:end])
        if crc(payload) != frame["sum"] or any(self.data[end:frame["end"]]):
            return "sound", "body"
        frame["payload"] = payload
        return None

    def says(self, kind, payload, epoch):
        """Whether a control frame may say this."""
        if kind == 1:
            return True
        if kind == 6:
            return not any(payload)
        if len(payload) != (16 if kind == 2 else 8):
            return False
        value = struct.unpack_from("<Q", payload)[0]
        if kind == 2:
            return value < epoch and struct.unpack("<QQ", payload)[1] == self.lsn - 1
        return {3: value in (1, 2), 4: value <= self.lsn, 5: value > self.header.number,
                7: self.lsn <= value <= self.header.lost_to and value + 1 < 1 << 64}[kind]


def judge(reading, below, later):
    """The table of verdicts."""
    found, wrong, inside = reading.facts
    if below:
        return ("corrupt", "P1") if found == "zeros" else ("corrupt", "P2")
    if len(reading.data) < reading.needed:
        return "corrupt", "F1"
    if reading.sealed:
        return "corrupt", "S1"
    if found == "end":
        return "end", "E1"
    if found in ("zeros", "remains"):
        return ("torn", "T2") if inside else ("torn", "T1") if later else ("end", "E2")
    if found == "garbage":
        return "torn", "T3"
    return {"lower": ("end", "E3"), "length": ("corrupt", "C1"), "lsn": ("corrupt", "C2"),
            "grammar": ("corrupt", "C3"), "body": ("torn", "T4")}[wrong]


def survey(files):
    """`files`: segment number -> bytes. Returns the line to print."""
    blocks = {number: classify(data) for number, data in sorted(files.items())}
    valid = [header for state, header in blocks.values() if state == "valid"]
    log = valid[0].log if valid else None

    def none(verdict, row, place="-"):
        return f"{verdict} {row} {place} 0 00000000 1 1"

    for number, (state, header) in blocks.items():
        if state == "unknown":
            return none("unknown", "H1", f"{number}:0")
        if state == "valid" and header.log != log:
            return none("corrupt", "H2", f"{number}:0")
    own = {number: header for number, (state, header) in blocks.items()
           if state == "valid" and header.number == number}
    head = max(own, default=0)
    torn = False
    for number, (state, header) in blocks.items():
        if number <= head:
            continue
        if state == "valid" and header.number > number:
            return none("corrupt", "H3", f"{number}:0")
        if state == "short":
            return none("corrupt", "H4", f"{number}:0")
        data, known = files[number], log or (header if state == "damaged" else None)
        if (known and look_ahead(known, number, data, 4096, len(data), 1)
                or not valid and any(data[4096:])):
            return none("corrupt", "H6", f"{number}:0")
        torn |= state == "damaged"
    if not head and valid:
        return none("corrupt", "D2")
    if not head:
        return none("torn", "H8") if torn else none("end", "H7")
    mark = cut_mark(own[head], files[head])
    if mark and mark[0] > own[head].cuts:
        return none("corrupt", "D3", f"{mark[1]}:0")
    live = Reading(own[head], files[head], groups_end(own[head].size), 0).live
    chain = [own[head]]
    while chain[0].first > live:
        after_ = chain[0]
        broken = f"corrupt D1 {{}}:0 0 00000000 {live} 1"
        if after_.before == 0:
            return broken.format(after_.number)
        before = own.get(after_.before)
        if (before is None or groups_end(before.size) < after_.before_end or before.epoch > after_.epoch
                or before.first > after_.first or before.first_live > after_.first_live
                or before.cuts > after_.cuts
                or (before.kind, before.owner) != (after_.kind, after_.owner)):
            return broken.format(after_.before)
        chain.insert(0, before)
    records, digest = 0, 0
    for header, successor in zip(chain, chain[1:] + [None]):
        data = files[header.number]
        limit = groups_end(header.size)
        if successor:
            limit = min(limit, successor.before_end)
        reading = Reading(header, data, limit, limit if successor else header.size)
        for lsn, payload in reading.records:
            if lsn >= live:
                records, digest = records + 1, after(digest, struct.pack("<Q", lsn) + payload)
        if successor:
            later = False
            below = successor.before_end > reading.end or successor.promise >= reading.next
        else:
            found = look_ahead(header.log, header.number, data, reading.end + 8,
                               min(len(data), header.size), reading.epoch)
            later = bool(found)
            below = any(group[5] > reading.end or group[4] >= reading.next for group in found)
        verdict, row = judge(reading, below, later)
        byte = reading.at if verdict == "corrupt" else reading.end
        if verdict != "corrupt" and successor and successor.first != reading.next:
            verdict, row = "corrupt", "D1"
        if verdict == "corrupt":
            break
    if verdict == "end" and torn:
        verdict, row = "torn", "H8"
    return f"{verdict} {row} {header.number}:{byte} {records} {digest:08x} {live} {reading.next}"


def stream(source, out):
    """Directories, each: count u32, then number u64, size u64, length u32 and that many bytes;
    zeros fill up the size."""
    while len(word := source.read(4)) == 4:
        files = {}
        for _ in range(struct.unpack("<I", word)[0]):
            number, size, length = struct.unpack("<QQI", source.read(20))
            files[number] = source.read(length) + bytes(size - length)
        out.write(survey(files) + "\n")
    out.flush()


def main(names):
    if names == ["--stream"]:
        return stream(sys.stdin.buffer, sys.stdout)
    if len(names) == 1 and os.path.isdir(names[0]):
        names = [entry.path for entry in os.scandir(names[0]) if entry.name.split(".")[0].isdigit()]
    files = {}
    for name in names:
        with open(name, "rb") as file:
            files[int(os.path.basename(name).split(".")[0])] = file.read()
    print(survey(files))


if __name__ == "__main__":
    main(sys.argv[1:])
