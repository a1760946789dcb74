# SPDX-License-Identifier: MIT OR Apache-2.0
"""`python -m shingle`: what the front door hands over to."""

from shingle.cli.main import main

if __name__ == "__main__":
    main()
