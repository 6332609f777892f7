"""A page on this machine alone where a person reads pages of mathematical domains and gives verdicts on URL
prefixes (paper section 2.1, step 4).
"""
