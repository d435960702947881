#!/usr/bin/env python3
"""Makes a small copy of an nsys export: what its readers need, and nothing that
identifies the machine or its user.

    traces/samples/slim.py run.sqlite eager.sqlite

Kept are whole tables of GPU work, API calls, ranges and graph nodes, samples of the
GPU's counters around its work, and the descriptions that they refer to, with their schemas and ids. Only named tables and
rows are kept, so that what a later version of nsys adds stays out. Strings are kept
where a kept row refers to them by a column whose schema says "REFERENCES
StringIds(id)". The program's path becomes "infer"; its process id stays, as it is
part of every globalTid.

The same input gives the same bytes, with the same version of SQLite. Exit status: 0,
1 where a text that is to be written looks like a path or a name of the machine, 2
where the input cannot be read.
"""
import os
import re
import sqlite3
import sys

# Tables of events, kept whole.
EVENTS = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS", "NVTX_EVENTS",
)
# What they refer to, kept whole.
DESCRIPTIONS = ("ANALYSIS_DETAILS", "TARGET_INFO_GPU_METRICS", "TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_CUDA_STREAM", "TARGET_INFO_SESSION_START_TIME")
ENUMS = ("ENUM_CUDA_", "ENUM_CUPTI_", "ENUM_NSYS_EVENT_CLASS", "ENUM_NSYS_EVENT_TYPE")
# Tables of names and values: the rows whose name matches.
NAMED = {
    "META_DATA_EXPORT": r"EXPORT_PRODUCT_\w+|EXPORT_SCHEMA_VERSION(_M\w+)?",
    "META_DATA_CAPTURE": r"CAPTURE_EVENT_TYPE|PROCESS_0:(ARGUMENT_\d+|COLLECT_(NVTX|CUDA)_TRACE|CUDA_GRAPH_TRACE_OPTIONS:\w+)",
    "TARGET_INFO_SYSTEM_ENV": r"NvDriverVersion|CudaDriverVersion|CpuArchitecture|CpuDescription|CpuCores",
}
# Columns that tell machines apart.
BLANKED = {"TARGET_INFO_GPU": ("busLocation", "uuid", "luid", "ctxswDevPath", "ctrlDevPath")}
# No text may look like this: an absolute path, a user, a host, an address. Enums are
# nsys's own words ("Host-to-Device").
PRIVATE = re.compile(r"(^|[\s\"'=:])/\w|\\\\|\b(root|home|tmp|opt|vm|localhost|host|user)\b|\d+\.\d+\.\d+\.\d+:\d|@[\w.]+\b", re.IGNORECASE)


def kept_rows(source, table):
    """The columns of a table and the rows of it that are kept, or None to leave it out."""
    cursor = source.execute(f'SELECT * FROM "{table}"')
    columns = [d[0] for d in cursor.description]
    rows = cursor.fetchall()
    at = {c: i for i, c in enumerate(columns)}
    if table in EVENTS or table in DESCRIPTIONS or table.startswith(ENUMS):
        return columns, rows
    if table in NAMED:
        return columns, [r for r in rows if re.fullmatch(NAMED[table], r[at["name"]])]
    if table in BLANKED:
        blank = {at[c] for c in BLANKED[table] if c in at}
        return columns, [tuple((0 if isinstance(x, int) else "") if i in blank else x for i, x in enumerate(r)) for r in rows]
    if table == "GPU_METRICS":  # the device is sampled from long before the first kernel
        first, last = source.execute("SELECT min(start), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        return columns, [r for r in rows if first - 1_000_000 <= r[at["timestamp"]] <= last + 1_000_000]
    processes, threads = owners(source)
    if table == "PROCESSES":
        return columns, [tuple("infer" if c == "name" else x for c, x in zip(columns, r)) for r in rows if r[at["globalPid"]] in processes]
    if table == "ThreadNames":
        return columns, [r for r in rows if r[at["globalTid"]] in threads]
    return None


def owners(source):
    """The processes and threads that ranges and API calls belong to. A globalPid is
    a globalTid whose lowest 24 bits, the thread, are 0."""
    tables = {r[0] for r in source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    threads = set()
    for t in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"):
        if t in tables:
            threads.update(r[0] for r in source.execute(f"SELECT DISTINCT globalTid FROM {t}"))
    processes = {t >> 24 << 24 for t in threads}
    return processes, threads | processes


def refers_to_strings(schema):
    """The columns of a CREATE TABLE whose comment says that they are ids of strings."""
    return set(re.findall(r"^\s*(\w+)\s+INTEGER[^\n]*REFERENCES StringIds\(id\)", schema, re.MULTILINE))


def slim(source, out):
    schemas = source.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    if "StringIds" not in dict(schemas):
        raise sqlite3.DatabaseError("it has no table StringIds: is it an sqlite export of nsys?")
    tables, strings = {}, set()
    for table, schema in schemas:
        kept = kept_rows(source, table)
        if table == "StringIds" or kept is None or not kept[1]:
            continue
        tables[table] = kept
        for i, c in enumerate(kept[0]):
            if c in refers_to_strings(schema):
                strings.update(r[i] for r in kept[1])
    tables["StringIds"] = ["id", "value"], [r for r in source.execute("SELECT id, value FROM StringIds ORDER BY id") if r[0] in strings]
    private = [(t, x) for t, (_, rows) in tables.items() if not t.startswith("ENUM_") for r in rows for x in r if isinstance(x, str) and PRIVATE.search(x)]
    if private:
        return private
    if os.path.exists(out):
        os.remove(out)
    made = sqlite3.connect(out)
    made.execute("PRAGMA page_size = 1024")  # many tables are a few rows
    for table, schema in schemas:
        if table in tables:
            columns, rows = tables[table]
            made.execute(schema)
            made.executemany(f'INSERT INTO "{table}" ({", ".join(columns)}) VALUES ({", ".join("?" * len(columns))})', rows)
    made.commit()
    made.execute("VACUUM")
    made.close()
    return []


def main(argv):
    if len(argv) != 2 or argv[0].startswith("-"):
        print(__doc__)
        return 2
    try:
        source = sqlite3.connect(f"file:{argv[0]}?mode=ro&immutable=1", uri=True)
        private = slim(source, argv[1])
    except sqlite3.Error as e:
        print(f"slim: {argv[0]}: {e}", file=sys.stderr)
        return 2
    for table, text in private:
        print(f"slim: {table} has {text!r}, which looks like a path or a name of the machine; nothing was written", file=sys.stderr)
    return 1 if private else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
