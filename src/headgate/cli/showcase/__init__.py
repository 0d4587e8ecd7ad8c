"""The made-up company of `headgate demo`: its rules, its customers, their traffic, and their past."""
