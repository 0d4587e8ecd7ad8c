"""What happens now, in one answer: rates, decision times, busy rules, violators, health, processes."""
