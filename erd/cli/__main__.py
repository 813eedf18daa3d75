"""`python -m erd.cli` is `erd`."""

import sys

from erd.cli import main

sys.exit(main())
