"""The pure part: no await, no clock, no input or output, nothing from third parties."""
