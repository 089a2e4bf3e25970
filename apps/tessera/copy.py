# Copies files of an object store or an HTTP server, for `tessera copy`, which starts it.
# Arguments: FROM, TO, and 1 if files that are there already are copied again.
import sys
sys.path = [p for p in sys.path if p]  # not the current folder, whose modules are others
import email.utils
import http.client
import os
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

WAIT_S = 60       # for an http server's next bytes
PIECE = 4 << 20   # bytes that are copied at once

class Wrong(Exception):
    pass

def one_line(e):
    return (str(e) or type(e).__name__).strip().split("\n")[0].rstrip(". ")

def shown(url):
    """A URL without the keys and options that it may have."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.split("?")[0].partition("/")
    return scheme + "://" + host.rpartition("@")[2] + slash + path

def pyarrow_fs():
    try:
        import pyarrow.fs
    except ImportError as e:
        raise Wrong("object stores are reached by pyarrow, which %s does not have (%s): pip install pyarrow, or name "
                    "a Python that has it by --python" % (sys.executable or "this Python", one_line(e)))
    return pyarrow.fs

class Store:
    """A place in an object store."""
    def __init__(self, url):
        self.url, fs = shown(url), pyarrow_fs()
        try:
            self.fs, self.root = fs.FileSystem.from_uri(url)
        except Exception as e:
            raise Wrong("%s names no store: %s" % (self.url, one_line(e).replace(url, self.url)))
        self.kinds = fs.FileType
        self.selector = fs.FileSelector
    def files(self):
        """(name below the place, size, time) of each file; the name is empty if the place is a file."""
        info = self.fs.get_file_info(self.root)
        if info.type == self.kinds.File:
            return [("", info.size, info.mtime.timestamp() if info.mtime else 0)]
        if info.type != self.kinds.Directory:
            raise Wrong("there is nothing at " + self.url)
        found = self.fs.get_file_info(self.selector(self.root, recursive=True))
        skip = len(self.root.rstrip("/")) + 1
        return [(f.path[skip:], f.size, f.mtime.timestamp() if f.mtime else 0)
                for f in found if f.type == self.kinds.File and not f.path.endswith("/")]
    def at(self, name):
        return self.root.rstrip("/") + "/" + name if name else self.root
    def read(self, name):
        return self.fs.open_input_stream(self.at(name), compression=None)
    def known(self, name):
        info = self.fs.get_file_info(self.at(name))
        return (info.size, info.mtime.timestamp() if info.mtime else 0) if info.type == self.kinds.File else None
    def write(self, name, source, size):
        path = self.at(name)
        if "/" in path and self.fs.type_name in ("hdfs", "local"):
            self.fs.create_dir(path.rsplit("/", 1)[0], recursive=True)
        with self.fs.open_output_stream(path, compression=None) as to:
            copied = pour(source, to)
        known = self.known(name)
        if copied != size or known is None or known[0] != size:
            raise OSError("%s has %s bytes there, but must have %d" % (name or self.url, known and known[0], size))

class Folder:
    """A file or a folder of this machine."""
    def __init__(self, path):
        self.root = path
    def files(self):
        if os.path.isfile(self.root):
            return [("",) + self.known("")]
        if not os.path.isdir(self.root):
            raise Wrong("there is nothing at " + self.root)
        out = []
        for folder, below, names in os.walk(self.root):
            below.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                if os.path.isfile(path):
                    name = os.path.relpath(path, self.root)
                    out.append((name,) + self.known(name))
        return out
    def at(self, name):
        return os.path.join(self.root, name) if name else self.root
    def read(self, name):
        return open(self.at(name), "rb")
    def known(self, name):
        path = self.at(name)
        if not os.path.isfile(path):
            return None
        about = os.stat(path)
        return about.st_size, about.st_mtime
    def write(self, name, source, size):
        path = self.at(name)
        parts = name.split("/")
        if os.path.isabs(name) or ".." in parts or "\0" in name:
            raise Wrong("the store has a file named \"%s\", which would leave %s" % (name, self.root))
        folder = os.path.dirname(path) or "."
        above = folder
        while not os.path.lexists(above):
            above = os.path.dirname(above) or "."
        if not os.path.isdir(above):
            raise Wrong("%s cannot be written, because %s is not a folder" % (path, above))
        if os.path.isdir(path):
            raise Wrong("%s is a folder, but FROM has a file in its place" % path)
        os.makedirs(folder, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix="." + os.path.basename(path) + ".", suffix=".part", dir=folder)
        try:
            with os.fdopen(handle, "wb") as to:
                try:
                    copied = pour(source, to)
                except http.client.IncompleteRead:  # of an answer in chunks, which names no size
                    raise OSError("%s ended before its end" % (name or path))
                to.flush()
                os.fsync(to.fileno())
            if size is not None and copied != size:
                raise OSError("%s ended after %d of %d bytes" % (name or path, copied, size))
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(part, 0o666 & ~mask)
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise

class Page:
    """One file of an http server."""
    def __init__(self, url):
        self.url = shown(url)
        parts = urllib.parse.urlsplit(url)
        if "@" in parts.netloc:
            raise Wrong("%s: a URL of http cannot have a user or a password" % self.url)
        if parts.path in ("", "/") or parts.path.endswith("/"):
            raise Wrong("%s names a folder, but http brings one file: give the file's URL" % self.url)
        try:
            self.answer = urllib.request.urlopen(url, timeout=WAIT_S)
        except urllib.error.HTTPError as e:
            raise Wrong("%s: the server says %d %s" % (self.url, e.code, e.reason))
        except (urllib.error.URLError, OSError, ValueError) as e:
            raise OSError("%s cannot be read: %s" % (self.url, one_line(getattr(e, "reason", e))))
    def files(self):
        size = self.answer.headers.get("Content-Length")
        changed = float("inf")  # a server that says no time may have a newer file
        try:
            changed = email.utils.parsedate_to_datetime(self.answer.headers.get("Last-Modified")).timestamp()
        except (TypeError, ValueError):
            pass
        return [("", None if size is None else int(size), changed)]
    def read(self, name):
        return self.answer

def pour(source, to):
    copied = 0
    while True:
        piece = source.read(PIECE)
        if not piece:
            return copied
        to.write(piece)
        copied += len(piece)

def place(text):
    if "://" not in text:
        return Folder(text)
    return Page(text) if text.split("://")[0].lower() in ("http", "https") else Store(text)

def words(count, noun):
    return "%d %s%s" % (count, noun, "" if count == 1 else "s")

def size_text(size):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return ("%d %s" if unit == "B" else "%.1f %s") % (size, unit)
        size /= 1024

def run(source, target, again):
    start = time.monotonic()
    source = place(source)
    files = source.files()
    if not files:
        raise Wrong("there is no file in " + getattr(source, "url", source.root))
    one = len(files) == 1 and files[0][0] == ""
    if one and (target.endswith("/") or ("://" not in target and os.path.isdir(target))):
        name = getattr(source, "url", None)
        name = urllib.parse.unquote(urllib.parse.urlsplit(name).path) if name else source.root
        target += ("" if target.endswith("/") else "/") + name.rstrip("/").rsplit("/", 1)[-1]
    to = place(target)
    if not one and isinstance(to, Folder) and os.path.isfile(to.root):
        raise Wrong("%s is a file, but FROM is a folder" % to.root)
    copied = total = there = 0
    for name, size, changed in files:
        known = None if again else to.known(name)
        if known is not None and known[0] == size and known[1] >= changed:
            there += 1
            continue
        with source.read(name) as stream:
            to.write(name, stream, size)
        total += to.known(name)[0]
        copied += 1
    print("copied %s, %s, in %.1f s%s" % (words(copied, "file"), size_text(total), time.monotonic() - start,
                                          "; %d %s there already" % (there, "was" if there == 1 else "were")
                                          if there else ""))

try:
    run(sys.argv[1], sys.argv[2], sys.argv[3] == "1")
    status = 0
except Wrong as e:
    sys.stderr.write("tessera copy: %s\n" % e)
    status = 2
except KeyboardInterrupt:
    status = 130
except Exception as e:
    sys.stderr.write("tessera copy: %s\n" % one_line(e))
    status = 1
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)  # threads of a store's library may still wait
