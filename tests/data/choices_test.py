"""DLRM-HSTU on events whose law is known ranks nearly as well as the law itself.

usage: choices_test.py PROGRAM SOURCE
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest


class Choices(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def made(self, *options):
        data = self.folder / "choices.csv"
        done = subprocess.run([SOURCE / "scripts" / "make_choices", data, *options], capture_output=True, text=True)
        return done, data

    def report(self, data, *options):
        report = self.folder / "report.json"
        job = ["--config", SOURCE / "configs" / "choices_hstu.toml", "--set", f"data.path={data}"]
        done = subprocess.run([PROGRAM, "train", *job, "--set", f"report.json={report}", *options],
                              capture_output=True, text=True, timeout=500)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(report.read_text())

    def test_its_auc_is_that_of_the_law(self):
        done, data = self.made()
        self.assertEqual(done.returncode, 0, done.stderr)
        test = self.report(data)["test"]
        self.assertEqual(test["samples"], 16000)
        self.assertGreater(test["optimum.auc"], 0.63)
        self.assertGreater(test["click.auc"], test["optimum.auc"] - 0.002)
        early = self.report(data, "--max-steps", "20")["test"]
        self.assertEqual(early["optimum.auc"], test["optimum.auc"])
        self.assertLess(early["click.auc"], test["optimum.auc"] - 0.02)

    def test_nonsense_is_refused(self):
        for options, words in ((["--users", "0"], "is not a number from 1 on"), (["--alpha", "-1"], "must be above 0")):
            done, data = self.made(*options)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)
            self.assertFalse(data.exists())


if __name__ == "__main__":
    PROGRAM, SOURCE = pathlib.Path(sys.argv.pop(1)), pathlib.Path(sys.argv.pop(1))
    unittest.main()
