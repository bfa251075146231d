"""The pages of the documentation as a newcomer uses them: from the top, typing what they show.

A page is run as a whole, in one empty directory. What a fenced block is follows from its language:

- `python` is a program. `sh` is commands. `console` is commands behind a `$`, and what they print; one
  without any `$` is commands only. All of them run, and what a `console` block shows is what is printed.
- `json`, `toml` and `yaml` have to be that. `text` is to look at.

A comment before a block says more:

- `<!-- not run: why -->` leaves it out. Whatever neither runs nor is data needs one.
- `<!-- file: NAME -->` makes it a file for the blocks that follow.
- `<!-- output -->` makes a `text` block what the program before it prints.
- `<!-- setup`, with commands on the lines up to `-->`, runs without being shown.

In what is printed, `…` stands for anything, and space for any space.
"""

from support.pages.blocks import PAGES, ROOT, Block, blocks_of, needs_spark, page_name, prose_of
from support.pages.running import Outcome, run_page
from support.pages.warm import WarmServers

__all__ = [
    "PAGES",
    "ROOT",
    "Block",
    "Outcome",
    "WarmServers",
    "blocks_of",
    "needs_spark",
    "page_name",
    "prose_of",
    "run_page",
]
