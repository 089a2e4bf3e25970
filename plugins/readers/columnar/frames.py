# The program that a Python process runs to read files with pyarrow, and its protocol.
#
# It takes one command per line from standard input, and answers each with one frame on standard output:
#
#   open ID KIND PATH        opens a file: parquet or arrow, its path in
#                            hexadecimal digits                          'O': the schema and the units
#   list ENDINGS URL         the files of an object store that the URL
#                            means, by the ends of their names           'L': their names
#   close ID                                                            no answer
#   read ID UNIT ROWS C,C    begins a unit's batches of these columns   'R'
#   next                     the next batch                             'B': its arrays; 'E': there are no more
#
# A frame is four int64, kind, size of the head, size of the body, 0, and these bytes; 'X' is an error, whose head is
# its text. Numbers in heads are int64, texts are their size and their bytes. Schemas and arrays are trees, parents
# first, as in Arrow's C data interface:
#
#   schema   format, name, number of children, 1 if a dictionary follows the children
#   array    length, null count, offset, number of buffers, number of children, 1 if there is a dictionary; the size of
#            each buffer, -1 if there is none
#
# The body has the buffers in this order, each padded to 64 bytes.
import sys
sys.path = [p for p in sys.path if p]  # not the current folder, whose modules are others
import ctypes
import os
import struct

P = ctypes.c_void_p
class CSchema(ctypes.Structure):
    _fields_ = [("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", P), ("flags", ctypes.c_int64),
                ("n_children", ctypes.c_int64), ("children", P), ("dictionary", P), ("release", P), ("private", P)]
class CArray(ctypes.Structure):
    _fields_ = [("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64),
                ("n_buffers", ctypes.c_int64), ("n_children", ctypes.c_int64), ("buffers", P), ("children", P),
                ("dictionary", P), ("release", P), ("private", P)]

out = os.fdopen(os.dup(1), "wb", buffering=1 << 16)
os.dup2(2, 1)  # what others print
out.write(b"tessera-arrow-frames-1\n")

def frame(kind, head=b"", body=(), size=0):
    out.write(struct.pack("=4q", ord(kind), len(head), size, 0))
    out.write(head)
    for part in body:
        out.write(part)
    out.flush()

def numbers(*values):
    return struct.pack("=%dq" % len(values), *values)

def text(value):
    return numbers(len(value)) + value

def pointers(address, count):
    return (P * count).from_address(address) if count else ()

def children(node, kind):
    return [kind.from_address(p) for p in pointers(node.children, node.n_children)]

def describe(schema):
    below = children(schema, CSchema)
    out = text(schema.format) + text(schema.name or b"") + numbers(len(below), 1 if schema.dictionary else 0)
    for child in below:
        out += describe(child)
    return out + (describe(CSchema.from_address(schema.dictionary)) if schema.dictionary else b"")

BITS = {b"c": 8, b"C": 8, b"s": 16, b"S": 16, b"e": 16, b"i": 32, b"I": 32, b"f": 32, b"l": 64, b"L": 64, b"g": 64,
        b"b": 1, b"tdD": 32, b"tdm": 64, b"tts": 32, b"ttm": 32, b"ttu": 64, b"ttn": 64}

def width(f):
    if f in BITS:
        return BITS[f]
    if f[:2] in (b"ts", b"tD"):
        return 64
    if f[:2] == b"w:":
        return 8 * int(f[2:])
    if f[:2] == b"d:":
        parts = f[2:].split(b",")
        return int(parts[2]) if len(parts) > 2 else 128
    return None

def sizes(f, array, addresses):
    n = array.length + array.offset
    bitmap = (n + 7) // 8
    if f in (b"n", b"+r"):
        return []
    if f in (b"+s",) or f[:3] == b"+w:":
        return [bitmap]
    if width(f) is not None:
        return [bitmap, (n * width(f) + 7) // 8]
    wide = f in (b"U", b"Z", b"+L", b"+vL")
    item = 8 if wide else 4
    if f in (b"u", b"z", b"U", b"Z"):
        if n == 0:
            return [0, 0, 0]
        end = (ctypes.c_int64 if wide else ctypes.c_int32).from_address(addresses[1] + n * item).value
        return [bitmap, (n + 1) * item, end]
    if f in (b"+l", b"+m", b"+L"):
        return [bitmap, (n + 1) * item if n else 0]
    if f in (b"+vl", b"+vL"):
        return [bitmap, n * item, n * item]
    if f in (b"vu", b"vz"):
        more = array.n_buffers - 3
        data = [ctypes.c_int64.from_address(addresses[-1] + 8 * i).value for i in range(more)]
        return [bitmap, 16 * n] + data + [8 * more]
    raise ValueError("arrays of format %s cannot be sent" % f.decode())

def collect(schema, array, head, body):
    addresses = [p or 0 for p in pointers(array.buffers, array.n_buffers)]
    want = sizes(schema.format, array, addresses)
    if len(want) != len(addresses):
        raise ValueError("an array of format %s has %d buffers" % (schema.format.decode(), len(addresses)))
    have = [s if p else -1 for s, p in zip(want, addresses)]
    below = list(zip(children(schema, CSchema), children(array, CArray)))
    head.append(numbers(array.length, array.null_count, array.offset, len(have), len(below),
                        1 if schema.dictionary else 0, *have))
    total = 0
    for size, address in zip(have, addresses):
        if size > 0:
            body.append(pyarrow.foreign_buffer(address, size))
            if size % 64:
                body.append(bytes(64 - size % 64))
            total += (size + 63) // 64 * 64
    for child in below:
        total += collect(*child, head, body)
    if schema.dictionary:
        total += collect(CSchema.from_address(schema.dictionary), CArray.from_address(array.dictionary), head, body)
    return total

class Exported:
    def __init__(self, kind, value):
        self.raw = kind()
        self.value = value
        self.raw_schema = CSchema()
        if kind is CSchema:
            value._export_to_c(ctypes.addressof(self.raw))
        else:
            value._export_to_c(ctypes.addressof(self.raw), ctypes.addressof(self.raw_schema))
    def release(self):
        for raw in (self.raw, self.raw_schema):
            if raw.release:
                ctypes.CFUNCTYPE(None, P)(raw.release)(ctypes.addressof(raw))

def compact(batch):
    if all(column.offset == 0 for column in batch.columns):
        return batch
    columns = [c if c.offset == 0 else pyarrow.concat_arrays([c]) for c in batch.columns]
    return pyarrow.RecordBatch.from_arrays(columns, schema=batch.schema)

def leaves(kind):
    below = [kind.field(i) for i in range(kind.num_fields)] if not hasattr(kind, "storage_type") else None
    if below is None:
        return leaves(kind.storage_type)
    return sum(leaves(field.type) for field in below) if below else 1

stores = []  # (URL without keys and options, file system, path there) of what was listed

def listed(url, endings):
    import pyarrow.fs
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.split("?")[0].rstrip("/").partition("/")
    shown = scheme + "://" + host.rpartition("@")[2] + slash + path
    try:
        store, root = pyarrow.fs.FileSystem.from_uri(url)
        kinds, info = pyarrow.fs.FileType, store.get_file_info(root)
    except Exception as e:
        raise ValueError("%s cannot be read: %s" % (shown, str(e).replace(url, shown)))
    stores.append((shown, store, root.rstrip("/")))
    if info.type == kinds.File:
        return [shown]
    if info.type != kinds.Directory:
        raise ValueError("there is nothing at " + shown)
    out = []
    for file in store.get_file_info(pyarrow.fs.FileSelector(root, recursive=True)):
        *folders, name = file.path[len(root.rstrip("/")) + 1:].split("/")
        hidden = any(part[:1] in "._" for part in folders + [name])
        if file.type != kinds.File or hidden or not name.lower().endswith(endings):
            continue
        if any("=" not in folder for folder in folders):
            raise ValueError("%s has the folder %s, whose files would be left out: give that folder, or move it away"
                             % (shown, "/".join(folders)))
        out.append(shown + "/" + "/".join(folders + [name]))
    if not out:
        raise ValueError("%s has no files whose names end in one of %s" % (shown, ", ".join(endings)))
    return sorted(out)

def stored(path):
    for shown, store, root in stores:
        if path == shown or path.startswith(shown + "/"):
            return store.open_input_file(root + path[len(shown):])
    return None

class Parquet:
    def __init__(self, path):
        import pyarrow.parquet
        self.file = pyarrow.parquet.ParquetFile(stored(path) or path, buffer_size=1 << 18, pre_buffer=False,
                                                page_checksum_verification=True)
        self.schema = self.file.schema_arrow
        counts = [leaves(field.type) for field in self.schema]
        metadata = self.file.metadata
        if sum(counts) != metadata.num_columns:
            raise ValueError("its %d columns are %d by the schema" % (metadata.num_columns, sum(counts)))
        self.first = [sum(counts[:i]) for i in range(len(counts) + 1)]
        self.units = []
        for g in range(metadata.num_row_groups):
            group = metadata.row_group(g)
            columns = [group.column(c) for c in range(group.num_columns)]
            self.units += [group.num_rows,
                           sum(max(8 * c.num_values, c.total_uncompressed_size) for c in columns)]
    def read(self, unit, rows, columns):
        wanted = [leaf for c in columns for leaf in range(self.first[c], self.first[c + 1])]
        return self.file.reader.iter_batches(rows, row_groups=[unit], column_indices=wanted, use_threads=False)

class Ipc:
    def __init__(self, path):
        self.path = path
        self.reader = self.open([])
        self.columns = []
        self.schema = self.reader.schema
        self.units = []
        count = self.reader.num_record_batches
        if count:
            first = self.reader.get_batch(0)
            a_row = max(1, first.nbytes // max(1, first.num_rows))
            counting = self.open([0]) if len(self.schema) else self.reader
            for i in range(count):
                rows = counting.get_batch(i).num_rows
                self.units += [rows, rows * a_row]
    def open(self, columns):
        options = pyarrow.ipc.IpcReadOptions(use_threads=False, included_fields=columns)
        return pyarrow.ipc.open_file(stored(self.path) or pyarrow.OSFile(self.path), options=options)
    def read(self, unit, rows, columns):
        if columns != self.columns:
            self.reader = self.open(columns)
            self.columns = columns
        batch = self.reader.get_batch(unit)
        batch.validate(full=True)  # nothing in the file protects offsets
        return iter([batch])

def answer(line):
    global batches
    word, _, rest = line.partition(" ")
    if word == "open":
        number, kind, path = rest.split(" ", 2)
        file = files[number] = (Parquet if kind == "parquet" else Ipc)(os.fsdecode(bytes.fromhex(path)))
        exported = Exported(CSchema, file.schema)
        head = describe(exported.raw)
        exported.release()
        frame("O", head + numbers(len(file.units) // 2, *file.units))
    elif word == "list":
        endings, url = rest.split(" ")
        names = [os.fsencode(name) for name in listed(os.fsdecode(bytes.fromhex(url)), tuple(endings.split(",")))]
        frame("L", numbers(len(names)) + b"".join(text(name) for name in names))
    elif word == "close":
        files.pop(rest, None)
    elif word == "read":
        number, unit, rows, columns = rest.split(" ")
        batches = files[number].read(int(unit), int(rows), [int(c) for c in columns.split(",")])
        frame("R")
    elif word == "next":
        batch = next(batches, None)
        if batch is None:
            return frame("E")
        exported = Exported(CArray, compact(batch))
        head, body = [], []
        total = collect(exported.raw_schema, exported.raw, head, body)
        frame("B", b"".join(head), body, total)
        del body
        exported.release()

files, batches = {}, iter(())
try:
    import pyarrow
    import pyarrow.ipc
    missing = None
except ImportError as e:
    missing = str(e)
try:
    for line in sys.stdin:
        try:
            if missing is not None:
                frame("M", missing.encode())
            else:
                answer(line.rstrip("\n"))
        except (BrokenPipeError, KeyboardInterrupt):
            raise
        except Exception as e:
            frame("X", (str(e) or type(e).__name__).encode())
except (BrokenPipeError, KeyboardInterrupt):
    pass
os._exit(0)
