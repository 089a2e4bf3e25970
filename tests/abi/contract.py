#!/usr/bin/env python3
"""Compares a compiler's view of C headers (constants, types, structs, functions) with golden files.

  contract.py [--update] [--strided STRUCT...] [--sized] --golden FOLDER --include FOLDER [--include ...] HEADER...

Nothing is listed by hand: it is read from debug information (pyelftools), so a new struct is compared as soon as it is
written. FOLDER holds a file for each minor, such as 1.0.txt. Today's headers have to say what the newest says, word for
word, and whatever the older ones say: structs may only have grown at their ends. --update writes the newest anew, which
is right for a release candidate, and for the file of a minor that is not released yet.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

try:
    from elftools.elf.elffile import ELFFile
except ImportError:
    sys.exit("contract.py needs pyelftools (python3-pyelftools)")


def name_of(die):
    return die.attributes["DW_AT_name"].value.decode() if "DW_AT_name" in die.attributes else None


def type_of(die):
    return die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None


def parameters(die):
    types = [spell(type_of(c)) for c in die.iter_children() if c.tag == "DW_TAG_formal_parameter"]
    return ", ".join(types) or "void"


def spell(die):
    """A type as C has it, with the typedefs that the header names."""
    if die is None:
        return "void"
    tag, inner = die.tag, type_of(die)
    if tag == "DW_TAG_const_type":
        if inner is not None and inner.tag == "DW_TAG_pointer_type":
            return spell(inner) + " const"
        return "const " + spell(inner)
    if tag == "DW_TAG_pointer_type":
        if inner is not None and inner.tag == "DW_TAG_subroutine_type":
            return f"{spell(type_of(inner))} (*)({parameters(inner)})"
        return spell(inner) + "*"
    if tag == "DW_TAG_array_type":
        counts = [c.attributes["DW_AT_upper_bound"].value + 1 for c in die.iter_children()]
        return spell(inner) + "".join(f"[{n}]" for n in counts)
    if tag == "DW_TAG_structure_type":
        return "struct " + (name_of(die) or "?")
    if tag == "DW_TAG_enumeration_type":
        return "enum " + (name_of(die) or "?")
    return name_of(die)


def named_struct(die):
    """The struct behind typedefs and const; None: it is none."""
    while die is not None and die.tag in ("DW_TAG_typedef", "DW_TAG_const_type"):
        die = type_of(die)
    return die if die is not None and die.tag == "DW_TAG_structure_type" else None


def members(struct):
    return [c for c in struct.iter_children() if c.tag == "DW_TAG_member"]


def struct_lines(struct, problems):
    lines = []
    for m in members(struct):
        inner = named_struct(type_of(m))
        if inner is not None and any(name_of(i) == "struct_size" for i in members(inner)):
            problems.append(f"{name_of(struct)}.{name_of(m)} may grow (it has struct_size) and stands by value: "
                            "members behind it would move; make it a pointer")
        lines.append(f"  {m.attributes['DW_AT_data_member_location'].value} {spell(type_of(m))} {name_of(m)}")
    return lines


def find(header, folders):
    return next(path for path in (pathlib.Path(folder) / header for folder in folders) if path.exists())


def compile_headers(args, folder):
    includes = [f"-I{i}" for i in args.include]
    source = folder / "headers.c"
    text = "".join(f'#include "{h}"\n' for h in args.header)
    # Debug information has the functions that are used.
    prototype = re.compile(r"^(?!typedef)[a-z]\w* .*?\b(\w+)\(", re.M)
    declared = [prototype.findall(find(header, args.include).read_text()) for header in args.header]
    names = ", ".join(f"(const void*){name}" for name in sum(declared, []))
    if names:
        text += f"const void* const functions[] = {{{names}}};\n"
    source.write_text(text)
    out = folder / "headers.o"
    base = [args.compiler, "-std=gnu11", *includes, str(source)]
    for command in ([*base, "-c", "-O0", "-gdwarf-4", "-fno-eliminate-unused-debug-types", "-o", str(out)],
                    [*base, "-E", "-dD"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"contract.py: {done.stderr}")
    return out, done.stdout


def macros(preprocessed, ours):
    """Macros with a value: constants, expressions and functions. Others only guard headers."""
    here = False
    for line in preprocessed.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            here = ours(marker[1])
        found = re.match(r"#define (\w+)(\([^)]*\))? (\S.*)$", line)
        if here and found:
            yield found[1], f"macro {found[1]}{found[2] or ''} = {' '.join(found[3].split())}"


def source_files(header):
    folders = [b""] + list(header["include_directory"])
    return [(folders[entry.dir_index] + b"/" + entry.name).decode() for entry in header["file_entry"]]


def contract(args):
    """{key: lines}, and what is wrong with the headers whatever the golden files say."""
    out, problems = {}, []
    with tempfile.TemporaryDirectory() as folder:
        built, preprocessed = compile_headers(args, pathlib.Path(folder))
        ours = lambda path: any(path.endswith(h) for h in args.header)  # noqa: E731
        for key, line in macros(preprocessed, ours):
            out[key] = [line]
        with built.open("rb") as file:
            dwarf = ELFFile(file).get_dwarf_info()
            for unit in dwarf.iter_CUs():
                files = source_files(dwarf.line_program_for_CU(unit).header)
                for die in unit.get_top_DIE().iter_children():
                    if "DW_AT_decl_file" not in die.attributes:
                        continue
                    here = ours(files[die.attributes["DW_AT_decl_file"].value - 1])
                    name = name_of(die)
                    # DLPack's declarations are compared if the contract passes them on.
                    if die.tag == "DW_TAG_structure_type" and (here or name in ("DLDevice", "DLDataType", "DLTensor")):
                        size = die.attributes.get("DW_AT_byte_size")
                        head = f"struct {name}, " + (f"{size.value} bytes" if size else "opaque")
                        lines = struct_lines(die, problems)
                        out["struct " + (name or "")] = [head, *lines]
                        if args.sized and here and lines and not lines[0].endswith(" struct_size") and (
                                not name.startswith("DL")):
                            problems.append(f"{name}: does not begin with struct_size, so it can never grow")
                    elif not here:
                        continue
                    elif die.tag == "DW_TAG_enumeration_type":
                        for c in die.iter_children():
                            key = name_of(c)
                            out[key] = [f"constant {key} = {c.attributes['DW_AT_const_value'].value}"]
                    elif die.tag == "DW_TAG_typedef" and named_struct(die) is None:
                        out["type " + name] = [f"type {name} = {spell(type_of(die))}"]
                    elif die.tag == "DW_TAG_subprogram":
                        out["function " + name] = [f"function {spell(type_of(die))} {name}({parameters(die)})"]
    if not any(key.startswith("struct ") for key in out):
        sys.exit("contract.py: the headers hold no struct: is the debug information there?")
    return out, problems


def read_golden(path):
    out, block = {}, []
    for line in path.read_text().splitlines():
        if line.startswith("  "):
            block.append(line)
        elif line:
            block = [line]
            kind, name = line.split()[:2]
            if kind == "macro":
                name = name.split("(")[0]
            if kind == "function":
                name = re.search(r" \*?(\w+)\((?!\*)", line)[1]
            key = name.rstrip(",") if kind in ("macro", "constant") else f"{kind} {name.rstrip(',')}"
            out[key] = block
    return out


def compare(golden, today, exact, strided=()):
    """Sentences on what differs. Not `exact`: today's structs may be longer, and there may be more of everything."""
    for key, old in golden.items():
        new = today.get(key)
        if key == "TSR_ABI_MINOR" and not exact:  # is what tells the files apart
            continue
        if new is None:
            yield f"{old[0]}: is gone"
        elif key.startswith("struct ") and not exact:
            for i, line in enumerate(old[1:], 1):
                if i >= len(new) or new[i] != line:
                    yield f"{key}: \"{line.strip()}\" became \"{new[i].strip() if i < len(new) else 'nothing'}\""
            # Only struct_size, or the stride of an array, tells the other side a struct's length.
            if len(new) > len(old) and " struct_size" not in old[1] and key.split()[1] not in strided:
                yield f"{key}: has no struct_size, so it never grows"
        elif new != old:
            changed = [f"\"{a.strip()}\" became \"{b.strip()}\"" for a, b in zip(old, new) if a != b]
            changed += [f"\"{line.strip()}\" is new" for line in new[len(old):]]
            changed += [f"\"{line.strip()}\" is gone" for line in old[len(new):]]
            yield f"{key}: " + "; ".join(changed)
    if exact:
        for key in today.keys() - golden.keys():
            yield f"{today[key][0]}: is new"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--compiler", default=shutil.which("cc"))
    parser.add_argument("--golden", type=pathlib.Path, required=True)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--strided", action="append", default=[], help="a struct that stands in arrays with a stride")
    parser.add_argument("--sized", action="store_true", help="every struct of these headers has to have its size")
    parser.add_argument("header", nargs="+")
    args = parser.parse_args()
    minor = lambda path: [int(n) for n in path.stem.split(".")]  # noqa: E731
    files = sorted(args.golden.glob("*.txt"), key=minor)
    if not files:
        sys.exit(f"contract.py: there is no golden file in {args.golden}")
    today, problems = contract(args)
    if args.update:
        files[-1].write_text("".join("\n".join(today[key]) + "\n" for key in today))
    for path in files:
        for sentence in compare(read_golden(path), today, path == files[-1], args.strided):
            problems.append(f"{path.name}: {sentence}")
    for problem in problems:
        print(problem)
    if problems:
        print("A change of a release candidate is written down by --update, with a line in the changelog. "
              "After a release nothing may differ but by growth, in a new minor's file.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
