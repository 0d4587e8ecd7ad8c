"""What operators do: rules, tiers, users, keys, blocks, and how changes reach every process."""
