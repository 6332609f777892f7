"""Stage `corpus`: the iterated classifier over the pool (paper section 2.1, figure 2).

One iteration is three programs: `train` (fastText on seed against background), `score` (each shard),
`select` (rank, cut, find mathematical domains, grow the seed). An iteration after convergence passes the
previous one's results through.
"""
