"""Stage `crawl` (paper section 2.1): from WARC files to a pool of deduplicated pages with lineage."""
