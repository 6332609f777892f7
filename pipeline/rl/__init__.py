"""Reinforcement learning: GRPO and what the paper compares it to (sections 4 and 5.2).

Algorithm 1, in the order in which to read it: `__main__` is the loop over steps; `explorer` samples a step's
groups of outputs, which `rollout` defines and keeps on disk; `rewards` says what an output earns; a module of
`methods` (`grpo`) makes advantages of rewards and names the loss; `packed_outputs` puts outputs into rows;
`train` updates the policy of `learner` on them; `objectives` has all formulas. `watch` makes the metrics.
"""
