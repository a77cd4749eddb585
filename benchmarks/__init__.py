"""Side-by-side measurements. Only ratios within one run mean anything: every pair is measured interleaved."""
