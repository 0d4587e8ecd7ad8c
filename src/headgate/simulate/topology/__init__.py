"""A simulation of deployments: many processes, regions and counters, with the real stores on virtual time."""
