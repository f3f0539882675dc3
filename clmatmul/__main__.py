"""`python -m clmatmul`."""

import sys

from clmatmul.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
