"""The paper's tables and figures made again: plans, cells that are run once, and a page of what they say."""
