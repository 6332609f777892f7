"""Stage `decontaminate`: benchmark texts leave the corpus (paper 2.1); one table tells of every page."""
