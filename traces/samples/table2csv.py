#!/usr/bin/env python3
"""Converts the text table of an `nsys stats` report to the CSV of the same report: table2csv.py IN.txt OUT.csv"""

import csv
import re
import sys


def rows(text: str):
    """The cells of each row, the head first; numbers without their separators of thousands."""
    for line in text.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            yield [cell.replace(",", "") if re.fullmatch(r"[\d,]+(\.\d+)?", cell) else cell for cell in cells]


def main() -> None:
    source, target = sys.argv[1:]
    with open(source, encoding="utf-8") as f:
        table = list(rows(f.read()))
    if len({len(row) for row in table}) != 1:
        raise SystemExit(f"{source}: rows of {sorted({len(row) for row in table})} cells")
    with open(target, "w", encoding="utf-8", newline="") as f:
        csv.writer(f, lineterminator="\n").writerows(table)


if __name__ == "__main__":
    main()
