#!/usr/bin/env python3
"""Print the table of docs/performance.md that compares infer with other engines, of whole outputs of 'make bench-peers'.

    bench/table.py docs/measurements/A-bench-peers.txt Xeon docs/measurements/B-bench-peers.txt "Zen 5"
"""
import re
import sys

ROW = re.compile(r"^([A-Z]  \S+) +\S+=\d+ +\S+ +(\S+) +\d+%  +.+?  +\S+ +(\S+) +\S+$")


def results(path):
    """The cells of a run: {type: {work: (ms, ratio to the fastest other engine)}}."""
    cells, dtype = {}, None
    for line in open(path, encoding="utf-8"):
        if heading := re.match(r"(\w+), median ms over processes$", line):
            dtype = heading[1]
        if row := ROW.match(line.rstrip("\n")):
            cells.setdefault(dtype, {})[" ".join(row[1].split())] = (row[2], float(row[3]))
    return cells


runs = [(title, results(path)) for path, title in zip(sys.argv[1::2], sys.argv[2::2], strict=True)]
works = list(next(iter(runs[0][1].values())))
print("| work |", " | ".join(f"{title}, {dtype}" for title, cells in runs for dtype in cells), "|")
print("|---" * (1 + sum(len(cells) for _, cells in runs)) + "|")
for work in works:
    row = [cells[dtype][work] for _, cells in runs for dtype in cells]  # a missing work is an error
    print(f"| {work} |", " | ".join(f"{ms} ({f'**{r:.2f}**' if r > 1 else f'{r:.2f}'})" for ms, r in row), "|")
