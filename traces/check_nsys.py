#!/usr/bin/env python3
"""Checks that an Nsight Systems capture of infer shows every stage.

    nsys profile -t cuda,nvtx -o run ./infer -p "ROMEO:" -n 8 --device cuda --mode eager
    nsys export --type sqlite -o run.sqlite run.nsys-rep
    ./infer info --device cuda --prompt-len 6 --json > plan.json
    traces/check_nsys.py run.sqlite plan.json --tokens 8

Kernels belong to ranges in two hops. A kernel belongs to the API call with its
correlation id, runtime or driver (both are in CUPTI_ACTIVITY_KIND_RUNTIME). An API
call belongs to the ranges open at that time on its thread. With --graph, for a
capture with --cuda-graph-trace=node, a kernel of a graph belongs instead to the
ranges open when its node was captured: CUDA_GRAPH_NODE_EVENTS leads from the node
that ran, by originalGraphNodeId, to the one that was captured.

Checked: no range is left open; the steps of each pass are the plan's, by name,
number and order, each in the range of its layer; every kernel of a pass lies in
exactly one step; every step has a kernel. With --graph, a pass that only replays a
graph has no steps. Kernels outside passes must lie in a range of their own, such
as "warm-up", and are counted separately.

The tables are described in the "SQLite Schema Reference" of the Nsight Systems
User Guide. Exit status: 0, 1 where a check fails, 2 where the input cannot be read.
"""
import argparse
import bisect
import collections
import json
import sqlite3
import sys

DOMAIN = "gpt2scope"
PUSH_POP, START_END, DOMAIN_CREATED = 59, 60, 75  # NVTX_EVENTS.eventType
PASSES = {"prefill": "prefill", "decode step": "decode"}  # range name -> plan
MAX_SHOWN = 20


class Unreadable(Exception):
    pass


class Range:
    """A range, with the one that contains it and those inside it."""

    def __init__(self, thread, start, end, name, payload=None):
        self.thread, self.start, self.end, self.name, self.payload = thread, start, end, name, payload
        self.parent = None
        self.children = []
        self.is_step = False
        self.kernels = 0

    def up(self):
        """The range and all that contain it, innermost first."""
        r = self
        while r:
            yield r
            r = r.parent

    def inside_pass(self):
        return next((r for r in self.up() if r.name in PASSES), None)


def rows(db, table, columns, optional=()):
    """Columns of a table, with None for optional ones that this version of nsys lacks."""
    present = {r[1] for r in db.execute(f'PRAGMA table_info("{table}")')}
    if not present:
        return []
    for c in columns:
        if c not in present:
            raise Unreadable(f"table {table} has no column {c}: is it an export of nsys?")
    names = [f'"{c}"' for c in columns] + [f'"{c}"' if c in present else "NULL" for c in optional]
    return db.execute(f'SELECT {", ".join(names)} FROM "{table}"').fetchall()


def process_of(global_id):
    """The process in a globalTid or globalPid: all but the thread's 24 bits."""
    return global_id >> 24


class Trace:
    """What the checks need of a capture."""

    def __init__(self, path):
        try:
            db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            tables = {r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except sqlite3.Error as e:
            raise Unreadable(f"{path}: {e}") from e
        for t in ("NVTX_EVENTS", "StringIds"):
            if t not in tables:
                raise Unreadable(f"{path} has no table {t}: it needs an sqlite export of a capture with -t cuda,nvtx")
        self.strings = dict(rows(db, "StringIds", ("id", "value")))
        self.read_ranges(db)
        self.calls = collections.defaultdict(list)  # (process, correlation id) -> (thread, start, end, name)
        for thread, start, end, corr, name in rows(db, "CUPTI_ACTIVITY_KIND_RUNTIME", ("globalTid", "start", "end", "correlationId", "nameId")):
            self.calls[process_of(thread), corr].append((thread, start, end, self.strings.get(name, "?")))
        # (process, correlation id, name, graph node or None)
        self.kernels = [
            (process_of(pid), corr, self.strings.get(name, "?"), node or None)
            for pid, corr, name, node in rows(db, "CUPTI_ACTIVITY_KIND_KERNEL", ("globalPid", "correlationId", "shortName"), ("graphNodeId",))
        ]
        self.nodes = {}  # (process, node) -> (thread, time made, original or None)
        for thread, start, node, original in rows(db, "CUDA_GRAPH_NODE_EVENTS", ("globalTid", "start", "graphNodeId"), ("originalGraphNodeId",)):
            key = process_of(thread), node
            if key not in self.nodes or (original and not self.nodes[key][2]):
                self.nodes[key] = thread, start, original or None
        db.close()

    def read_ranges(self, db):
        events = rows(db, "NVTX_EVENTS", ("start", "end", "eventType", "text", "globalTid", "domainId", "textId"), ("int64Value",))
        domains = {(process_of(tid), dom) for _, _, kind, text, tid, dom, tid_text, _ in events
                   if kind == DOMAIN_CREATED and (text or self.strings.get(tid_text)) == DOMAIN}
        self.open = []
        by_thread = collections.defaultdict(list)
        for start, end, kind, text, tid, dom, text_id, payload in events:
            if kind not in (PUSH_POP, START_END) or (process_of(tid), dom) not in domains:
                continue
            name = text if text is not None else self.strings.get(text_id, "?")
            if end is None:
                self.open.append(name)
            elif kind == PUSH_POP:
                by_thread[tid].append(Range(tid, start, end, name, payload))
        self.ranges = []
        self.by_thread = {}
        for tid, found in by_thread.items():
            found.sort(key=lambda r: (r.start, -r.end))
            stack = []
            for r in found:
                while stack and stack[-1].end < r.end:
                    stack.pop()
                if stack:
                    r.parent = stack[-1]
                    r.parent.children.append(r)
                stack.append(r)
            self.ranges += found
            self.by_thread[tid] = [r.start for r in found], found

    def innermost(self, thread, start, end):
        """The innermost range on a thread that contains the time from start to end."""
        starts, found = self.by_thread.get(thread, ([], []))
        i = bisect.bisect_right(starts, start) - 1
        if i < 0:
            return None
        return next((r for r in found[i].up() if r.start <= start and end <= r.end), None)

    def captured(self, process, node):
        """Thread and time at which the original of a graph's node was made."""
        seen = set()
        while (process, node) in self.nodes and node not in seen:
            seen.add(node)
            thread, start, original = self.nodes[process, node]
            if original is None:
                return thread, start
            node = original
        return None


def leaves_of_pass(p):
    """The ranges of a pass that are steps: those in the range of a layer, or directly in
    that of the pass."""
    for child in p.children:
        if is_layer(child.name):
            yield from child.children
        else:
            yield child


def is_layer(name):
    """h.2 or h.2@1, but no h.2.ln_1."""
    return name.startswith("h.") and name[2:].replace("@", "", 1).isdigit()


def layer_name(step):
    if step["slot"] < 0:
        return None
    return f'h.{step["layer"]}' + (f'@{step["slot"]}' if step["slot"] != step["layer"] else "")


def check(trace, plans, graph=False, tokens=None):
    """Returns the failures, one sentence each, and a report."""
    failures, report = [], []
    for name in trace.open:
        failures.append(f"range {name!r} was left open")
    passes = [r for r in trace.ranges if r.name in PASSES]
    if not passes:
        failures.append(f"there is no pass in domain {DOMAIN}: was libgpt2scope_nvtx found, and nvtx traced?")

    # Names, numbers, order, layers.
    steps_of_plan = {kind: [(s["name"], layer_name(s)) for s in plans[kind]["steps"]] for kind in PASSES.values()}
    shown, replays = collections.Counter(), collections.Counter()
    for p in passes:
        want = steps_of_plan[PASSES[p.name]]
        steps = list(leaves_of_pass(p))
        if graph and not steps:
            replays[p.name] += 1
            continue
        got = [(r.name, r.parent.name if r.parent is not p else None) for r in steps]
        for r in steps:
            r.is_step = True
        shown[p.name] += 1
        if got != want:
            at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            say = lambda x: f"{x[at][0]!r} in {x[at][1] or 'no layer'}" if at < len(x) else "nothing"
            failures.append(f"a {p.name} at position {p.payload} has {len(got)} steps, the plan {len(want)}; step {at} is {say(got)}, expected {say(want)}")
    alone = [p for p in passes if p.parent is None]  # not those of a warm-up
    if tokens is not None:
        counts = collections.Counter(p.name for p in alone)
        if counts["decode step"] != tokens - 1:
            failures.append(f"there are {counts['decode step']} decode steps; {tokens} tokens take {tokens - 1}")
        if counts["prefill"] != 1:
            failures.append(f"there are {counts['prefill']} prefills instead of one")

    # Kernels.
    per_step, elsewhere, of_graph = collections.Counter(), collections.Counter(), 0
    if not trace.kernels:
        failures.append("no kernel was recorded: was cuda traced?")
    for process, corr, name, node in trace.kernels:
        if node is not None and not graph:
            failures.append(f"kernel {name} is of a graph: this needs --graph")
            continue
        if node is not None:
            of_graph += 1
            made = trace.captured(process, node)
            if made is None:
                failures.append(f"kernel {name}: its graph node {node} has no original in CUDA_GRAPH_NODE_EVENTS (trace with --cuda-graph-trace=node from the start)")
                continue
            places = [trace.innermost(made[0], made[1], made[1])]
        else:
            calls = trace.calls.get((process, corr))
            if not calls:
                failures.append(f"kernel {name}: no API call has its correlation id {corr}")
                continue
            places = [trace.innermost(thread, start, end) for thread, start, end, _ in calls]
        steps = {id(r): r for place in places if place for r in place.up() if r.is_step}
        if len(steps) == 1:
            step = next(iter(steps.values()))
            step.kernels += 1
            per_step[step.inside_pass().name, step.name] += 1
        elif steps:
            failures.append(f"kernel {name} lies in {len(steps)} steps: {', '.join(sorted(r.name for r in steps.values()))}")
        else:
            place = next((p for p in places if p), None)
            if place is None:
                failures.append(f"kernel {name} lies in no range")
            elif place.inside_pass():
                failures.append(f"kernel {name} lies in range {place.name!r} of a {place.inside_pass().name}, but in no step")
            else:
                elsewhere[list(place.up())[-1].name] += 1
    for r in trace.ranges:
        if r.is_step and r.kernels == 0:
            failures.append(f"step {r.name!r} of a {r.inside_pass().name} at position {r.inside_pass().payload} has no kernel")

    for name in PASSES:
        line = f"{name}: {shown[name]} with steps"
        if graph:
            line += f", {replays[name]} replayed"
        report.append(f"{line}, {len(steps_of_plan[PASSES[name]])} steps in the plan")
    report.append(f"kernels in steps: {sum(per_step.values())} of {len(trace.kernels)}, {of_graph} of graphs")
    for (p, step), n in per_step.items():
        report.append(f"  {n:6}  {p}  {step}")
    for name, n in elsewhere.items():
        report.append(f"kernels outside passes, in {name!r}: {n}")
    return failures, report


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", help="sqlite export of a capture with nsys")
    parser.add_argument("plan", help="what infer info --json printed, for the same model, device and prompt length")
    parser.add_argument("--graph", action="store_true", help="kernels of graphs belong to the ranges open when their nodes were captured")
    parser.add_argument("--tokens", type=int, help="the run made N tokens: one prefill and N-1 decode steps", metavar="N")
    args = parser.parse_args(argv)
    try:
        with open(args.plan, encoding="utf-8") as f:
            plans = json.load(f)
        for kind in PASSES.values():
            plans[kind]["steps"]
        trace = Trace(args.trace)
    except (OSError, ValueError, KeyError, TypeError) as e:
        print(f"check_nsys: {args.plan}: {e!r}", file=sys.stderr)
        return 2
    except (Unreadable, sqlite3.Error) as e:
        print(f"check_nsys: {e}", file=sys.stderr)
        return 2
    failures, report = check(trace, plans, args.graph, args.tokens)
    print("\n".join(report))
    for f in failures[:MAX_SHOWN]:
        print(f"FAIL: {f}")
    if len(failures) > MAX_SHOWN:
        print(f"FAIL: and {len(failures) - MAX_SHOWN} more")
    if not failures:
        print("ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
