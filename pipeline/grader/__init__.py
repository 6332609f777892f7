"""What an answer is, and whether two are the same: `extraction`, then comparison (`answers` is for use)."""
