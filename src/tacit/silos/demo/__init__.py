"""The demonstration of a federation: four hospitals on this machine, with generated patients."""
