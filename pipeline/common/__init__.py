"""What several stages share: publishing, progress, launching, shards, checkpoints, training, generation."""
