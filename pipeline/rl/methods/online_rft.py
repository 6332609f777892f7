"""Online RFT (A.1.4): RFT on outputs of the policy as it is."""

from dataclasses import replace

from pipeline.rl.methods import rft

METHOD = replace(rft.METHOD, source="policy")
