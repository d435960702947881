"""compare.py NAME OURS.json.gz NSYS.json.gz: what two recordings of one program hold, by category; exit status 1 if work
of the GPU or a range is missing in ours, or sums of durations differ by more than 1 %."""
import collections, gzip, json, sys
name, *paths = sys.argv[1:]
found = []
for path in paths:
    sums = collections.defaultdict(lambda: [0, 0.0])
    for e in json.load(gzip.open(path))["traceEvents"]:
        if e.get("ph") in "XB" and not e["cat"].startswith(("gpu_user", "overhead", "cuda_sync")):
            for key in (e["cat"], ""), (e["cat"], e["name"]):
                sums[key][0] += 1
                sums[key][1] += e.get("dur", 0)
    found.append(sums)
ours, nsys = found
bad = 0
for key in sorted(set(ours) | set(nsys)):
    a, b = ours.get(key, [0, 0]), nsys.get(key, [0, 0])
    work = key[0] in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_graph", "user_annotation")
    if key[1] == "":
        off = 100 * (a[1] / b[1] - 1) if b[1] else 0
        print(f"{name:<10} {key[0]:<16} ours {a[0]:7d} {a[1] / 1e3:11.3f} ms   nsys {b[0]:7d} {b[1] / 1e3:11.3f} ms   {off:+.2f} %")
        bad += work and (a[0] < b[0] or key[0] == "kernel" and abs(off) > 1)
    elif a[0] != b[0]:
        print(f"    {key[1][:70]:<70} {key[0]} ours {a[0]} nsys {b[0]}")
sys.exit(bad > 0)
