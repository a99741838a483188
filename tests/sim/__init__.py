"""The simulator: clusters of the real cores in virtual time, with every fault drawn from one seed."""
