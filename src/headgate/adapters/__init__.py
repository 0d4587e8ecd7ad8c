"""The world outside: stores, files, clocks. Foreign errors are translated here, once."""
