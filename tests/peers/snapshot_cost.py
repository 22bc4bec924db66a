"""Prints the CPU that each of some steady snapshots costs, in microseconds: snapshot_cost.py nvitop|gpustat COUNT."""

import json
import sys
import time

# As long as between two looks of ours: the processor's caches are as cold for both.
PAUSE_S = 0.11


def snapshot_of(peer):
    """The peer's own call that takes everything it knows at once."""
    if peer == "nvitop":
        import nvitop

        devices = nvitop.Device.all()
        return lambda: nvitop.take_snapshots(devices)
    import gpustat

    return gpustat.new_query


def main():
    """Two snapshots that do not count, then those that do."""
    peer, count = sys.argv[1], int(sys.argv[2])
    snapshot = snapshot_of(peer)
    costs = []
    for number in range(count + 2):
        began = time.process_time_ns()
        snapshot()
        cost = (time.process_time_ns() - began) / 1000
        if number >= 2:
            costs.append(cost)
        time.sleep(PAUSE_S)
    print(json.dumps(costs))


main()
