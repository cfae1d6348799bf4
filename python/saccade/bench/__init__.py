"""Races Saccade against every SDPA backend of PyTorch, in one process: `python -m saccade.bench`.

Each candidate is first compared with a float64 computation on fresh random data. Then all are timed interleaved, in
random order; medians with bootstrap 95% intervals, ratios with a verdict. The JSON is that of `saccade bench`, so
`saccade report` reads it.
"""
