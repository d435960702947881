#!/usr/bin/env python3
"""Tests of slim.py, which made the captures beside it."""
import contextlib
import io
import os
import shutil
import sqlite3
import tempfile
import unittest

import slim

SAMPLES = os.path.dirname(os.path.abspath(__file__))


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


if __name__ == "__main__":
    unittest.main()
