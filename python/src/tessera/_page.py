"""Makes pages like the program's. It imports nothing from the package, because ``tessera tune`` runs without the
library."""

from __future__ import annotations

import json
import os
from typing import Any, List, Mapping, Optional


def page(home: str, title: str, parts: List[Mapping[str, Any]]) -> Optional[str]:
    """Returns an HTML page that needs no network, whose script draws the parts (apps/tessera/page/page.js), or None if
    ``home``, the folder of ``bin/tessera``, has no files for pages."""
    for folder in (home, os.path.dirname(home)):  # Debian has libraries one folder further down
        path = os.path.join(folder, "share", "tessera", "page.html")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                data = json.dumps({"title": title, "parts": parts}).replace("<", "\\u003c")
                return file.read().replace("<!--DATA-->", data, 1)
    return None
