#!/usr/bin/env python3
"""Tests of check_nsys.py, on small captures made here: one that is right in each
mode, and each way of being wrong; and on the real captures in samples. Tests of
samples/slim.py, which made those, and of the scripts around: what they say where
tools are missing, and what they do with tools that play back the samples."""
import contextlib
import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES = os.path.join(HERE, "samples")
sys.path[:0] = [HERE, SAMPLES]
import check_nsys
import slim

PID = 7 << 24
TID = PID | 9


def plan():
    steps = [("wte+wpe", -1), ("h.0.ln_1+h.0.attn.c_attn", 0), ("h.0.attn.sdpa", 0), ("h.1.ln_1", 1), ("lm_head", -1)]
    p = {"steps": [{"tag": i, "name": n, "op": "x", "slot": l, "layer": l} for i, (n, l) in enumerate(steps)]}
    return {"prefill": p, "decode": p}


class Capture:
    """Writes a capture. Time goes on by one with every event."""

    def __init__(self):
        self.time, self.ids = 0, 0
        self.events = [(0, None, 75, "gpt2scope", TID, 1, None, None)]
        self.calls, self.kernels, self.nodes = [], [], []

    def now(self):
        self.time += 1
        return self.time

    @contextlib.contextmanager
    def range(self, name, payload=0, leave_open=False):
        start, at = self.now(), len(self.events)
        self.events.append(None)
        yield
        end = self.now()
        self.events[at] = (start, None if leave_open else end, 59, name, TID, 1, None, payload)

    def launch(self, correlated=True, node=None, thread=TID):
        start = self.now()
        self.ids += 1
        self.calls.append((start, self.now(), thread, self.ids, 1))
        # It starts long after its call returned, as kernels do.
        self.kernels.append((start + 1000, start + 1001, PID, self.ids if correlated else self.ids + 500, 2, node))

    def capture_node(self, node):
        self.nodes.append((self.now(), TID, node, None))

    def run(self, name, do, steps=None):
        """One pass; do(i) does the work of step i."""
        open_layer = None
        with contextlib.ExitStack() as whole:
            whole.enter_context(self.range(name))
            layer = None
            for i, s in enumerate(steps if steps is not None else plan()["prefill"]["steps"]):
                if s["layer"] != open_layer:
                    if layer:
                        layer.close()
                    layer = contextlib.ExitStack()
                    if s["layer"] >= 0:
                        layer.enter_context(self.range(f'h.{s["layer"]}'))
                    open_layer = s["layer"]
                with self.range(s["name"]):
                    do(i)
            if layer:
                layer.close()

    def save(self, path):
        db = sqlite3.connect(path)
        db.executescript("""
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
            CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, domainId INTEGER, textId INTEGER, int64Value INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, globalPid INTEGER, correlationId INTEGER, shortName INTEGER, graphNodeId INTEGER);
            CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start INTEGER, globalTid INTEGER, graphNodeId INTEGER, originalGraphNodeId INTEGER);
            INSERT INTO StringIds VALUES (1, 'cudaLaunchKernelExC_v11060'), (2, 'kernel');""")
        db.executemany("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?,?,?)", self.events)
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", self.calls)
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?)", self.kernels)
        db.executemany("INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (?,?,?,?)", self.nodes)
        db.commit()
        db.close()


class CheckTest(unittest.TestCase):
    def check(self, capture, *args):
        with tempfile.TemporaryDirectory() as d:
            capture.save(f"{d}/run.sqlite")
            with open(f"{d}/plan.json", "w") as f:
                json.dump(plan(), f)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                status = check_nsys.main([f"{d}/run.sqlite", f"{d}/plan.json", *args])
            return status, out.getvalue()

    def passes(self, capture, *args):
        status, out = self.check(capture, *args)
        self.assertEqual(status, 0, out)
        self.assertIn("\nok", out)
        return out

    def fails(self, capture, words, *args):
        status, out = self.check(capture, *args)
        self.assertEqual(status, 1, out)
        failures = [line for line in out.splitlines() if line.startswith("FAIL: ")]
        self.assertTrue(any(words in line for line in failures), out)

    def eager(self):
        c = Capture()
        with c.range("warm-up"):
            c.launch()
        for name in ("prefill", "decode step", "decode step"):
            c.run(name, lambda i: [c.launch() for _ in range(1 + i % 2)])
        return c

    def graph(self):
        c = Capture()
        c.run("prefill", lambda i: c.launch())
        c.run("decode step", lambda i: c.capture_node(100 + i))
        n = len(plan()["decode"]["steps"])
        for i in range(n):  # cloned twice: instantiated, and updated
            c.nodes.append((c.now(), TID, 200 + i, 100 + i))
            c.nodes.append((c.now(), TID, 300 + i, 200 + i))
        for _ in range(3):
            with c.range("decode step"):
                for i in range(n):
                    c.launch(node=300 + i)
        return c

    def test_eager(self):
        out = self.passes(self.eager(), "--tokens", "3")
        self.assertIn("kernels outside passes, in 'warm-up': 1", out)
        self.assertIn("kernels in steps: 21 of 22", out)

    def test_registered_names(self):
        c = self.eager()
        strings = {}
        for i, (start, end, kind, text, *rest) in enumerate(c.events):
            if kind == 59:
                c.events[i] = (start, end, kind, None, TID, 1, strings.setdefault(text, 10 + len(strings)), 0)
        save = c.save

        def with_strings(path):
            save(path)
            db = sqlite3.connect(path)
            db.executemany("INSERT INTO StringIds VALUES (?,?)", [(i, s) for s, i in strings.items()])
            db.commit()
            db.close()
        c.save = with_strings
        self.passes(c)

    def test_other_domains_do_not_count(self):
        c = self.eager()
        c.events.append((1, None, 59, "cuBLAS", TID, 2, None, None))
        self.passes(c)

    def test_graph(self):
        out = self.passes(self.graph(), "--graph")
        self.assertIn("decode step: 1 with steps, 3 replayed", out)
        self.assertIn("15 of graphs", out)

    def test_graph_needs_its_mode(self):
        self.fails(self.graph(), "needs --graph")

    def test_left_open(self):
        c = self.eager()
        with c.range("warm-up", leave_open=True):
            pass
        self.fails(c, "left open")

    def test_step_without_kernel(self):
        c = self.eager()
        c.run("decode step", lambda i: c.launch() if i != 2 else None)
        self.fails(c, "'h.0.attn.sdpa' of a decode step at position 0 has no kernel")

    def test_launch_between_steps(self):
        c = self.eager()
        with c.range("decode step"):
            c.launch()
        self.fails(c, "in no step")

    def test_launch_outside_ranges(self):
        c = self.eager()
        c.launch()
        self.fails(c, "in no range")

    def test_launch_on_another_thread(self):
        c = self.eager()
        c.run("decode step", lambda i: c.launch(thread=TID + 1) if i == 1 else c.launch())
        self.fails(c, "in no range")

    def test_launch_longer_than_its_step(self):
        c = self.eager()
        c.run("decode step", lambda i: c.launch())
        start, _, *rest = c.calls[-1]
        c.calls[-1] = (start, c.time + 5, *rest)
        self.fails(c, "in no range")

    def test_kernel_without_call(self):
        c = self.eager()
        c.run("decode step", lambda i: c.launch(correlated=i != 0))
        self.fails(c, "no API call has its correlation id")

    def test_kernel_in_two_steps(self):
        c = self.eager()
        start, end, thread, corr, name = c.calls[-1]
        first = c.calls[1]  # that of the warm-up is 0
        c.calls.append((first[0], first[1], thread, corr, name))  # one id, two calls
        self.fails(c, "lies in 2 steps")

    def test_wrong_name(self):
        c = self.eager()
        steps = plan()["decode"]["steps"]
        steps[2]["name"] = "h.0.attn.other"
        c.run("decode step", lambda i: c.launch(), steps)
        self.fails(c, "step 2 is 'h.0.attn.other' in h.0, expected 'h.0.attn.sdpa' in h.0")

    def test_missing_step(self):
        c = self.eager()
        c.run("decode step", lambda i: c.launch(), plan()["decode"]["steps"][:-1])
        self.fails(c, "has 4 steps, the plan 5; step 4 is nothing")

    def test_wrong_layer(self):
        c = self.eager()
        steps = plan()["decode"]["steps"]
        steps[3]["layer"] = 0
        c.run("decode step", lambda i: c.launch(), steps)
        self.fails(c, "step 3 is 'h.1.ln_1' in h.0")

    def test_number_of_passes(self):
        self.fails(self.eager(), "2 decode steps; 8 tokens take 7", "--tokens", "8")

    def test_steps_missing_in_eager(self):
        c = self.eager()
        with c.range("decode step"):
            pass
        self.fails(c, "has 0 steps")

    def test_graph_node_without_original(self):
        c = self.graph()
        c.launch(node=999)
        self.fails(c, "graph node 999 has no original", "--graph")

    def test_graph_node_in_a_cycle(self):
        c = self.graph()
        c.nodes += [(c.now(), TID, 800, 801), (c.now(), TID, 801, 800)]
        c.launch(node=800)
        self.fails(c, "graph node 800 has no original", "--graph")

    def test_graph_node_captured_outside_steps(self):
        c = self.graph()
        with c.range("decode step"):
            c.capture_node(900)
        c.launch(node=900)
        self.fails(c, "in no step", "--graph")

    def test_nothing_traced(self):
        c = Capture()
        self.fails(c, "there is no pass")
        self.fails(c, "no kernel was recorded")

    def test_not_a_capture(self):
        with tempfile.TemporaryDirectory() as d:
            sqlite3.connect(f"{d}/empty.sqlite").execute("CREATE TABLE t (x)").connection.close()
            with open(f"{d}/plan.json", "w") as f:
                json.dump(plan(), f)
            with open(f"{d}/bad.json", "w") as f:
                f.write("{}")
            for trace, p in (("empty.sqlite", "plan.json"), ("none.sqlite", "plan.json"), ("empty.sqlite", "bad.json"), ("empty.sqlite", "none.json"), ("plan.json", "plan.json")):
                err = io.StringIO()
                with contextlib.redirect_stderr(err):
                    self.assertEqual(check_nsys.main([f"{d}/{trace}", f"{d}/{p}"]), 2)
                self.assertEqual(len(err.getvalue().splitlines()), 1)


class SamplesTest(unittest.TestCase):
    """The captures in samples, which are of an H200."""

    def check(self, capture, *args):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = check_nsys.main([capture, f"{SAMPLES}/plan.json", "--tokens", "8", *args])
        return status, out.getvalue()

    def test_eager(self):
        status, out = self.check(f"{SAMPLES}/eager.sqlite")
        self.assertEqual(status, 0, out)
        self.assertIn("decode step: 7 with steps,", out)
        self.assertIn("kernels in steps: 66 of 92, 0 of graphs", out)
        self.assertIn("kernels outside passes, in 'load weights/shakespeare': 26", out)

    def test_graph(self):
        # The 7 decode steps that ran, and in a range of its own the one recorded.
        status, out = self.check(f"{SAMPLES}/graph.sqlite", "--graph")
        self.assertEqual(status, 0, out)
        self.assertIn("decode step: 2 with steps, 6 replayed", out)
        self.assertIn("kernels in steps: 66 of 92, 48 of graphs", out)
        self.assertEqual(self.check(f"{SAMPLES}/graph.sqlite")[0], 1)

    def test_damaged(self):
        """A sample with one change is no longer right."""
        for damage, words in (
            ("DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE correlationId = (SELECT max(correlationId) FROM CUPTI_ACTIVITY_KIND_KERNEL)", "no API call has its correlation id"),
            ("UPDATE NVTX_EVENTS SET end = NULL WHERE textId = (SELECT id FROM StringIds WHERE value = 'sample')", "left open"),
            ("UPDATE StringIds SET value = 'h.0.attn' WHERE value = 'h.0.attn.sdpa'", "expected 'h.0.attn.sdpa'"),
            ("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE start = (SELECT max(start) FROM CUPTI_ACTIVITY_KIND_KERNEL)", "has no kernel"),
        ):
            with tempfile.TemporaryDirectory() as d:
                shutil.copy(f"{SAMPLES}/eager.sqlite", f"{d}/run.sqlite")
                db = sqlite3.connect(f"{d}/run.sqlite")
                self.assertGreater(db.execute(damage).rowcount, 0, damage)
                db.commit()
                db.close()
                status, out = self.check(f"{d}/run.sqlite")
                self.assertEqual(status, 1, out)
                self.assertIn(words, out)


class SlimTest(unittest.TestCase):
    def dump(self, path):
        db = sqlite3.connect(path)
        lines = list(db.iterdump())
        db.close()
        return lines

    def test_samples_are_slim(self):
        """What is slim stays as it is, so that the samples hold nothing more."""
        for name in ("eager", "graph"):
            with tempfile.TemporaryDirectory() as d:
                self.assertEqual(slim.main([f"{SAMPLES}/{name}.sqlite", f"{d}/again.sqlite"]), 0)
                self.assertEqual(self.dump(f"{d}/again.sqlite"), self.dump(f"{SAMPLES}/{name}.sqlite"))
                slim.main([f"{SAMPLES}/{name}.sqlite", f"{d}/third.sqlite"])
                with open(f"{d}/again.sqlite", "rb") as a, open(f"{d}/third.sqlite", "rb") as b:
                    self.assertEqual(a.read(), b.read())

    def test_machine_stays_out(self):
        with tempfile.TemporaryDirectory() as d:
            shutil.copy(f"{SAMPLES}/eager.sqlite", f"{d}/run.sqlite")
            db = sqlite3.connect(f"{d}/run.sqlite")
            db.executescript("""
                INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'SECRET="x"'), ('PROCESS_0:WORKING_DIR', '/srv/someone');
                INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_HOST', 'somewhere');
                INSERT INTO StringIds VALUES (100000, 'A_VARIABLE=/srv/someone');
                INSERT INTO PROCESSES VALUES (123, 123, 'other');
                UPDATE PROCESSES SET name = '/srv/someone/infer' WHERE name = 'infer';
                UPDATE TARGET_INFO_GPU SET uuid = '81092022-da9b', busLocation = '0000:01:00.0';
                CREATE TABLE ProcessStreams (globalPid INTEGER, filename TEXT);
                INSERT INTO ProcessStreams VALUES (1, '/srv/someone/out');""")
            db.close()
            self.assertEqual(slim.main([f"{d}/run.sqlite", f"{d}/slim.sqlite"]), 0)
            self.assertEqual(self.dump(f"{d}/slim.sqlite"), self.dump(f"{SAMPLES}/eager.sqlite"))

    def test_private_text_is_refused(self):
        for text in ("/srv/model", "-m=/srv/model", "see \"/srv\"", "infer@127.0.0.1", "under home"):
            with tempfile.TemporaryDirectory() as d:
                shutil.copy(f"{SAMPLES}/eager.sqlite", f"{d}/run.sqlite")
                db = sqlite3.connect(f"{d}/run.sqlite")
                db.execute("UPDATE NVTX_EVENTS SET text = ? WHERE text = 'allocate'", (text,))
                db.commit()
                db.close()
                err = io.StringIO()
                with contextlib.redirect_stderr(err):
                    self.assertEqual(slim.main([f"{d}/run.sqlite", f"{d}/slim.sqlite"]), 1, text)
                self.assertIn("NVTX_EVENTS", err.getvalue())
                self.assertFalse(os.path.exists(f"{d}/slim.sqlite"))

    def test_not_a_capture(self):
        with tempfile.TemporaryDirectory() as d, contextlib.redirect_stderr(io.StringIO()):
            sqlite3.connect(f"{d}/empty.sqlite").execute("CREATE TABLE t (x)").connection.close()
            for name in ("empty.sqlite", "none.sqlite"):
                self.assertEqual(slim.main([f"{d}/{name}", f"{d}/out.sqlite"]), 2)


NCU = """==PROF== Profiling "k" - 0: 0%....50%....100% - 1 pass
  k (1, 1, 1)x(32, 1, 1), Context 1, Stream 15, Device 0, CC 9.0

    NVTX Push/Pop Stack for Thread 1:
      gpt2scope
        <0,decode step>
          REGISTERED: decode step
        <1,h.0>
          REGISTERED: h.0
        <2,%s>
          REGISTERED: %s
    Section: Launch Statistics
"""


class ScriptsTest(unittest.TestCase):
    """profile.sh and check-gpu.sh, in a copy of the tree with programs that play back
    the samples in place of infer, nsys and ncu."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        for d in ("traces", "bin", "lib", "path"):
            os.mkdir(f"{self.root}/{d}")
        for name in ("profile.sh", "check-gpu.sh", "check_nsys.py"):
            shutil.copy(f"{HERE}/{name}", f"{self.root}/traces")
        for name in ("awk", "bash", "cat", "cp", "dirname", "env", "grep", "mkdir", "rm", "sed", "tail", "touch"):
            os.symlink(shutil.which(name), f"{self.root}/path/{name}")
        os.symlink(sys.executable, f"{self.root}/path/python3")
        open(f"{self.root}/lib/libgpt2scope_nvtx.so", "w").close()
        self.program("bin/infer", f'case "$1" in info) cat {SAMPLES}/plan.json ;; esac')

    def program(self, name, text):
        with open(f"{self.root}/{name}", "w") as f:
            f.write("#!/usr/bin/env bash\n" + text + "\n")
        os.chmod(f"{self.root}/{name}", 0o755)

    def nsys(self, export=f'case "$file" in *graph*) cp {SAMPLES}/graph.sqlite $file ;; *) cp {SAMPLES}/eager.sqlite $file ;; esac'):
        self.program("path/nsys", f"""
            while test $# != 0; do
                case "$1" in
                --version) echo "NVIDIA Nsight Systems"; exit ;;
                profile|export) what=$1 ;;
                -o) file=$2 ;;
                esac
                shift
            done
            test $what = export || exit 0
            {export}""")

    def ncu(self, stage=None):
        """It finds the stage that was asked for, or always another."""
        play = NCU.replace("%s", stage or "$stage")
        self.program("path/ncu", f"""
            while test $# != 0; do
                case "$1" in
                --version) echo "Version 1"; exit ;;
                --nvtx-include) stage=$2 ;;
                esac
                shift
            done
            stage=${{stage#gpt2scope@}} stage=${{stage%/}}
            case $stage in *[^\\\\]+*) echo "==ERROR== + is an operator"; exit 1 ;; esac
            stage=${{stage//\\\\+/+}}
            cat <<END\n{play}END""")

    def run_script(self, name, **environment):
        r = subprocess.run([f"{self.root}/traces/{name}"], env={"PATH": f"{self.root}/path", **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return r.returncode, r.stdout

    def test_profile_without_nsys(self):
        status, out = self.run_script("profile.sh")
        self.assertEqual(status, 1)
        self.assertRegex(out, r"^nsys is not in PATH\. Install Nsight Systems: [^\n]*\n$")

    def test_check_gpu(self):
        self.nsys()
        self.ncu()
        status, out = self.run_script("check-gpu.sh", GPT2SCOPE_REQUIRE_NSIGHT="1")
        self.assertEqual(status, 0, out)
        self.assertEqual(out.count("\nok\n"), 2, out)
        for stage in ("h.0.attn.sdpa", "h.0.ln_1+h.0.attn.c_attn"):
            self.assertIn(f"{stage}: ncu profiled 1 kernels, 1 of them in this range", out)

    @unittest.skipIf(os.path.exists("/opt/nvidia") or os.path.exists("/usr/local/cuda/bin"), "Nsight may be installed here")
    def test_check_gpu_without_tools(self):
        status, out = self.run_script("check-gpu.sh")
        self.assertEqual(status, 0, out)
        self.assertIn("SKIPPED: nsys is neither in PATH nor", out)
        self.assertIn("SKIPPED: ncu is neither in PATH nor", out)
        self.assertEqual(self.run_script("check-gpu.sh", GPT2SCOPE_REQUIRE_NSIGHT="1")[0], 1)

    def test_check_gpu_fails(self):
        self.nsys()
        self.ncu("h.0.mlp.c_fc")
        status, out = self.run_script("check-gpu.sh")
        self.assertEqual(status, 1, out)
        self.assertIn("a kernel of h.0.mlp.c_fc", out)
        self.assertIn("FAIL: ncu does not choose h.0.attn.sdpa by its name", out)
        self.ncu()
        self.nsys(f"cp {SAMPLES}/eager.sqlite $file; {sys.executable} -c 'import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(\"DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME\"); c.commit()' $file")
        status, out = self.run_script("check-gpu.sh")
        self.assertEqual(status, 1, out)
        self.assertIn("FAIL: the capture in mode eager differs from the plan", out)
        self.nsys("echo no disk; exit 1")
        status, out = self.run_script("check-gpu.sh")
        self.assertEqual(status, 1, out)
        self.assertIn("no disk\nFAIL: ", out)
        self.program("bin/infer", "echo no GPU; exit 1")
        self.assertEqual(self.run_script("check-gpu.sh"), (1, "no GPU\nFAIL: infer does not run\n"))


if __name__ == "__main__":
    unittest.main()
