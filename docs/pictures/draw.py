#!/usr/bin/env python3
"""Draws the three pictures of the pages: `docs/pictures/draw.py` writes them, `--check` says
whether they are as it would draw them.

Each picture is 480 units wide, so that its words can be read on a telephone, and has colours for
light and dark."""
import html
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
STYLE = """
svg { font: 14px system-ui, sans-serif }
text { fill: #1f2328 } .small { font-size: 12px } .bold { font-weight: 600 } \
.middle { text-anchor: middle } .end { text-anchor: end }
.page { fill: #ffffff; stroke: #d0d7de } .box { fill: #f6f8fa; stroke: #57606a }
.new { fill: #ddf4ff; stroke: #0969da } .old { fill: #d0d7de; stroke: #57606a } \
.free { fill: none; stroke: #57606a; stroke-dasharray: 3 3 }
.line { fill: none; stroke: #57606a; stroke-width: 1.5 } \
.cut { fill: none; stroke: #cf222e; stroke-width: 2.5; stroke-dasharray: 7 4 }
.tip { fill: #57606a } .red { fill: #cf222e }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .page { fill: #0d1117; stroke: #30363d } \
.box { fill: #161b22; stroke: #8b949e }
.new { fill: #0c2d4d; stroke: #58a6ff } .old { fill: #30363d; stroke: #8b949e } \
.free { stroke: #8b949e }
.line { stroke: #8b949e } .cut { stroke: #ff7b72 } .tip { fill: #8b949e } .red { fill: #ff7b72 }
}
"""


class Picture:
    def __init__(self, title, height):
        self.height = height
        self.parts = [f"<title>{html.escape(title)}</title>",
                      self.shape(0.5, 0.5, 479, height - 1, "page", 8)]

    @staticmethod
    def shape(x, y, width, height, kind, round_by=4):
        return (f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{round_by}" '
                f'class="{kind}"/>')

    def box(self, x, y, width, height, kind="box", words="", size=""):
        self.parts.append(self.shape(x, y, width, height, kind))
        if words:
            self.say(x + width / 2, y + height / 2 + 5, words, f"middle {size}")

    def say(self, x, y, words, kind=""):
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{kind.strip()}">'
                          f'{html.escape(words)}</text>')

    def arrow(self, x, y, to_x, to_y):
        """Straight down or up, with a tip."""
        tip = 7 if to_y > y else -7
        self.parts.append(f'<path d="M{x} {y}L{to_x} {to_y - tip}" class="line"/>')
        self.parts.append(f'<path d="M{to_x - 5} {to_y - tip}h10L{to_x} {to_y}z" class="tip"/>')

    def fan(self, x, y, width, to_x, to_y, to_width):
        """What is above is shown larger below."""
        self.parts.append(f'<path d="M{x} {y}L{to_x} {to_y}'
                          f'M{x + width} {y}L{to_x + to_width} {to_y}" class="line"/>')

    def cut(self, y):
        self.parts.append(f'<path d="M16 {y}H464" class="cut"/>')

    def text(self):
        begin = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 {self.height}" '
                 f'width="576" height="{self.height * 1.2:g}" role="img">')
        return "\n".join([begin, f"<style>{STYLE}</style>", *self.parts, "</svg>"]) + "\n"


def commit():
    it = Picture("The commit path: threads append to one open group; one thread writes it with one "
                 "write and one flush; all wake", 362)
    for number in range(4):
        x = 24 + 110 * number
        it.box(x, 20, 102, 30, "box", f"thread {number + 1}")
        it.arrow(x + 51, 50, x + 51, 90)
        it.box(x + 8, 98, 86, 28, "new", f"frame {41 + number}")
    it.say(84, 76, "append", "small")
    it.parts.insert(2, it.shape(16, 90, 448, 70, "box"))
    it.say(240, 149, "the open group, in memory; its promise: durable up to 40", "middle small")
    it.arrow(240, 160, 240, 214)
    it.say(256, 184, "one write, one flush:", "bold")
    it.say(256, 202, "the first that waits leads", "small")
    it.box(16, 216, 448, 44, "free")
    for x, width, kind, words in [
        (16, 62, "old", "header"), (78, 60, "old", "…38"), (138, 60, "old", "39, 40"),
        (198, 100, "new", "41 to 44"),
    ]:
        it.box(x, 216, width, 44, kind, words, "small")
    it.say(381, 243, "prepared blocks", "middle small")
    it.say(16, 282, "A segment. Its blocks are written and owned already,", "small")
    it.say(16, 299, "so the file system writes no metadata.", "small")
    it.say(16, 328, "Then all four threads wake: 44 is the watermark.", "small bold")
    it.say(16, 346, "Meanwhile the next group is open.", "small")
    return it


def segments():
    it = Picture("The directory of a log: segments, one of them with its groups, one group with "
                 "its frames and its promise", 440)
    it.say(16, 30, "the directory payments/", "bold")
    files = [
        ("…4.free", "free", "used again"), ("…5.ink", "old", "sealed"), ("…6.ink", "old", "sealed"),
        ("…7.ink", "new", "active"), ("…8.ink", "free", "ready"),
    ]
    for place, (name, kind, state) in enumerate(files):
        x = 16 + 91 * place
        it.box(x, 44, 84, 52, kind)
        it.say(x + 42, 66, name, "middle small bold")
        it.say(x + 42, 84, state, "middle small")
    it.fan(289, 96, 84, 16, 140, 448)
    it.say(290, 127, "a segment", "middle bold")
    for x, width, kind, words in [
        (16, 84, "old", "header"), (100, 80, "old", "group"), (180, 80, "old", "group"),
        (260, 80, "new", "group"), (340, 124, "free", "old bytes, zeros"),
    ]:
        it.box(x, 140, width, 40, kind, words, "small")
    it.fan(260, 180, 80, 16, 224, 448)
    it.say(272, 211, "a group", "middle bold")
    it.box(16, 224, 166, 54, "new")
    it.say(99, 247, "epoch, first LSN, sum", "middle small")
    it.say(99, 266, "promise: 40", "middle small bold")
    for number in range(3):
        it.box(182 + 94 * number, 224, 94, 54, "new", f"frame {41 + number}", "small")
    for place, words in enumerate([
        "A group is one write, and counts whole or not at all.",
        "A frame has length, LSN, two sums, and the record's bytes.",
        "A header names the log, its own number, and where the",
        "segment before it ends.",
    ]):
        it.say(16, 302 + 18 * place, words, "small")
    it.say(16, 386, "A promise is what was durable when its group was built.", "small bold")
    it.say(16, 404, "Damage below a promise is corruption. Damage above", "small bold")
    it.say(16, 422, "every promise is a torn tail.", "small bold")
    return it


def proofs():
    it = Picture("What each proof cuts: threads, the process, the kernel with the power, the disk, "
                 "the log itself", 476)
    rows = [
        ("threads", "explorer: 100,000 orders of the log's", "threads over a simulated disk", None),
        ("process", "powerloss kill: SIGKILL at any moment;", "the kernel and its page cache stay",
         "a kill"),
        ("kernel", "powerloss run: real ext4, xfs, btrfs,", "cut at any write, mounted again",
         "a power cut; the disk's cache survives"),
        ("disk cache", "powerloss sim: any subset of what was",
         "not flushed is lost, torn, in any order", "a power cut; the disk's cache is lost"),
        ("medium", "powerloss faults: writes and flushes fail,", "the disk is full, slow or dead",
         None),
    ]
    y = 22
    for name, *words, cut in rows:
        it.box(16, y, 116, 48, "new" if name in ("threads", "process") else "box", name, "bold")
        it.say(148, y + 20, words[0], "small")
        it.say(148, y + 37, words[1], "small")
        y += 48
        if cut:
            it.cut(y + 14)
            it.say(464, y + 30, cut, "small red end")
            y += 36
        else:
            y += 14
    it.box(16, y + 8, 448, 52, "box")
    it.say(28, y + 29, "And the proofs themselves: 82 mutations, each built into a copy of",
           "small")
    it.say(28, y + 47, "the log, must be caught by one of them (.ci/mistaken).", "small")
    return it


def main():
    old = 0
    for name, picture in [("commit", commit()), ("segments", segments()), ("proofs", proofs())]:
        path = os.path.join(HERE, f"{name}.svg")
        if "--check" not in sys.argv:
            with open(path, "w", encoding="utf-8") as file:
                file.write(picture.text())
        elif not os.path.isfile(path) or open(path, encoding="utf-8").read() != picture.text():
            print(f"docs/pictures/{name}.svg is not as draw.py draws it")
            old = 1
    sys.exit(old)


main()
