"""What all benchmarks use: a platform of their own, CPU by part, kept figures."""
