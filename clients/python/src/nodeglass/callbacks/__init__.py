"""Callbacks that log the readings of GPUs during a training: `.lightning` and `.keras`.

They never break or slow it: a thread asks the relay, with time limits, and the training takes what is there. If the relay
is away, they warn once and try again every `sampler.RETRY_S`.
"""
