"""compare.py NAME OURS NSYS: what recordings of one program by two tools hold, by category; OURS and NSYS are patterns of
names of files, .json.gz, whose sums are compared, and "calls of both" are those that both tools record. Exit status 1 if
work of the GPU or a range is missing in ours, or sums of durations of kernels or graphs differ by more than 1 %."""
import collections, glob, gzip, json, sys
name, *patterns = sys.argv[1:]
found = []
for pattern in patterns:
    sums = collections.defaultdict(lambda: [0, 0.0])
    for path in glob.glob(pattern):
        for e in json.load(gzip.open(path))["traceEvents"]:
            if e.get("ph") in "XB" and not e["cat"].startswith(("gpu_user", "overhead", "cuda_sync")):
                for key in (e["cat"], ""), (e["cat"], e["name"]):
                    sums[key][0] += 1
                    sums[key][1] += e.get("dur", 0)
    found.append(sums)
ours, nsys = found
for sums in found:  # calls that are in both, as often
    for key in list(sums):
        if key[0].startswith("cuda_") and key[0] != "cuda_graph" and key[1] and key in ours and key in nsys and ours[key][0] == nsys[key][0]:
            both = sums[("calls of both", "")]
            both[0], both[1] = both[0] + sums[key][0], both[1] + sums[key][1]
bad = 0
for key in sorted(set(ours) | set(nsys)):
    a, b = ours.get(key, [0, 0]), nsys.get(key, [0, 0])
    work = key[0] in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_graph", "user_annotation")
    if key[1] == "":
        off = 100 * (a[1] / b[1] - 1) if b[1] else 0
        print(f"{name:<10} {key[0]:<16} ours {a[0]:7d} {a[1] / 1e3:11.3f} ms   nsys {b[0]:7d} {b[1] / 1e3:11.3f} ms   {off:+.2f} %")
        bad += work and (a[0] < b[0] or key[0] in ("kernel", "cuda_graph") and abs(off) > 1)
    elif a[0] != b[0] and key[0] != "kernel":
        print(f"    {key[1][:70]:<70} {key[0]} ours {a[0]} nsys {b[0]}")
sys.exit(bad > 0)
