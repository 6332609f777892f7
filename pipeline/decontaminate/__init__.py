"""Stage `decontaminate`: benchmark texts leave the corpus (paper section 2.1), and one table tells of every page."""
