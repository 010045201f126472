"""docs/formats.md says what the tables of the code say."""

import subprocess
import sys
from pathlib import Path


def test_the_page_is_up_to_date():
    tool = Path(__file__).parents[3] / "tools" / "formats_page.py"
    done = subprocess.run(
        [sys.executable, str(tool), "--check"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
