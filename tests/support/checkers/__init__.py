"""The judges of fault tests: C1 history, C2 disk, C3 leaks. Each returns violations; none means all is well."""
