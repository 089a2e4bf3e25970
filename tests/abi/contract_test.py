"""contract.py sees what it is there for: everything that would break a plugin that was built before."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

HEADER = """#include <stdint.h>
#define ACME_KIND "acme/1"
#define ACME_FLAG (1u << 3)
#define ACME_HAS(p) ((p)->struct_size > 8)
enum { ACME_RED = 1, ACME_BLUE = 2 };
typedef int32_t acme_code;
typedef struct acme_inner { uint32_t struct_size; int32_t depth; } acme_inner;
typedef struct acme_table {
  uint32_t struct_size;
  int32_t reserved;
  acme_code (*open)(void* self, const acme_inner* inner);
  const char* name;
} acme_table;
int32_t acme_start(const acme_table* table, double seconds);
"""


class Contract(unittest.TestCase):
    def run_on(self, header, golden, *options):
        """Exit status and text. `golden`: {minor: header that its golden file was made from}."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            files = {}
            for minor, old in golden.items():
                (folder / "acme.h").write_text(old)
                files[minor] = self.written(folder)
            for minor, text in files.items():
                (folder / "golden" / f"{minor}.txt").write_text(text)
            (folder / "acme.h").write_text(header)
            done = self.call(folder, *options)
            return done.returncode, done.stdout + done.stderr

    def written(self, folder):
        (folder / "golden").mkdir(exist_ok=True)
        file = folder / "golden" / "1.0.txt"
        file.write_text("")
        self.call(folder, "--update")
        text = file.read_text()
        file.unlink()
        return text

    def call(self, folder, *options):
        script = pathlib.Path(__file__).with_name("contract.py")
        return subprocess.run([sys.executable, script, *options, "--golden", folder / "golden", "--include", folder,
                               "acme.h"], capture_output=True, text=True, timeout=60)

    def changed(self, old, new):
        self.assertIn(old, HEADER)
        return self.run_on(HEADER.replace(old, new), {"1.0": HEADER})

    def test_the_same_header_passes(self):
        self.assertEqual(self.run_on(HEADER, {"1.0": HEADER}), (0, ""))

    def test_each_change_is_named(self):
        for old, new, sentence in [
                ('"acme/1"', '"acme/2"', 'became "macro ACME_KIND = "acme/2""'),
                ("(1u << 3)", "(1u << 4)", 'became "macro ACME_FLAG = (1u << 4)"'),
                ("struct_size > 8)", "struct_size >= 8)", "macro ACME_HAS(p) = ((p)->struct_size >= 8)"),
                ("ACME_BLUE = 2", "ACME_BLUE = 3", '"constant ACME_BLUE = 2" became "constant ACME_BLUE = 3"'),
                ("int32_t acme_code", "int64_t acme_code", '= int32_t" became "type acme_code = int64_t"'),
                ("int32_t reserved", "uint32_t reserved", '"4 int32_t reserved" became "4 uint32_t reserved"'),
                ("const acme_inner* inner)", "acme_inner* inner)", "acme_code (*)(void*, const acme_inner*) open"),
                ("const char* name;", "", '"16 const char* name" is gone'),
                ("double seconds", "float seconds", "acme_start(const acme_table*, float)"),
                ("ACME_RED = 1, ", "", "constant ACME_RED = 1: is gone"),
                ("const char* name;", "const char* name; void* more;", '"24 void* more" is new')]:
            with self.subTest(new=new):
                status, text = self.changed(old, new)
                self.assertEqual(status, 1)
                self.assertIn(sentence, text)

    def test_an_older_minor_is_a_prefix(self):
        grown = HEADER.replace("const char* name;", "const char* name; void* more;")
        self.assertEqual(self.run_on(grown, {"1.0": HEADER, "1.1": grown}), (0, ""))
        moved = HEADER.replace("const char* name;", "void* more; const char* name;")
        status, text = self.run_on(moved, {"1.0": HEADER, "1.1": moved})
        self.assertEqual(status, 1)
        self.assertIn('1.0.txt: struct acme_table: "16 const char* name" became "16 void* more"', text)

    def test_a_struct_without_its_size_grows_in_arrays_with_a_stride_only(self):
        old = HEADER + "typedef struct acme_point { double x; } acme_point;"
        new = old.replace("double x;", "double x; double y;")
        status, text = self.run_on(new, {"1.0": old, "1.1": new})
        self.assertEqual(status, 1)
        self.assertIn("struct acme_point: has no struct_size, so it never grows", text)
        self.assertEqual(self.run_on(new, {"1.0": old, "1.1": new}, "--strided", "acme_point"), (0, ""))

    def test_headers_of_sized_structs_have_no_others(self):
        old = HEADER + "typedef struct acme_point { double x; } acme_point; typedef struct acme_handle acme_handle;"
        self.assertEqual(self.run_on(old, {"1.0": old}), (0, ""))
        status, text = self.run_on(old, {"1.0": old}, "--sized")
        self.assertEqual(status, 1)
        self.assertEqual(text.splitlines()[0], "acme_point: does not begin with struct_size, so it can never grow")

    def test_a_struct_that_may_grow_never_stands_by_value(self):
        by_value = HEADER.replace("const char* name;", "acme_inner inner;")
        status, text = self.run_on(by_value, {"1.0": by_value})
        self.assertEqual(status, 1)
        self.assertIn("acme_table.inner may grow", text)


if __name__ == "__main__":
    unittest.main()
