# One process with a file of weights in memory, for docs/guides/interpreters.md.
# weights.py FILE read | mmap: in memory of its own, or mapped. Start four of them.
import mmap, os, sys, time
with open(sys.argv[1], "rb") as file:
    if sys.argv[2] == "read":
        weights = file.read()
    else:
        weights = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        sum(weights[::4096])
print(os.getpid(), flush=True)
time.sleep(600)
