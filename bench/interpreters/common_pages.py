# One process for docs/analyze.md: 64 MiB that are equal in each, 32 MiB of its own, 16 MiB of zeros.
# Start two of them.
import os, random, time
def filled(seed, mib):
    made = random.Random(seed)
    return b"".join(made.randbytes(1 << 20) for _ in range(mib))
common, own = filled(1, 64), filled(os.getpid(), 32)
zeros = bytearray(b"\1") * (16 << 20)
for at in range(0, len(zeros), 1 << 20):
    zeros[at:at + (1 << 20)] = bytes(1 << 20)
time.sleep(3000)
