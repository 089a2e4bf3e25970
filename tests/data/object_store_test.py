"""tessera copy: from an http server of this test, and from and to a store, which is a stand-in for pyarrow.fs over a
folder, or pyarrow's own over moto's server with --moto. With it, jobs also read Parquet files of the store.

usage: object_store_test.py PROGRAM [--moto]   (with --moto this Python must have pyarrow and moto[server])
"""

import http.server
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

STAND_IN = '''
import collections, os, pathlib
class FileType:
    File, Directory, NotFound = range(3)
Info = collections.namedtuple("Info", "path type size mtime")
FileSelector = collections.namedtuple("FileSelector", "root recursive")
class Time(float):
    def timestamp(self):
        return float(self)
class FileSystem:
    type_name = "s3"
    @staticmethod
    def from_uri(url):
        if not url.startswith("s3://"):
            raise ValueError("Unrecognized filesystem type in URI: " + url)
        return FileSystem(), url[len("s3://"):].split("?")[0].rpartition("@")[2].rstrip("/")
    def local(self, path):
        return pathlib.Path(os.environ["STAND_IN"]) / path.replace("..", "%2E%2E")
    def info(self, path):
        at = self.local(path)
        kind = FileType.File if at.is_file() else FileType.Directory if at.is_dir() else FileType.NotFound
        about = at.stat() if kind == FileType.File else None
        return Info(path, kind, about and about.st_size, about and Time(about.st_mtime))
    def get_file_info(self, what):
        if isinstance(what, str):
            return self.info(what)
        below = sorted(p.relative_to(self.local("")) for p in self.local(what.root).rglob("*"))
        return [self.info(str(p).replace("%2E%2E", "..")) for p in below]
    def open_input_stream(self, path, compression):
        return open(self.local(path), "rb")
    def open_output_stream(self, path, compression):
        self.local(path).parent.mkdir(parents=True, exist_ok=True)
        return open(self.local(path), "wb")
'''


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/none.csv":
            return self.send_error(404)
        if self.path == "/chunks.csv":  # ends within a chunk of 5 bytes
            self.protocol_version = "HTTP/1.1"
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.close_connection = True
            return self.wfile.write(b"5\r\na,b")
        self.send_response(200)
        self.send_header("Content-Length", "5" if self.path == "/short.csv" else "3")
        if self.path == "/old.csv":
            self.send_header("Last-Modified", "Sun, 09 Sep 2001 01:46:40 GMT")
        self.end_headers()
        self.wfile.write(b"a,b")

    def log_message(self, *_):
        pass


class Copy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.pages = "http://127.0.0.1:%d/" % cls.server.server_address[1]

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.environment = dict(os.environ)
        if not MOTO:
            package = self.folder / "python" / "pyarrow"
            package.mkdir(parents=True)
            (package / "__init__.py").write_text("")
            (package / "fs.py").write_text(STAND_IN)
            (self.folder / "store" / "bucket").mkdir(parents=True)
            self.environment.update(PYTHONPATH=str(package.parent), STAND_IN=str(self.folder / "store"))
        for name, text in (("a.csv", "1,2\n"), ("below/b.csv", "3,4\n"), ("empty.csv", "")):
            path = self.folder / "data" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            os.utime(path, (1e9, 1e9))  # before the copies, in stores that keep whole seconds too

    def copy(self, *words, status=0):
        done = subprocess.run([PROGRAM, "copy", "--python", sys.executable, *map(str, words)], cwd=self.folder,
                              env=self.environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stderr if status else done.stdout

    def url(self, path):
        return "s3://bucket/" + path + MOTO

    def test_a_page_is_a_file(self):
        self.assertRegex(self.copy(self.pages + "x.csv", "got.csv"), r"^copied 1 file, 3 B, in \d+\.\d s\n$")
        self.assertEqual((self.folder / "got.csv").read_text(), "a,b")
        self.copy(self.pages + "x.csv?version=1", "data")
        self.assertEqual((self.folder / "data" / "x.csv").read_text(), "a,b")

    def test_a_page_that_is_there_already_is_left_alone(self):
        self.copy(self.pages + "old.csv", "got.csv")
        self.assertIn("1 was there already", self.copy(self.pages + "old.csv", "got.csv"))
        os.utime(self.folder / "got.csv", (1, 1))
        self.assertIn("copied 1 file", self.copy(self.pages + "old.csv", "got.csv"))
        self.copy(self.pages + "x.csv", "got.csv")
        self.assertIn("copied 1 file", self.copy(self.pages + "x.csv", "got.csv"), "the server does not say its time")

    def test_places_that_are_no_files_are_said(self):
        self.assertIn("names a folder, but http brings one file", self.copy(self.pages + "below/", "got", status=2))
        said = self.copy(self.pages + "x.csv", "data/a.csv/below/x.csv", status=2)
        self.assertIn("cannot be written, because data/a.csv is not a folder", said)
        self.assertIn("is not a folder", self.copy(self.pages + "x.csv", "data/a.csv/", status=2))

    def test_a_page_that_ends_early_leaves_no_file(self):
        self.copy(self.pages + "short.csv", "got.csv", status=1)
        said = self.copy(self.pages + "chunks.csv", "got.csv", status=1)
        self.assertIn("got.csv ended before its end", said)
        self.assertEqual(sorted(p.name for p in self.folder.glob("*got*")), [])

    def test_a_page_that_is_missing_is_said(self):
        said = self.copy(self.pages.replace("//", "//me:secret@") + "none.csv", "got.csv", status=2)
        self.assertNotIn("secret", said)
        self.assertIn("a URL of http cannot have a user or a password", said)
        self.assertIn("the server says 404", self.copy(self.pages + "none.csv", "got.csv", status=2))

    def test_a_folder_goes_and_comes_back(self):
        self.assertIn("copied 3 files, 8 B", self.copy("data", self.url("train")))
        self.assertIn("copied 0 files, 0 B", self.copy("data", self.url("train")))
        self.assertIn("3 were there already", self.copy("data", self.url("train/")))
        self.assertIn("copied 3 files", self.copy("data", self.url("train"), "--again"))
        self.assertIn("copied 3 files", self.copy(self.url("train"), "back"))
        for path in (self.folder / "data").rglob("*.csv"):
            self.assertEqual((self.folder / "back" / path.relative_to(self.folder / "data")).read_bytes(),
                             path.read_bytes())
        self.assertIn("3 were there already", self.copy(self.url("train"), "back"))
        self.assertEqual([p for p in self.folder.rglob("*.part")], [])

    def test_a_file_that_has_changed_is_copied(self):
        self.copy("data/a.csv", self.url("one/a.csv"))
        self.copy(self.url("one/a.csv"), "got/")
        time.sleep(1.1)  # stores keep whole seconds
        (self.folder / "data" / "a.csv").write_text("5,6\n")
        self.copy("data/a.csv", self.url("one/a.csv"))
        time.sleep(1.1)
        os.utime(self.folder / "got" / "a.csv", (0, 0))
        self.assertIn("copied 1 file", self.copy(self.url("one/a.csv"), "got"))
        self.assertEqual((self.folder / "got" / "a.csv").read_text(), "5,6\n")

    def test_wrong_uses_are_one_sentence(self):
        for words, said in (
            (("a", "b"), "neither FROM nor TO is a URL"),
            (("s3://a/b", "s3://c/d"), "both URLs"),
            (("data", self.pages), "http takes no files"),
            (("s3://a/b",), "FROM and TO are needed"),
            ((self.url("none"), "x"), "there is nothing at s3://bucket/none\n"),
            (("none", self.url("x")), "there is nothing at none"),
            (("s9://me:secret@bucket/a", "x"), "s9:// is no store that copy knows"),
            (("data", "ftp://host/a"), "ftp:// is no store that copy knows"),
            (("data/a.csv", "s3://"), "s3:// names no place in a store"),
            (("data/a.csv", "hdfs://"), "hdfs:// names no place in a store"),
            (("s3:///a", "x"), "s3:///a names no place in a store"),
        ):
            error = self.copy(*words, status=2)
            self.assertIn(said, error)
            self.assertNotIn("secret", error)
            self.assertEqual(error.count("\n"), 1, error)

    def test_other_commands_name_no_local_folder_like_a_url(self):
        job = self.folder / "job.toml"
        job.write_text('model = {embedding_dim = 2, bottom_mlp = [2], top_mlp = [2, 1]}\ndata = {samples = 9}\n')
        publish = ("--set", "publish.directory=s3://b/k", "--set", "publish.every_steps=1")
        for words, said in (
            (("train", "--config", job, "--save", "s3://b/k"), "--save takes a path on this machine, not s3://b/k"),
            (("quantize", "--load", "s3://b/k", "--save", "m"), "--load takes a path on this machine, not s3://b/k"),
            (("predict", "--model", "gs://b/k", "--data", "x"), "--model takes a path on this machine, not gs://b/k"),
            (("train", "--config", job, *publish), "publish.directory: s3://b/k is a URL, but a job writes"),
            (("train", "--config", job, "--set", "report.tensorboard=s3://b"), "report.tensorboard: s3://b is a URL"),
        ):
            done = subprocess.run([PROGRAM, *map(str, words)], cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn(said, done.stderr)
            self.assertFalse((self.folder / "s3:").exists())

    @unittest.skipUnless("--moto" in sys.argv, "needs pyarrow and moto")
    def test_a_job_reads_parquet_files_where_they_are(self):
        import pyarrow
        import pyarrow.parquet

        for day in (1, 2):
            path = self.folder / "rows" / ("day=%d" % day) / "a.parquet"
            path.parent.mkdir(parents=True)
            film = [(7 * i + day) % 30 for i in range(1000)]
            rows = {"film": film, "price": [0.1 * (i % 9) for i in range(1000)], "click": [f % 2 for f in film]}
            pyarrow.parquet.write_table(pyarrow.table(rows), path, row_group_size=300)
        self.copy("rows", self.url("rows"))
        reader = "parquet?python=" + sys.executable

        def run(*words, status=0):
            done = subprocess.run([PROGRAM, *words], cwd=self.folder, env=self.environment, capture_output=True,
                                  text=True, timeout=120)
            self.assertEqual(done.returncode, status, done.stderr)
            return done.stderr if status else done.stdout

        jobs = [run("data", "describe", path, "--reader", reader) for path in ("rows", self.url("rows"))]
        self.assertEqual(jobs[0].replace('"rows"', '"%s"' % self.url("rows")), jobs[1])
        self.assertIn('"day"', jobs[1])
        last = []
        for name, job in zip(("here", "there"), jobs):
            (self.folder / (name + ".toml")).write_text(job)
            last.append(run("train", "--config", name + ".toml", "--max-steps", "60").splitlines()[-1])
        self.assertEqual(*last)
        one = self.url("rows/day=1/a.parquet")
        self.assertIn('"film"', run("data", "describe", one, "--reader", reader))
        for path, said in (("rows/none.parquet", "there is nothing at s3://bucket/rows/none.parquet"),
                           ("data", "there is nothing at s3://bucket/data")):
            self.assertIn(said, run("data", "describe", self.url(path), "--reader", reader, status=2))
        self.copy("data", self.url("mixed/data"))
        self.assertIn("has no files whose names end in one of .parquet",
                      run("data", "describe", self.url("mixed"), "--reader", reader, status=2))
        self.copy("rows", self.url("mixed/rows"))
        self.assertIn("would be left out", run("data", "describe", self.url("mixed"), "--reader", reader, status=2))
        self.assertIn("tessera copy", run("data", "describe", self.url("data/a.csv"), status=2))

    @unittest.skipIf("--moto" in sys.argv, "pyarrow is there")
    def test_pyarrow_is_asked_for(self):
        self.environment["PYTHONPATH"] = ""
        self.assertIn("pip install pyarrow", self.copy(self.url("a"), "x", status=2))

    @unittest.skipIf("--moto" in sys.argv, "such names are the stand-in's")
    def test_a_name_that_leaves_the_folder_is_refused(self):
        evil = self.folder / "store" / "bucket" / "evil" / "%2E%2E"
        evil.mkdir(parents=True)
        (evil / "x").write_text("x")
        self.assertIn("would leave", self.copy("s3://bucket/evil", "got", status=2))
        self.assertFalse((self.folder / "x").exists())


def start_moto():
    """Starts moto's server with a bucket. Returns its process and the options of URLs to it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    make = urllib.request.Request("http://%s:%d/bucket" % (host, port), method="PUT")
    urllib.request.urlopen(make, timeout=30).close()
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test")
    return server, "?endpoint_override=%s:%d&scheme=http&region=us-east-1" % (host, port)


if __name__ == "__main__":
    PROGRAM, MOTO, server = sys.argv[1], "", None
    if "--moto" in sys.argv:
        server, MOTO = start_moto()
    ended = unittest.main(argv=sys.argv[:1], exit=False)
    if server:
        server.stop()
    sys.exit(not ended.result.wasSuccessful())
