"""reference_test.py ROOT OUT: scripts/dev/make_reference leaves nothing out that the contract's golden files have."""

import re
import subprocess
import sys
from pathlib import Path

root, out = Path(sys.argv[1]), Path(sys.argv[2])
subprocess.run([sys.executable, root / "scripts/dev/make_reference", out], check=True)
page = out.read_text()
anchors = re.findall(r'id="([^"]+)"', page)
rows = {r[0]: r for r in re.findall(r'<tr id="([^"]+)"><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td>', page, re.S)}

faults, seen, struct = [], 0, ""
for line in sorted((root / "tests/abi/golden").glob("*.txt"))[-1].read_text().splitlines():
    if not line:
        continue
    if line.startswith("  "):
        member = re.match(r"  \d+ .*?\(\*(\w+)\)|  \d+ .*?(\w+)$", line)
        name = f"{struct}.{member[1] or member[2]}"
        if name in rows and rows[name][1] != line.split()[0]:
            faults.append(f"{name} is at {line.split()[0]}, not at {rows[name][1]}")
    else:
        name = re.split("[,(]", line.split()[1])[0]
        struct = name if line.startswith("struct") else struct
    seen += 1
    if name not in anchors:
        faults.append(f"{name} is missing")
faults += [f"{a} stands there twice" for a in sorted(set(anchors)) if anchors.count(a) > 1]
faults += [f"a link leads to {a}, which is nowhere" for a in set(re.findall(r'href="#([^"]+)"', page)) - set(anchors)]
print("\n".join(faults) or f"{seen} names are explained")
sys.exit(1 if faults or seen < 400 else 0)
