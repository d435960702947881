"""Writes a large recording, to measure how long reading takes.

    python3 traces/testdata/large.py nsys 3000000 large.sqlite     # kernels, as many API calls, a range for each pass
    python3 traces/testdata/large.py kineto 2000000 large.json     # events: operators, calls, kernels
"""
import json
import sqlite3
import sys

NAMES = [f"void gemm_{i}<float, {i}>(int, int, float const*, float*)" for i in range(20)] + [
    f"elementwise_{i}_kernel" for i in range(40)]
PASS = 300  # kernels of a pass


def kernel(i):
    """The times in ns of the i-th call, of its kernel, and the kernel's name: every 10 us, of 1 to 8 us."""
    call = 1_000_000_000 + i * 10_000 + i // PASS * 200_000
    return call, call + 4000, call + 6000, 1000 + i * 7919 % 7000, i % PASS % len(NAMES)


def nsys(n, path):
    """Tables and columns as in the SQLite Schema Reference of Nsight Systems."""
    db = sqlite3.connect(path)
    db.executescript("""
        PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
        CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
        CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, cuDevice INTEGER, smCount INTEGER);
        CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
            category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
            domainId INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
            eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
            returnValue INTEGER NOT NULL, callchainId INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
            deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL,
            correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL,
            mangledName INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER, gridY INTEGER, gridZ INTEGER,
            blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER,
            gridId INTEGER, graphNodeId INTEGER);
        INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1790857026000000000, '', '');
        INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200', 0, 132);
        INSERT INTO StringIds VALUES (1000, 'cudaLaunchKernel_v7000');
        """)
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(NAMES))
    pid = 1 << 48 | 4242 << 24
    many = lambda table, columns, rows: db.executemany(
        f"INSERT INTO {table} VALUES ({', '.join('?' * columns)})", rows)

    def calls():
        for i in range(n):
            call, end, *_ = kernel(i)
            yield call, end, 0, pid | 4242, i + 1, 1000, 0, None

    def kernels():
        for i in range(n):
            _, _, start, took, name = kernel(i)
            yield (start, start + took, 0, 1, None, 7, i + 1, pid, name, name, None, 32, 16 + name, 1, 1, 256, 1, 1, 0,
                   1024 * (name % 3), i, None)

    def passes():
        for i in range(0, n, PASS):
            yield (kernel(i)[0] - 1000, kernel(min(i + PASS, n) - 1)[1] + 1000, 59, None, None, None,
                   f"iteration {i // PASS}", pid | 4242, None, None, 0)

    many("CUPTI_ACTIVITY_KIND_RUNTIME", 8, calls())
    many("CUPTI_ACTIVITY_KIND_KERNEL", 22, kernels())
    many("NVTX_EVENTS", 11, passes())
    db.commit()


def kineto(n, path):
    """An operator, a call and a kernel in turn, as PyTorch's profiler writes them."""
    with open(path, "w") as f:
        f.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],\n'
                '"baseTimeNanoseconds": 1790857026000000000, "traceEvents": [')
        for i in range(n // 3):
            call, end, start, took, name = kernel(i)
            for j, e in enumerate((
                {"cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": call / 1000 - 2, "dur": 7.5,
                 "args": {"External id": i + 1, "Record function id": 0, "Ev Idx": i,
                          "Input Dims": [[16, 64], [64, 16 + name]], "Input type": ["float", "float"]}},
                {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": call / 1000,
                 "dur": (end - call) / 1000, "args": {"External id": i + 1, "cbid": 211, "correlation": i + 1}},
                {"cat": "kernel", "name": NAMES[name], "pid": 0, "tid": 7, "ts": start / 1000, "dur": took / 1000,
                 "args": {"External id": i + 1, "queued": 0, "device": 0, "context": 1, "stream": 7,
                          "correlation": i + 1, "registers per thread": 32, "shared memory": 0, "blocks per SM": 0.5,
                          "warps per SM": 4.0, "grid": [16 + name, 1, 1], "block": [256, 1, 1],
                          "est. achieved occupancy %": 6}})):
                f.write(("" if i + j == 0 else ",\n") + json.dumps({"ph": "X", **e}))
        f.write("]}\n")


{"nsys": nsys, "kineto": kineto}[sys.argv[1]](int(sys.argv[2]), sys.argv[3])
