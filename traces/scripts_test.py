#!/usr/bin/env python3
"""Tests of samples/slim.py, which made the captures in samples, and of the scripts around: what they say where tools
are missing, and what they do with tools that play back the samples."""
import contextlib
import io
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES = os.path.join(HERE, "samples")
sys.path.insert(0, SAMPLES)
import slim


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
        for name in ("profile.sh", "check-gpu.sh"):
            shutil.copy(f"{HERE}/{name}", f"{self.root}/traces")
        for name in ("awk", "bash", "cat", "cp", "dirname", "env", "grep", "mkdir", "rm", "sed", "tail", "touch"):
            os.symlink(shutil.which(name), f"{self.root}/path/{name}")
        open(f"{self.root}/lib/libgpt2scope_nvtx.so", "w").close()
        self.program("bin/infer", f'''case "$*" in
            info*) cat {SAMPLES}/plan.json ;;
            "trace check "*.sqlite" --plan build/nsight/plan.json --tokens 8") test -s "$3" && echo "checked $3" ;;
            esac''')

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
        for mode in ("eager", "graph"):
            self.assertIn(f"checked build/nsight/{mode}.sqlite", out)
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
        self.nsys("touch $file")  # not a capture
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
