"""Stage `crawl` (paper section 2.1): WARC files or texts become a pool of deduplicated pages with lineage."""
